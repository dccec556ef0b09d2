"""Two queue spaces on volumes of their own: of two devices, on files and on PostgreSQL in any mixture, or of one."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from qmadmin.device import Device
from qmadmin.opening import create_device, open_device
from qmadmin.space import QueueSpace
from qmadmin.volume_makers import address_of
from qmcore.acts import deciding
from tests.fix_postgres import login_of
from tests.fix_store import MakesDevices, attachment_of, eventually, make_queue, space_definition

PAIRS = ("file-file", "file-postgres", "postgres-file", "postgres-postgres", "volumes-file", "volumes-postgres")
ENDS = ("", "-wal", "-shm")
"""What the names of the files of a device end with."""
LIMITS: dict[str, Any] = {"pages": 5_000, "messages": 1_000, "transactions": 2_000, "error_queue": "ERRORS"}


class Pair:
    """The queue spaces A and B, each with the queues Q and OUT, and their devices, as this process has them open."""

    def __init__(self, configs: tuple[str, str]) -> None:
        self.configs = configs
        self.devices: list[Device] = []
        self.open()

    def open(self) -> None:
        """Open both, as another process would."""
        first, second = self.configs
        one = open_device(first)
        other = one if second == first else open_device(second)
        self.devices = [one] if one is other else [one, other]
        self.a: QueueSpace = one.open_space("A")
        self.b: QueueSpace = other.open_space("B")

    def close(self) -> None:
        """Close both."""
        for device in self.devices:
            device.close()

    def hide(self) -> None:
        """Move the file of the first device away, which nobody has open."""
        _hide(self.configs[0])

    def bring_back(self) -> None:
        """Move it back."""
        _bring_back(self.configs[0])

    def end_without_decider(self, name: str, end: Callable[[QueueSpace, str], bool]) -> None:
        """Let an administrator end the branch in A or B while the file of the other one, which decides, is away."""
        config, its = self.configs["AB".index(name)], {"A": self.b, "B": self.a}[name]
        decider = attachment_of(its).volume.path
        _hide(decider)
        with contextlib.closing(open_device(config)) as device, device.open_space(name) as space:
            (info,) = space.transactions()
            assert end(space, info.name)
        _bring_back(decider)

    def work(self) -> None:
        """Do something in both, as any program that uses them."""
        for space in (self.a, self.b):
            if space.dequeue("IDLE") is None:
                space.enqueue("IDLE", "")

    def rows(self, table: str) -> int:
        """Return how many rows a table has on both volumes, as somebody from outside sees it."""
        return sum(rows_on(device, table) for device in self.devices)

    def is_settled(self) -> bool:
        """Return whether nothing is in doubt any more, and nobody is to be told of a decision."""
        self.work()
        # A caller that has died may be asked for in its stead, for a day.
        return not self.rows("trans") and not self.rows("decision WHERE length(xid_branch) > 0")

    def wait_until_settled(self) -> None:
        """Wait until recovery has done all that there is to do."""
        eventually(self.is_settled, "the end of all that was in doubt")


def _hide(path: str) -> None:
    for end in ENDS:
        if Path(path + end).exists():
            Path(path + end).rename(f"{path}-away{end}")


def _bring_back(path: str) -> None:
    for end in ENDS:
        Path(path + end).unlink(missing_ok=True)
        if Path(f"{path}-away{end}").exists():
            Path(f"{path}-away{end}").rename(path + end)


def rows_on(device: Device, table: str) -> int:
    """Return how many rows a table has on the volumes of a device, as somebody from outside sees it."""
    count = 0
    for path in dict.fromkeys(entry.path for entry in device.entries()):
        if device.kind == "sqlite":
            with contextlib.closing(sqlite3.connect(path)) as connection:
                count += connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            continue
        import psycopg

        address = address_of(device.config)
        assert address is not None
        schema = address.schema if path == device.path else path
        with psycopg.connect(address.conninfo) as connection:
            count += connection.execute(f'SELECT count(*) FROM "{schema}".{table}').fetchone()[0]
    return count


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """Two queue spaces on volumes of their own, made and opened."""
    url = ""
    if "postgres" in request.param:
        url = str(request.getfixturevalue("database_url"))
        for name, value in login_of(url).items():
            monkeypatch.setenv(name, value)
    made = make_pair(request.param, tmp_path, url, request.getfixturevalue("emptied_devices").device if url else None)
    yield made
    made.close()


@pytest.fixture
def before_decision(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Have something done once, when all branches of a transaction are prepared, and nothing is decided yet."""
    decide = deciding.decide

    def arrange(action: Callable[[], object]) -> None:
        def late(*arguments: Any) -> None:
            monkeypatch.setattr(deciding, "decide", decide)
            action()
            decide(*arguments)

        monkeypatch.setattr(deciding, "decide", late)

    return arrange


def make_pair(kinds: str, directory: Path, url: str, on_server: MakesDevices | None = None) -> Pair:
    """Make and open two queue spaces of such kinds, in files of a directory, in schemas named after that of a URL.

    `on_server` makes what is on a server.
    """
    first, second = kinds.split("-")
    address = address_of(url) if url else None
    schema = "" if address is None else address.schema
    urls = [url, url.replace(schema, f"{schema}_b")] if url else []
    makers = {"postgres": on_server or create_device}
    if first == "volumes":
        config, other = (url, f"{schema}_b") if second == "postgres" else (str(directory / "A"), str(directory / "B"))
        with makers.get(second, create_device)(config, 20_000) as device:
            device.create_entry(other, 0, 20_000)
            lay_out(device, "A", volume=0)
            lay_out(device, "B", volume=1)
        return Pair((config, config))
    configs = [urls[at] if kind == "postgres" else str(directory / "AB"[at]) for at, kind in enumerate((first, second))]
    for name, kind, config in zip("AB", (first, second), configs, strict=True):
        with makers.get(kind, create_device)(config, 20_000) as device:
            lay_out(device, name)
    return Pair((configs[0], configs[1]))


def lay_out(device: Device, name: str, **where: Any) -> None:
    """Make a queue space with its queues."""
    device.create_space(space_definition(name, ipc_key=40_000 + ord(name), **LIMITS), **where)
    with device.open_space(name) as space:
        for queue in ("ERRORS", "Q", "OUT", "IDLE"):
            make_queue(space, queue, retries=3 if queue == "Q" else 0)
