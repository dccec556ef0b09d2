"""Numbers at a glance."""

import pytest

from qmadmin.console import count, duration, rate, share, span, sparkline


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"),
        (0, "0s"),
        (0.2, "<1s"),
        (1, "1s"),
        (59.4, "59s"),
        (59.6, "1m00s"),
        (187, "3m07s"),
        (3600, "1h00m"),
        (19_230, "5h20m"),
        (86_400 * 12 + 3 * 3600 + 59, "12d3h"),
        (86_400 * 4000, "4000d0h"),
    ],
)
def test_span_has_its_two_largest_units(seconds, shown):
    assert span(seconds) == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0, "0"),
        (9999, "9999"),
        (10_000, "10k"),
        (999_999, "999k"),
        (1_000_000, "1.0M"),
        (9_940_000, "9.9M"),
        (9_999_999, "9.9M"),
        (34_500_000, "34M"),
        (2_500_000_000, "2.5G"),
        (10**14, "100T"),
    ],
)
def test_large_number_is_short(number, shown):
    assert count(number) == shown


@pytest.mark.parametrize(
    ("per_second", "shown"),
    [(None, "-"), (0, "0"), (0.04, "<0.1"), (9.97, "10.0"), (3.14, "3.1"), (12.4, "12"), (45_678.0, "45k")],
)
def test_small_rate_has_a_decimal(per_second, shown):
    assert rate(per_second) == shown


def test_share_of_a_limit_is_told_in_percent():
    assert share(12, 100) == "12/100 12%"
    assert share(0, 0) == "0/0"


@pytest.mark.parametrize(
    ("values", "width", "shown"),
    [
        ([], 8, ""),
        ([0, 0], 8, "▁▁"),
        ([1, 1000], 8, "▂█"),
        ([0, 7, 14], 8, "▁▅█"),
        ([9, 1, 2, 3], 3, "▄▆█"),
        ([1], 0, ""),
    ],
)
def test_sparkline_is_as_high_as_the_part_of_the_largest(values, width, shown):
    assert sparkline(values, width) == shown


@pytest.mark.parametrize(
    ("micros", "shown"),
    [
        (0, "0us"),
        (990, "990us"),
        (1_000, "1ms"),
        (1_500, "1.5ms"),
        (9_900, "9.9ms"),
        (20_000, "20ms"),
        (990_000, "990ms"),
        (999_999, "1s"),
        (1_200_000, "1.2s"),
        (59_000_000, "59s"),
        (59_999_999, "1m00s"),
        (187_000_000, "3m07s"),
    ],
)
def test_duration_has_one_unit_and_two_digits(micros, shown):
    assert duration(micros) == shown
