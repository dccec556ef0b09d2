"""A command verifies the parts of an archive once, and again only where somebody may have touched them since."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from qmadmin.opening import create_device
from qmadmin.transfer import Local
from qmadmin.transfer.comparing import Verified, compare
from qmadmin.transfer.exporting import LEAST_MESSAGES, export
from qmadmin.transfer.importing import load_archive
from qmadmin.transfer.moving import remove_exported
from qmcore.errors import SystemFailureError


class Watched:
    """This process, of which is told how often it was asked for what."""

    count = 1

    def __init__(self):
        self.asked = Counter()

    @contextlib.contextmanager
    def workers(self, enter, *arguments):
        with Local().workers(enter, *arguments) as crew:
            yield _Watched(crew, self.asked)

    gathered = part_workers = workers


class _Watched:
    def __init__(self, crew, asked):
        self._crew = crew
        self._asked = asked
        self.each = crew.each

    def run(self, unit, tasks, told):
        tasks = list(tasks)
        self._asked[unit.__name__] += len(tasks)
        return self._crew.run(unit, tasks, told)


def later():
    """The time when the files are old enough that a change of them is seen."""
    return time.time_ns() + 60 * 10**9


@pytest.fixture
def archive(file_device, tmp_path):
    with file_device.open_space("SPACE") as space:
        space.enqueue_many("Q", ["x" * 100] * 20)
    export(file_device.config, tmp_path / "archive", executor=Local())
    return tmp_path / "archive"


@pytest.fixture
def there(tmp_path):
    with create_device(tmp_path / "THERE", 60_000) as device:
        return device.config


def test_all_steps_of_a_command_together_verify_once(archive, there, file_device):
    workers, verified = Watched(), Verified(later)
    load_archive(archive, there, executor=workers, verified=verified, dry_run=True)
    load_archive(archive, there, executor=workers, verified=verified)
    compare(archive, there, executor=workers, verified=verified)
    remove_exported(archive, file_device.config, executor=workers, verified=verified)
    assert workers.asked["verify_part"] == 1


def test_steps_of_different_commands_do_not(archive):
    workers = Watched()
    for _ in range(2):
        compare(archive, executor=workers)
    assert workers.asked["verify_part"] == 2


def test_what_is_so_new_that_a_change_may_not_be_seen_is_read_again(archive):
    workers, verified = Watched(), Verified(lambda: (archive / "part-00000.parquet").stat().st_ctime_ns)
    for _ in range(2):
        compare(archive, executor=workers, verified=verified)
    assert workers.asked["verify_part"] == 2


def altered(part: Path) -> None:
    """Alter a part where it stands, as if it had not been touched."""
    before = part.stat()
    data = bytearray(part.read_bytes())
    data[10] ^= 1
    while part.stat().st_ctime_ns == before.st_ctime_ns:
        part.write_bytes(data)
    os.utime(part, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced(part: Path) -> None:
    """Put another file in the place of a part."""
    shutil.copy2(part, beside := part.with_name(".another"))
    altered(beside)
    beside.rename(part)


@pytest.mark.parametrize("touch", [altered, replaced])
def test_a_part_that_was_touched_between_two_steps_is_read_again(archive, there, touch):
    verified = Verified(later)
    load_archive(archive, there, executor=Local(), verified=verified, dry_run=True)
    touch(archive / "part-00000.parquet")
    with pytest.raises(SystemFailureError, match="was altered"):
        load_archive(archive, there, executor=Local(), verified=verified)


@pytest.mark.parametrize("touched", [0, 1, 2])
def test_progress_ends_with_all_messages_whatever_was_verified_before(file_device, there, tmp_path, touched):
    with file_device.open_space("SPACE") as space:
        space.enqueue_many("Q", ["x"] * (LEAST_MESSAGES + 1))
    exported = export(file_device.config, tmp_path / "archive", executor=Local())
    verified, steps = Verified(later), []
    load_archive(tmp_path / "archive", there, executor=Local(), verified=verified, dry_run=True)
    first, second = exported.manifest.parts
    for part in (first, second)[:touched]:
        stamp(tmp_path / "archive" / part.name)
    load_archive(
        tmp_path / "archive",
        there,
        executor=Local(),
        verified=verified,
        dry_run=True,
        progress=lambda *step: steps.append(step),
    )
    assert steps[0] == ("Verifying", 0, LEAST_MESSAGES + 1)
    assert steps[-1] == ("Verifying", LEAST_MESSAGES + 1, LEAST_MESSAGES + 1)


def stamp(part: Path) -> None:
    """Have a part look as if somebody had changed it."""
    os.utime(part, (0, 0))
