"""What is due - delays, expiry, retention - is done within a second by whoever is attached, in whatever queue it is."""

import dataclasses
import math

import pytest

from qmcore.acts import housekeeping, waiting
from qmcore.errors import OperatingSystemError
from qmcore.message import State
from tests.fix_store import Work, attachment_of, count_rows, eventually, make_queue


@pytest.fixture
def space(store, monkeypatch, tmp_path):
    monkeypatch.setenv("QM_SHM_DIR", str(tmp_path))
    opened = store.space(error_queue="ERRORS", memory=400_000, pages=10_000, messages=5_000)
    for name in ("Q", "R"):
        make_queue(opened, name, keep_expired=True, retention=60, retries=3, retry_delay=5)
    for name in ("ERRORS", "OTHER"):
        make_queue(opened, name)
    return opened


def stands(space):
    """Return how many messages each queue has in each state, as it is stored and without a look at any queue."""

    def found(unit):
        known = attachment_of(space).opened.definitions(unit)
        both = [store for store in (unit, unit.memory(known.space.id)) if store]
        return {
            (queue.name, state): count
            for queue in known.queues.values()
            for state in (State.READY, State.DELAYED)
            if (
                count := sum(
                    len(store.listing.messages(known.space, queue, state, None, 9_999, None)) for store in both
                )
            )
        }

    return attachment_of(space).volume.read(found)


def touch(space):
    """Use another queue."""
    space.dequeue("OTHER")


@pytest.mark.parametrize("persistent", [True, False])
def test_a_touch_of_another_queue_does_what_is_due_in_all(space, clock, persistent):
    for name in ("Q", "R"):
        space.enqueue(name, "expires", expires_in=10, persistent=persistent)
        space.enqueue(name, "delayed", delay=10, persistent=persistent)
        space.enqueue(name, "stays", persistent=persistent)
    clock.advance(9)
    touch(space)
    assert stands(space) == {(name, state): count for name in "QR" for state, count in WAITING}
    clock.advance(1)
    touch(space)
    assert stands(space) == {("ERRORS", State.READY): 2, ("Q", State.READY): 2, ("R", State.READY): 2}


WAITING = ((State.READY, 2), (State.DELAYED, 1))


def test_so_it_is_with_what_was_retained(space, clock):
    for name in ("Q", "R"):
        space.enqueue(name, "x")
        assert space.dequeue(name).text == "x"
    clock.advance(60)
    touch(space)
    assert count_rows(space, "history") == (2,)
    clock.advance(1)
    touch(space)
    assert count_rows(space, "history", "message") == (0, 0)


def test_it_is_not_asked_again_in_the_same_second(space, clock, monkeypatch):
    clock.advance(1)
    touch(space)
    monkeypatch.setattr(housekeeping, "queues_with_work", lambda *_: pytest.fail("somebody has looked again"))
    for _ in range(3):
        space.enqueue("OTHER", "x")
        touch(space)


def test_a_touch_does_one_step_of_it_and_who_waits_all(space, clock, monkeypatch):
    monkeypatch.setattr(housekeeping, "STEP", 10)
    space.enqueue_many("Q", ["x"] * 35)
    space.change_expiry("Q", 10)
    clock.advance(10)
    space.enqueue("OTHER", "x")
    assert stands(space)["Q", State.READY] == 25
    clock.advance(1)
    attachment_of(space).do_housekeeping(waits=True)
    assert ("Q", State.READY) not in stands(space)
    assert stands(space)["ERRORS", State.READY] == 35


def test_what_is_in_the_way_in_one_queue_is_no_affair_of_who_uses_another(space, clock, monkeypatch):
    freshen = housekeeping.freshen

    def refused(unit, opened, queue, now):
        if queue.name == "Q":
            raise OperatingSystemError("the disk is full")
        return freshen(unit, opened, queue, now)

    for name in ("Q", "R"):
        space.enqueue(name, "x", expires_in=1)
    monkeypatch.setattr(housekeeping, "freshen", refused)
    clock.advance(1)
    space.enqueue("OTHER", "x")
    assert stands(space) == {("ERRORS", State.READY): 1, ("Q", State.READY): 1, ("OTHER", State.READY): 1}
    with pytest.raises(OperatingSystemError):
        list(space.messages("Q"))


def test_another_queue_space_of_the_device_is_left_to_those_who_use_it(store, space, clock):
    other = store.space("OTHERS", ipc_key=50_000)
    other.create_queue(dataclasses.replace(space.queue("Q").definition))
    other.enqueue("Q", "x", delay=1)
    clock.advance(1)
    touch(space)
    assert stands(other) == {("Q", State.DELAYED): 1}


def test_who_waits_for_an_error_queue_is_woken_by_what_expires_elsewhere(real_device, monkeypatch):
    monkeypatch.setattr(waiting, "CHECK_SECONDS", 0.02)
    with real_device.open_space("SPACE") as space:
        make_queue(space, "KEEPING", keep_expired=True)
        work = Work(lambda: space.dequeue("ERRORS", wait=math.inf))
        attachment = attachment_of(space)
        eventually(
            lambda: attachment.volume.read(lambda unit: unit.waits.of_space(attachment.opened.space.id)), "it waits"
        )
        space.enqueue("KEEPING", "x", expires_in=0.01)
        assert work.results()[0].text == "x"


def test_so_is_a_watch(space, clock):
    space.enqueue("Q", "x", expires_in=10)
    with space.watch() as watch:
        assert watch.look(["ERRORS"]).queues == ()
        clock.advance(10)
        assert watch.look(["ERRORS"]).queues == ("ERRORS",)
