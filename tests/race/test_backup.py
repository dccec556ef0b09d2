"""Backups while other processes work, and processes that are killed in their midst."""

import contextlib
import signal
import sqlite3

import pytest

from qmadmin.opening import open_device, restore_device
from tests.fix_store import Work, drain, make_queue, space_definition

TRAFFIC = """
device = open_device(sys.argv[1])
names = sys.argv[2:]
spaces = [device.open_space(name) for name in names]
say("ready")
heard()
number = 0
while True:
    number += 1
    # The same number goes to all queue spaces, one after the other.
    for space in spaces:
        with space.transaction():
            for part in "ab":
                space.enqueue("Q", f"{number}{part}")
    say(number)
    if number % 3 == 0:
        for space in spaces:
            with space.transaction():
                for part in "ab":
                    space.enqueue("DONE", space.dequeue("Q").text)
"""

BACK_UP = """
device = open_device(sys.argv[1])
def tell(percent):
    say(percent)
    heard()
device.backup(sys.argv[2], progress=tell)
say("done")
"""

RESTORE = """
from qmadmin.opening import restore_device
def tell(percent):
    say(percent)
    heard()
restore_device(sys.argv[2], sys.argv[1], force=True, progress=tell)
say("done")
"""


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def stored(path):
    """Return the texts that the queues of a restored device have, by queue space and queue."""
    with open_device(path) as device:
        found = {}
        for space in device.spaces():
            with device.open_space(space.name) as opened:
                found[space.name] = {queue.name: drain(opened, queue.name) for queue in opened.queues()}
        return found


@pytest.fixture
def busy_device(file_device, tmp_path):
    """A device with queue spaces on three files, each with two queues."""
    for name in ("B", "C"):
        file_device.create_entry(tmp_path / name, 0, 20_000)
        file_device.create_space(space_definition(name, pages=19_000 if name == "B" else 19_999, messages=100_000))
    with contextlib.ExitStack() as stack:
        for name in ("SPACE", "B", "C"):
            space = stack.enter_context(file_device.open_space(name))
            if name != "SPACE":
                make_queue(space, "Q", retries=3)
            make_queue(space, "DONE")
    return file_device


class TestTraffic:
    @pytest.mark.parametrize("at", [1, 10, 60])
    def test_what_was_acknowledged_before_is_in_it_once_and_transactions_are_whole(
        self, busy_device, start, tmp_path, at
    ):
        assert len({busy_device.volume_of_space(name).path for name in ("SPACE", "B", "C")}) > 1
        child = start(TRAFFIC, busy_device.path, "SPACE", "B", "C")
        child.expect("ready")
        child.say()
        for number in range(1, at + 1):
            child.expect(str(number))
        busy_device.backup(tmp_path / "backup")
        child.kill()
        home = tmp_path / "home"
        home.mkdir()
        restore_device(tmp_path / "backup", home / "QUE")
        highest = []
        found = stored(home / "QUE")
        for queues in (found[name] for name in ("SPACE", "B", "C")):
            texts = queues["Q"] + queues["DONE"]
            assert len(texts) == len(set(texts))
            last = max(int(text[:-1]) for text in texts)
            assert sorted(texts) == sorted(f"{number}{part}" for number in range(1, last + 1) for part in "ab")
            # What one transaction moved is all in the one queue or all in the other.
            done = {text[:-1] for text in queues["DONE"]}
            assert sorted(queues["DONE"]) == sorted(f"{number}{part}" for number in done for part in "ab")
            highest.append(last)
        # One moment: what came to the first queue space first cannot be missing there.
        assert at <= highest[-1]
        assert highest == sorted(highest, reverse=True)
        assert highest[0] - highest[-1] <= 1

    def test_two_backups_at_once_and_a_writer_do_not_hold_each_other_up(self, busy_device, start, tmp_path):
        child = start(TRAFFIC, busy_device.path, "SPACE", "B", "C")
        child.expect("ready")
        child.say()
        with open_device(busy_device.path) as other:
            results = Work(
                *(
                    lambda device=device, number=number: device.backup(tmp_path / f"backup-{number}")
                    for number, device in enumerate((busy_device, other, busy_device))
                )
            ).results()
        child.kill()
        assert [result.faults for result in results] == [(), (), ()]

    def test_the_log_is_free_again_afterwards(self, file_device, tmp_path):
        with file_device.open_space("SPACE") as space:
            space.enqueue("Q", "x")
            file_device.backup(tmp_path / "backup")
            connection = sqlite3.connect(file_device.path)
            # A reader that was forgotten would keep the log from being emptied.
            assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
            connection.close()

    def test_the_log_is_free_already_while_the_copy_is_looked_at(self, file_device, tmp_path):
        with file_device.open_space("SPACE") as space:
            space.enqueue("Q", "x")

        def emptied(percent):
            if 60 < percent < 99:
                with contextlib.closing(sqlite3.connect(file_device.path, timeout=0)) as connection:
                    # Nothing of it is needed by a reader.
                    busy.append(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])

        busy = []
        file_device.backup(tmp_path / "backup", progress=emptied)
        assert busy
        assert set(busy) == {0}

    def test_a_process_that_forks_while_it_makes_one_loses_nothing(self, file_device, start, tmp_path):
        child = start(
            "device = open_device(sys.argv[1])\n"
            "space = device.open_space('SPACE')\n"
            "space.enqueue('Q', 'before')\n"
            "def fork(percent, done=[]):\n"
            "    if percent < 100 and not done:\n"
            "        done.append(1)\n"
            "        worker = threading.Thread(target=forked)\n"
            "        worker.start()\n"
            "        started.wait()\n"
            "started = threading.Event()\n"
            "def forked():\n"
            "    started.set()\n"
            "    if os.fork() == 0:\n"
            "        with open_device(sys.argv[1]) as mine, mine.open_space('SPACE') as own:\n"
            "            own.enqueue('Q', 'from the child')\n"
            "        os._exit(0)\n"
            "    os.wait()\n"
            "    forks.set()\n"
            "forks = threading.Event()\n"
            "device.backup(sys.argv[2], progress=fork)\n"
            "forks.wait()\n"
            "space.enqueue('Q', 'after')\n"
            "device.close()\n"
            "say('done')\n",
            file_device.path,
            tmp_path / "backup",
        )
        child.expect("done")
        child.finish()
        with file_device.open_space("SPACE") as space:
            assert drain(space) == ["before", "from the child", "after"]

    @pytest.mark.parametrize("work", ["backup(sys.argv[2], progress=fork)", "check(progress=fork)"])
    def test_whoever_is_told_of_the_progress_may_fork(self, file_device, start, tmp_path, work):
        child = start(
            "device = open_device(sys.argv[1])\n"
            "space = device.open_space('SPACE')\n"
            "space.enqueue('Q', 'before')\n"
            "def fork(percent):\n"
            "    if percent in stops:\n"
            "        stops.remove(percent)\n"
            "        if os.fork() == 0:\n"
            "            with open_device(sys.argv[1]) as mine, mine.open_space('SPACE') as own:\n"
            "                own.enqueue('Q', 'from a child')\n"
            "            os._exit(0)\n"
            "        os.wait()\n"
            "stops = set(range(1, 60, 29)) | set(range(60, 100, 13)) | {39}\n"
            "before = len(stops)\n"
            f"work = device.{work}\n"
            "list(work) if 'check' in sys.argv[3] else None\n"
            "forks = before - len(stops)\n"
            "space.enqueue('Q', 'after')\n"
            "device.close()\n"
            "say(forks)\n",
            file_device.path,
            tmp_path / "backup",
            work,
        )
        forks = int(child.line())
        assert forks > 0
        child.finish()
        with file_device.open_space("SPACE") as space:
            assert drain(space) == ["before", *["from a child"] * forks, "after"]


class TestKilled:
    def test_a_backup_that_is_killed_leaves_nothing_of_its_name_and_the_next_one_clears_up(
        self, busy_device, start, tmp_path
    ):
        target = tmp_path / "backups" / "monday"
        target.parent.mkdir()
        for stop in (20, 99):
            child = start(BACK_UP, busy_device.path, target)
            while int(child.line()) < stop:
                child.say()
            child.kill()
            assert [path.name[:8] for path in target.parent.iterdir()] == [".monday."]
        child = start(BACK_UP, busy_device.path, target)
        while child.line() != "100":
            child.say()
        child.kill()
        restored = restore_device(target, tmp_path / "home")
        assert restored.spaces == 3
        assert names(target.parent) == ["monday"]

    def test_a_restore_that_is_killed_leaves_the_old_device_or_the_new_one(self, file_device, start, tmp_path):
        path = file_device.path
        with file_device.open_space("SPACE") as space:
            space.enqueue("Q", "in the backup")
            file_device.backup(tmp_path / "backup")
            drain(space)
            space.enqueue("Q", "in the old one")
        file_device.close()
        percents = [60, 99]
        for stop in percents:
            child = start(RESTORE, path, tmp_path / "backup")
            while (said := child.line()) != "done" and int(said) < stop:
                child.say()
            child.kill()
            with open_device(path) as device, device.open_space("SPACE") as space:
                assert [message.text for message in space.browse("Q")] == ["in the old one"]
        child = start(RESTORE, path, tmp_path / "backup")
        while child.line() != "100":
            child.say()
        child.kill()
        assert stored(path)["SPACE"]["Q"] == ["in the backup"]
        assert [name for name in names(tmp_path) if name.endswith(".part")] == []


def test_ctrl_c_ends_a_backup_and_leaves_nothing(file_device, start, tmp_path):
    target = tmp_path / "backups" / "monday"
    target.parent.mkdir()
    child = start("device = open_device(sys.argv[1])\n" + BACK_UP.split("\n", 2)[2], file_device.path, target)
    child.line()
    child.signal(signal.SIGINT)
    # The signal may have come just before it began to read, and then only the end of the read lets it through.
    child.say()
    assert child.process.wait(90) != 0
    assert names(target.parent) == []
