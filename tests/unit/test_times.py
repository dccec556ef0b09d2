"""Times: microseconds, aware datetimes, spans, and the administrator's YYMMDDhhmmss."""

import math
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmcore import times
from qmcore.errors import InvalidArgumentError

zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.builds(
    lambda seconds, micros, zone: datetime.fromtimestamp(seconds, zone) + timedelta(microseconds=micros),
    st.integers(-60_000_000_000, 250_000_000_000),
    st.integers(0, 999_999),
    zones,
)


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kathmandu"])
def zone(request, monkeypatch):
    """Let the machine be in a time zone."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@given(moments)
def test_a_datetime_comes_back_as_the_same_moment(moment):
    assert times.to_datetime(times.from_datetime(moment)) == moment


@given(moments, moments)
def test_the_order_of_moments_is_kept(one, other):
    assert (times.from_datetime(one) < times.from_datetime(other)) == (one < other)


def test_a_naive_datetime_is_refused_with_what_to_do():
    with pytest.raises(InvalidArgumentError) as refusal:
        times.from_datetime(datetime(2026, 1, 1))  # noqa: DTZ001 - it is what is refused
    assert "2026-01-01T00:00:00 has no time zone" in refusal.value.message
    assert "aware" in refusal.value.hint


def test_microseconds_are_exact_and_the_zone_is_taken_off():
    zone = timezone(timedelta(hours=2))
    assert times.from_datetime(datetime(1970, 1, 1, 2, 0, 0, 1, tzinfo=zone)) == 1
    assert times.to_datetime(-1) == datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)


@given(st.integers(0, 2**40))
def test_a_span_is_the_same_from_seconds_and_from_a_timedelta(micros):
    assert times.span(timedelta(microseconds=micros), "delay") == micros
    assert times.span(micros // times.MICROS, "delay") == micros // times.MICROS * times.MICROS


@pytest.mark.parametrize("value", [-1, -0.001, timedelta(microseconds=-1), timedelta(days=-1)])
def test_a_negative_span_is_refused(value):
    with pytest.raises(InvalidArgumentError, match="the delay must be 0 to 2147483647 seconds, got -"):
        times.span(value, "delay")


@pytest.mark.parametrize("value", [2**31, 1e12, 1e15, 1e300, timedelta(days=40_000)])
def test_a_span_that_leads_beyond_all_calendars_is_refused(value):
    assert times.span(2**31 - 1, "delay") == (2**31 - 1) * times.MICROS
    with pytest.raises(InvalidArgumentError, match="the delay must be 0 to 2147483647 seconds, got "):
        times.span(value, "delay")


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_span_must_be_finite(value):
    with pytest.raises(InvalidArgumentError, match="the expiry must be a finite number of seconds"):
        times.span(value, "expiry")


def test_a_span_of_a_millisecond_and_less_is_kept_to_the_microsecond():
    assert times.span(0.001, "delay") == 1000
    assert times.span(0.000_001, "delay") == 1
    assert times.span(0, "delay") == 0


class TestAbsoluteTimes:
    @pytest.mark.parametrize(
        ("text", "local"),
        [
            ("70", (1970, 1, 1, 0, 0, 0)),
            ("99", (1999, 1, 1, 0, 0, 0)),
            ("00", (2000, 1, 1, 0, 0, 0)),
            ("37", (2037, 1, 1, 0, 0, 0)),
            ("2602", (2026, 2, 1, 0, 0, 0)),
            ("260228", (2026, 2, 28, 0, 0, 0)),
            ("26022823", (2026, 2, 28, 23, 0, 0)),
            ("2602282359", (2026, 2, 28, 23, 59, 0)),
            ("260228235958", (2026, 2, 28, 23, 59, 58)),
            ("240229", (2024, 2, 29, 0, 0, 0)),
            ("2026-02-28", (2026, 2, 28, 0, 0, 0)),
            ("2026-02-28T23:59", (2026, 2, 28, 23, 59, 0)),
            ("2026-02-28 23:59:58", (2026, 2, 28, 23, 59, 58)),
        ],
    )
    def test_parts_that_are_left_out_take_their_smallest_value_in_local_time(self, zone, text, local):
        assert times.parse_absolute(text) == time.mktime((*local, 0, 0, -1)) * times.MICROS

    @pytest.mark.parametrize("text", ["2026-02-28 23:59:58 +0100", "2026-02-28T23:59:58+01:00", "2026-02-28T22:59:58Z"])
    def test_time_with_a_zone_is_read_in_any_of_its_forms(self, zone, text):
        assert times.iso(times.parse_absolute(text)) == "2026-02-28T22:59:58.000000Z"

    @given(st.integers(1_000_000_000, 2_000_000_000))
    def test_time_is_read_back_as_it_is_shown(self, seconds):
        micros = seconds * times.MICROS
        assert times.parse_absolute(times.show(micros)) == times.parse_absolute(times.iso(micros)) == micros

    @given(st.integers(0, 99))
    def test_every_year_is_in_the_range_that_it_stands_for_or_refused(self, year):
        text = f"{year:02d}0601"
        if 38 <= year <= 69:
            with pytest.raises(InvalidArgumentError, match="00-37 and 70-99"):
                times.parse_absolute(text)
        else:
            found = times.to_datetime(times.parse_absolute(text)).astimezone()
            assert (found.year, found.month, found.day) == (1900 + year if year >= 70 else 2000 + year, 6, 1)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "2",
            "260",
            "26-01",
            "+60101",
            "2601 1",
            " 26",
            "26 ",
            "2601010101011",
            "²²",
            "\N{FULLWIDTH DIGIT TWO}\N{FULLWIDTH DIGIT SIX}",
            "26010101010101",
        ],
    )
    def test_what_has_not_the_form_is_refused(self, text):
        with pytest.raises(InvalidArgumentError, match=r"is not of the form YY\[MM"):
            times.parse_absolute(text)

    @pytest.mark.parametrize(
        "text",
        [
            "2026-13-01",
            "2026-02-30T10:00",
            "2026-02-28T24:30",
            "0000-01-01",
            "2600",
            "2613",
            "260100",
            "260132",
            "250229",
            "26010124",
            "2601010060",
            "260101000060",
        ],
    )
    def test_what_no_calendar_or_clock_has_is_refused(self, text):
        with pytest.raises(InvalidArgumentError, match="does not exist"):
            times.parse_absolute(text)


def test_a_time_is_shown_in_local_time_with_its_zone(zone):
    shown = times.show(1_800_000_000 * times.MICROS)
    assert datetime.strptime(shown, "%Y-%m-%d %H:%M:%S %z").timestamp() == 1_800_000_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", "90"), ("10m", "600"), ("2h", "7200"), ("1d", "86400"), ("1.5h", "5400"), ("0.0001m", "0.006")],
)
def test_span_with_a_unit_is_read_in_seconds(text, seconds):
    assert times.in_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "10x", "10M", "m", "-5m", "1.m", "10 m", "1h30m", "\N{SUPERSCRIPT TWO}m"])
def test_what_is_not_a_number_with_a_unit_is_left_as_it_is(text):
    assert times.in_seconds(text) == text


def test_the_clock_of_the_machine_says_the_time_and_goes_forward():
    clock = times.SystemClock()
    before = time.time()
    assert before - 1 <= clock.now() / times.MICROS <= time.time() + 1
    assert clock.monotonic() <= clock.monotonic()


class TestWhereTheClockIsSet:
    """In Berlin: from 2 to 3 in spring, and back in autumn."""

    @pytest.fixture(autouse=True)
    def _in_berlin(self, monkeypatch):
        monkeypatch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
        monkeypatch.undo()
        time.tzset()

    @pytest.mark.parametrize("text", ["270328020000", "2703280230", "2027-03-28T02:59:59", "2027-03-28 02:30"])
    def test_a_time_that_is_skipped_is_refused(self, text):
        with pytest.raises(InvalidArgumentError, match="does not exist: the clock is put forward past it"):
            times.parse_absolute(text)
        assert not times.is_ambiguous(text)

    @pytest.mark.parametrize(("text", "utc"), [("2703280159", (0, 59)), ("2703280300", (1, 0))])
    def test_those_around_it_are_read(self, text, utc):
        assert times.parse_absolute(text) == times.from_datetime(datetime(2027, 3, 28, *utc, tzinfo=UTC))

    @pytest.mark.parametrize("text", ["2710310230", "2027-10-31T02:30"])
    def test_of_a_time_that_comes_twice_the_first_is_meant(self, text):
        assert times.is_ambiguous(text)
        assert times.parse_absolute(text) == times.from_datetime(datetime(2027, 10, 31, 0, 30, tzinfo=UTC))

    @pytest.mark.parametrize("text", ["2710310300", "2710310159", "2027-10-31T02:30+01:00", "soon", "2703280230"])
    def test_no_other_does(self, text):
        assert not times.is_ambiguous(text)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York", "Pacific/Kiritimati"], indirect=True)
@pytest.mark.parametrize("micros", [times.EARLIEST, times.LATEST, 0])
def test_each_time_can_be_shown_in_each_zone(zone, micros):
    assert times.from_datetime(times.local(micros)) == micros
    assert times.show(micros)[:4] in ("0001", "1969", "1970", "9999")


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Tokyo"], indirect=True)
def test_the_last_local_time_that_people_write_is_read(zone):
    micros = times.parse_absolute("9999-12-31T23:59:59")
    assert times.local(micros).replace(tzinfo=None) == datetime(9999, 12, 31, 23, 59, 59)  # noqa: DTZ001


@pytest.mark.parametrize(
    ("zone", "text"),
    [("America/New_York", "9999-12-31T23:59:59"), ("Asia/Tokyo", "0001-01-01"), ("UTC", "9999-12-31T23:59:59-01:00")],
    indirect=["zone"],
)
def test_one_that_is_out_of_range_in_utc_is_refused_in_a_sentence(zone, text):
    with pytest.raises(InvalidArgumentError, match="is not between the years 1 and 9999 in UTC"):
        times.parse_absolute(text)
