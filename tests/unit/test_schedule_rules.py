"""The rules of schedules: which moment comes after which."""

from __future__ import annotations

import datetime as dt
import sys
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmadmin.schedule_rules import following
from qmcore.errors import InvalidArgumentError, SystemFailureError
from qmcore.schedule import Schedule
from qmcore.times import MICROS, from_datetime, to_datetime

BERLIN = ZoneInfo("Europe/Berlin")


def schedule(rule, timezone="UTC", since=0):
    return Schedule(name="s", queue="q", rule=rule, timezone=timezone, counted_from_us=since)


def moments(rule, timezone, after, count):
    """Return the local times of the next moments."""
    found, at = [], from_datetime(after)
    for _ in range(count):
        at = following(schedule(rule, timezone), at)
        found.append(to_datetime(at).astimezone(ZoneInfo(timezone)).isoformat())
    return found


def test_the_fields_of_cron_are_read_in_the_time_zone():
    begin = dt.datetime(2026, 11, 26, 12, tzinfo=BERLIN)
    assert moments("30 6 * * MON-FRI", "Europe/Berlin", begin, 3) == [
        "2026-11-27T06:30:00+01:00",
        "2026-11-30T06:30:00+01:00",
        "2026-12-01T06:30:00+01:00",
    ]


def test_a_sixth_field_in_front_is_the_second():
    begin = dt.datetime(2026, 11, 26, 12, tzinfo=dt.UTC)
    assert moments("*/20 * * * * *", "UTC", begin, 3) == [
        f"2026-11-26T12:0{rest}+00:00" for rest in ("0:20", "0:40", "1:00")
    ]


class TestSummerTime:
    FORWARD = dt.datetime(2026, 3, 29, 1, 0, tzinfo=BERLIN)
    """An hour before two o'clock, behind which three o'clock comes at once."""
    BACK = dt.datetime(2026, 10, 25, 1, 0, tzinfo=BERLIN)
    """An hour before two o'clock, which comes twice."""

    @pytest.mark.parametrize("rule", ["30 2 * * *", "0 30 2 * * *", "0,30 2 * * *"])
    def test_what_falls_in_the_hour_that_is_left_out_comes_right_behind_it(self, rule):
        first, second = moments(rule, "Europe/Berlin", self.FORWARD, 2)
        assert first == "2026-03-29T03:00:00+02:00"
        assert second.startswith("2026-03-30T02:")

    @pytest.mark.parametrize("rule", ["30 2 * * *", "0 30 2 * * *"])
    def test_what_falls_in_the_hour_that_comes_twice_comes_once(self, rule):
        assert moments(rule, "Europe/Berlin", self.BACK, 2) == [
            "2026-10-25T02:30:00+02:00",
            "2026-10-26T02:30:00+01:00",
        ]

    def test_whoever_begins_in_the_second_of_the_two_hours_gets_none_of_the_first(self):
        begin = dt.datetime(2026, 10, 25, 2, 10, tzinfo=BERLIN, fold=1)
        assert moments("30 2 * * *", "Europe/Berlin", begin, 1) == ["2026-10-26T02:30:00+01:00"]

    def test_what_comes_more_often_than_once_an_hour_goes_by_the_time_that_passes(self):
        found = [
            from_datetime(dt.datetime.fromisoformat(each))
            for each in moments("*/30 * * * *", "Europe/Berlin", self.BACK, 6)
        ]
        assert {late - early for early, late in pairwise(found)} == {1800 * MICROS}

    def test_an_interval_does_not_know_of_it(self):
        begin = from_datetime(self.BACK)
        found, at = [], begin
        for _ in range(3):
            at = following(schedule("every 1h", "Europe/Berlin", begin), at)
            found.append((at - begin) // MICROS)
        assert found == [3600, 7200, 10800]


@pytest.mark.parametrize(
    ("rule", "seconds"), [("every 90s", 90), ("every 1.5h", 5400), ("EVERY 2d", 172_800), ("every 7", 7)]
)
def test_an_interval_is_a_number_of_seconds_or_has_its_unit(rule, seconds):
    assert following(schedule(rule), 0) == seconds * MICROS


@given(st.integers(1, 10**7), st.integers(-(10**16), 10**16), st.integers(-(10**16), 10**16))
def test_an_interval_counts_from_its_beginning_without_drift(seconds, since, after):
    found = following(schedule(f"every {seconds}", since=since), after)
    interval = seconds * MICROS
    assert (found - since) % interval == 0
    assert found > max(after, since)
    assert found - interval <= max(after, since)


RULES = st.sampled_from(
    ["* * * * *", "30 2 * * *", "15 1,2,3 * * *", "0 0 L * *", "7 */3 * * SUN", "0 12 29 2 *", "0 0 * * MON#1"]
)


@given(
    RULES,
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]),
    st.integers(946_684_800, 4_000_000_000),
)
def test_the_next_moment_is_always_a_later_one(rule, zone, seconds):
    at = seconds * MICROS + 1
    for _ in range(3):
        later = following(schedule(rule, zone), at)
        assert later > at
        at = later


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("", "empty"),
        ("* * *", "wrong number of fields"),
        ("60 * * * *", "bad minute"),
        ("0 0 31 2 *", "bad day-of-month"),
        ("@daily", "wrong number of fields"),
        ("every", "is not one"),
        ("every -5", "is not one"),
        ("every 10 m", "is not one"),
        ("every 0.5s", "must be 1 to"),
        ("every 0", "must be 1 to"),
        ("every 99999d", "must be 1 to"),
        ("x" * 300, "the limit is 255"),
        (7, "must be a str"),
    ],
)
def test_a_rule_that_is_none_is_refused_with_a_sentence(rule, said):
    with pytest.raises(InvalidArgumentError, match=said):
        following(schedule(rule), 0)


@pytest.mark.parametrize("zone", ["Europe/Atlantis", "Europe", "../etc/passwd", "/etc/localtime", "CEST"])
def test_a_time_zone_that_does_not_exist_is_refused(zone):
    with pytest.raises(InvalidArgumentError, match="there is no time zone"):
        following(schedule("* * * * *", zone), 0)


def test_where_cronsim_is_not_installed_that_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "cronsim", None)
    with pytest.raises(SystemFailureError, match="the package cronsim is not installed"):
        following(schedule("* * * * *"), 0)
    assert following(schedule("every 1s"), 0) == MICROS


def test_a_rule_that_never_comes_has_no_next_moment():
    """Each twentieth day of a month, and its last Monday."""
    assert following(schedule("* * */20 * 1L"), 0) is None
