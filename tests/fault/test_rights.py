"""Who may: owner, group, readers, and nobody else."""

import grp
import os
import stat
import tempfile
from pathlib import Path

import pytest

from qmadmin.opening import create_device, open_device
from qmcore.records import Forwarding
from tests.fix_store import attachment_of, make_queue, space_definition

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

READ = """
other_user()
from qmcore.errors import QueueError
try:
    with open_device(sys.argv[1]) as device:
        say(device.readonly, len(device.entries()))
        with device.open_space("SPACE") as space:
            say(space.usage("Q").messages, [info.size for info in space.messages("Q")])
            for act in (
                lambda: space.enqueue("Q", b"x"),
                lambda: space.dequeue("Q"),
                lambda: space.dequeue("Q", wait=1),
                lambda: device.destroy_space("SPACE", force=True),
                lambda: device.create_entry(sys.argv[1], 90_000, 10),
                lambda: space.destroy_queue("Q", force=True),
            ):
                try:
                    act()
                except QueueError as error:
                    say(error.name, error.message)
            try:
                with space.transaction():
                    space.dequeue("Q")
            except QueueError as error:
                say(error.name, error.message)
except QueueError as error:
    say(error.name, error.message)
"""


def mode(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


@pytest.fixture
def reachable():
    """A directory that other users may enter, which those of pytest are not."""
    with tempfile.TemporaryDirectory(prefix="qmadmin-test-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        yield directory


@pytest.fixture
def device_file(reachable):
    path = reachable / "QUE"
    with create_device(path, 5_000) as device:
        device.create_space(space_definition())
        with device.open_space("SPACE") as space:
            make_queue(space)
            space.enqueue("Q", b"abc")
    return path


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o777], ids=oct)
def any_umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


class TestModes:
    def test_only_the_owner_may_use_a_device_whatever_the_umask_says(self, tmp_path, any_umask):
        path = tmp_path / "QUE"
        with create_device(path, 5_000) as device:
            device.create_space(space_definition())
            with device.open_space("SPACE"):
                for name in (path, f"{path}-wal", f"{path}-shm", *Path(f"{path}-run").iterdir()):
                    assert mode(name) == 0o600, name
                assert mode(f"{path}-run") == 0o700

    def test_a_group_may_use_it_whatever_the_umask_says(self, tmp_path, any_umask):
        path, group = tmp_path / "QUE", grp.getgrgid(os.getegid())
        with create_device(path, 5_000, group=group.gr_name) as device:
            assert device.info.group == group.gr_name
            device.create_space(space_definition())
            device.create_entry(tmp_path / "SECOND", 0, 100)
            with device.open_space("SPACE") as space:
                wakeup = attachment_of(space).volume.wakeups.new()
                files = [path, f"{path}-wal", f"{path}-shm", tmp_path / "SECOND", *Path(f"{path}-run").iterdir()]
                assert {mode(name) for name in files} == {0o660}
                assert {Path(name).stat().st_gid for name in files} == {group.gr_gid}
                assert mode(f"{path}-run") & 0o777 == 0o770
                wakeup.close()

    def test_after_it_was_closed_and_opened_again_too(self, tmp_path, any_umask):
        path, group = tmp_path / "QUE", grp.getgrgid(os.getegid())
        create_device(path, 5_000, group=group.gr_name).close()
        with open_device(path) as device:
            device.create_space(space_definition())
            with device.open_space("SPACE"):
                files = [path, f"{path}-wal", f"{path}-shm", *Path(f"{path}-run").iterdir()]
                assert {mode(name) for name in files} == {0o660}


@as_root
class TestGroup:
    """A member of the group, who is neither the owner nor root."""

    WORK = """
os.umask(0o077)
other_user("users")
with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space:
    say(device.readonly)
    say(space.dequeue("Q", wait=60).text)
    heard()
    with space.transaction():
        space.enqueue("Q", "from a member")
    say("sent")
    heard()
"""

    def test_members_work_with_the_device_and_wake_each_other(self, reachable, start, monkeypatch):
        from qmcore.acts import waiting
        from tests.fix_store import Work, eventually, waiting_for

        monkeypatch.setattr(waiting, "CHECK_SECONDS", 1_000.0)
        path = reachable / "QUE"
        before = os.umask(0o077)
        try:
            with create_device(path, 5_000, group="users") as device:
                device.create_space(space_definition())
                with device.open_space("SPACE") as space:
                    make_queue(space)
                    child = start(self.WORK, path)
                    child.expect("False")
                    eventually(lambda: waiting_for(path) == 1, "the member waits")
                    space.enqueue("Q", "from the owner")
                    child.expect("from the owner")
                    work = Work(lambda: space.dequeue("Q", wait=60).text)
                    eventually(lambda: waiting_for(path) == 1, "the owner waits")
                    child.say()
                    child.expect("sent")
                    assert work.results() == ["from a member"]
                    assert device.space_usage("SPACE").processes == 2
                    child.kill()
                    space.usage("Q")
                    assert device.space_usage("SPACE").processes == 1
        finally:
            os.umask(before)

    def test_a_member_who_was_the_last_leaves_nothing_that_the_others_cannot_use(self, reachable, start):
        path = reachable / "QUE"
        reachable.chmod(0o777)
        with create_device(path, 5_000, group="users") as device:
            device.create_space(space_definition())
            with device.open_space("SPACE") as space:
                make_queue(space)
                space.enqueue("Q", "one")
        child = start(self.WORK, path)
        child.expect("False", "one")
        files = [f"{path}-wal", f"{path}-shm", *Path(f"{path}-run").iterdir()]
        users = grp.getgrnam("users").gr_gid
        assert {mode(name) for name in files} == {0o660}
        assert {Path(name).stat().st_gid for name in files} == {users}
        child.kill()
        second = start(self.WORK.replace("wait=60", "wait=0").replace(".text", ""), path)
        second.expect("False", "None")


@as_root
class TestReader:
    def test_without_rights_a_device_cannot_be_read(self, device_file, start):
        child = start(READ, device_file)
        line = child.line()
        assert line.startswith("QMEOS")
        assert "cannot be read by this user" in line
        child.finish()

    def says(self, child):
        assert child.line() == "True 1"
        assert child.line() == "1 [3]"
        refusals = child.lines_left()
        assert len(refusals) == 7
        for refusal in refusals:
            assert refusal.startswith("QMEOS")
            assert "open for reading only" in refusal
        child.finish()

    def test_whoever_may_read_it_reads_it_while_nobody_has_it_open(self, device_file, start):
        device_file.chmod(0o644)
        names = {path.name for path in device_file.parent.iterdir()}
        self.says(start(READ, device_file))
        assert {path.name for path in device_file.parent.iterdir()} == names

    def test_whoever_may_read_it_reads_it_while_somebody_works_with_it(self, device_file, start):
        device_file.chmod(0o644)
        with open_device(device_file) as device, device.open_space("SPACE") as space:
            space.enqueue("Q", b"not yet in the file")
            space.dequeue("Q")
            space.dequeue("Q")
            space.enqueue("Q", b"xyz")
            self.says(start(READ, device_file))

    def test_whoever_may_read_it_sees_who_forwards_its_queues(self, device_file, start, monkeypatch):
        monkeypatch.setenv("QMADMIN_TOML", os.devnull)
        device_file.chmod(0o644)
        with open_device(device_file) as device, device.open_space("SPACE", role="tmqforward") as space:
            space.report_forwarding([Forwarding(queue="Q", calls=7)])
            child = start(
                "import difflib, qmadmin.forwarder.status, tomllib\n"
                "from qmadmin.forwarder.program import main\n"
                "other_user()\n"
                "sys.exit(main([sys.argv[1], 'SPACE', '--status', '-q', 'Q']))\n",
                device_file,
            )
            assert [line.split()[:3] for line in (child.line(), *child.lines_left())] == [
                ["Queue", "Process", "Calls"],
                ["Q", str(os.getpid()), "7"],
                ["tmqforward", str(os.getpid()), "on"],
            ]
            child.finish()

    def test_whoever_may_read_it_reads_it_after_the_last_user_was_killed(self, device_file, start):
        device_file.chmod(0o644)
        child = start(
            "space = open_device(sys.argv[1]).open_space('SPACE')\n"
            "space.dequeue('Q')\nspace.enqueue('Q', b'xyz')\nsay('done')\nheard()\n",
            device_file,
        )
        child.expect("done")
        child.kill()
        assert Path(f"{device_file}-wal").stat().st_size
        self.says(start(READ, device_file))

    def test_a_device_that_may_be_written_in_a_place_that_may_not_is_a_diagnostic(self, device_file, start):
        device_file.chmod(0o666)
        child = start(READ, device_file)
        assert child.line().startswith(("QMEOS", "True"))

    def test_a_device_cannot_be_made_where_this_user_may_not_write(self, reachable, start):
        child = start(
            "other_user()\nfrom qmcore.errors import QueueError\n"
            "try:\n    create_device(sys.argv[1], 100)\n"
            "except QueueError as error:\n    say(error.name, error.message)\n",
            reachable / "NEW",
        )
        line = child.line()
        assert line.startswith("QMEOS")
        assert "Permission denied" in line
        assert not (reachable / "NEW").exists()


LOOK = """
import difflib, pkgutil, textwrap, tomllib, qmadmin.mib.requests, qmadmin.shell
from qmadmin.program import main
for module in pkgutil.iter_modules(qmadmin.shell.__path__, "qmadmin.shell."):
    __import__(module.name)
other_user({group})
os.chdir("/")
os.environ["ULOGPFX"] = "/dev/null"
commands = ["qopen SPACE", "qset Q", "qlist", "qinfo Q", "qdeletemsg -y", "qcreate -y NEW", "crdl {device}.2 0 10"]
status = main([sys.argv[1], *(word for command in commands for word in ("-c", command))])
say(status, main([sys.argv[1], "--mib", "T_APPQ", "TA_APPQSPACENAME=SPACE"]))
"""


@as_root
class TestShell:
    """Whoever may read a device may look at it with qmadmin, and leaves nothing that its owner cannot use."""

    @pytest.fixture
    def of_nobody(self, reachable, start):
        """A device of another user, in a directory that everybody may write."""
        reachable.chmod(0o777)
        child = start(
            "from tests.fix_store import space_definition, make_queue\nother_user()\n"
            "with create_device(sys.argv[1], 5_000) as device:\n"
            "    device.create_space(space_definition())\n"
            "    with device.open_space('SPACE') as space:\n"
            "        make_queue(space)\n"
            "        space.enqueue('Q', 'abc')\n"
            "say('made')\nheard()\n"
            "with open_device(sys.argv[1]) as device, device.open_space('SPACE') as space:\n"
            "    say(space.dequeue('Q').text)\n",
            reachable / "QUE",
        )
        child.expect("made")
        return reachable / "QUE", child

    def commands(self, shell, path):
        return shell.process(
            f"qopen SPACE\nqset Q\nqlist\nqdeletemsg -y\nqpurge -y Q\ncrdl {path}.2 0 10\nqimport -y /tmp\n",
            environ={"QMCONFIG": str(path)},
        )

    def test_root_looks_at_the_device_of_another_user_and_changes_nothing(self, of_nobody, shell):
        path, owner = of_nobody
        before = {name: name.stat().st_uid for name in path.parent.rglob("*")}
        ran = self.commands(shell, path)
        assert f"WARN: device '{path}' belongs to user 'nobody': it is open for reading only" in ran.stderr
        assert ran.stdout.count("persist ") == 1, "the message is listed"
        refused = [line for line in ran.stderr.splitlines() if line.startswith("ERROR")]
        assert len(refused) == 4
        assert all("open for reading only" in line for line in refused)
        assert ran.returncode == 1
        assert {name: name.stat().st_uid for name in path.parent.rglob("*")} == before
        owner.say()
        owner.expect("abc")
        owner.finish()

    def test_root_looks_while_the_owner_works(self, of_nobody, shell, start):
        path, owner = of_nobody
        worker = start(
            "other_user()\n"
            "with open_device(sys.argv[1]) as device, device.open_space('SPACE') as space:\n"
            "    space.enqueue('Q', 'def')\n"
            "    say('attached')\n    heard()\n    space.enqueue('Q', 'ghi')\n",
            path,
        )
        worker.expect("attached")
        assert self.commands(shell, path).stdout.count("persist ") == 2
        worker.say()
        worker.finish()
        owner.say()
        owner.expect("abc")
        owner.finish()

    @pytest.mark.parametrize("group", [None, "users"])
    def test_a_reader_makes_no_files_in_a_directory_that_he_may_write(self, reachable, start, group):
        reachable.chmod(0o777)
        path = reachable / "QUE"
        with create_device(path, 5_000, group=group) as device:
            device.create_space(space_definition())
            with device.open_space("SPACE") as space:
                make_queue(space)
                space.enqueue("Q", b"abc")
        if group is None:
            path.chmod(0o644)
        before = {name: name.stat().st_uid for name in reachable.rglob("*")}
        child = start(LOOK.format(group=repr(group), device=path), path)
        said = child.lines_left()
        child.finish()
        assert said[-1] == "1 0"
        assert "persist" in "".join(said)
        child.finish()
        assert {name: name.stat().st_uid for name in reachable.rglob("*")} == before
        with open_device(path) as device, device.open_space("SPACE") as space:
            assert space.dequeue("Q").text == "abc"

    def test_who_may_not_read_it_is_message_1105(self, device_file, start):
        child = start(LOOK.format(group=None, device=device_file).replace("say(status", "say(status) #"), device_file)
        assert child.lines_left() == ["2"]
        child.finish()


@as_root
def test_root_does_not_lock_the_owner_out_of_his_own_device(reachable, start):
    reachable.chmod(0o777)
    owner = start(
        "other_user()\n"
        "from tests.fix_store import *\n"
        "device = create_device(sys.argv[1], 5_000)\n"
        "device.create_space(space_definition())\n"
        "with device.open_space('SPACE') as space: make_queue(space)\n"
        "device.close()\nsay('made')\nheard()\n"
        "with open_device(sys.argv[1]) as device, device.open_space('SPACE') as space:\n"
        "    space.enqueue('Q', 'x')\n"
        "    say(device.space_usage('SPACE').processes)\n"
        "    heard()\n"
        "    say(space.dequeue('Q').text)\n".replace("from tests.fix_store import *\n", "").replace(
            "other_user()\n", "from tests.fix_store import space_definition, make_queue\nother_user()\n"
        ),
        reachable / "QUE",
    )
    owner.expect("made")
    with open_device(reachable / "QUE") as device, device.open_space("SPACE") as space:
        owner.say()
        owner.expect("2")
        assert space.usage("Q").messages == 1
    with open_device(reachable / "QUE") as device, device.open_space("SPACE"):
        pass
    owner.say()
    owner.expect("x")
    owner.finish()
