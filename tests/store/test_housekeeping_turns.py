"""Housekeeping: one process does it for all that are attached to a queue space, whichever comes first each second."""

import contextlib

import psycopg
import pytest

from qmcore.acts import housekeeping
from qmcore.purpose import Purpose
from qmstorage.postgres import keys
from qmstorage.sqlite.files import run_directory
from tests.fix_postgres import database_of
from tests.fix_store import Store, attachment_of, eventually, make_queue


def laid_out(store):
    opened = store.space(error_queue="ERRORS")
    for name in ("Q", "ERRORS"):
        make_queue(opened, name)
    return opened


@pytest.fixture
def space(shared_store):
    return laid_out(shared_store)


@pytest.fixture
def looks(monkeypatch):
    """How often somebody has looked for what others left behind."""
    counted = []
    end_what_was_left = housekeeping.end_what_was_left

    def counting(*args):
        counted.append(args)
        return end_what_was_left(*args)

    monkeypatch.setattr(housekeeping, "end_what_was_left", counting)
    return counted


def test_one_process_of_all_looks_after_a_queue_space_in_a_second(shared_store, space, clock, looks):
    spaces = [space, *(shared_store.another().open_space("SPACE") for _ in range(4))]
    for _ in range(3):
        clock.advance(1)
        looks.clear()
        for each in spaces:
            attachment_of(each).do_housekeeping()
        assert len(looks) == 1


def test_each_queue_space_is_looked_after(shared_store, space, clock, looks):
    other = shared_store.space("OTHER", ipc_key=42000)
    for _ in range(2):
        clock.advance(1)
        looks.clear()
        for each in (space, other):
            attachment_of(each).do_housekeeping()
        assert len(looks) == 2


def test_it_is_looked_after_at_once_where_somebody_misses_what_another_holds(space, clock, looks):
    space.enqueue("Q", "x")
    clock.advance(1)
    attachment_of(space).do_housekeeping()
    looks.clear()
    with space.transaction():
        space.dequeue("Q")
        assert space.dequeue("Q", transactional=False) is None
    assert len(looks) == 1


def test_a_clock_that_was_set_back_keeps_nobody_from_looking_after_it(space, clock, looks):
    clock.advance(10)
    attachment_of(space).do_housekeeping()
    clock.set_back(8)
    clock.advance(1.1)
    looks.clear()
    attachment_of(space).do_housekeeping()
    assert len(looks) == 1


def test_nor_do_the_turns_that_others_had_before(shared_store, space, clock, looks):
    spaces = [space, *(shared_store.another().open_space("SPACE") for _ in range(2))]
    for first in range(6):
        clock.advance(1)
        for each in spaces[first % 3 :] + spaces[: first % 3]:
            attachment_of(each).do_housekeeping()
    for _ in range(2):
        clock.set_back(2)
        clock.advance(1)
        looks.clear()
        for each in spaces:
            attachment_of(each).do_housekeeping()
        assert len(looks) == 1


@pytest.mark.parametrize("waits", [False, True])
def test_one_that_was_taken_for_dead_attaches_again_though_others_do_the_housekeeping(
    shared_store, space, clock, looks, waits
):
    other = shared_store.another().open_space("SPACE")
    attachment = attachment_of(space)
    lost = attachment.owner
    clock.advance(1)
    attachment_of(other).do_housekeeping()
    attachment_of(other).volume.write(lambda unit: unit.owners.remove(lost.id), Purpose.TIDY)
    looks.clear()
    attachment.do_housekeeping(waits=waits)
    assert attachment.owner.id != lost.id
    recorded = attachment.volume.read(lambda unit: unit.owners.of_space(attachment.opened.space.id))
    assert attachment.owner.id in {owner.id for owner in recorded}


def test_on_postgresql_a_session_keeps_no_turn_but_its_last(database_url, clock, looks):
    store = Store("postgres", database_url, clock)
    space = laid_out(store)
    url, _ = database_of(database_url)

    def locks():
        (count,) = server.execute(
            "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database"
            " WHERE locktype = 'advisory' AND datname = current_database()"
        ).fetchone()
        return count

    with contextlib.closing(store), psycopg.connect(url, autocommit=True) as server:
        clock.advance(1)
        attachment_of(space).do_housekeeping()
        before = locks()
        for _ in range(5):
            clock.advance(1)
            attachment_of(space).do_housekeeping()
        assert locks() == before
    assert len(looks) == 6


def test_on_postgresql_one_that_cannot_tell_who_is_dead_leaves_it_to_others_to_tell(database_url, clock, looks):
    store = Store("postgres", database_url, clock)
    space = laid_out(store)
    other = store.another().open_space("SPACE")
    url, _ = database_of(database_url)
    lock = int(attachment_of(space).owner.lock)
    with contextlib.closing(store), psycopg.connect(url, autocommit=True) as server:
        (alive,) = keys.holders(server, lock)
        server.execute("SELECT pg_terminate_backend(%s)", [alive])
        eventually(lambda: keys.holders(server, lock) not in ([], [alive]), "its session is made again")
        clock.advance(1)
        for each in (space, other):
            attachment_of(each).do_housekeeping()
    assert len(looks) == 2


def test_where_the_time_cannot_be_noted_everybody_looks(file_store, clock, looks):
    space = laid_out(file_store)
    (run_directory(file_store.path) / f"{attachment_of(space).opened.space.id}.turn").mkdir()
    other = file_store.another().open_space("SPACE")
    clock.advance(1)
    for each in (space, other):
        each.enqueue("Q", "x")
    assert len(looks) == 2
