"""Queue spaces and queues as administrators define them."""

import dataclasses
import re

import pytest

from qmcore.errors import InvalidArgumentError
from qmcore.limits import CapacityLimit, Threshold, Unit
from qmcore.queue import QueueDefinition
from qmcore.space import SpaceDefinition, rounded_pages

SPACE = SpaceDefinition(
    name="S", ipc_key=40_000, pages=100, queues=10, transactions=1, processes=1, messages=1, error_queue="E"
)
OTHERS = [
    "overflow",
    "handles",
    "cursors",
    "owners",
    "temporary_queues",
    "filter_memory",
    "blocking",
    "actions",
    "memory",
]


def test_one_page_and_one_for_each_queue_hold_no_messages():
    assert (SPACE.overhead, SPACE.capacity) == (11, 89)
    assert dataclasses.replace(SPACE, pages=12).capacity == 1
    with pytest.raises(InvalidArgumentError, match="more than 11 pages for 10 queues, got 11"):
        dataclasses.replace(SPACE, pages=11)


@pytest.mark.parametrize("field", ["ipc_key", "queues", "transactions", "processes", "messages"])
def test_numbers_start_at_1(field):
    what = "IPC key" if field == "ipc_key" else f"number of {field}"
    with pytest.raises(InvalidArgumentError, match=f"the {what} of queue space 'S' must be a whole number from 1 to"):
        dataclasses.replace(SPACE, **{field: 0})


@pytest.mark.parametrize("field", OTHERS)
def test_numbers_that_may_be_absent_start_at_0(field):
    assert getattr(dataclasses.replace(SPACE, **{field: 0}), field) == 0
    with pytest.raises(InvalidArgumentError, match="must be a whole number from 0 to"):
        dataclasses.replace(SPACE, **{field: -1})


@pytest.mark.parametrize("field", ["ipc_key", "transactions", "processes", "messages", *OTHERS])
def test_numbers_end_at_31_bits_and_are_whole(field):
    assert dataclasses.replace(SPACE, **{field: 2**31 - 1})
    with pytest.raises(InvalidArgumentError, match=f"got {2**31}"):
        dataclasses.replace(SPACE, **{field: 2**31})
    with pytest.raises(InvalidArgumentError, match=r"got 7\.5"):
        dataclasses.replace(SPACE, **{field: 7.5})


@pytest.mark.parametrize(("name", "complaint"), [("", "is empty"), ("x" * 16, "16 bytes, the limit is 15")])
def test_the_name_of_a_queue_space_has_1_to_15_bytes(name, complaint):
    with pytest.raises(InvalidArgumentError, match=complaint):
        dataclasses.replace(SPACE, name=name)


def test_an_error_queue_may_be_absent_and_is_checked_as_a_name():
    assert dataclasses.replace(SPACE, error_queue="").error_queue == ""
    with pytest.raises(InvalidArgumentError, match="error queue name"):
        dataclasses.replace(SPACE, error_queue="x" * 128)


def test_pages_are_rounded_down_to_a_multiple_of_four():
    assert [rounded_pages(pages) for pages in (0, 3, 4, 7, 8, 1001)] == [0, 0, 4, 4, 8, 1000]


@pytest.mark.parametrize("field", ["retries", "retry_delay", "expiration", "retention"])
def test_neither_a_bool_nor_a_fraction_is_a_number_of_a_queue(field):
    for wrong in (False, True, 0.0, 1.5, "1"):
        with pytest.raises(InvalidArgumentError, match=f"got {re.escape(repr(wrong))}"):
            QueueDefinition(name="Q", **{field: wrong})


@pytest.mark.parametrize("field", ["retries", "retry_delay", "expiration"])
def test_numbers_of_a_queue_go_from_0_to_31_bits(field):
    for good in (0, 1, 2**31 - 1):
        assert getattr(QueueDefinition(name="Q", **{field: good}), field) == good
    for bad in (-1, 2**31):
        with pytest.raises(InvalidArgumentError, match=f"got {bad}"):
            QueueDefinition(name="Q", **{field: bad})


def test_a_queue_is_fifo_never_retries_and_keeps_messages_for_ever_if_nothing_is_said():
    plain = QueueDefinition(name="Q")
    assert (str(plain.order), str(plain.out_of_order)) == ("fifo", "none")
    assert (plain.retries, plain.retry_delay, plain.expiration) == (0, 0, None)
    assert plain.threshold == plain.memory_threshold == Threshold.none()


@pytest.mark.parametrize("which", ["threshold", "memory_threshold"])
def test_capacity_commands_have_at_most_127_bytes(which):
    def with_command(command):
        limits = CapacityLimit(10, Unit.BLOCKS), CapacityLimit(5, Unit.BLOCKS)
        return QueueDefinition(name="Q", **{which: Threshold(*limits, command)})

    assert getattr(with_command("c" * 127), which).command == "c" * 127
    with pytest.raises(InvalidArgumentError, match="threshold command"):
        with_command("c" * 128)
