"""Capacity limits: what qcreate takes for them, and the refusals of Tuxedo's catalogue."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmcore.errors import InvalidArgumentError
from qmcore.limits import MEMORY_UNITS, CapacityLimit, Threshold, Unit, parse_high, parse_low

LONG = "9" * 5000


def refusal(parse, *arguments):
    with pytest.raises(InvalidArgumentError) as caught:
        parse(*arguments)
    return caught.value


@given(st.integers(1, 2**53), st.sampled_from([Unit.BYTES, Unit.BLOCKS, Unit.MESSAGES]))
def test_a_high_limit_comes_back_as_it_was_written(value, unit):
    assert parse_high(f"{value}{unit.value}") == CapacityLimit(value, unit)
    assert str(parse_high(f" {value}{unit.value} ")) == f"{value}{unit.value}"


@given(st.integers(1, 100))
def test_percentages_go_from_1_to_100(value):
    assert parse_high(f"{value}%") == CapacityLimit(value, Unit.PERCENT)


@given(st.data())
def test_a_low_limit_below_the_high_one_is_taken_with_and_without_its_unit(data):
    high = CapacityLimit(data.draw(st.integers(1, 100)), data.draw(st.sampled_from(Unit)))
    low = data.draw(st.integers(0, high.value - 1))
    assert parse_low(f"{low}{high.unit.value}", high) == parse_low(str(low), high) == CapacityLimit(low, high.unit)


class TestTheCatalogue:
    """The number of each refusal, its sentence, and the text that it is about."""

    @pytest.mark.parametrize("text", ["", "80", "80x", "80k", "80 ", "5²"])
    def test_1205_a_high_limit_needs_one_of_the_four_units(self, text):
        found = refusal(parse_high, text)
        assert found.catalogue == 1205
        assert found.message == f"Invalid high threshold type: {text!r}"
        assert "b, B, %, m" in found.hint

    def test_1205_memory_cannot_be_counted_in_messages(self):
        found = refusal(parse_high, "80m", MEMORY_UNITS)
        assert found.catalogue == 1205
        assert found.hint == "Write one of these after the number: b, B, %."

    @pytest.mark.parametrize(
        "text", ["m", "x%", "-5m", "+5m", "1.5%", "8 0m", "80bB", "²m", "\N{FULLWIDTH DIGIT FIVE}m", "1_0m"]
    )
    def test_1206_a_high_limit_is_a_whole_number(self, text):
        found = refusal(parse_high, text)
        assert found.catalogue == 1206
        assert found.message == f"High threshold must be numeric: {text!r}"

    @pytest.mark.parametrize("text", ["0m", "0%", "000b", "101%", f"{2**53 + 1}B"])
    def test_1207_a_high_limit_has_a_range(self, text):
        found = refusal(parse_high, text)
        assert found.catalogue == 1207
        assert found.message == f"Invalid high threshold number: {text!r}"

    def test_a_number_of_any_length_is_refused_as_a_diagnostic_and_shown_shortened(self):
        for found in (refusal(parse_high, LONG + "m"), refusal(parse_low, LONG, CapacityLimit(10, Unit.MESSAGES))):
            assert found.catalogue in {1206, 1207, 1209, 1212}
            assert len(found.message) < 150

    @pytest.mark.parametrize("text", ["5x", "0k"])
    def test_1208_a_low_limit_has_a_unit_that_exists(self, text):
        found = refusal(parse_low, text, CapacityLimit(10, Unit.MESSAGES))
        assert found.catalogue == 1208
        assert found.message == f"Invalid low threshold type: {text!r}"

    @pytest.mark.parametrize("text", ["", "m", "-1", "-1m", "x", "²", "²m", "1.0"])
    def test_1209_a_low_limit_is_a_whole_number(self, text):
        found = refusal(parse_low, text, CapacityLimit(10, Unit.MESSAGES))
        assert found.catalogue == 1209
        assert found.message == f"Low threshold must be numeric: {text!r}"

    @pytest.mark.parametrize(("high", "low"), [("10m", "5b"), ("10b", "5B"), ("10B", "5b"), ("80%", "5m")])
    def test_1210_both_limits_have_the_same_unit(self, high, low):
        found = refusal(parse_low, low, parse_high(high))
        assert found.catalogue == 1210
        assert f"{high} and {low}" in found.message

    @pytest.mark.parametrize("text", ["10m", "10", "11m", "999999"])
    def test_1212_the_low_limit_is_below_the_high_one(self, text):
        found = refusal(parse_low, text, CapacityLimit(10, Unit.MESSAGES))
        assert found.catalogue == 1212
        assert found.hint == "Give 0 to 9m."


@given(st.text(max_size=8))
def test_no_text_whatever_leaves_as_anything_but_a_limit_or_a_diagnostic(text):
    numbers = set()
    for parse in (parse_high, lambda low: parse_low(low, CapacityLimit(100, Unit.PERCENT))):
        try:
            parse(text)
        except InvalidArgumentError as error:
            numbers.add(error.catalogue)
    assert numbers <= {1205, 1206, 1207, 1208, 1209, 1210, 1212}


@pytest.mark.parametrize(
    ("limit", "below", "at"),
    [
        ("10m", {"messages": 9}, {"messages": 10}),
        ("4B", {"pages": 3}, {"pages": 4}),
        ("5000b", {"size": 4999}, {"size": 5000}),
        ("80%", {"pages": 159}, {"pages": 160}),
    ],
)
def test_a_limit_is_reached_when_its_own_measure_is_at_it(limit, below, at):
    nothing = {"messages": 0, "pages": 0, "size": 0, "capacity": 200}
    full = {"messages": 10**6, "pages": 10**6, "size": 10**6, "capacity": 200}
    parsed = parse_high(limit)
    assert not parsed.is_reached(**(nothing | below))
    assert parsed.is_reached(**(nothing | at))
    assert not parsed.is_reached(**(full | below))


def test_no_threshold_is_100_percent_and_no_command():
    none = Threshold.none()
    assert (str(none.high), str(none.low), none.command) == ("100%", "0%", "")
