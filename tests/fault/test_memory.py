"""Where non-persistent messages are kept: its rights, who may put something in its place, and when it is full."""

import contextlib
import grp
import os
import shutil
import sqlite3
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from qmadmin.opening import create_device, open_device
from qmcore.errors import NotOpenError, OperatingSystemError, QueueError
from qmcore.probe import Point
from tests.fault.test_disk import fill
from tests.fix_store import attachment_of, drain, eventually, later, make_queue, space_definition, truth

PAGE = 4096
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def mode(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


def with_memory(path, **changes):
    device = create_device(path, 50_000, **changes)
    device.create_space(space_definition(pages=20_000, messages=20_000, memory=5_000 * PAGE))
    with device.open_space("SPACE") as space:
        make_queue(space, "Q", retries=3)
    return device


@pytest.fixture(params=[0o000, 0o077], ids=oct)
def any_umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


class TestRights:
    def test_only_the_owner_can_enter_whatever_the_umask_says(self, tmp_path, memory_dir, any_umask):
        with with_memory(tmp_path / "QUE") as device, device.open_space("SPACE") as space:
            space.enqueue("Q", "A", persistent=False)
            (directory,) = memory_dir.iterdir()
            assert mode(directory) == 0o700
            assert {mode(file) for file in directory.glob("memory*")} == {0o600}

    def test_a_group_can_whatever_the_umask_says(self, tmp_path, memory_dir, any_umask):
        group = grp.getgrgid(os.getegid())
        with with_memory(tmp_path / "QUE", group=group.gr_name) as device, device.open_space("SPACE") as space:
            space.enqueue("Q", "A", persistent=False)
            (directory,) = memory_dir.iterdir()
            assert mode(directory) == 0o2770
            files = list(directory.glob("memory*"))
            assert {mode(file) for file in files} == {0o660}
            assert {file.stat().st_gid for file in files} == {group.gr_gid}

    @pytest.fixture
    def reachable(self, monkeypatch):
        """A directory that other users may enter, which those of pytest are not."""
        with tempfile.TemporaryDirectory(prefix="qmadmin-test-") as name:
            directory = Path(name)
            directory.chmod(0o777)
            (directory / "shm").mkdir()
            (directory / "shm").chmod(0o1777)
            monkeypatch.setenv("QM_SHM_DIR", str(directory / "shm"))
            yield directory

    USE = """
other_user(sys.argv[2] if len(sys.argv) > 2 else None)
from qmcore.errors import QueueError
try:
    with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space:
        said = [message.text for message in space.dequeue_many("Q", 9)]
        space.enqueue("Q", "from the other", persistent=False)
        say(*said, "taken")
        heard()
except QueueError as error:
    say(error.name, error.message)
"""

    @as_root
    def test_members_of_the_group_share_it_whoever_was_first(self, reachable, start):
        with with_memory(reachable / "QUE", group="users") as device:
            shutil.rmtree(next((reachable / "shm").iterdir()))
            first = start(self.USE, device.path, "users")
            first.expect("taken")
            with device.open_space("SPACE") as space:
                assert drain(space) == ["from the other"]
                space.enqueue("Q", "from the owner", persistent=False)
            first.say()
            first.finish()
            start(self.USE, device.path, "users").expect("from the owner taken")

    @as_root
    def test_root_does_not_lock_the_owner_out(self, reachable, start):
        made = start(
            "from tests.fault.test_memory import with_memory\nother_user()\nwith_memory(sys.argv[1]).close()\n"
            "say('made')\n",
            reachable / "QUE",
        )
        made.expect("made")
        made.finish()
        shutil.rmtree(next((reachable / "shm").iterdir()))
        with open_device(reachable / "QUE") as device, device.open_space("SPACE") as space:
            space.enqueue("Q", "from root", persistent=False)
            start(self.USE, device.path).expect("from root taken")
        shutil.rmtree(reachable / "shm")

    @as_root
    def test_a_reader_sees_what_is_on_disk(self, reachable, start):
        with with_memory(reachable / "QUE") as device, device.open_space("SPACE") as space:
            space.enqueue("Q", "a")
            space.enqueue("Q", "B", persistent=False)
        Path(device.path).chmod(0o644)
        reader = start(
            "other_user()\nfrom qmcore.errors import QueueError\n"
            "with open_device(sys.argv[1]) as device, device.open_space('SPACE') as space:\n"
            "    say(space.usage('Q').messages, device.space_usage('SPACE').memory)\n"
            "    try:\n        space.enqueue('Q', 'C', persistent=False)\n"
            "    except QueueError as error:\n        say(error.name)\n",
            device.path,
        )
        reader.expect("1 0", "QMEOS")
        reader.finish()

    @as_root
    def test_a_directory_that_a_stranger_has_put_in_its_place_is_refused_by_name(self, reachable):
        with with_memory(reachable / "QUE") as device:
            (directory,) = (reachable / "shm").iterdir()
            shutil.rmtree(directory)
            directory.mkdir(mode=0o700)
            os.chown(directory, 65534, 65534)
            with pytest.raises(OperatingSystemError, match=str(directory)):
                device.open_space("SPACE")
            directory.rmdir()
            device.open_space("SPACE").close()


class TestAttacks:
    @pytest.fixture
    def device(self, tmp_path, memory_dir):
        with with_memory(tmp_path / "QUE") as made:
            yield made

    def test_a_directory_that_others_can_enter_is_refused_by_name(self, device, memory_dir):
        (directory,) = memory_dir.iterdir()
        directory.chmod(0o777)
        with pytest.raises(OperatingSystemError, match=str(directory)) as refusal:
            device.open_space("SPACE")
        assert "Remove it" in refusal.value.hint

    def test_a_link_in_the_place_of_the_directory_is_refused_and_leads_nowhere(self, device, memory_dir, tmp_path):
        (directory,) = memory_dir.iterdir()
        shutil.rmtree(directory)
        mine = tmp_path / "mine"
        mine.mkdir(mode=0o700)
        directory.symlink_to(mine)
        with pytest.raises(OperatingSystemError, match="not a directory that only the users"):
            device.open_space("SPACE")
        assert list(mine.iterdir()) == []

    def test_a_link_to_a_directory_of_ours_has_nothing_of_ours_removed(self, device, memory_dir, tmp_path):
        mine = tmp_path / "mine"
        mine.mkdir(mode=0o700)
        (mine / "thesis").write_text("years of work")
        (link,) = Path(f"{device.path}-run").glob("memory-*")
        link.unlink()
        link.symlink_to(mine)
        device.destroy_space("SPACE", force=True)
        assert (mine / "thesis").read_text() == "years of work"

    def test_the_memory_of_another_device_is_refused_by_name(self, device, memory_dir):
        (file,) = memory_dir.glob("*/memory")
        with contextlib.closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("UPDATE residence SET device_id = 'another'")
        with pytest.raises(OperatingSystemError, match="'SPACE' is in use by another device"):
            device.open_space("SPACE")

    def test_a_refused_memory_attaches_nobody(self, device, memory_dir):
        (directory,) = memory_dir.iterdir()
        directory.chmod(0o777)
        with pytest.raises(OperatingSystemError):
            device.open_space("SPACE")
        directory.chmod(0o700)
        assert device.space_usage("SPACE").processes == 0
        assert list(Path(f"{device.path}-run").glob("*.lock")) == []

    def test_a_damaged_memory_is_a_diagnostic_and_ipcrm_gets_rid_of_it(self, device, memory_dir):
        (directory,) = memory_dir.iterdir()
        for file in directory.glob("memory*"):
            file.unlink()
        (directory / "memory").write_bytes(b"nonsense" * 1000)
        with pytest.raises(OperatingSystemError, match="memory of queue space 'SPACE' cannot be opened"):
            device.open_space("SPACE")
        device.clear_memory("SPACE")
        with device.open_space("SPACE") as space:
            space.enqueue("Q", "A", persistent=False)
            assert drain(space) == ["A"]


def lose_files(*names):
    def lose(directory, _link):
        for name in names:
            (directory / name).unlink()

    return lose


def put_a_copy_in_its_place(directory, _link):
    directory.rename(directory.with_name("away"))
    shutil.copytree(directory.with_name("away"), directory, symlinks=True)


LOST = {
    "memory": lose_files("memory"),
    "log": lose_files("memory-wal"),
    "index": lose_files("memory-shm"),
    "removed": lambda directory, _link: shutil.rmtree(directory),
    "renamed": lambda directory, _link: directory.rename(directory.with_name("away")),
    "replaced": put_a_copy_in_its_place,
    "link": lambda _directory, link: link.unlink(),
}


class TestLost:
    """Its files are removed, renamed or replaced while processes have it open."""

    @pytest.fixture
    def device(self, tmp_path, memory_dir):
        with with_memory(tmp_path / "QUE") as made:
            yield made

    @pytest.fixture
    def space(self, device):
        return device.open_space("SPACE")

    @pytest.fixture
    def lose(self, device, memory_dir):
        def lost(how):
            (directory,), (link,) = memory_dir.iterdir(), Path(f"{device.path}-run").glob("memory-*")
            LOST[how](directory, link)

        return lost

    @pytest.fixture
    def look(self, monkeypatch):
        """Let the look come that is taken once a second."""
        return lambda: later(monkeypatch)

    @pytest.mark.parametrize("how", LOST)
    def test_a_process_that_has_it_open_is_told_and_acknowledges_nothing_more(self, space, lose, look, how):
        space.enqueue("Q", "a")
        lose(how)
        look()
        for call in (
            lambda: space.enqueue("Q", "B", persistent=False),
            lambda: space.enqueue("Q", "c"),
            lambda: space.dequeue("Q"),
        ):
            with pytest.raises(NotOpenError, match="memory of queue space 'SPACE', was removed or replaced") as refusal:
                call()
            assert refusal.value.hint == "Close the device and open it again."

    @pytest.mark.parametrize("how", LOST)
    def test_what_it_says_to_do_works_and_what_is_on_disk_is_there(self, device, space, lose, look, how):
        space.enqueue("Q", "a")
        lose(how)
        look()
        with pytest.raises(NotOpenError):
            space.enqueue("Q", "b")
        device.close()
        with open_device(device.path) as again, again.open_space("SPACE") as opened:
            opened.enqueue("Q", "C", persistent=False)
            assert drain(opened) == ["a", "C"]

    @pytest.mark.parametrize("how", ["log", "link"])
    def test_what_its_file_can_still_take_is_there_again(self, device, space, lose, how):
        space.enqueue("Q", "A", persistent=False)
        lose(how)
        device.close()
        with open_device(device.path) as again, again.open_space("SPACE") as opened:
            assert drain(opened) == ["A"]

    def test_two_processes_do_not_part_company(self, device, space, lose, look, start):
        lose("removed")
        other = start(
            "with open_device(sys.argv[1]) as device, device.open_space('SPACE') as space:\n"
            "    space.enqueue('Q', 'from the other', persistent=False)\n    say('done')\n    heard()\n",
            device.path,
        )
        other.expect("done")
        look()
        with pytest.raises(NotOpenError):
            space.enqueue("Q", "seen by nobody", persistent=False)
        with open_device(device.path) as again, again.open_space("SPACE") as opened:
            assert drain(opened) == ["from the other"]
        other.say()
        other.finish()

    def test_an_export_does_not_read_what_others_have_put_there(self, space, lose):
        lose("replaced")
        with pytest.raises(NotOpenError, match="memory of queue space"), attachment_of(space).volume.snapshot():
            pass

    def test_one_that_ipcrm_gave_up_is_missed_by_nobody(self, device, look):
        device.clear_memory("SPACE")
        look()
        with device.open_space("SPACE") as space:
            space.enqueue("Q", "A", persistent=False)
            assert drain(space) == ["A"]

    def test_one_of_a_space_that_another_process_destroys_is_missed_by_nobody(self, device, space, look, start):
        device.create_space(space_definition("OTHER"))
        with device.open_space("OTHER") as other:
            make_queue(other)
            start(
                "with open_device(sys.argv[1]) as device:\n    device.destroy_space('SPACE', force=True)\n",
                device.path,
            ).finish()
            look()
            other.enqueue("Q", "goes on")
            assert drain(other) == ["goes on"]


class TestFull:
    """Its file system is full, and the disk is not."""

    @pytest.fixture
    def small_memory(self, tmp_path, monkeypatch):
        if os.geteuid() != 0:
            pytest.skip("only root can mount a file system")
        where = tmp_path / "small"
        where.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", where], capture_output=True, text=True, check=False
        )
        if mounted.returncode:
            pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.strip()}")
        monkeypatch.setenv("QM_SHM_DIR", str(where))
        yield where
        subprocess.run(["umount", "--lazy", where], check=True)

    @pytest.fixture
    def space(self, small_memory, tmp_path):
        with with_memory(tmp_path / "QUE") as device, device.open_space("SPACE") as opened:
            make_queue(opened, "OUT")
            yield opened

    def test_an_enqueue_is_refused_by_the_name_of_the_place_and_what_was_before_is_there(self, space, small_memory):
        accepted = []
        with pytest.raises(OperatingSystemError, match=f"no room left in '{small_memory}.*non-persistent"):
            while True:
                accepted.append(space.enqueue("Q", bytes(10_000), persistent=False))
        assert truth(space)[1] == accepted
        for number in range(3):
            space.enqueue("Q", f"the disk has room {number}")
        assert len(truth(space)[0]) == 3

    def test_what_is_on_disk_can_be_worked_on_all_the_same(self, space, small_memory):
        space.enqueue("Q", "a")
        filling = fill(small_memory)
        with space.transaction():
            assert space.dequeue("Q").text == "a"
            space.enqueue("OUT", "b")
        attachment_of(space).do_housekeeping(now=True)
        assert drain(space, "OUT") == ["b"]
        filling.unlink()

    def test_a_commit_is_all_or_nothing_and_nothing_is_lost(self, space, small_memory):
        outcomes = set()
        for number in range(12):
            space.enqueue("Q", "a")
            space.enqueue("Q", "B", persistent=False)
            filling = small_memory / "filling"
            try:
                with space.transaction():
                    assert [message.text for message in space.dequeue_many("Q", 2)] == ["a", "B"]
                    space.enqueue("OUT", "c")
                    space.enqueue("OUT", b"D" + bytes(number * 8_000), persistent=False)
                    if number % 3:
                        fill(small_memory)
                committed = True
            except QueueError:
                committed = False
            filling.unlink(missing_ok=True)
            attachment_of(space).do_housekeeping(now=True)
            left = [message.text for message in space.dequeue_many("Q", 9)]
            came = [message.body[:1] for message in space.dequeue_many("OUT", 9)]
            assert (left, came) == (([], [b"c", b"D"]) if committed else (["a", "B"], []))
            outcomes.add(committed)
        assert outcomes == {True, False}

    def test_memory_that_is_full_between_the_two_commits_follows_when_there_is_room(self, space, small_memory, caplog):
        """The disk has committed; what memory lacks is room for its own commit."""
        space.enqueue("Q", "a")
        for _ in range(20):
            space.enqueue("Q", bytes(1_000), persistent=False)
        transaction = space.transaction()
        transaction.join_context()
        assert len(space.dequeue_many("Q", 30)) == 21
        space.enqueue("OUT", "c")
        space.enqueue("OUT", b"D" + bytes(5_000), persistent=False)
        fillings = []

        def memory_has_it(_works):
            space.probe.leave(Point.AFTER_COMMIT)
            fillings.append(fill(small_memory))

        space.probe.at(Point.AFTER_COMMIT, memory_has_it)
        transaction.commit()
        transaction.leave_context()
        assert "committed on disk, and memory has to follow" in caplog.text
        fillings[0].unlink()
        eventually(lambda: space.usage("OUT").messages == 2, "memory has followed")
        assert [message.body[:1] for message in space.dequeue_many("OUT", 9)] == [b"c", b"D"]
        assert space.dequeue("Q") is None

    def test_a_memory_that_cannot_be_made_is_a_diagnostic(self, small_memory, tmp_path):
        filling = fill(small_memory)
        with create_device(tmp_path / "QUE", 50_000) as device:
            device.create_space(space_definition(memory=100 * PAGE))
            with pytest.raises(OperatingSystemError, match="memory of queue space 'SPACE'"):
                device.open_space("SPACE")
            filling.unlink()
            with device.open_space("SPACE") as space:
                make_queue(space)
                space.enqueue("Q", "A", persistent=False)
                assert drain(space) == ["A"]
