"""Plans of imports as text, and how the rows of an archive become ours."""

from datetime import UTC, datetime

import pytest

from qmcore import times
from qmcore.acts.importing import ImportPlan, Mode, TimePolicy, Times
from qmcore.acts.renumbering import Renumbering
from qmcore.bulk_rows import COLUMNS, ORDER_KEY, PAGES, Adopted
from qmcore.errors import InvalidArgumentError
from qmcore.limits import CapacityLimit, Threshold, Unit
from qmcore.message import State
from qmcore.order import QueueOrder, key_before, key_on_top
from qmcore.queue import Delivery
from qmcore.records import Use
from tests.fix_store import queue_definition
from tests.importer import BEGAN, carried_row, plan_of, planned, rows_of

EARLIEST = times.from_datetime(datetime(1, 1, 1, tzinfo=UTC))
ORDERS = ("fifo", "lifo", "priority,fifo", "time,lifo", "expiration,priority", "time,expiration,fifo")


def renumbering(order="fifo", **changes):
    usual = {"shift": 0, "policy": TimePolicy.KEEP, "by_us": 0, "started_us": BEGAN, "page_size": 4096}
    return Renumbering(order=QueueOrder.parse(order), **(usual | changes))


class TestPlans:
    def test_a_plan_is_the_same_after_it_was_text(self):
        definition = queue_definition(
            "Q",
            order="priority,lifo",
            out_of_order="top,msgid",
            retries=3,
            threshold=Threshold(CapacityLimit(80, Unit.PERCENT), CapacityLimit(20, Unit.PERCENT), "run it"),
            delivery=Delivery.NONPERSIST,
            expiration=5,
            error_queue="E",
            retention=-1,
        )
        rows = rows_of("ab")
        plan = plan_of(
            planned(rows, definition, memory=rows, retained=rows, mode=Mode.REPLACE),
            times=Times(TimePolicy.SHIFT, since_us=7),
            adopted=(Adopted("e" * 16, 1, 2, -5),),
            again=True,
        )
        again = ImportPlan.from_json(plan.to_json())
        assert again == plan
        assert again.to_json() == plan.to_json()

    def test_what_it_takes_are_all_messages_and_of_kept_ones_the_pages_alone(self):
        rows = rows_of("ab")
        plan = plan_of(planned(rows, memory=rows[:1], retained=rows))
        assert plan.use == Use(2, 4, 2)
        assert plan.memory_use == Use(1, 1, 1)

    @pytest.mark.parametrize(
        "numbers", [{"first": 1, "last": 0}, {"first": -1, "last": 5}, {"first": 1, "last": 2**48}]
    )
    def test_one_with_messages_has_numbers_for_them(self, numbers):
        with pytest.raises(InvalidArgumentError, match="sequence numbers"):
            plan_of(planned(rows_of("a")), adopted=(), **numbers)


class TestRows:
    @pytest.mark.parametrize("order", ORDERS)
    @pytest.mark.parametrize("shift", [1, 0, 10**9])
    def test_all_keys_move_as_far_whatever_they_are(self, order, shift):
        key = QueueOrder.parse(order).key
        plain = key(priority=7, available_at=BEGAN, expires_at=None, sequence=255)
        keys = [
            plain,
            key_on_top(300),
            key_before(plain, 301),
            key_before(key_before(key_on_top(2), 3), 302),
        ]
        rows = [carried_row(255 + at, order_key=each) for at, each in enumerate(keys)]
        ((_, ours),) = renumbering(order, shift=shift).rows(State.READY, rows)
        assert [row[ORDER_KEY] for row in ours] == [QueueOrder.parse(order).moved(each, shift) for each in keys]
        assert [row[0] for row in ours] == [255 + shift, 256 + shift, 257 + shift, 258 + shift]

    @pytest.mark.parametrize("order", ORDERS)
    @pytest.mark.parametrize("by", [-(10**6), 0, 10**12])
    @pytest.mark.parametrize("expires", [None, BEGAN + 5])
    def test_the_times_in_keys_move_with_those_of_the_message(self, order, by, expires):
        key = QueueOrder.parse(order).key
        row = carried_row(101, order=order, priority=7, expires_at=expires)
        ((_, (ours,)),) = renumbering(order, policy=TimePolicy.SHIFT, by_us=by).rows(State.READY, [row])
        later = None if expires is None else expires + by
        assert ours[ORDER_KEY] == key(priority=7, available_at=BEGAN + by, expires_at=later, sequence=101)

    @pytest.mark.parametrize("order", ORDERS)
    @pytest.mark.parametrize(("by", "end"), [(10**30, times.LATEST), (-(10**30), EARLIEST)])
    def test_a_time_that_would_leave_all_that_there_are_becomes_the_last_or_the_first(self, order, by, end):
        row = carried_row(101, order=order, expires_at=times.LATEST - 1)
        ((_, (ours,)),) = renumbering(order, policy=TimePolicy.SHIFT, by_us=by).rows(State.READY, [row])
        assert {ours[COLUMNS.index(name)] for name in ("enqueued_at", "expires_at")} == {end}
        assert ours[ORDER_KEY] == QueueOrder.parse(order).key(
            priority=50, available_at=end, expires_at=end, sequence=101
        )

    def test_a_key_on_top_has_no_time(self):
        assert QueueOrder.parse("time").later(key_on_top(5), 10) == key_on_top(5)

    def test_a_group_keeps_its_first_message(self):
        row = carried_row(105, group_sequence=103)
        ((_, (ours,)),) = renumbering(shift=1000).rows(State.READY, [row])
        assert ours[COLUMNS.index("group_sequence")] == 1103

    @pytest.mark.parametrize(
        ("size", "headers", "pages"), [(0, None, 1), (3840, None, 1), (3841, None, 2), (3840, '{"ä":""}', 2)]
    )
    def test_pages_are_counted_for_this_device(self, size, headers, pages):
        row = carried_row(101, b"x" * size, headers=headers)
        stranger = (*row[:PAGES], 99, *row[PAGES + 1 :])
        ((_, (ours,)),) = renumbering().rows(State.READY, [stranger])
        assert ours[PAGES] == pages
        ((_, (ours,)),) = renumbering(page_size=1 << 20).rows(State.READY, [stranger])
        assert ours[PAGES] == 1
