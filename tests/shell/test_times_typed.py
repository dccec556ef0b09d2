"""Times and spans as people type them, beside Tuxedo's forms."""

import pytest

from qmadmin.shell.listing import TimeRange, When
from qmadmin.shell.notices import UsageError
from qmcore import times


@pytest.fixture
def opened(laid_out):
    """Run commands on the open queue space."""
    return lambda script: laid_out.run(f"qopen QSPACE\nqset STRING\n{script}")


def test_spans_with_a_unit_are_read_wherever_seconds_are(opened):
    ran = opened(
        "qcreate Q fifo none 2 10m 100% 0% '' -e +2h -R 1d\n"
        "verbose on\nqinfo Q\nqput Q now -t 1h -e 2d\nqget Q -s 0s\nqchange Q none 2 1.5h 100% 0% '' -e 90s\nqinfo Q\n"
    )
    assert ran.err.count("ERROR") == 0, ran.err
    assert [line.split(":")[1].strip() for line in ran.out.split("\n") if "Retry delay" in line] == [
        "600 seconds",
        "5400 seconds",
    ]


@pytest.mark.parametrize("command", ["qput STRING x -t 10x", "qput STRING x -t +10x", "qput STRING x -e 10parsecs"])
def test_number_with_an_unknown_unit_is_refused_and_nothing_is_put(opened, command):
    ran = opened(f"{command}\nqlist\n")
    assert ran.err.count("ERROR") == 1
    assert "no messages matched" in ran.err


@pytest.mark.parametrize(
    "text",
    ["2026-11-25T10:00-2026-11-25T11:00", "2026-11-25 10:00:00 +0000-2611251100", "2611251000-2026-11-25T11:00Z"],
)
def test_range_of_times_may_have_dashes_in_its_ends(monkeypatch, text):
    monkeypatch.setenv("TZ", "UTC")
    found = TimeRange().read(text, {})
    assert (times.iso(found.low), times.iso(found.high)) == (
        "2026-11-25T10:00:00.000000Z", "2026-11-25T11:00:00.999999Z",
    )  # fmt: skip


@pytest.mark.parametrize("text", ["2026-11-25", "2026-11-25T00:00-0500", "2012-10-11"])
def test_single_time_with_dashes_is_no_range(text):
    found = TimeRange().read(text, {})
    assert found.high - found.low == times.MICROS - 1


@pytest.mark.parametrize("text", ["2026-11", "2026-11-31", "yesterday", "26-25", "1d-2026-13-01"])
def test_what_is_neither_is_refused_in_a_sentence(text):
    with pytest.raises((UsageError, times.InvalidArgumentError)):
        TimeRange().read(text, {})


def test_time_with_a_zone_is_taken_as_it_stands():
    assert When().read("2026-11-25T10:00:00+0100", {}).isoformat() == "2026-11-25T09:00:00+00:00"
