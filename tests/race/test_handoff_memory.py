"""The places in which processes leave each other works, and what stands in them."""

import contextlib
import os
import signal
import sqlite3
import sys

import pytest

from qmadmin import OutcomeUnknownError
from qmadmin.opening import create_device, open_device
from qmcore.probe import Point
from qmstorage.sqlite import handoff, handoff_memory
from qmstorage.sqlite.files import run_directory, surroundings
from tests.fix_handoff import FIRST, KNOWING, Closed, departure_of
from tests.fix_store import drain, make_queue, space_definition

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere processes wait for their turn")

KEEPING = (
    KNOWING
    + """
say(place, number)
if sys.argv[2:] and os.fork() == 0:
    say("child", os.getpid())
    signal.pause()
heard()
device.close()
"""
)


def handoff_of(device):
    return contextlib.closing(handoff.open_handoff(surroundings(device.path), device.path))


def test_the_place_of_a_process_that_died_is_another_s_though_a_child_of_it_lives(start, file_device):
    keeping = start(KEEPING, file_device.path, "forks")
    keeping.expect("0 0")
    child = int(keeping.line().split()[1])
    try:
        other = start(KEEPING, file_device.path)
        other.expect("1 0")
        keeping.kill()
        other = start(KEEPING, file_device.path)
        # A number that was used there is not used again.
        other.expect("0 1")
    finally:
        os.kill(child, signal.SIGKILL)


def test_who_finds_no_place_waits_for_his_turn(meeting, file_device, monkeypatch):
    fds = [os.open(run_directory(file_device.path) / "handoff.2", os.O_RDWR) for _ in range(handoff_memory.NUMBER)]
    try:
        assert all(handoff_memory.locks(fd, place) for place, fd in enumerate(fds))
        with (
            open_device(file_device.path) as device,
            device.open_space("SPACE") as space,
            handoff_of(device) as handoff,
        ):
            departure = departure_of(space)
            assert not handoff.post(departure)
            assert not handoff.post(departure), "which is not asked again and again"
    finally:
        for fd in fds:
            os.close(fd)


# ---- the file -------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(file_device):
    """The path of the file; no process has it open."""
    file_device.close()
    return run_directory(file_device.path) / "handoff.2"


HOLDING = """
import errno, gc, socket
from pathlib import Path
from types import SimpleNamespace
from qmstorage.sqlite import handoff, wal

def holds():
    return len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_text().count("handoff.2")

def refuses(*_, **__):
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

_, path, missing = sys.argv
# What is loaded late has files open for a moment.
with open_device(path) as device, device.open_space("SPACE") as space:
    space.enqueue("Q", "message")
del device, space
gc.collect()
if missing:
    gc.enable()
else:
    gc.disable()
before = holds()
if missing == "the log":
    wal.Log.__init__ = refuses
if missing == "the socket":
    handoff.socket = SimpleNamespace(**vars(socket) | {"socket": refuses})
try:
    with open_device(path) as device, device.open_space("SPACE") as space:
        space.enqueue("Q", "by oneself")
    del device, space
    say("done")
except QueueError as error:
    say(error.message)
if missing:
    gc.collect()
say(holds() == before)
"""
"""Says what came of an enqueue, and whether no more files are open behind it than before, and the places not mapped."""


def test_processes_that_start_at_the_same_time_have_the_same_file(start, file_device, file):
    file.unlink()
    children = [start(KEEPING, file_device.path) for _ in range(6)]
    assert {child.line() for child in children} == {f"{place} 0" for place in range(6)}
    assert not file.with_name("handoff.2.new").exists()


@pytest.mark.parametrize("left", [0, 10, 600_000])
def test_a_file_that_is_damaged_is_replaced_and_not_written_again_under_those_who_have_it(file_device, file, left):
    os.truncate(file, left)
    file.with_name("handoff.2.new").write_text("as a process has left it that was killed while it made one")
    with file.open("rb") as damaged, open_device(file_device.path) as device:
        with device.open_space("SPACE") as space, handoff_of(device) as handoff:
            assert handoff.post(departure_of(space))
        assert os.fstat(damaged.fileno()).st_size == left
        assert not os.path.samestat(file.stat(), os.fstat(damaged.fileno()))
    assert not file.with_name("handoff.2.new").exists()


def test_a_file_that_another_has_just_made_is_not_replaced(file_device, file):
    before = file.stat()
    handoff_memory._make(surroundings(file_device.path))
    assert os.path.samestat(file.stat(), before)
    assert not file.with_name("handoff.2.new").exists()


def test_a_device_that_was_closed_has_no_file_open_and_nothing_mapped(start, file_device):
    start(HOLDING, file_device.path, "").expect("done", "True")


@pytest.mark.parametrize("of", ["the socket", "the log"])
def test_nothing_is_left_open_where_there_are_no_more_files_to_be_opened(start, file_device, file, of):
    child = start(HOLDING, file_device.path, of)
    said = child.line()
    assert said == "done" if of == "the socket" else "Too many open files" in said
    child.expect("True")


# ---- what stands in it ----------------------------------------------------------------------------------------------


def test_nobody_is_told_before_his_work_is_on_the_disk(posts, departure, serving):
    posting = posts()
    handoff, places = posting.handoff, posting.places
    synced = []
    assert handoff.post(departure)
    asked, place = handoff.asked, posting.place
    serving.probe.at(Point.BEFORE_SYNC, lambda _: synced.append((places.committed[place], places.synced[place])))
    serving.enqueue("Q", "server's")
    assert synced == [(asked, 0)]
    assert handoff.wait(Closed()).synced
    assert drain(serving) == ["server's"]


def test_a_file_that_was_lost_with_the_power_does_not_make_works_look_committed(posts, departure, serving):
    posting = posts()
    handoff, places = posting.handoff, posting.places
    for _ in range(3):
        serving.enqueue("Q", "more")
        assert handoff.post(departure)
        serving.enqueue("Q", "more")
        assert handoff.wait(Closed())
    reached = places.last_commit
    places.last_commit = 0
    assert handoff.post(departure)
    serving.enqueue("Q", "more")
    assert handoff.wait(Closed())
    assert places.last_commit == reached + 1


def test_nothing_is_done_for_a_process_that_has_another_file_of_the_same_name_open(posts, departure, serving):
    handoff = posts((1, 1)).handoff
    assert handoff.post(departure)
    serving.enqueue("Q", "server's")
    assert drain(serving) == [FIRST, "server's"]
    assert not handoff.withdraw()


def test_what_was_begun_on_another_file_of_the_same_name_is_left_as_it_is(posts, departure, serving):
    posting = posts((1, 1))
    handoff, places = posting.handoff, posting.places
    assert handoff.post(departure)
    begun = places.taken[posting.place] = handoff.asked << 2 | 1
    serving.enqueue("Q", "server's")
    assert places.taken[posting.place] == begun
    assert places.posted[posting.place] == handoff.asked


def test_a_message_too_large_for_a_place_is_left_where_it_is(posts, departure, serving):
    posting = posts()
    drain(serving)
    serving.enqueue("Q", b"x" * handoff_memory.CONTENT_MAX)
    assert posting.handoff.post(departure)
    serving.enqueue("Q", "server's")
    assert posting.word() == 3, "its owner is to take it himself"
    assert [len(body) for body in drain(serving)] == [handoff_memory.CONTENT_MAX, len("server's")]


def test_a_message_whose_place_says_no_retries_is_left_where_it_is(posts, departure, serving, file_device):
    posting = posts()
    assert posting.handoff.post(departure)
    with contextlib.closing(sqlite3.connect(file_device.path)) as connection, connection:
        connection.execute("UPDATE ready SET retries = 'x'")
    serving.enqueue("Q", "server's")
    assert posting.word() == 3
    assert serving.usage("Q").messages == 2


@pytest.mark.parametrize(
    "damage", ["headers = 'x'", "enqueued_at = 'x'", "size = 1", "body = x'00'", "origin_queue = 'Q'"]
)
def test_a_message_that_is_damaged_is_left_where_it_is(posts, departure, serving, file_device, damage):
    posting = posts()
    assert posting.handoff.post(departure)
    with contextlib.closing(sqlite3.connect(file_device.path)) as connection, connection:
        connection.execute(f"UPDATE message SET {damage}")
    serving.enqueue("Q", "server's")
    assert posting.word() == 3, "its owner is to be told"
    assert serving.usage("Q").messages == 2


def test_the_outcome_is_unknown_where_the_answer_is_none_that_we_know(posts, departure, serving):
    posting = posts()
    handoff, places = posting.handoff, posting.places
    assert handoff.post(departure)
    serving.enqueue("Q", "server's")
    places.answer(posting.place, handoff.asked, places.last_commit, b"\xc1")
    answer = handoff.wait(Closed())
    with pytest.raises(OutcomeUnknownError, match="is damaged"):
        handoff.outcome(answer)
    assert handoff.withdraw(), "and stays so"


def test_that_a_queue_is_empty_is_an_answer(posts, departure, serving):
    posting = posts()
    handoff, places = posting.handoff, posting.places
    drain(serving)
    assert handoff.post(departure)
    assert serving.dequeue("ERRORS") is None
    assert places.last_commit == 0, "nothing is to be committed"
    answer = handoff.wait(Closed())
    outcome = handoff.outcome(answer)
    assert (outcome.queue_id, outcome.is_untidy) == (departure.source.queue_id, False)


def test_a_device_is_opened_without_a_desk_where_the_disk_has_no_room_for_one(small_disk):
    path = str(small_disk / "QUE")
    with create_device(path, 100) as device:
        device.create_space(space_definition("SPACE", pages=50))
        with device.open_space("SPACE") as space:
            make_queue(space, "Q")
            space.enqueue("Q", "x")
    around = run_directory(path)
    (around / "handoff.2").unlink()
    with (small_disk / "filling").open("wb") as file:
        there = os.statvfs(small_disk)
        # More than SQLite needs, and less than a handoff does.
        file.write(bytes(there.f_bavail * there.f_frsize - 300_000))
    with open_device(path) as device, device.open_space("SPACE") as space:
        assert handoff.open_handoff(surroundings(path), path) is None
        assert space.dequeue("Q").text == "x"
    assert not [file for file in around.iterdir() if file.name.startswith("handoff")]
