"""What is no device, or none for us: one sentence that names it, and everything left as it was."""

import contextlib
import hashlib
import os
import shutil
import sqlite3

import pytest

from qmadmin.opening import create_device, open_device
from qmcore.errors import BadResourceError, OperatingSystemError, QueueError, ReleaseError, SystemFailureError
from qmstorage.schema import VERSION
from tests.fix_store import make_queue, space_definition

DAMAGE = (SystemFailureError, BadResourceError, OperatingSystemError, ReleaseError)


def contents(directory):
    """Return the name and content of everything in a directory."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "other"
        for path in sorted(directory.iterdir())
    }


def refused(kind, path, *words):
    with pytest.raises(kind) as refusal:
        open_device(path)
    message = refusal.value.message
    assert "\n" not in message
    for word in (repr(str(path)), *words):
        assert word in message


@pytest.fixture
def device_file(tmp_path):
    """A device that nobody has open, with a message in it."""
    path = tmp_path / "QUE"
    with create_device(path, 5_000) as device:
        device.create_space(space_definition())
        with device.open_space("SPACE") as space:
            make_queue(space)
            for _ in range(50):
                space.enqueue("Q", bytes(3000))
    shutil.rmtree(f"{path}-run", ignore_errors=True)
    return path


class TestOpening:
    def test_what_is_not_there_is_named(self, tmp_path):
        refused(BadResourceError, tmp_path / "NONE", "there is no device")
        assert contents(tmp_path) == {}

    def test_a_directory_is_refused(self, tmp_path):
        (tmp_path / "DIR").mkdir()
        refused(BadResourceError, tmp_path / "DIR", "is a directory")

    @pytest.mark.parametrize(
        "text", [b"", b"x", b"dear reader\n" * 1000, b"SQLite format 3\0", b"SQLite format 3\0" * 500]
    )
    def test_a_file_of_another_kind_is_refused_and_left_alone(self, tmp_path, text):
        (tmp_path / "FILE").write_bytes(text)
        before = contents(tmp_path)
        refused(BadResourceError, tmp_path / "FILE", "is not a qmadmin device")
        assert contents(tmp_path) == before

    @pytest.mark.parametrize("mode", ["delete", "wal"])
    def test_a_database_of_somebody_else_is_refused_and_left_alone(self, tmp_path, mode):
        connection = sqlite3.connect(tmp_path / "DB")
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.execute("CREATE TABLE theirs (a)")
        connection.close()
        before = contents(tmp_path)
        refused(BadResourceError, tmp_path / "DB", "is not a qmadmin device")
        assert contents(tmp_path) == before

    def test_a_pipe_and_a_terminal_are_refused_without_waiting_for_them(self, tmp_path):
        os.mkfifo(tmp_path / "PIPE")
        refused(BadResourceError, tmp_path / "PIPE", "is not a qmadmin device")
        refused(BadResourceError, "/dev/null", "is not a qmadmin device")

    def test_a_link_that_leads_nowhere_is_refused(self, tmp_path):
        (tmp_path / "LINK").symlink_to(tmp_path / "NONE")
        refused(BadResourceError, tmp_path / "LINK", "there is no device")

    def test_a_link_to_a_device_is_followed(self, tmp_path, device_file):
        (tmp_path / "LINK").symlink_to(device_file)
        with open_device(tmp_path / "LINK") as device, device.open_space("SPACE") as space:
            assert space.usage("Q").messages == 50

    @pytest.mark.parametrize(
        ("version", "words"),
        [
            (f"{VERSION + 1:04d}", (f"version {VERSION + 1}", "newer")),
            ("9999", ("newer",)),
            ("0000", ("older",)),
        ],
    )
    def test_a_device_of_another_release_is_refused_and_left_alone(self, tmp_path, device_file, version, words):
        connection = sqlite3.connect(device_file)
        connection.execute("UPDATE alembic_version SET version_num = ?", [version])
        connection.commit()
        connection.close()
        before = contents(tmp_path)
        refused(ReleaseError, device_file, *words)
        assert contents(tmp_path) == before

    @pytest.mark.parametrize(
        "damage",
        [
            "UPDATE alembic_version SET version_num = 'f3ab09'",
            "UPDATE alembic_version SET version_num = ''",
            "DELETE FROM alembic_version",
            "DROP TABLE alembic_version",
            "DELETE FROM device",
            "DROP TABLE device",
        ],
    )
    def test_a_device_that_somebody_meddled_with_is_refused_as_a_diagnostic(self, device_file, damage):
        connection = sqlite3.connect(device_file)
        connection.execute(damage)
        connection.commit()
        connection.close()
        with pytest.raises(QueueError):
            open_device(device_file)

    @pytest.mark.parametrize("left", [0, 50, 100, 512, 4096, 4097, 8192])
    def test_a_device_that_was_cut_off_is_refused_as_a_diagnostic(self, device_file, left):
        os.truncate(device_file, left)
        with pytest.raises(QueueError):
            open_device(device_file)
        assert device_file.stat().st_size == left

    @pytest.mark.parametrize("page", range(1, 12))
    def test_damage_in_the_middle_is_a_diagnostic_wherever_it_is_met(self, device_file, page):
        with device_file.open("r+b") as file:
            file.seek(page * 4096)
            file.write(b"\xa5" * 4096)
        with contextlib.suppress(*DAMAGE), open_device(device_file) as device, device.open_space("SPACE") as space:
            space.enqueue("Q", b"x")
            while space.dequeue("Q"):
                pass


class TestCreating:
    def test_a_file_that_is_something_else_is_left_alone(self, tmp_path):
        (tmp_path / "FILE").write_text("dear reader")
        before = contents(tmp_path)
        with pytest.raises(BadResourceError, match="exists and is not a qmadmin device"):
            create_device(tmp_path / "FILE", 100)
        assert contents(tmp_path) == before

    def test_a_device_that_is_there_is_left_alone(self, tmp_path, device_file):
        before = contents(tmp_path)
        with pytest.raises(BadResourceError, match="is a qmadmin device already") as refusal:
            create_device(device_file, 100)
        assert refusal.value.hint.startswith("Open it")
        assert contents(tmp_path) == before

    def test_a_directory_is_refused(self, tmp_path):
        with pytest.raises(BadResourceError, match="is a directory"):
            create_device(tmp_path, 100)

    def test_a_place_that_is_not_there_is_named(self, tmp_path):
        with pytest.raises(OperatingSystemError, match="No such file or directory"):
            create_device(tmp_path / "none" / "QUE", 100)

    def test_an_empty_file_may_become_one(self, tmp_path):
        (tmp_path / "QUE").touch()
        with create_device(tmp_path / "QUE", 100) as device:
            assert len(device.entries()) == 1

    @pytest.mark.parametrize("wrong", [{"pages": 26}, {"pages": 0}, {"pages": -1}, {"pages": 2**50}, {"offset": 1}])
    def test_numbers_out_of_range_make_no_file(self, tmp_path, wrong):
        from qmcore.errors import InvalidArgumentError

        with pytest.raises(InvalidArgumentError):
            create_device(tmp_path / "QUE", **({"pages": 100} | wrong))
        assert contents(tmp_path) == {}

    def test_a_group_that_is_not_there_is_named_and_makes_no_file(self, tmp_path):
        from qmcore.errors import InvalidArgumentError

        with pytest.raises(InvalidArgumentError, match="there is no group 'no-such-group'"):
            create_device(tmp_path / "QUE", 100, group="no-such-group")
        assert contents(tmp_path) == {}

    @pytest.mark.parametrize("path", ["", "\0", "x" * 5000])
    def test_a_name_that_no_file_can_have_is_refused(self, tmp_path, monkeypatch, path):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(QueueError):
            create_device(path, 100)
        with pytest.raises(QueueError):
            open_device(path)
        assert contents(tmp_path) == {}
