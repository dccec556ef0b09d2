"""Small disks, for what happens when they are full."""

import contextlib
import os
import subprocess

import pytest


@pytest.fixture
def small_disk(tmp_path):
    """A disk of its own of four megabytes."""
    with mounted(tmp_path / "disk", "4m") as where:
        yield where


@contextlib.contextmanager
def mounted(where, size):
    """Give a disk of its own, of that size."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a disk")
    where.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", where]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    if told.returncode:
        pytest.skip(f"a disk cannot be mounted here: {told.stderr.strip()}")
    yield where
    subprocess.run(["umount", "--lazy", where], check=True)


def fill(where):
    """Leave no room on the disk, and return the file that takes it."""
    filling = where / "filling"
    with filling.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filling
