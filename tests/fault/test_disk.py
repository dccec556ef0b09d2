"""The disk: full, failing, or locked by somebody else. What was accepted stays, what was refused never was."""

import contextlib
import errno
import shutil
import signal
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import text

from qmadmin.opening import create_device, open_device, restore_device
from qmcore.errors import (
    AbortedError,
    BadQueueError,
    OperatingSystemError,
    OutcomeUnknownError,
    QueueError,
    SystemFailureError,
)
from qmcore.probe import Point, Probe
from qmcore.purpose import Purpose
from qmstorage.sqlite import translate
from tests.fix_disk import fill
from tests.fix_store import Work, attachment_of, bodies_held, drain, eventually, make_queue, noted, space_definition

FULL = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = sys.argv[1]
from tests.fix_store import space_definition, make_queue, drain, bodies_held
from qmcore.errors import OperatingSystemError

def room(more):
    "Let files grow by no more than so many bytes."
    size = max(os.path.getsize(path + end) for end in ("", "-wal"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + more, resource.RLIM_INFINITY))

def refused(act):
    try:
        act()
    except OperatingSystemError as error:
        return error.name
    return "taken"
"""


class TestFullDisk:
    @pytest.fixture
    def device(self, small_disk):
        with create_device(small_disk / "QUE", 50_000) as made:
            made.create_space(space_definition(pages=20_000, messages=20_000))
            yield made

    @pytest.fixture
    def space(self, device):
        with device.open_space("SPACE") as opened:
            make_queue(opened, "Q", retries=3)
            make_queue(opened, "OUT")
            yield opened

    def test_an_enqueue_is_refused_and_everything_before_it_is_there(self, space, small_disk):
        accepted = []
        with pytest.raises(OperatingSystemError, match="no room left on the disk"):
            while True:
                accepted.append(space.enqueue("Q", bytes(3_000)))
        usage = space.usage("Q")
        assert (usage.messages, usage.enqueued) == (len(accepted), len(accepted))
        assert [info.msgid for info in space.messages("Q")] == accepted
        for _ in range(3):
            with pytest.raises(OperatingSystemError):
                space.enqueue("Q", bytes(100_000))

    def test_it_works_again_when_there_is_room(self, space, small_disk):
        space.enqueue("Q", "before")
        filling = fill(small_disk)
        with pytest.raises(OperatingSystemError):
            for _ in range(100):
                space.enqueue("Q", bytes(20_000))
        filling.unlink()
        space.enqueue("Q", "after")
        texts = drain(space)
        assert (texts[0], texts[-1]) == ("before", "after")

    def test_a_backup_that_does_not_fit_leaves_nothing(self, device, space, small_disk, tmp_path):
        space.enqueue_many("Q", [bytes(3_000)] * 400)
        (small_disk / "ZZZ").write_bytes(bytes(1_300_000))
        before = sorted(path.name for path in small_disk.iterdir())
        with pytest.raises(OperatingSystemError, match="no room left on the disk"):
            device.backup(small_disk / "backup")
        assert sorted(path.name for path in small_disk.iterdir()) == before
        report = device.backup(tmp_path / "backup")
        with pytest.raises(OperatingSystemError, match="No space left"):
            restore_device(tmp_path / "backup", small_disk / "NEW")
        assert sorted(path.name for path in small_disk.iterdir()) == before
        (small_disk / "ZZZ").unlink()
        assert (report.messages, len(list(space.messages("Q")))) == (400, 400)

    def test_a_commit_is_refused_and_its_messages_are_back_when_there_is_room(self, space, small_disk):
        space.enqueue("Q", "request")
        with pytest.raises(OperatingSystemError), space.transaction():
            assert space.dequeue("Q").text == "request"
            for _ in range(20):
                space.enqueue("OUT", bytes(30_000))
            filling = fill(small_disk)
        filling.unlink()
        assert bodies_held(space, "OUT") == (0, 0, 0)
        assert bodies_held(space) == (1, 0, 0)
        # Nor was the disk the fault of the request.
        assert space.dequeue("Q").retries == 0

    def test_a_rollback_that_finds_no_room_is_made_up_for(self, space, small_disk):
        for _ in range(20):
            space.enqueue("Q", b"x")
        with space.transaction() as transaction:
            held = len(drain(space))
            filling = fill(small_disk)
            # What is left in the log may be room enough; then it is rolled back at once.
            transaction.rollback()
        filling.unlink()
        assert held == 20
        eventually(lambda: bodies_held(space) == (20, 0, 0), "the messages are back")

    def test_leaving_is_not_refused_and_is_finished_when_there_is_room(self, device, space, small_disk):
        space.enqueue("Q", "x")
        with contextlib.suppress(QueueError), space.transaction():
            space.dequeue("Q")
            filling = fill(small_disk)
            with contextlib.suppress(OperatingSystemError):
                for _ in range(100):
                    space.enqueue("OUT", bytes(20_000), transactional=False)
            space.close()
        filling.unlink()
        with device.open_space("SPACE") as again:
            assert device.space_usage("SPACE").processes == 1
            assert device.space_usage("SPACE").transactions == 0
            assert bodies_held(again) == (1, 0, 0)

    def test_a_device_that_does_not_fit_leaves_nothing(self, small_disk):
        filling = fill(small_disk)
        with pytest.raises(OperatingSystemError):
            create_device(small_disk / "QUE", 100)
        assert [path.name for path in small_disk.iterdir()] == ["filling"]
        filling.unlink()
        create_device(small_disk / "QUE", 100).close()

    def test_a_queue_space_whose_disk_cannot_be_allocated_is_refused_and_the_room_is_given_back(self, small_disk):
        told = []
        with create_device(small_disk / "QUE", 50_000) as device:
            with pytest.raises(OperatingSystemError, match="no room left"):
                device.create_space(space_definition(pages=10_000), initialize=True, progress=told.append)
            assert (device.spaces(), len(device.table_of_contents())) == ([], 2)
            device.create_space(space_definition(pages=100, queues=5))
            with device.open_space("SPACE") as space:
                make_queue(space)
                space.enqueue("Q", "x")
                assert drain(space) == ["x"]
        assert told == sorted(told)
        assert 100 not in told

    def test_opening_on_a_full_disk_is_a_diagnostic_and_harms_nothing(self, small_disk):
        with create_device(small_disk / "QUE", 50_000) as device:
            device.create_space(space_definition())
            with device.open_space("SPACE") as space:
                make_queue(space)
                space.enqueue("Q", "x")
        shutil.rmtree(small_disk / "QUE-run")
        filling = fill(small_disk)
        with contextlib.suppress(QueueError), open_device(small_disk / "QUE") as device:
            device.open_space("SPACE")
        filling.unlink()
        with open_device(small_disk / "QUE") as device, device.open_space("SPACE") as space:
            assert drain(space) == ["x"]


def test_a_file_that_may_not_grow_is_the_same_for_any_user(file_device, start):
    """The same without a disk of its own: the system lets the files of the process grow no further."""
    path = file_device.path
    file_device.close()
    child = start(
        FULL + "with open_device(path) as device, device.open_space('SPACE') as space:\n"
        "    first = space.enqueue('Q', 'first')\n"
        "    room(10_000)\n"
        "    say(refused(lambda: [space.enqueue('Q', bytes(30_000)) for _ in range(100)]))\n"
        "    before = space.usage('Q').messages\n"
        "    say(refused(lambda: space.enqueue('Q', bytes(1_000_000))))\n"
        "    say(space.usage('Q').messages == before)\n"
        "    room(10_000_000)\n"
        "    say(refused(lambda: space.enqueue('Q', 'last')))\n"
        "    texts = [message.msgid for message in space.messages('Q')]\n"
        "    say(texts[0] == first, len(texts) == before + 1)\n",
        path,
    )
    child.expect("QMEOS", "QMEOS", "True", "taken", "True True")
    child.finish()


def test_what_a_refused_rollback_has_kept_comes_first_when_there_is_room_again(file_device, start):
    child = start(
        FULL + "with open_device(path) as device, device.open_space('SPACE') as space:\n"
        "    space.enqueue_many('Q', 'abc')\n"
        "    def work():\n"
        "        with space.transaction():\n"
        "            say(space.dequeue('Q').text)\n"
        "            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))\n"
        "            space.enqueue('ERRORS', 'its reply')\n"
        "    say(refused(work), refused(lambda: space.dequeue('Q')))\n"
        "    room(10_000_000)\n"
        "    say(*drain(space))\n",
        file_device.path,
    )
    child.expect("a", "QMEOS QMEOS", "a b c")
    child.finish()


class TestFailingSync:
    """A disk that fails when a commit is brought to it."""

    @pytest.fixture
    def failing(self, monkeypatch):
        """Let the next sync fail, and those after it succeed, as the kernel has it; count them."""
        calls = []

        def fails(commit):
            calls.append(commit)
            if len(calls) == 1:
                raise OSError(errno.EIO, "Input/output error")

        def begin():
            # Of whichever device does it.
            monkeypatch.setattr(Probe, "actions", {Point.BEFORE_SYNC: (fails,)})
            return calls

        return begin

    @pytest.fixture
    def space(self, file_store):
        opened = file_store.space()
        make_queue(opened, retries=3)
        return opened

    def test_the_outcome_is_unknown_and_said_to_be(self, space, failing):
        failing()
        with pytest.raises(OutcomeUnknownError, match=r"Input/output error.*its outcome is unknown") as failure:
            space.enqueue("Q", b"x")
        assert isinstance(failure.value.__cause__, OSError)

    def test_nothing_is_tried_again_and_the_device_is_refused_until_it_is_opened_again(
        self, file_store, space, failing
    ):
        space.enqueue("Q", "safe")
        calls = failing()
        with pytest.raises(OutcomeUnknownError):
            space.enqueue("Q", b"x")
        for act in (
            lambda: space.enqueue("Q", b"y"),
            lambda: space.dequeue("Q"),
            lambda: space.usage("Q"),
            file_store.device.entries,
        ):
            with pytest.raises(SystemFailureError, match="outcome is unknown"):
                act()
        assert len(calls) == 1
        file_store.device.close()
        texts = drain(file_store.another().open_space("SPACE"))
        assert texts[0] == "safe"
        assert set(texts[1:]) <= {"x"}

    def test_all_who_shared_the_commit_are_told(self, space, failing):
        from tests.store.test_threads import Shared

        calls = failing()
        results = Shared(space).run(*[lambda: space.enqueue("Q", b"x")] * 6)
        assert {type(result) for result in results} == {OutcomeUnknownError}
        assert len(calls) == 1

    def test_who_was_refused_anyway_is_told_why_whoever_committed_for_all(self, space, failing):
        from tests.store.test_threads import Shared, refused_inside

        failing()
        refused = [refused_inside(space)] * 3
        results = Shared(space).run(*refused, *[lambda: space.enqueue("Q", b"x")] * 3)
        assert [type(result) for result in results] == [BadQueueError] * 3 + [OutcomeUnknownError] * 3

    def test_whoever_stands_behind_in_line_is_told_too(self, space):
        import threading

        syncing, may_fail = threading.Event(), threading.Event()
        calls = []

        def slow_then_failing(commit):
            calls.append(commit)
            if len(calls) == 1:
                syncing.set()
                assert may_fail.wait(90)
                raise OSError(errno.EIO, "Input/output error")

        space.probe.at(Point.BEFORE_SYNC, slow_then_failing)
        first = Work(lambda: space.enqueue("Q", b"1"))
        assert syncing.wait(90)
        volume, queued = attachment_of(space).volume, noted(space.probe, Point.QUEUED)
        second = Work(lambda: space.enqueue("Q", b"2"))
        eventually(lambda: len(queued) == 1, "the second stands in line")
        # It is committed by whoever has no reason to wait for the disk.
        volume.write(lambda _: None, Purpose.HOLDING)
        third = Work(lambda: space.enqueue("Q", b"3"))
        # Before it came the work that committed the second.
        eventually(lambda: len(queued) == 3, "the third stands in line")
        may_fail.set()
        assert {type(result) for result in first.results() + second.results()} == {OutcomeUnknownError}
        assert {type(result) for result in third.results()} == {SystemFailureError}, "nothing of it was done"
        assert len(calls) == 1

    def test_a_transaction_whose_commit_failed_so_is_not_reported_as_committed(self, file_store, space, failing):
        space.enqueue("Q", "request")
        with pytest.raises(OutcomeUnknownError), space.transaction() as transaction:
            space.dequeue("Q")
            failing()
        assert not transaction.active
        assert "committed" not in repr(transaction)

    def test_a_relaxed_device_does_not_sync(self, file_store, space, failing):
        attachment_of(space).volume.write(
            lambda unit: unit.run(text("UPDATE device SET durability = 'relaxed'")), Purpose.ADMINISTRATION
        )
        other = file_store.another().open_space("SPACE")
        calls = failing()
        other.enqueue("Q", b"x")
        assert calls == []


class TestLocked:
    """Another program has the file in a transaction of its own."""

    @pytest.fixture(autouse=True)
    def soon(self, monkeypatch):
        monkeypatch.setattr(translate, "BUSY_SECONDS", 0.2)

    @pytest.fixture
    def locked(self, file_store):
        """A queue space, and the lock of another program on its file."""
        space = file_store.space()
        make_queue(space)
        space.enqueue("Q", "x")
        program = sqlite3.connect(file_store.path, isolation_level=None)
        program.execute("BEGIN IMMEDIATE")
        yield space, program
        program.close()

    def test_a_write_gives_up_and_says_who_may_be_to_blame(self, locked):
        space, _ = locked
        with pytest.raises(SystemFailureError, match=r"stayed locked by another program for 0\.2 seconds") as refusal:
            space.enqueue("Q", b"y")
        assert "SQLite shell" in refusal.value.hint

    def test_reading_goes_on(self, locked):
        space, _ = locked
        assert [info.size for info in space.messages("Q")] == [1]

    def test_it_works_again_when_the_lock_is_gone(self, locked):
        space, program = locked
        with pytest.raises(SystemFailureError):
            space.dequeue("Q")
        program.execute("ROLLBACK")
        assert drain(space) == ["x"]

    def test_a_transaction_that_met_it_cannot_commit_any_more(self, locked):
        space, program = locked
        make = space.transaction()
        with pytest.raises(AbortedError), make:
            with pytest.raises(SystemFailureError):
                space.dequeue("Q")
            program.execute("ROLLBACK")
            space.enqueue("Q", "never")
        assert drain(space) == ["x"]

    def test_opening_and_closing_find_it_too_and_end(self, locked, file_store):
        with pytest.raises(SystemFailureError):
            file_store.another().open_space("SPACE")
        file_store.device.close()

    def test_a_process_that_is_stopped_while_it_writes_is_named_after_a_while(self, file_device, start):
        # Before: opening it writes, too.
        with file_device.open_space("SPACE") as space:
            child = start(
                "from qmcore.purpose import Purpose\n"
                "space = open_device(sys.argv[1]).open_space('SPACE')\n"
                "def stop(unit):\n"
                "    say('inside')\n"
                "    os.kill(os.getpid(), signal.SIGSTOP)\n"
                "space.probe.attachments['SPACE'].volume.write(stop, Purpose.ADMINISTRATION)\n"
                "say('done')\n",
                file_device.path,
            )
            child.expect("inside")
            with pytest.raises(SystemFailureError, match=str(child.pid)):
                space.enqueue("Q", b"x")
            child.signal(signal.SIGCONT)
            child.expect("done")
            space.enqueue("Q", "y")
            assert drain(space) == ["y"]
            child.finish()


def test_files_beside_that_were_removed_under_a_running_process_cost_no_message(file_device):
    with file_device.open_space("SPACE") as space:
        space.enqueue("Q", "x")
        shutil.rmtree(f"{file_device.path}-run")
        space.enqueue("Q", "y")
        with contextlib.suppress(QueueError):
            space.dequeue("OTHER", wait=0.01)
        assert drain(space) == ["x", "y"]
    with open_device(file_device.path) as device, device.open_space("SPACE") as space:
        assert bodies_held(space) == (0, 0, 0)
        assert Path(f"{file_device.path}-run").is_dir()
