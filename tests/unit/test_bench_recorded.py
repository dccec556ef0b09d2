"""What scripts/bench says of a result beside the one that was recorded."""

import pytest
from benchmarks import recorded
from benchmarks.figures import summary

MACHINE = {"processor": "one", "cores": 2, "python": "3.11.7"}


def result(values, bars=None, *, unit="messages/s", when="2026-11-20", stored=1000, processor="one", rounds=3, **box):
    row = {"row": "enqueue", "title": "enqueue, one at a time", "subject": "ours", "unit": unit, "against": "raw"}
    return {
        "when": f"{when}T12:00:00",
        "machine": MACHINE | {"processor": processor} | box,
        "options": {"rounds": rounds, "seconds": 1, "stored": stored},
        "results": [row | summary(values, bars)],
    }


def compared(now, then):
    return recorded.comparison(now, then, "ours", "messages/s")


NOTHING = ["nothing of 1 rows is worse than on 2026-11-20 beyond the spread"]
WORSE = "worse than on 2026-11-20 beyond the spread, of 1 rows:"


def test_a_ratio_below_all_ratios_of_the_recorded_rounds_is_told():
    now = result([50, 55, 60], [100, 100, 100], when="2026-11-22")
    assert compared(now, result([80, 85, 90], [100, 100, 100])) == [
        WORSE,
        "  enqueue, one at a time: 0.55 of raw, 0.85 on 2026-11-20 (0.80 to 0.90)",
    ]


def test_a_ratio_within_the_spread_is_not_told():
    assert compared(result([70, 75, 81], [100] * 3), result([80, 85, 90], [100] * 3)) == NOTHING


def test_a_ratio_that_is_better_is_not_told():
    assert compared(result([99, 99, 99], [100] * 3), result([80, 85, 90], [100] * 3)) == NOTHING


def test_a_ratio_is_compared_across_machines_and_a_value_is_not():
    now = result([50, 50, 50], [100] * 3, processor="two")
    assert compared(now, result([80, 80, 80], [100] * 3))[0] == WORSE
    now = result([50, 50, 50], unit="ms", processor="two")
    assert compared(now, result([8, 8, 8], unit="ms")) == [NOTHING[0].replace("of 1", "of 0")]


@pytest.mark.parametrize(("speed", "counts"), [(400, True), (440, True), (800, False), (200, False), (None, True)])
def test_values_of_a_python_that_is_built_in_another_way_are_not_compared(speed, counts):
    box = {} if speed is None else {"python_ns": speed}
    found = compared(result([50, 50, 50], unit="ms", **box), result([8, 8, 8], unit="ms", python_ns=400))
    assert (found[0] == WORSE) is counts


def test_more_time_is_worse_and_more_messages_are_not():
    assert compared(result([50, 51, 52], unit="ms"), result([8, 9, 10], unit="ms")) == [
        WORSE,
        "  enqueue, one at a time: 51 ms, 9 on 2026-11-20 (8 to 10)",
    ]
    assert compared(result([50, 51, 52]), result([8, 9, 10])) == NOTHING


def test_a_difference_that_is_negligible_is_not_told():
    assert compared(result([0.9], unit="MiB"), result([0.0], unit="MiB")) == NOTHING


def test_rounds_may_differ_and_amounts_may_not():
    assert compared(result([80], [100], rounds=1), result([80, 80], [100, 100], rounds=2)) == NOTHING
    assert compared(result([80], stored=10), result([80])) == [
        "not compared with 2026-11-20: that was measured with other numbers"
    ]


def test_an_amount_that_is_new_keeps_nothing_from_being_compared():
    now = result([80])
    now["options"]["tasks"] = 5000
    assert compared(now, result([80])) == NOTHING


def test_where_nothing_is_recorded_there_is_no_result(tmp_path):
    assert recorded.read(tmp_path / "nothing.json") is None
