"""Commits in a transaction that PostgreSQL has aborted, to which the server answers with a rollback and no error."""

import contextlib

import psycopg
import pytest

from qmcore.errors import OutcomeUnknownError, SystemFailureError
from qmcore.probe import Point
from qmstorage import bodies
from qmstorage.postgres import opening
from qmstorage.postgres.clock import ServerClock
from tests.fix_store import make_queue
from tests.fix_storm import session_of


def fail_unnoticed(connection):
    """Abort the transaction of a connection by a statement whose failure nobody hears of."""
    with contextlib.suppress(psycopg.errors.DivisionByZero):
        connection.execute("SELECT 1/0")


@contextlib.contextmanager
def refused():
    """Expect the diagnostic of a commit by which nothing was done."""
    with pytest.raises(SystemFailureError, match="is undone, because a statement in it had failed") as failure:
        yield
    assert not isinstance(failure.value, OutcomeUnknownError)
    assert failure.value.hint.startswith("Repeat the operation; nothing of it was done.")
    assert failure.value.facts["sqlstate"] == "25P02"


def take(space):
    assert space.dequeue("Q").text == "old"


def take_in_a_transaction(space):
    with space.transaction():
        take(space)


def take_several(space):
    assert [message.text for message in space.dequeue_many("Q", 2)] == ["old"]


def bring_several(space):
    space.enqueue_many("Q", [b"new", b"newer"])


def bring_what_is_kept_apart(space):
    space.enqueue("Q", bytes(bodies.IN_ROW_MAX + 1))


def bring_that_in_a_transaction(space):
    with space.transaction():
        space.enqueue("Q", bytes(bodies.IN_ROW_MAX + 1))


def make_another_queue(space):
    make_queue(space, "ANOTHER")


ACTS = (
    take,
    take_in_a_transaction,
    take_several,
    bring_several,
    bring_what_is_kept_apart,
    bring_that_in_a_transaction,
    make_another_queue,
)


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_what_was_undone_is_not_told_to_be_done_and_the_session_goes_on(known_space, arena, act):
    def seen():
        sizes = [info.size for info in known_space.messages("Q")]
        return sizes, len(known_space.queues()), known_space.usage("Q").held, len(known_space.transactions())

    known_space.enqueue("Q", "old")
    before, session = seen(), session_of(arena.volume)
    known_space.probe.at(Point.AFTER_WRITE, lambda _: fail_unnoticed(session.connection))
    with refused():
        act(known_space)
    known_space.probe.leave(Point.AFTER_WRITE)
    assert session_of(arena.volume) is session
    assert session.is_idle
    assert seen() == before
    arena.check_counters()
    act(known_space)
    assert seen() != before
    arena.check_counters()


def test_a_look_of_which_a_part_had_failed_gives_nothing_and_the_session_goes_on(known_space, arena):
    def look(unit):
        found = unit.device.info().page_size
        if failing:
            fail_unnoticed(unit.cursor)
        return found

    failing, session = True, session_of(arena.volume)
    with refused():
        arena.volume.read(look)
    failing = False
    assert session_of(arena.volume) is session
    assert session.is_idle
    assert arena.volume.read(look) == 4096


def test_the_transaction_that_makes_or_upgrades_a_device_does_not_end_as_if_it_were_done(known_space, arena):
    def change(connection):
        with connection.transaction():
            connection.execute(f'UPDATE "{arena.schema}".device SET home = %s', ["changed"])
            if failing:
                fail_unnoticed(connection)

    failing, before = True, arena.sql("SELECT home FROM qm.device")
    with refused(), opening.connected(arena.volume.address, ServerClock()) as connection:
        change(connection)
    assert arena.sql("SELECT home FROM qm.device") == before
    with opening.connected(arena.volume.address, ServerClock()) as connection:
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            change(connection)
        failing = False
        change(connection)
    assert arena.sql("SELECT home FROM qm.device") == [("changed",)]
