"""The figures of queue spaces as metrics for Prometheus, on every store."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from qmadmin.monitoring.metrics import FAMILIES, look, look_if_open
from qmadmin.monitoring.metrics_server import written
from qmadmin.monitoring.prometheus import SpaceCollector
from tests.fix_store import MovableClock, Store, Work, make_queue


def told(*spaces: Any) -> dict[tuple[str, ...], float]:
    """Return the values of all samples by the name of the metric and the values of its labels."""
    text = written(SpaceCollector(lambda: {(space.device.path, space.name): look_if_open(space) for space in spaces}))
    return {
        (
            sample.name.removeprefix("qmadmin_"),
            *(sample.labels[label] for label in ("space", "queue") if label in sample.labels),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of_queue(found: dict[tuple[str, ...], float], name: str) -> float:
    return found["queue_" + name, "SPACE", "Q"]


def test_messages_are_counted_in_each_state(store: Store, clock: MovableClock) -> None:
    space = store.space(error_queue="E")
    make_queue(space, "E")
    make_queue(space, "Q", retries=5)
    for body in ("one", "two", "three"):
        space.enqueue("Q", body)
    space.enqueue("Q", "later", delay=60)
    with space.transaction() as tx:
        space.dequeue("Q")
        tx.rollback(park=True)
    with space.transaction():
        space.dequeue("Q")
        found, pages = told(space), space.usage("Q").pages
    assert {state: of_queue(found, f"{state}_messages") for state in ("ready", "delayed", "parked", "held")} == {
        "ready": 1, "delayed": 1, "parked": 1, "held": 1,
    }  # fmt: skip
    assert of_queue(found, "body_bytes") == len("onetwothreelater")
    assert of_queue(found, "disk_bytes") == pages * store.device.info.page_size


def test_what_went_through_a_queue_is_counted(store: Store, clock: MovableClock) -> None:
    space = store.space(error_queue="E")
    make_queue(space, "E")
    make_queue(space, "Q")
    for body in ("read", "failed", "purged"):
        space.enqueue("Q", body)
    space.enqueue("Q", "expired", expires_in=1)
    space.dequeue("Q")
    with space.transaction() as tx:
        space.dequeue("Q")
        tx.rollback()
    clock.advance(2)
    space.purge("Q")
    found = told(space)
    assert {
        name: of_queue(found, f"{name}_messages_total")
        for name in ("enqueued", "dequeued", "moved", "discarded", "expired")
    } == {"enqueued": 4, "dequeued": 1, "moved": 1, "discarded": 1, "expired": 1}
    assert found["error_queue_messages", "SPACE", "E"] == 1
    assert ("error_queue_messages", "SPACE", "Q") not in found


def test_the_error_queue_of_a_single_queue_is_one_too(store: Store) -> None:
    space = store.space()
    make_queue(space, "FAILED")
    make_queue(space, "Q", error_queue="FAILED")
    space.enqueue("FAILED", "by hand")
    found = told(space)
    assert {key: value for key, value in found.items() if key[0] == "error_queue_messages"} == {
        ("error_queue_messages", "SPACE", "FAILED"): 1
    }


def test_the_age_of_the_oldest_ready_message_is_told(store: Store, clock: MovableClock) -> None:
    space = store.space()
    make_queue(space, "Q", order="priority, fifo")
    assert of_queue(told(space), "oldest_ready_age_seconds") == 0
    space.enqueue("Q", "old", priority=1)
    clock.advance(90)
    space.enqueue("Q", "urgent", priority=100)
    clock.advance(10)
    assert of_queue(told(space), "oldest_ready_age_seconds") == 100
    assert space.dequeue("Q").text == "urgent"
    assert of_queue(told(space), "oldest_ready_age_seconds") == 100
    space.dequeue("Q")
    assert of_queue(told(space), "oldest_ready_age_seconds") == 0


def test_an_order_that_does_not_show_the_oldest_tells_the_age_of_the_next(store: Store, clock: MovableClock) -> None:
    space = store.space()
    make_queue(space, "Q", order="expiration")
    space.enqueue("Q", "old", expires_in=5000)
    clock.advance(30)
    space.enqueue("Q", "next", expires_in=50)
    clock.advance(5)
    assert of_queue(told(space), "oldest_ready_age_seconds") == 5


def test_a_stopped_queue_is_told(store: Store) -> None:
    space = store.space()
    make_queue(space)
    space.stop_queue("Q", enqueue=False)
    found = told(space)
    assert (of_queue(found, "enqueuing_enabled"), of_queue(found, "dequeuing_enabled")) == (1, 0)


def test_limits_of_a_queue_space_stand_beside_their_use(store: Store, clock: MovableClock) -> None:
    space = store.space()
    make_queue(space)
    space.enqueue("Q", "x" * 10_000)
    with space.transaction():
        space.dequeue("Q")
        clock.advance(45)
        found, pages = told(space), store.device.space_usage("SPACE").pages
    definition, page = space.definition, store.device.info.page_size
    limits = {
        name: found[f"space_limit_{name}", "SPACE"]
        for name in ("queues", "transactions", "processes", "messages", "actions")
    }
    assert limits == {name: getattr(definition, name) for name in limits}
    used = {name: found[f"space_used_{name}", "SPACE"] for name in limits}
    assert used == {"queues": 1, "transactions": 1, "processes": 1, "messages": 1, "actions": 0}
    assert found["space_limit_disk_bytes", "SPACE"] == definition.capacity * page
    assert found["space_used_disk_bytes", "SPACE"] == pages * page
    assert found["space_oldest_transaction_age_seconds", "SPACE"] == 45
    assert told(space)["space_oldest_transaction_age_seconds", "SPACE"] == 0


def test_transactions_in_doubt_and_those_that_ended_without_their_coordinators_are_counted(
    store: Store, clock: MovableClock
) -> None:
    space = store.space()
    make_queue(space)

    def figures() -> list[float]:
        found = told(space)
        names = "in_doubt_transactions", "oldest_in_doubt_age_seconds", "heuristic_transactions"
        return [found[f"space_{name}", "SPACE"] for name in (*names, "oldest_transaction_age_seconds")]

    assert figures() == [0, 0, 0, 0]
    clock.advance(5)

    def prepare(number: int) -> None:
        space.tpc_begin((7, f"{number}", b""))
        space.enqueue("Q", "x")
        clock.advance(10)
        space.tpc_prepare()
        clock.advance(30)

    for number in range(2):
        assert Work(partial(prepare, number)).results() == [None]
    assert figures() == [2, 70, 0, 80]
    space.commit_transaction("7:30:")
    assert figures() == [1, 30, 1, 40]
    space.abort_transaction("7:31:")
    assert figures() == [0, 0, 2, 0]
    space.tpc_forget("7:30:")
    assert figures()[2] == 1


def test_memory_is_told_where_messages_are_kept_in_it(store: Store) -> None:
    space = store.space(memory=1_000_000)
    make_queue(space, delivery="nonpersist")
    space.enqueue("Q", "short")
    found = told(space)
    assert of_queue(found, "nonpersistent_messages") == 1
    assert of_queue(found, "memory_bytes") == found["space_used_memory_bytes", "SPACE"] > 0
    assert found["space_limit_memory_bytes", "SPACE"] == 1_000_000


def test_a_queue_space_that_cannot_be_read_is_told_as_that_beside_others(store: Store) -> None:
    well, closed = store.space("WELL"), store.space("CLOSED", ipc_key=40_001)
    closed.close()
    found = told(well, closed)
    assert (found["space_up", "WELL"], found["space_up", "CLOSED"]) == (1, 0)
    assert ("space_used_queues", "CLOSED") not in found
    assert found["space_used_queues", "WELL"] == 0


def test_the_look_is_at_all_queues(store: Store) -> None:
    space = store.space()
    for name in ("B", "A", "C"):
        make_queue(space, name)
    assert [each.queue.name for each in look(space).queues] == ["A", "B", "C"]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_metric_is_named_by_the_conventions_of_prometheus(family: Any) -> None:
    assert family.name.startswith("qmadmin_")
    assert family.name.endswith(family.unit)
    assert family.unit in ("", "seconds", "bytes", "messages", "queues", "transactions", "processes", "actions")
    assert family.about.endswith(".")
    assert (family.kind == "counter") == family.shown.endswith("_total")
    assert family.labels in (("device", "space"), ("device", "space", "queue"))


def test_metrics_are_declared_once() -> None:
    names = [family.shown for family in FAMILIES]
    assert sorted(names) == sorted(set(names))
