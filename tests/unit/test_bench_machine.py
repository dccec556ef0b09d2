"""What scripts/bench says of the machine."""

import platform

from benchmarks import machine


def test_the_python_is_told_with_its_speed_as_builds_of_one_version_differ():
    box = machine.description()
    assert box["python_ns"] > 0
    told = machine.sentence(box | {"load_after": 0.5})
    assert f"Python {platform.python_version()} ({box['python_ns']} ns for a short work)" in told


def test_a_result_from_before_that_was_measured_is_told_without():
    box = machine.description() | {"load_after": 0.5}
    del box["python_ns"]
    assert f", Python {platform.python_version()}, load " in machine.sentence(box)
