"""One device under two names, or with two logs: whoever comes second is refused, the loser is told, nothing is lost."""

import contextlib
import shutil
import sqlite3
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from qmadmin.opening import create_device, open_device
from qmcore.errors import BadResourceError, InUseError, NotOpenError
from qmcore.findings import Severity
from qmstorage.sqlite import aliases, files
from tests.fix_store import attachment_of, drain, later, make_queue

OPENING = """
import itertools, time, types
from qmstorage.sqlite import aliases

# Each look at the clock is long after the one before.
aliases.time = types.SimpleNamespace(monotonic=itertools.count(0, 1000).__next__, sleep=time.sleep)
try:
    open_device(sys.argv[1])
except QueueError as error:
    say(error.name, error.hint)
"""

LOST = [("-wal",), ("-shm",), ("-wal", "-shm")]


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch):
    # Each look at the clock is long after the one before.
    monkeypatch.setattr(aliases, "time", SimpleNamespace(monotonic=count(0, 1000).__next__, sleep=time.sleep))


@pytest.fixture
def space(file_store):
    opened = file_store.space()
    make_queue(opened, "Q", retries=3)
    return opened


@pytest.fixture
def path(file_store, space):
    return Path(file_store.path)


@pytest.fixture
def other(path):
    """A hard link to the device."""
    link = path.with_name("OTHER")
    link.hardlink_to(path)
    return link


def beside(path, suffix):
    return path.with_name(path.name + suffix)


def lose(path, suffixes):
    for suffix in suffixes:
        beside(path, suffix).unlink()


def there(path):
    """Return what is in the queue, once whoever had the device open is gone."""
    with open_device(path) as device, device.open_space("SPACE") as space:
        return drain(space)


def refused(call, words):
    with pytest.raises(NotOpenError, match=words) as refusal:
        call()
    assert refusal.value.hint.endswith("the next call opens it again.")


class TestHardLink:
    @pytest.mark.parametrize("in_use", [True, False])
    def test_only_the_name_of_the_device_list_opens(self, file_store, space, path, other, in_use):
        space.enqueue("Q", "kept")
        if not in_use:
            file_store.device.close()
        with pytest.raises((BadResourceError, InUseError), match="name"):
            open_device(other)
        assert there(path) == ["kept"]
        assert not beside(other, "-wal").exists()

    def test_another_process_is_refused_too(self, file_store, path, other, start):
        child = start(OPENING, other)
        assert child.line().startswith("QMEINUSE")
        file_store.device.close()
        child = start(OPENING, other)
        assert "symbolic link" in child.line()

    def test_a_device_that_is_in_use_opens_again_under_its_name(self, space, path, other):
        space.enqueue("Q", "ours")
        with open_device(path) as device, device.open_space("SPACE") as again:
            assert again.dequeue("Q").text == "ours"

    def test_it_is_no_volume_of_the_device(self, file_store, other):
        before = file_store.device.entries()
        with pytest.raises((BadResourceError, InUseError)):
            file_store.device.create_entry(other, 0, 100)
        assert file_store.device.entries() == before

    def test_qcheck_tells_of_it(self, file_store, other):
        (found,) = (found for found in file_store.device.check() if found.check == "hard-link")
        assert (found.severity, found.target) == (Severity.WARNING, f"file {file_store.path}")
        assert "2 names" in found.sentence


def test_a_file_that_is_mounted_alone_is_refused(tmp_path, path, file_store, monkeypatch):
    file_store.device.close()
    mount = f"1 1 0:1 / / rw - ext4 /dev/a rw\n2 1 0:1 /QUE {path} rw - ext4 /dev/a rw\n"
    monkeypatch.setattr(Path, "read_text", lambda found: mount if found.name == "mountinfo" else "")
    with pytest.raises(BadResourceError, match="is mounted as a single file") as refusal:
        open_device(path)
    assert "directory" in refusal.value.hint
    with pytest.raises(BadResourceError, match="is mounted as a single file"):
        create_device(path, 100)


class TestRemoved:
    @pytest.mark.parametrize("call", ["enqueue", "dequeue", "usage"])
    @pytest.mark.parametrize("suffixes", [*LOST, (files.RUN,)], ids=" ".join)
    def test_the_loser_is_told_within_a_second_and_the_next_call_goes_on(self, space, path, clock, suffixes, call):
        space.enqueue("Q", "before")
        if suffixes == (files.RUN,):
            shutil.rmtree(beside(path, files.RUN))
        else:
            lose(path, suffixes)
        clock.advance(2)
        words = f"{path}{suffixes[0]}' of device '{path}' was removed or replaced while it was open"
        refused(lambda: getattr(space, call)(*("Q", "lost")[: 1 + (call == "enqueue")]), words)
        space.enqueue("Q", "after")
        assert drain(space) == ["before", "after"]
        assert there(path) == []

    @pytest.mark.parametrize("suffixes", LOST, ids=" ".join)
    def test_a_commit_is_refused_whenever_it_comes(self, space, path, monkeypatch, suffixes):
        space.enqueue("Q", "taken")
        with pytest.raises(NotOpenError), space.transaction():
            assert space.dequeue("Q").text == "taken"
            lose(path, suffixes)
            later(monkeypatch)
        assert there(path) == ["taken"]


@pytest.mark.parametrize("suffixes", LOST, ids=" ".join)
class TestWithoutItsLog:
    def test_nobody_else_comes_in_and_nothing_is_lost(self, space, path, clock, suffixes):
        space.enqueue("Q", "before")
        lose(path, suffixes)
        space.enqueue("Q", "after")
        with pytest.raises(InUseError, match="was removed, or that has the file under another name"):
            open_device(path)
        clock.advance(2)
        refused(lambda: space.enqueue("Q", "lost"), "was removed or replaced")
        assert there(path) == ["before", "after"]

    def test_nothing_is_lost_by_a_process_that_ends_without_noticing(self, file_store, space, path, suffixes):
        space.enqueue("Q", "before")
        lose(path, suffixes)
        space.enqueue("Q", "after")
        file_store.device.close()
        assert there(path) == ["before", "after"]

    def test_whoever_comes_waits_for_the_loser_to_notice(self, space, path, monkeypatch, suffixes):
        rested = []

        def rests(seconds):
            rested.append(seconds)
            with contextlib.suppress(NotOpenError):
                attachment_of(space).volume.check_place()

        monkeypatch.setattr(aliases, "time", SimpleNamespace(monotonic=time.monotonic, sleep=rests))
        space.enqueue("Q", "before")
        lose(path, suffixes)
        assert there(path) == ["before"]
        assert rested


def test_what_another_program_has_written_to_a_new_log_stays(file_store, space, path, clock, start):
    space.enqueue("Q", "before")
    lose(path, ("-wal", "-shm"))
    start(
        """
import sqlite3
with sqlite3.connect(sys.argv[1]) as connection:
    connection.execute("CREATE TABLE theirs AS SELECT 'kept' AS word")
""",
        path,
    ).finish()
    clock.advance(2)
    refused(lambda: space.enqueue("Q", "lost"), "was removed or replaced")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT word FROM theirs").fetchall() == [("kept",)]
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_file_that_is_moved_away_takes_along_what_was_written(space, path, clock):
    space.enqueue("Q", "before")
    moved = path.rename(path.with_name("MOVED"))
    space.enqueue("Q", "after")
    with pytest.raises(InUseError):
        open_device(moved)
    clock.advance(2)
    refused(lambda: space.enqueue("Q", "lost"), "the file of device")
    assert not beside(path, "-wal").exists()
    assert there(moved) == ["before", "after"]


HAVING = """
with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space:
    say("has it open")
    heard()
"""


@pytest.mark.parametrize("how", ["open", "create"])
def test_a_file_takes_no_place_that_another_process_believes_to_have_open(file_store, path, start, how):
    file_store.device.close()
    copy = path.with_name("COPY")
    shutil.copy(path, copy)
    child = start(HAVING, path)
    child.expect("has it open")
    path.rename(path.with_name("OLD"))
    if how == "open":
        copy.rename(path)
    with pytest.raises(InUseError, match="its file was removed or replaced meanwhile"):
        open_device(path) if how == "open" else create_device(path, 100)
    assert beside(path, files.RUN).is_dir()
    assert path.exists() == (how == "open")
    child.say()
    child.finish()
    device = open_device(path) if how == "open" else create_device(path, 100)
    device.close()


def test_a_process_looks_once_a_second(space, monkeypatch):
    looks = []
    monkeypatch.setattr(aliases.Belongings, "lost", lambda _: looks.append(1) or "")
    for seconds, looked in ((10, 1), (10.9, 1), (11.1, 2)):
        later(monkeypatch, seconds)
        for _ in range(3):
            space.enqueue("Q", "x")
        assert len(looks) == looked
