"""A device of two volumes, files or schemas of a database, and what may be in the place of the second one."""

import contextlib
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from qmadmin import create_device
from qmadmin.volume_makers import address_of
from tests.fix_store import make_queue, space_definition


class Place:
    """Where the volumes of a device are: files, or schemas of a database."""

    def __init__(self, store, tmp_path, server):
        self.store = store
        self.tmp_path = tmp_path
        self.server = server
        self.second, self.away, self.other, self.third = (
            self.name(each) for each in ("second", "away", "other", "third")
        )
        self.main = address_of(store.path).schema if self.is_postgres else store.path

    @property
    def is_postgres(self):
        return self.store.kind == "postgres"

    def name(self, name):
        return f"{address_of(self.store.path).schema}_{name}" if self.is_postgres else str(self.tmp_path / name)

    def move(self, old, new):
        if self.is_postgres:
            self.store.by_hand(*(f"ALTER SCHEMA {old}{end} RENAME TO {new}{end}" for end in ("", "_memory")))
        else:
            Path(old).rename(new)

    def copy(self, old, new):
        if not self.is_postgres:
            with contextlib.closing(sqlite3.connect(old)) as source, contextlib.closing(sqlite3.connect(new)) as target:
                source.backup(target)
            return
        dump = self.server.bin and self.server.bin / "pg_dump"
        if dump is None or not dump.exists():
            pytest.skip("there is no pg_dump beside the server")
        database = self.store.path.partition("?")[0].replace("+psycopg", "")
        text = subprocess.run(
            [dump, "-n", old, "-n", f"{old}_memory", database], check=True, capture_output=True, text=True
        ).stdout
        psql = shutil.which("psql") or self.server.bin / "psql"
        subprocess.run(
            [psql, "-qX", "-v", "ON_ERROR_STOP=1", database], input=text.replace(old, new), text=True, check=True
        )

    # ---- what may be in the place of a volume ---

    def nothing(self, at):
        del at

    def empty(self, at):
        self.store.by_hand(f"CREATE SCHEMA {at}") if self.is_postgres else Path(at).touch()

    def text(self, at):
        if self.is_postgres:
            self.store.by_hand(f"CREATE SCHEMA {at} CREATE TABLE letter (line text)")
        else:
            Path(at).write_text("dear reader\n" * 1000)

    def other_device(self, at):
        create_device(self.store.path.replace(self.main, at), 100, clock=self.store.clock).close()

    def sibling(self, at):
        """A volume of the device that its list does not name any more."""
        with contextlib.closing(self.store.another()) as device:
            device.remove_entry(device.create_entry(self.third, 0, 100).index)
        self.move(self.third, at)

    def device_itself(self, at):
        self.copy(self.main, at)

    def its_copy(self, at):
        self.copy(self.second, at)

    def older(self, at):
        """A copy of the second volume that another process has worked on since."""
        self.copy(self.second, at)
        with contextlib.closing(self.store.another()) as device, device.open_space("FAR") as space:
            space.enqueue("Q", "since")

    def picture(self, at):
        """Return what is at a path, and beside it."""
        if self.is_postgres:
            return None
        found = Path(at)
        return found.is_file() and found.read_bytes(), {path.name for path in found.parent.glob(f"{found.name}*")}


@pytest.fixture
def place(shared_store, tmp_path, request):
    """A device of two volumes; in the second one is a queue space FAR with a message. Nobody has it open."""
    server = request.getfixturevalue("postgres_server") if shared_store.kind == "postgres" else None
    place = Place(shared_store, tmp_path, server)
    device = shared_store.device
    device.create_entry(place.second, 0, 100_000)
    device.create_space(space_definition("NEAR", pages=40), volume=0)
    device.create_space(space_definition("FAR", pages=25_000))
    for name in ("NEAR", "FAR"):
        with device.open_space(name) as space:
            make_queue(space, retries=9)
            space.enqueue("Q", name)
    device.close()
    return place
