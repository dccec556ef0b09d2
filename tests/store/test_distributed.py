"""Transactions over several volumes, of one device or of several: committed together, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
import sqlite3
import threading
from collections import Counter

import psycopg
import pytest

import qmadmin
from qmadmin import aio
from qmadmin.opening import create_device
from qmcore.acts import recovering
from qmcore.errors import (
    AbortedError,
    HeuristicError,
    InvalidArgumentError,
    NoSpaceError,
    NotOpenError,
    OperatingSystemError,
    OutcomeUnknownError,
    ProtocolError,
    QueueError,
)
from qmcore.probe import Point
from qmcore.purpose import Purpose
from tests.fix_store import attachment_of, connection_of, drain, eventually, make_queue, space_definition

pytestmark = pytest.mark.matrix(every=2)


def move(pair, **how):
    """Move a message from the one volume to the other, and return the transaction."""
    with qmadmin.transaction(pair.a, pair.b, **how) as tx:
        pair.b.enqueue("OUT", pair.a.dequeue("Q").text)
    return tx


def syncs(pair):
    """Count, from now on, the commits of each volume that are on the disk when they return."""
    counts = {}
    for device in pair.devices:
        counts[device] = []
        point = Point.AFTER_SYNC if device.kind == "sqlite" else Point.AFTER_COMMIT
        device.probe.at(point, counts[device].append)
    return counts


# ---- what is committed -----------------------------------------------------------------------------------------------


@pytest.mark.matrix
@pytest.mark.parametrize("decider", ["a", "b", None])
def test_a_message_is_moved_from_a_volume_to_another_in_one_transaction(pair, decider):
    pair.a.enqueue("Q", "x")
    tx = move(pair, decider=decider and getattr(pair, decider))
    assert (tx.active, tx.complete, drain(pair.a), drain(pair.b, "OUT")) == (False, True, [], ["x"])
    pair.wait_until_settled()
    assert pair.rows("decision") == 0


def test_what_raises_in_the_block_rolls_all_of_it_back(pair):
    pair.a.enqueue("Q", "x")
    with pytest.raises(ZeroDivisionError), qmadmin.transaction(pair.a, pair.b) as tx:
        pair.b.enqueue("OUT", pair.a.dequeue("Q").text)
        raise ZeroDivisionError
    message = pair.a.dequeue("Q")
    assert (tx.complete, message.retries, drain(pair.b, "OUT")) == (False, 1, [])
    assert (pair.rows("trans"), pair.rows("decision"), pair.rows("era")) == (0, 0, 0)


def test_nothing_of_it_is_seen_before_the_commit_and_all_of_it_after(pair):
    with qmadmin.transaction(pair.a, pair.b) as tx:
        pair.a.enqueue("OUT", "one")
        pair.b.enqueue("OUT", "other")
        seen = [space.dequeue("OUT", transactional=False) for space in (pair.a, pair.b)]
        assert tx.active
    assert (seen, drain(pair.a, "OUT"), drain(pair.b, "OUT")) == ([None, None], ["one"], ["other"])


def test_what_is_refused_for_want_of_room_at_the_commit_leaves_nothing_of_it(pair):
    pair.b.enqueue_many("OUT", ["x"] * 990)
    pair.a.enqueue("Q", "x")
    with pytest.raises(NoSpaceError), qmadmin.transaction(pair.a, pair.b):
        pair.b.enqueue_many("OUT", ["more"] * 6)
        pair.a.dequeue("Q")
        # There is room for them by now only as long as nobody else takes it.
        pair.b.enqueue_many("OUT", ["others"] * 6, transactional=False)
    assert (pair.a.dequeue("Q").text, pair.b.usage("OUT").messages) == ("x", 996)
    pair.wait_until_settled()


def test_its_time_is_one_for_all(pair):
    with pytest.raises(AbortedError, match="timeout"), qmadmin.transaction(pair.a, pair.b, timeout=0.05):
        pair.a.enqueue("OUT", "one")
        eventually(lambda: not pair.a.dequeue("IDLE", wait=0.1, transactional=False), "the end of its time")
        pair.b.enqueue("OUT", "other")
    assert (drain(pair.a, "OUT"), drain(pair.b, "OUT")) == ([], [])


# ---- what takes no part ----------------------------------------------------------------------------------------------


def test_a_volume_that_was_only_looked_at_costs_nothing_and_lets_go_of_what_it_has_locked(pair):
    pair.a.enqueue("Q", "x")
    pair.b.enqueue("Q", "looked at")
    with qmadmin.transaction(pair.a, pair.b):
        assert pair.b.lock("Q").text == "looked at"
        assert pair.a.dequeue("Q").text == "x"
    assert (pair.rows("decision"), pair.rows("era"), drain(pair.a), drain(pair.b)) == (0, 0, [], ["looked at"])


def test_a_transaction_on_one_of_them_is_committed_as_any_other(pair):
    with qmadmin.transaction(pair.a, pair.b) as tx:
        pair.b.enqueue("OUT", "x")
    assert (tx.complete, pair.rows("decision"), pair.rows("era"), drain(pair.b, "OUT")) == (True, 0, 0, ["x"])


def test_one_of_two_volumes_is_prepared_and_the_other_one_decides_with_a_sync_each(pair):
    pair.a.enqueue_many("Q", ["x", "y"])
    move(pair)
    counts = syncs(pair)
    move(pair)
    if any(device.kind == "postgresql" for device in pair.devices):
        # Each commit is a point there, also those that wait for no disk.
        return
    assert sum(map(len, counts.values())) == 2


@pytest.mark.parametrize("pair", ["file-file"], indirect=True)
def test_a_message_is_moved_to_another_volume_by_so_few_statements(pair):
    """A figure here may fall. One that rises has made every such transaction slower, and needs a reason."""
    pair.a.enqueue_many("Q", "abcdefg")
    # Definitions, an era and numbers for what is enqueued are there then.
    move(pair)
    move(pair)
    here, found = threading.get_ident(), []

    def note(statement):
        # Recovery may be at work, in a thread of its own.
        if threading.get_ident() == here:
            found[-1].append(statement.split(None, 1)[0].upper())

    connections = [connection_of(space) for space in (pair.a, pair.b)]
    for connection in connections:
        connection.set_trace_callback(note)
    for _ in range(5):
        found.append([])
        move(pair)
    for connection in connections:
        connection.set_trace_callback(None)
    kinds = Counter(min(found, key=len))
    changes = sum(kinds[word] for word in ("INSERT", "UPDATE", "DELETE"))
    assert kinds["COMMIT"] == 4
    assert changes <= 23
    assert kinds["SELECT"] <= 10


@pytest.mark.parametrize("pair", ["file-file", "file-postgres"], indirect=True)
def test_three_volumes_prepare_beside_each_other_and_one_that_refuses_keeps_all_from_it(pair, tmp_path):
    with create_device(tmp_path / "THIRD", 5_000) as device:
        device.create_space(space_definition("C", messages=1))
        with device.open_space("C") as third:
            make_queue(third, "OUT")
            pair.a.enqueue_many("Q", ["x", "y"])
            with qmadmin.transaction(pair.a, pair.b, third, decider=pair.a):
                pair.b.enqueue("OUT", pair.a.dequeue("Q").text)
                third.enqueue("OUT", "x")
            assert (drain(pair.b, "OUT"), drain(third, "OUT")) == (["x"], ["x"])
            with pytest.raises(NoSpaceError), qmadmin.transaction(pair.a, pair.b, third, decider=pair.a):
                pair.b.enqueue("OUT", pair.a.dequeue("Q").text)
                third.enqueue("OUT", "y")
                # It takes the only room there is.
                third.enqueue("OUT", "other", transactional=False)
            assert (drain(pair.a), drain(pair.b, "OUT"), drain(third, "OUT")) == (["y"], [], ["other"])
            pair.wait_until_settled()


@pytest.mark.parametrize("pair", ["file-file"], indirect=True)
@pytest.mark.parametrize("decider", ["a", "b"])
def test_where_the_disk_of_one_that_prepares_fails_nothing_of_it_remains(pair, decider):
    def fails(_commit):
        raise OSError(errno.EIO, "the disk fails")

    other = pair.b if decider == "a" else pair.a
    pair.a.enqueue("Q", "x")
    with (
        pytest.raises(AbortedError, match=r"and nothing of it remains: .* failed .*the disk fails") as caught,
        qmadmin.transaction(pair.a, pair.b, decider=getattr(pair, decider)) as tx,
    ):
        pair.b.enqueue("OUT", pair.a.dequeue("Q").text)
        other.device.probe.at(Point.BEFORE_SYNC, fails)
    assert other.device.path in str(caught.value)
    assert "unknown" not in str(caught.value)
    assert (tx.active, tx.complete) == (False, False)
    pair.close()
    pair.open()
    pair.wait_until_settled()
    assert (drain(pair.a), drain(pair.b, "OUT")) == (["x"], [])


# ---- the whole of a device -------------------------------------------------------------------------------------------


def test_a_device_stands_for_all_of_its_queue_spaces(pair):
    pair.a.enqueue("Q", "x")
    with qmadmin.transaction(*pair.devices) as tx:
        pair.b.enqueue("OUT", pair.a.dequeue("Q").text)
    assert (tx.complete, drain(pair.a), drain(pair.b, "OUT")) == (True, [], ["x"])


def test_the_transaction_of_a_device_covers_all_of_its_volumes(pair):
    if len(pair.devices) > 1:
        with pair.devices[0].transaction():
            pair.a.enqueue("OUT", "x")
            pair.b.enqueue("OUT", "outside")
            assert drain(pair.b, "OUT") == ["outside"]
        return
    (device,) = pair.devices
    pair.a.enqueue("Q", "x")
    with pytest.raises(ZeroDivisionError), device.transaction():
        pair.b.enqueue("OUT", pair.a.dequeue("Q").text)
        raise ZeroDivisionError
    with device.transaction():
        pair.b.enqueue("OUT", pair.a.dequeue("Q").text)
    assert (drain(pair.a), drain(pair.b, "OUT")) == ([], ["x"])


# ---- what cannot be reached ------------------------------------------------------------------------------------------


class StepError(OSError):
    """A step that fails, once."""


@pytest.mark.matrix
@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_a_step_that_fails_leaves_all_or_nothing(pair, step):
    pair.a.enqueue("Q", "x")
    steps = itertools.count(1)

    def fails(_fact):
        if next(steps) == step:
            raise StepError

    with contextlib.suppress(StepError, QueueError), qmadmin.transaction(pair.a, pair.b, decider=pair.a) as tx:
        pair.b.enqueue("OUT", pair.a.dequeue("Q").text)
        for device in pair.devices:
            device.probe.at(Point.BEFORE_WRITE, fails)
    for device in pair.devices:
        device.probe.leave(Point.BEFORE_WRITE)
    pair.wait_until_settled()
    arrived = drain(pair.b, "OUT")
    assert (drain(pair.a), arrived) == (([], ["x"]) if arrived else (["x"], []))
    # Where it is said to be committed it is, and the other way round.
    assert bool(arrived) is tx.complete or (arrived and "committed" in repr(tx))


# ---- what an administrator does meanwhile ---------------------------------------------------------------------------


@pytest.mark.parametrize("pair", ["file-file", "file-postgres"], indirect=True)
def test_a_branch_that_was_ended_otherwise_than_decided_is_told_by_the_commit(pair, before_decision):
    pair.a.enqueue("Q", "x")
    before_decision(lambda: pair.end_without_decider("B", qmadmin.QueueSpace.abort_transaction))
    with (
        pytest.raises(HeuristicError, match="was rolled back heuristically by") as caught,
        qmadmin.transaction(*pair.devices, decider=pair.a) as tx,
    ):
        pair.b.enqueue("OUT", pair.a.dequeue("Q").text)
    assert (caught.value.committed, repr(tx), tx.complete) == (False, "<Transaction committed>", False)
    assert (drain(pair.a), drain(pair.b, "OUT")) == ([], [])
    eventually(
        lambda: not pair.work() and [info.decided for info in pair.b.transactions()] == ["committed"],
        "recovery has compared it",
    )
    pair.b.tpc_forget(str(pair.b.transactions()[0].xid))
    pair.wait_until_settled()


@pytest.mark.parametrize("pair", ["file-file"], indirect=True)
def test_so_it_is_where_that_is_seen_while_the_commit_waits(pair, before_decision, monkeypatch):
    complete, failed = recovering.complete, []

    def fails_once(*arguments):
        if not failed:
            failed.append(1)
            raise OperatingSystemError("the server is away")
        complete(*arguments)

    before_decision(lambda: pair.end_without_decider("B", qmadmin.QueueSpace.abort_transaction))
    monkeypatch.setattr(recovering, "complete", fails_once)
    with (
        pytest.raises(HeuristicError, match="was rolled back heuristically by"),
        qmadmin.transaction(pair.a, pair.b, decider=pair.a, complete=True) as tx,
    ):
        pair.a.enqueue("OUT", "x")
        pair.b.enqueue("OUT", "x")
    assert (repr(tx), tx.complete, failed) == ("<Transaction committed>", False, [1])


@pytest.mark.parametrize("pair", ["file-file", "file-postgres"], indirect=True)
def test_a_branch_that_was_ended_as_decided_is_forgotten(pair, before_decision):
    before_decision(lambda: pair.end_without_decider("B", qmadmin.QueueSpace.commit_transaction))
    with qmadmin.transaction(pair.a, pair.b, decider=pair.a) as tx:
        pair.a.enqueue("OUT", "x")
        pair.b.enqueue("OUT", "x")
    assert (tx.complete, pair.b.transactions(), drain(pair.b, "OUT")) == (True, [], ["x"])
    pair.wait_until_settled()


# ---- tasks -----------------------------------------------------------------------------------------------------------


def test_tasks_have_the_same(pair):
    pair.a.enqueue("Q", "x")

    async def run():
        first, second = pair.configs
        async with aio.open_device(first) as one, aio.open_device(second) as its:
            other = one if first == second else its
            async with one.open_space("A") as a, other.open_space("B") as b:
                with pytest.raises(ZeroDivisionError):
                    async with aio.transaction(a, b) as tx:
                        await b.enqueue("OUT", (await a.dequeue("Q")).text)
                        raise ZeroDivisionError
                assert not tx.complete
                async with aio.transaction(one, other) if one is not other else one.transaction() as tx:
                    await b.enqueue("OUT", (await a.dequeue("Q")).text)
                assert tx.complete

    asyncio.run(run())
    assert (drain(pair.a), drain(pair.b, "OUT")) == ([], ["x"])


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_what_is_no_resource_or_is_named_twice_is_refused(pair):
    for resources, words in [
        ((), "at least one"),
        (("A",), "is a queue space, a device, or a connection"),
        ((pair.a, pair.b, pair.a), "takes part in the transaction twice"),
        ((pair.a.device, pair.a), "takes part in the transaction twice"),
    ]:
        with pytest.raises(InvalidArgumentError, match=words):
            qmadmin.transaction(*resources)
    with pytest.raises(InvalidArgumentError, match="is none of the resources"):
        qmadmin.transaction(pair.a, decider=pair.b)


def test_transactions_do_not_nest(pair):
    with qmadmin.transaction(pair.a, pair.b):
        for begin in (pair.a.transaction, pair.b.transaction, lambda: qmadmin.transaction(pair.b).__enter__()):
            with pytest.raises(ProtocolError, match="a transaction is open already"):
                begin()
    with pair.a.transaction(), pytest.raises(ProtocolError, match="a transaction is open already"):
        qmadmin.transaction(pair.a, pair.b).__enter__()
    pair.b.enqueue("OUT", "outside")
    assert drain(pair.b, "OUT") == ["outside"]


def test_two_relaxed_devices_have_nobody_who_could_decide(tmp_path):
    spaces = []
    for name in "AB":
        device = create_device(tmp_path / name, 5_000, durability="relaxed")
        device.create_space(space_definition(name))
        spaces.append(device.open_space(name))
        make_queue(spaces[-1], "Q")
    with pytest.raises(ProtocolError, match="'A' and 'B' can decide"), qmadmin.transaction(*spaces):
        for space in spaces:
            space.enqueue("Q", "x")
    assert [(space.transactions(), drain(space)) for space in spaces] == [([], []), ([], [])]
    for space in spaces:
        space.device.close()


def test_the_outcome_of_a_transaction_is_asked_by_its_identifier(pair):
    for text in ("", "xyz", "00" * 16, f"{'00' * 16}-1-0"):
        with pytest.raises(InvalidArgumentError):
            qmadmin.outcome(pair.a, text)


@pytest.mark.parametrize("pair", ["file-file"], indirect=True)
def test_what_nobody_could_tell_is_asked_later_and_ends_by_itself(pair):
    def fails(_fact):
        raise OperatingSystemError("the disk fails")

    # The last step before the decision.
    pair.b.device.probe.at(Point.AFTER_SYNC, lambda _fact: pair.a.device.probe.at(Point.BEFORE_WRITE, fails))
    with (
        pytest.raises(OutcomeUnknownError, match="which decides it, cannot be asked") as caught,
        qmadmin.transaction(pair.a, pair.b, decider=pair.a) as tx,
    ):
        pair.a.enqueue("OUT", "x")
        pair.b.enqueue("OUT", "x")
    assert (tx.active, tx.complete) == (False, False)
    pair.b.device.probe.leave(Point.AFTER_SYNC)
    pair.a.device.probe.leave(Point.BEFORE_WRITE)
    pair.wait_until_settled()
    gtrid = caught.value.facts["gtrid"]
    assert (qmadmin.outcome(pair.a, gtrid), drain(pair.a, "OUT"), drain(pair.b, "OUT")) == (False, [], [])
    # One that was set back to before that does not know.
    identifier, era, _ = gtrid.split("-")
    assert qmadmin.outcome(pair.a, f"{identifier}-{era}-7") is None


def test_a_handle_that_is_closed_neither_decides_nor_tells_an_outcome(pair):
    pair.a.close()
    with pytest.raises(NotOpenError, match="queue space 'A' is closed"):
        qmadmin.transaction(pair.b, pair.a, decider=pair.a)
    with pytest.raises(NotOpenError, match="queue space 'A' is closed"):
        qmadmin.outcome(pair.a, f"{'00' * 16}-1-0")


@pytest.mark.parametrize("pair", ["file-file"], indirect=True)
def test_a_device_that_is_closed_takes_no_part_beside_a_database(pair):
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        pair.a.device.close()
        with pytest.raises(NotOpenError, match="is closed"), qmadmin.transaction(pair.a, connection):
            pass


def test_a_device_in_memory_takes_part_alone(pair):
    with create_device(":memory:", 5_000) as device:
        device.create_space(space_definition("M"))
        with device.open_space("M") as space:
            make_queue(space, "Q")
            with pytest.raises(InvalidArgumentError, match="a device in memory takes no part"):
                qmadmin.transaction(pair.a, space)
            with qmadmin.transaction(space) as tx:
                space.enqueue("Q", "x")
            assert (tx.complete, drain(space)) == (True, ["x"])


def test_nothing_is_decided_more_than_a_day_after_the_beginning(shared_store, tmp_path):
    store = shared_store
    space = store.space()
    make_queue(space, "Q")
    with create_device(tmp_path / "OTHER", 5_000, clock=store.clock) as device:
        device.create_space(space_definition("B"))
        with device.open_space("B") as other:
            make_queue(other, "Q")
            with (
                pytest.raises(AbortedError, match="it began more than a day ago"),
                qmadmin.transaction(space, other, decider=space),
            ):
                space.enqueue("Q", "x")
                other.enqueue("Q", "x")
                store.clock.advance(24 * 3600 + 1)
            assert (drain(space), drain(other)) == ([], [])
            with qmadmin.transaction(space, other, decider=space):
                space.enqueue("Q", "y")
                other.enqueue("Q", "y")
            assert (drain(space), drain(other)) == (["y"], ["y"])


def test_what_a_decider_says_is_on_the_disk_with_all_that_was_committed_before(shared_store):
    space = shared_store.space()
    attachment = attachment_of(space)

    def look():
        attachment.volume.write(lambda unit: unit.counters.bring_to_disk(attachment.opened.space.id), Purpose.PROMISE)

    if shared_store.kind == "postgres":
        with psycopg.connect(os.environ["QM_TEST_DATABASE"].replace("+psycopg", ""), autocommit=True) as connection:

            def ask(what):
                return connection.execute(f"SELECT pg_current_wal_{what}_lsn() - '0/0'::pg_lsn").fetchone()[0]

            attachment.volume.write(lambda unit: unit.counters.reserve(attachment.opened.space.id, 1), Purpose.HOLDING)
            written = ask("insert")
            look()
            assert ask("flush") >= written
        return
    synced = []
    space.device.probe.at(Point.AFTER_SYNC, synced.append)
    look()
    assert len(synced) == 1
