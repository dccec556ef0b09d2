"""Who may use a device: its owner, a group, and those who may only read it."""

from __future__ import annotations

import grp
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import qmadmin

STRANGER = 65534

LAY_OUT = """
import os, sys
import qmadmin
os.umask(0o077)
group = sys.argv[2] if len(sys.argv) > 2 else None
device = qmadmin.create_device(sys.argv[1], 1000, group=group)
device.create_space(qmadmin.SpaceDefinition(
    name="S", ipc_key=40000, pages=100, queues=4, transactions=4, processes=4, messages=50))
space = device.open_space("S")
space.create_queue(qmadmin.QueueDefinition(name="Q"))
space.enqueue("Q", b"data")
"""

AS_STRANGER = """
import os, sys
import qmadmin, qmadmin.opening, qmstorage.opening, encodings.idna, traceback
os.setgroups([int(gid) for gid in sys.argv[2:]]); os.setgid(65534); os.setuid(65534)
"""

READ = """
device = qmadmin.open_device(sys.argv[1])
space = device.open_space("S")
print(device.readonly, space.usage("Q").messages, [info.size for info in space.messages("Q")])
for attempt in (
    lambda: space.enqueue("Q", b""),
    lambda: space.dequeue("Q"),
    lambda: space.dequeue("Q", wait=1),
    lambda: space.transaction().__enter__() and space.dequeue("Q"),
    lambda: space.create_queue(qmadmin.QueueDefinition(name="R")),
    lambda: device.create_entry(sys.argv[1], 5000, 5),
):
    try:
        attempt()
    except qmadmin.OperatingSystemError as error:
        assert "cannot be written by this user" in str(error), error
    else:
        raise AssertionError
device.close()
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that others may look into, which those of pytest are not."""
    directory = Path(tempfile.mkdtemp(prefix="qmadmin-test-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


def run(program: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_device_is_closed_to_others_whatever_the_umask_says(place: Path) -> None:
    run(LAY_OUT.replace("0o077", "0"), place / "QUE")
    assert mode(place / "QUE") == 0o600
    assert mode(place / "QUE-run") == 0o700


def test_a_group_may_use_a_device_that_was_made_for_it_whatever_the_umask_says(place: Path) -> None:
    group = grp.getgrgid(os.getgroups()[0] if os.getgroups() else os.getegid()).gr_name
    run(
        LAY_OUT
        + "names = [sys.argv[1] + suffix for suffix in ('', '-wal', '-shm', '-run/gate')]\n"
        + "print(*(oct(os.stat(name).st_mode & 0o777) for name in names))\n",
        place / "QUE",
        group,
    )
    with qmadmin.open_device(place / "QUE") as device, device.open_space("S"):
        modes = {name.name: mode(name) for name in place.iterdir() if not name.is_dir()}
        assert modes == {"QUE": 0o660, "QUE-wal": 0o660, "QUE-shm": 0o660}
        assert mode(place / "QUE-run") == 0o2770
        assert {mode(name) for name in (place / "QUE-run").iterdir()} == {0o660}


def test_a_group_that_does_not_exist_is_refused_and_no_file_is_left(place: Path) -> None:
    with pytest.raises(qmadmin.InvalidArgumentError, match="no group 'nosuchgroup'"):
        qmadmin.create_device(place / "QUE", 100, group="nosuchgroup")
    assert list(place.iterdir()) == []


@needs_root
@pytest.mark.parametrize("in_use", [False, True], ids=["nobody has it open", "somebody has it open"])
def test_who_may_only_read_a_device_sees_everything_and_changes_nothing(place: Path, in_use: bool) -> None:
    run(LAY_OUT, place / "QUE")
    (place / "QUE").chmod(0o644)
    if in_use:
        with qmadmin.open_device(place / "QUE") as device, device.open_space("S"):
            seen = run(AS_STRANGER + READ, place / "QUE")
    else:
        seen = run(AS_STRANGER + READ, place / "QUE")
    assert seen == "True 1 [4]\n"


@needs_root
def test_a_device_that_one_may_not_read_is_refused_by_name(place: Path) -> None:
    run(LAY_OUT, place / "QUE")
    said = run(
        AS_STRANGER + "try:\n    qmadmin.open_device(sys.argv[1])\nexcept qmadmin.OperatingSystemError as error:\n"
        "    print(error)\n",
        place / "QUE",
    )
    assert said == f"device '{place / 'QUE'}' cannot be read by this user\n"


@needs_root
def test_a_member_of_the_group_works_beside_the_owner(place: Path) -> None:
    """Each makes files that the other needs: the log, bells, locks."""
    group = grp.getgrall()[-1]
    place.chmod(0o2775)
    os.chown(place, 0, group.gr_gid)
    run(LAY_OUT, place / "QUE", group.gr_name)
    work = """
with qmadmin.open_device(sys.argv[1]) as device, device.open_space("S") as space:
    assert space.dequeue("Q", wait=5).body == b"data"
    print(space.enqueue("Q", b"theirs"), flush=True)
"""
    assert len(run(AS_STRANGER + work, place / "QUE", group.gr_gid).strip()) == 32
    with qmadmin.open_device(place / "QUE") as device, device.open_space("S") as space:
        message = space.dequeue("Q")
        assert message is not None
        assert message.body == b"theirs"
        run(
            AS_STRANGER
            + "with qmadmin.open_device(sys.argv[1]) as device, device.open_space('S') as space:\n"
            + "    space.enqueue('Q', b'more')\n",
            place / "QUE",
            group.gr_gid,
        )
        again = space.dequeue("Q", wait=5)
        assert again is not None
        assert again.body == b"more"
