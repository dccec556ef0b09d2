"""A backup has the device as it stood at one moment, and a restored device is that device."""

import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from qmadmin.opening import create_device, open_device, restore_device
from qmcore.errors import (
    BadResourceError,
    InUseError,
    InvalidArgumentError,
    OperatingSystemError,
    ProtocolError,
    QueueError,
    ReleaseError,
    SystemFailureError,
)
from qmcore.queue import QueueDefinition
from tests.fix_store import Work, bodies_held, drain, make_queue, queue_definition, space_definition


@pytest.fixture
def space(file_store):
    opened = file_store.space()
    make_queue(opened, "Q", retries=3)
    return opened


@pytest.fixture
def target(tmp_path):
    (tmp_path / "backups").mkdir()
    return tmp_path / "backups" / "monday"


@pytest.fixture
def reopened(file_store):
    """Open a device that a test has restored, until the test is over."""

    def opened(path):
        device = open_device(path, clock=file_store.clock)
        file_store.others.append(device)
        return device

    return opened


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def by_hand(path, *statements):
    """Change a file that nobody has open, as a failing disk or a careless hand would."""
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


class TestBackup:
    def test_it_has_the_schedules_which_go_on_where_it_is_restored(
        self, file_store, space, target, reopened, tmp_path, clock
    ):
        made = space.create_schedule("tea", "Q", "every 10m", "put the kettle on")
        file_store.device.backup(target)
        space.delete_schedule("tea")
        restore_device(target, tmp_path / "NEW")
        with reopened(tmp_path / "NEW").open_space("SPACE") as again:
            assert again.schedules() == [made]
            clock.advance(600)
            assert drain(again) == ["put the kettle on"]
        assert drain(space) == []

    def test_it_has_what_the_device_has(self, file_store, space, target, reopened, tmp_path, clock):
        ids = [space.enqueue("Q", body, priority=priority) for priority, body in enumerate("abc", 1)]
        report = file_store.device.backup(target)
        assert (report.spaces, report.messages, report.transactions, report.faults) == (1, 3, 0, ())
        assert (report.path, report.device, report.made_at) == (str(target), file_store.path, clock.moment())
        assert names(target) == ["backup.json", "device"]
        assert report.size == (target / "device").stat().st_size
        drain(space)
        restored = restore_device(target, tmp_path / "NEW")
        assert (restored.path, restored.messages) == (str(tmp_path / "NEW"), 3)
        with reopened(tmp_path / "NEW").open_space("SPACE") as again:
            assert again.definition == space.definition
            assert again.queue("Q").definition == space.queue("Q").definition
            assert [(info.msgid, info.priority) for info in again.messages("Q")] == list(
                zip(ids, (1, 2, 3), strict=True)
            )
            assert drain(again) == ["a", "b", "c"]

    def test_large_bodies_delays_expiry_and_history_are_in_it(self, file_store, target, reopened, tmp_path, clock):
        space = file_store.space()
        make_queue(space, "Q", retention=1000)
        space.enqueue("Q", "consumed")
        space.dequeue("Q")
        space.enqueue("Q", b"x" * 3_000_000)
        space.enqueue("Q", "later", delay=50)
        space.enqueue("Q", "short", expires_in=40)
        file_store.device.backup(target)
        restore_device(target, tmp_path / "NEW")
        with reopened(tmp_path / "NEW").open_space("SPACE") as again:
            assert [consumed.info.size for consumed in again.history("Q")] == [8]
            assert bodies_held(again) == (2, 1, 0)
            assert again.dequeue("Q").body == b"x" * 3_000_000
            clock.advance(50)
            assert drain(again) == ["later"]

    def test_only_the_users_of_the_device_can_read_it(self, file_store, space, target):
        file_store.device.backup(target)
        modes = [path.stat().st_mode & 0o777 for path in (target, target / "device", target / "backup.json")]
        assert modes == [0o700, 0o600, 0o600]

    def test_it_tells_how_far_it_is(self, file_store, space, target):
        told = []
        file_store.device.backup(target, progress=told.append)
        assert told == sorted(told)
        assert (told[-1], min(told) >= 0) == (100, True)

    @pytest.mark.parametrize("kind", ["file", "directory", "full directory", "dangling link"])
    def test_it_never_overwrites(self, file_store, space, target, kind):
        if kind == "file":
            target.write_text("precious")
        elif kind == "dangling link":
            target.symlink_to("nowhere")
        else:
            target.mkdir()
        if kind == "full directory":
            (target / "precious").write_text("precious")
        before = names(target.parent)
        with pytest.raises(BadResourceError, match="exists already"):
            file_store.device.backup(target)
        assert names(target.parent) == before
        assert target.is_symlink() or not target.is_dir() or names(target) == ["precious"] * (kind == "full directory")

    def test_what_appears_under_its_name_meanwhile_is_not_overwritten(self, file_store, space, target):
        def appear(percent):
            if percent == 99:
                target.mkdir(exist_ok=True)
                (target / "precious").write_text("precious")

        with pytest.raises(OperatingSystemError):
            file_store.device.backup(target, progress=appear)
        assert (names(target), names(target.parent)) == (["precious"], ["monday"])

    def test_a_directory_that_is_not_there_is_named(self, file_store, space, tmp_path):
        with pytest.raises(OperatingSystemError, match="No such file or directory"):
            file_store.device.backup(tmp_path / "none" / "backup")

    def test_an_interrupt_leaves_nothing_behind(self, file_store, space, target):
        def interrupt(percent):
            if percent >= 50:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            file_store.device.backup(target, progress=interrupt)
        assert names(target.parent) == []
        assert file_store.device.backup(target).messages == 0

    def test_what_a_killed_backup_has_left_goes_with_the_next_one(self, file_store, space, target):
        left = target.parent / ".monday.12345678.part"
        left.mkdir()
        (left / "files").write_text("half")
        other = target.parent / ".tuesday.12345678.part"
        other.mkdir()
        file_store.device.backup(target)
        assert names(target.parent) == [other.name, "monday"]

    def test_a_device_in_memory_has_none(self, tmp_path):
        with create_device(":memory:", 1000) as device, pytest.raises(InvalidArgumentError, match="in memory"):
            device.backup(tmp_path / "backup")

    def test_a_device_that_can_only_be_read_is_refused(self, file_store, space, target, monkeypatch):
        monkeypatch.setattr("qmstorage.sqlite.opening.os.access", lambda path, mode: mode == os.R_OK)
        with pytest.raises(OperatingSystemError, match="for reading only"):
            file_store.another().backup(target)

    def test_what_does_not_fit_together_already_is_said_and_backed_up(self, file_store, space, target):
        space.enqueue("Q", "x")
        file_store.device.close()
        by_hand(file_store.path, "DELETE FROM ready")
        report = file_store.another().backup(target)
        assert [fault.partition(":")[0] for fault in report.faults] == ["queue space 'SPACE'"]
        assert "without a place in a queue" in report.faults[0]

    def test_a_damaged_file_is_refused_and_no_backup_is_left(self, file_store, space, target):
        space.enqueue_many("Q", [bytes(1000)] * 50)
        file_store.device.close()
        by_hand(
            file_store.path, "PRAGMA writable_schema = ON", "UPDATE sqlite_schema SET rootpage = 3 WHERE name = 'due'"
        )
        with pytest.raises(SystemFailureError, match="damaged"):
            file_store.another().backup(target)
        assert names(target.parent) == []


class TestTransactions:
    def test_one_that_is_open_rolls_back_in_the_restored_device_and_counts_for_nothing(
        self, file_store, space, target, reopened, tmp_path
    ):
        for body in ("held", "free"):
            space.enqueue("Q", body)
        with space.transaction():
            assert space.dequeue("Q").text == "held"
            space.enqueue("Q", "pending")
            report = file_store.device.backup(target)
        assert (report.messages, report.transactions) == (2, 1)
        restore_device(target, tmp_path / "NEW")
        device = reopened(tmp_path / "NEW")
        assert [process.alive for process in device.attached("SPACE")] == [False]
        with device.open_space("SPACE") as again:
            assert (again.transactions(), len(device.attached("SPACE"))) == ([], 1)
            messages = again.dequeue_many("Q", 10)
            assert [(message.text, message.retries) for message in messages] == [("held", 0), ("free", 0)]
        assert drain(space) == ["free", "pending"]

    def test_what_it_has_spilled_is_not_in_the_restored_device(self, file_store, target, reopened, tmp_path):
        space = file_store.space(pages=10_000)
        make_queue(space)
        with space.transaction():
            space.enqueue("Q", bytes(5_000_000))
            space.enqueue("Q", bytes(5_000_000))
            file_store.device.backup(target)
        restore_device(target, tmp_path / "NEW")
        device = reopened(tmp_path / "NEW")
        with device.open_space("SPACE") as again:
            assert (drain(again), device.space_usage("SPACE").pages) == ([], 0)

    def test_a_transaction_of_the_application_on_its_own_connection_is_not_waited_for_by_itself(
        self, file_store, space, target
    ):
        import sqlalchemy as sa

        engine = sa.create_engine(f"sqlite:///{file_store.path}")
        sa.event.listen(engine, "connect", lambda raw, _: raw.execute("PRAGMA synchronous = FULL"))
        with engine.begin() as connection:
            space.enqueue("Q", "x", connection=connection)
            with pytest.raises(ProtocolError, match="transaction of its own open"):
                file_store.device.backup(target)
        engine.dispose()
        assert file_store.device.backup(target).messages == 1


class TestSeveralFiles:
    @pytest.fixture
    def device(self, file_store, tmp_path, tmp_path_factory):
        device, outside = file_store.device, tmp_path_factory.mktemp("outside")
        (tmp_path / "sub").mkdir()
        device.create_entry(tmp_path / "sub" / "MORE", 0, 5_000)
        device.create_entry(outside / "THIRD", 0, 6_000)
        device.create_entry(file_store.path, 20_000, 100)
        for volume, (name, pages) in enumerate((("ONE", 16_000), ("TWO", 4_800), ("THREE", 5_800))):
            device.create_space(space_definition(name, pages=pages), volume=volume)
            with device.open_space(name) as space:
                make_queue(space)
                space.enqueue("Q", name)
        assert [device.volume_of_space(name).path for name in ("ONE", "TWO", "THREE")] == [
            file_store.path,
            str(tmp_path / "sub" / "MORE"),
            str(outside / "THIRD"),
        ]
        return device

    def contents(self, device):
        texts = {}
        for name in ("ONE", "TWO", "THREE"):
            with device.open_space(name) as space:
                texts[name] = drain(space)
        return texts

    def test_all_are_in_it_and_lie_around_the_new_device_as_around_the_old_one(
        self, device, target, reopened, tmp_path
    ):
        report = device.backup(target)
        assert (names(target), report.spaces, report.messages) == (
            ["backup.json", "device", "volume-1", "volume-2"],
            3,
            3,
        )
        home = tmp_path / "home"
        (home / "sub").mkdir(parents=True)
        restored = restore_device(target, home / "QUE2")
        places = [str(home / "QUE2"), str(home / "sub" / "MORE"), str(home / "THIRD")]
        assert [volume.path for volume in restored.volumes] == places
        again = reopened(home / "QUE2")
        assert [entry.path for entry in again.entries()] == [*places, places[0]]
        assert self.contents(again) == {"ONE": ["ONE"], "TWO": ["TWO"], "THREE": ["THREE"]}

    def test_a_directory_that_is_missing_is_named_before_anything_is_done(self, device, target, tmp_path):
        device.backup(target)
        home = tmp_path / "home"
        home.mkdir()
        with pytest.raises(BadResourceError, match=r"there is no directory '.*/home/sub' for 'MORE'"):
            restore_device(target, home / "QUE2")
        assert names(home) == []

    def test_a_name_that_is_taken_is_left_alone(self, device, target, reopened, tmp_path):
        device.backup(target)
        restored = restore_device(target, tmp_path / "COPY")
        assert [Path(volume.path).name for volume in restored.volumes] == ["COPY", "MORE-2", "THIRD"]
        assert self.contents(reopened(tmp_path / "COPY")) == self.contents(device)

    def test_replacing_removes_the_files_that_the_old_device_had(self, device, target, reopened, tmp_path):
        device.backup(target)
        self.contents(device)
        path = device.path
        device.close()
        restored = restore_device(target, path, force=True)
        assert [Path(volume.path).name for volume in restored.volumes] == ["QUE", "MORE-2", "THIRD-2"]
        assert names(tmp_path / "sub") == ["MORE-2"]
        assert self.contents(reopened(path)) == {"ONE": ["ONE"], "TWO": ["TWO"], "THREE": ["THREE"]}


class TestRestoring:
    def test_new_messages_get_identifiers_that_were_never_given(self, file_store, space, target, reopened, tmp_path):
        before = space.enqueue("Q", "before")
        file_store.device.backup(target)
        after = {space.enqueue("Q", "after") for _ in range(20)}
        restore_device(target, tmp_path / "NEW")
        with reopened(tmp_path / "NEW").open_space("SPACE") as again:
            new = {again.enqueue("Q", "new") for _ in range(20)}
            assert not new & after
            assert again.dequeue("Q", msgid=before).text == "before"
            assert all(again.dequeue("Q", msgid=msgid) is None for msgid in after)
            assert drain(again) == ["new"] * 20

    def test_a_device_that_is_there_is_left_alone(self, file_store, space, target):
        file_store.device.backup(target)
        space.enqueue("Q", "x")
        with pytest.raises(BadResourceError, match="exists already") as refusal:
            restore_device(target, file_store.path)
        assert "-f" in refusal.value.hint
        assert drain(space) == ["x"]

    def test_a_device_is_replaced_by_force(self, file_store, space, target, reopened):
        space.enqueue("Q", "before")
        file_store.device.backup(target)
        space.enqueue("Q", "after")
        file_store.device.close()
        restore_device(target, file_store.path, force=True)
        with reopened(file_store.path).open_space("SPACE") as again:
            assert drain(again) == ["before"]

    @pytest.mark.parametrize("open_space", [False, True])
    def test_a_device_that_is_open_is_not_replaced(self, file_store, space, target, open_space):
        space.enqueue("Q", "before")
        file_store.device.backup(target)
        if not open_space:
            space.close()
        with pytest.raises(InUseError, match="attached" if open_space else "open in another program, or in this one"):
            restore_device(target, file_store.path, force=True)
        with file_store.device.open_space("SPACE") as again:
            again.enqueue("Q", "after")
            assert drain(again) == ["before", "after"]

    def test_a_process_that_has_it_open_keeps_it(self, file_store, space, target, start):
        space.enqueue("Q", "x")
        file_store.device.backup(target)
        file_store.device.close()
        child = start(
            "device = open_device(sys.argv[1])\n"
            "say('open')\n"
            "heard()\n"
            "with device.open_space('SPACE') as space:\n"
            "    say(space.dequeue('Q').text)\n",
            file_store.path,
        )
        child.expect("open")
        with pytest.raises(InUseError):
            restore_device(target, file_store.path, force=True)
        child.say()
        child.expect("x")
        child.finish()

    def test_of_two_at_once_one_makes_the_device(self, file_store, space, target, reopened, tmp_path):
        space.enqueue("Q", "x")
        file_store.device.backup(target)
        results = Work(*[lambda: restore_device(target, tmp_path / "NEW")] * 2).results()
        refused = [result for result in results if isinstance(result, QueueError)]
        assert [type(error) for error in refused] in ([InUseError], [BadResourceError])
        with reopened(tmp_path / "NEW").open_space("SPACE") as again:
            assert drain(again) == ["x"]

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root restores what belongs to others")
    def test_it_belongs_to_the_user_whom_it_belonged_to(self, file_store, space, target):
        file_store.device.backup(target)
        file_store.device.close()
        os.chown(file_store.path, 65534, 65534)
        restore_device(target, file_store.path, force=True)
        assert Path(file_store.path).stat().st_uid == 65534

    def test_what_is_no_device_is_not_replaced_by_force(self, file_store, space, target, tmp_path):
        file_store.device.backup(target)
        (tmp_path / "letter").write_text("precious" * 1000)
        with pytest.raises(BadResourceError, match="cannot be replaced"):
            restore_device(target, tmp_path / "letter", force=True)
        assert (tmp_path / "letter").read_text() == "precious" * 1000

    def test_the_log_of_another_device_is_not_taken_for_its_own(self, file_store, space, target, tmp_path):
        file_store.device.backup(target)
        shutil.copy(f"{file_store.path}-wal", tmp_path / "NEW-wal")
        for force in (False, True):
            with pytest.raises(BadResourceError, match="is left of another device"):
                restore_device(target, tmp_path / "NEW", force=force)
        assert not (tmp_path / "NEW").exists()

    def test_messages_in_memory_are_not_in_it_and_the_old_ones_do_not_come_back(
        self, file_store, memory_dir, target, reopened
    ):
        space = file_store.space(memory=1_000_000)
        make_queue(space)
        space.enqueue("Q", "disk")
        space.enqueue("Q", "memory", persistent=False)
        assert file_store.device.backup(target).messages == 1
        file_store.device.close()
        restore_device(target, file_store.path, force=True)
        with reopened(file_store.path).open_space("SPACE") as again:
            assert drain(again) == ["disk"]
            again.enqueue("Q", "memory", persistent=False)
            assert drain(again) == ["memory"]

    def test_it_is_for_the_group_that_the_device_was_for(self, tmp_path, target, start):
        import grp

        group = grp.getgrgid(os.getgid()).gr_name
        with create_device(tmp_path / "QUE", 1000, group=group) as device:
            device.backup(target)
        restore_device(target, tmp_path / "NEW")
        status = (tmp_path / "NEW").stat()
        assert (status.st_mode & 0o777, status.st_gid) == (0o660, os.getgid())

    def test_a_group_that_is_not_on_this_machine_is_named(self, file_store, space, target, tmp_path):
        file_store.device.backup(target)
        by_hand(target / "device", "UPDATE device SET group_name = 'nobody-has-this'")
        self.sign(target)
        with pytest.raises(InvalidArgumentError, match="there is no group"):
            restore_device(target, tmp_path / "NEW")
        assert not (tmp_path / "NEW").exists()

    def test_the_backup_can_be_restored_again_and_again(self, file_store, space, target, reopened, tmp_path):
        space.enqueue("Q", "x")
        file_store.device.backup(target)
        for name in ("A", "B"):
            restore_device(target, tmp_path / name)
            with reopened(tmp_path / name).open_space("SPACE") as again:
                assert drain(again) == ["x"]

    @pytest.mark.parametrize("how", ["changed", "cut", "missing", "another count"])
    def test_a_damaged_backup_is_refused_and_nothing_is_left(self, file_store, space, target, tmp_path, how):
        space.enqueue_many("Q", [b"x" * 500] * 20)
        file_store.device.backup(target)
        device = target / "device"
        content = bytearray(device.read_bytes())
        if how == "changed":
            content[-3_000] ^= 1
            device.write_bytes(content)
        elif how == "cut":
            device.write_bytes(content[:-4096])
        elif how == "missing":
            device.unlink()
        else:
            listed = json.loads((target / "backup.json").read_text())
            (target / "backup.json").write_text(json.dumps(listed | {"messages": 21}))
        before = names(tmp_path)
        with pytest.raises(SystemFailureError, match="is damaged"):
            restore_device(target, tmp_path / "NEW")
        assert names(tmp_path) == before

    @pytest.mark.parametrize("how", ["DROP TABLE audit", "ALTER TABLE audit RENAME COLUMN target TO aim"])
    def test_one_that_cannot_keep_the_record_of_it_is_restored_and_the_report_says_so(
        self, file_store, space, target, reopened, tmp_path, how
    ):
        space.enqueue("Q", "x")
        file_store.device.close()
        by_hand(file_store.path, how)
        reopened(file_store.path).backup(target)
        (fault,) = restore_device(target, tmp_path / "NEW").faults
        assert fault == "its record of destructive acts is missing or damaged, so that this restore is not recorded"
        device = reopened(tmp_path / "NEW")
        assert "audit-unreadable" in [finding.check for finding in device.check()]
        with device.open_space("SPACE") as again:
            assert drain(again) == ["x"]

    @pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 1}', "\udcff", '{"format": "x"}'])
    def test_what_is_no_backup_is_refused(self, target, tmp_path, content):
        target.mkdir()
        with pytest.raises(BadResourceError, match="is not a backup"):
            restore_device(target, tmp_path / "NEW")
        (target / "backup.json").write_bytes(content.encode("utf-8", "surrogateescape"))
        with pytest.raises(BadResourceError, match="is not a backup"):
            restore_device(target, tmp_path / "NEW")

    def test_one_of_a_newer_release_is_refused(self, file_store, space, target, tmp_path):
        file_store.device.backup(target)
        listed = json.loads((target / "backup.json").read_text())
        (target / "backup.json").write_text(json.dumps(listed | {"format": 2, "new": 1}))
        with pytest.raises(ReleaseError, match="newer release"):
            restore_device(target, tmp_path / "NEW")

    def test_a_file_outside_of_the_backup_is_not_read(self, file_store, space, target, tmp_path):
        file_store.device.backup(target)
        listed = json.loads((target / "backup.json").read_text())
        listed["volumes"][0]["file"] = "../device"
        (target / "backup.json").write_text(json.dumps(listed))
        with pytest.raises(BadResourceError, match="names no files in it"):
            restore_device(target, tmp_path / "NEW")

    def test_a_device_in_memory_cannot_be_restored(self, target):
        with pytest.raises(InvalidArgumentError):
            restore_device(target, ":memory:")

    def test_it_tells_how_far_it_is(self, file_store, space, target, tmp_path):
        file_store.device.backup(target)
        told = []
        restore_device(target, tmp_path / "NEW", progress=told.append)
        assert (told, told[-1]) == (sorted(told), 100)

    @staticmethod
    def sign(target):
        """Let the list say of the file what it is now."""
        import hashlib

        listed = json.loads((target / "backup.json").read_text())
        listed["volumes"][0]["sha256"] = hashlib.sha256((target / "device").read_bytes()).hexdigest()
        (target / "backup.json").write_text(json.dumps(listed))


def test_definitions_come_back_as_they_were(file_store, tmp_path, target, reopened):
    space = file_store.space(error_queue="ERRORS")
    wanted = [
        QueueDefinition(name="ERRORS"),
        queue_definition("Q", order="priority,lifo", out_of_order="top,msgid", retries=3, retry_delay=7, expiration=50),
    ]
    for definition in wanted:
        space.create_queue(definition)
    space.stop_queue("Q", dequeue=False)
    file_store.device.backup(target)
    restore_device(target, tmp_path / "NEW")
    with reopened(tmp_path / "NEW").open_space("SPACE") as again:
        assert again.queues() == space.queues()
