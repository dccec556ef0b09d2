"""The device that release 0.1.0 made, at a place of its own."""

import contextlib
import gzip
import os
import re
import shutil
import sqlite3
from pathlib import Path

import pytest

from qmstorage.sqlite.owner_files import this_boot

RELEASE = Path(__file__).parent / "migration" / "release-0.1.0"
CONTENT = {
    ("QS", "ERRQ"): [b"fails"],
    ("QS", "GROUPS"): [b"one", b"two"],
    ("QS", "Q"): [b"low", b"text", b"later", b"expires", b"in memory", bytes(1_100_000)],
    ("QS", "STOPPED"): [],
    ("OTHER", "Q2"): [b"elsewhere"],
}
"""The bodies in its queues, the shortest first."""


def tables(path):
    """Return what SQLite says of each table and index, blanks folded."""
    with sqlite3.connect(path) as connection:
        found = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    connection.close()
    return {name: normal(sql) for name, sql in found}


def normal(sql):
    """Fold the blanks, and order the constraints, which mean the same in any order."""
    head, _, rest = re.sub(r"\s+", " ", sql).partition("(")
    body, _, tail = rest.rpartition(")")
    parts = sorted(part.strip() for part in re.split(r",(?![^(]*\))", body))
    return f"{head.strip()} ({', '.join(parts)}) {tail.strip()}"


def versions(*paths):
    """Return the schema versions that files say, which SQLite takes back where something was cut short."""
    found = []
    for path in paths:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            found.append(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])
    return found


def contents(device):
    """Return the bodies in the queues of a device."""
    found = {}
    for space in device.spaces():
        with device.open_space(space.name) as opened:
            for queue in opened.queues():
                bodies = [opened.content(listed).body for listed in opened.messages(queue.name)]
                found[space.name, queue.name] = sorted(bodies, key=len)
    return found


def are_known(device):
    """Return whether each volume of a device has an identifier of its own, which the device list has too."""
    known = {entry.path: entry.volume for entry in device.entries()}
    told = {path: device.volume_of(path, looks=True).read(lambda unit: unit.device.volume()).volume for path in known}
    return (
        told == known
        and len(set(known.values())) == len(known)
        and all(map(re.compile("[0-9a-f]{16}").fullmatch, known.values()))
    )


def set_version(path, number):
    """Have a device say another schema version than it has."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (f"{number:04d}",))
        connection.commit()


@pytest.fixture
def old_device(tmp_path, monkeypatch):
    """The device on SQLite, with a second file, and a message in memory as if the machine had run since."""
    place = tmp_path / "queues"
    place.mkdir()
    for name in ("QUE", "second"):
        shutil.copy(RELEASE / name, place)
    with contextlib.closing(sqlite3.connect(place / "QUE")) as connection:
        for index, name in enumerate(("QUE", "second")):
            connection.execute("UPDATE entry SET path = ? WHERE dlindex = ?", (str(place / name), index))
        connection.commit()
        (incarnation,) = connection.execute("SELECT incarnation FROM space").fetchone()
    shared = tmp_path / "shm"
    monkeypatch.setenv("QM_SHM_DIR", str(shared))
    memory = shared / f"qmadmin-{incarnation}-of-the-release"
    memory.mkdir(parents=True, mode=0o700)
    shutil.copy(RELEASE / "memory", memory)
    (memory / "device").symlink_to(place / "QUE")
    with contextlib.closing(sqlite3.connect(memory / "memory")) as connection:
        connection.execute("UPDATE residence SET boot = ?", (this_boot(),))
        connection.commit()
    (place / "QUE-run").mkdir(mode=0o700)
    (place / "QUE-run" / f"memory-{incarnation}").symlink_to(memory)
    return place / "QUE"


def dump():
    """Return the statements that make the device on PostgreSQL, in the schema `queues`."""
    text = gzip.decompress((RELEASE / "postgres.sql.gz").read_bytes()).decode()
    return "\n".join(line for line in text.splitlines() if not line.startswith("\\"))


def environment():
    """Return the environment for a program that a test starts."""
    return os.environ | {"ULOGPFX": "-"}
