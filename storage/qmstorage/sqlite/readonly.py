"""A volume that this user may only read."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from qmcore.errors import QueueError
from qmcore.port import Unit
from qmcore.probe import Probe
from qmcore.purpose import Purpose
from qmcore.queue import Queue
from qmcore.records import HousekeepingTurn, Owner
from qmcore.space import Space
from qmcore.times import Clock, SystemClock
from qmstorage.sqlite import files, translate
from qmstorage.sqlite.memory_files import memory_files
from qmstorage.sqlite.owner_files import is_same_boot
from qmstorage.sqlite.snapshot import SqliteSnapshot, refuse_token
from qmstorage.sqlite.unit import read_once
from qmstorage.sqlite.wakeups import PipeWakeups, SocketWakeup
from qmstorage.statements import Texts

if TYPE_CHECKING:
    from qmcore.device import DeviceInfo
    from qmcore.findings import Finding
    from qmcore.refusals import Refused
    from qmcore.transitions import Command, Result

T = TypeVar("T")


class ReadOnlyMemories:
    """The memories of queue spaces, which a reader does not use: it sees persistent messages only."""

    def __init__(self, path: str) -> None:
        self._path = path

    def attach(self, space: Space, queues: Sequence[Queue]) -> bool:
        """Do nothing."""
        del space, queues
        return False

    def detach(self, space: Space) -> None:
        """Do nothing."""

    def remove(self, space: Space, *, unused: bool = False) -> None:
        """Refuse."""
        del space, unused
        raise translate.read_only(self._path)

    def files(self, space: Space) -> list[tuple[str, int]]:
        """Return the files of a queue space's memory, and their sizes in bytes."""
        return memory_files(self._path, space)


class ReadOnlyLiveness:
    """Which owners live, as far as a reader can tell, who is none himself."""

    def __init__(self, path: str) -> None:
        self._path = path

    def new_owner(self, space_id: int, role: str, now_us: int) -> Owner:
        """Refuse."""
        del space_id, role, now_us
        raise translate.read_only(self._path)

    def release(self, owner: Owner, wakeups: Sequence[str] = ()) -> None:
        """Do nothing: a reader has no file."""

    def living(self, owners: Sequence[Owner]) -> set[int]:
        """Take all for alive: a reader may not probe."""
        return {owner.id for owner in owners}

    def is_same_boot(self, owner: Owner) -> bool:
        """Return whether the machine has run without restart since the owner attached."""
        return is_same_boot(owner)


class ReadOnlyWakeups:
    """The wake-ups of a reader, who waits for nothing and enqueues nothing."""

    deaf_seconds = 0.0

    def __init__(self, path: str) -> None:
        self._path = path

    def new(self, *, in_turn: bool = False) -> SocketWakeup:
        """Refuse."""
        del in_turn
        raise translate.read_only(self._path)

    def new_set(self) -> PipeWakeups[Any]:
        """Refuse."""
        raise translate.read_only(self._path)

    def wake(self, addresses: Sequence[str]) -> None:
        """Do nothing."""

    def wake_own(self) -> None:
        """Do nothing."""


class ReadOnlyVolume:
    """An SQLite file that is only read. Each read opens it again, which is not a hot path."""

    readonly = True
    has_vanished = False
    syncs_apart = False
    sweeps = False

    def __init__(self, path: str, probe: Probe) -> None:
        self.path = path
        self.probe = probe
        self._texts = Texts(files.DIALECT)
        self.clock: Clock = SystemClock()
        self.memories = ReadOnlyMemories(path)
        self.liveness = ReadOnlyLiveness(path)
        self.wakeups = ReadOnlyWakeups(path)

    def read(self, work: Callable[[Unit], T]) -> T:
        """Run `work` in one database transaction that changes nothing."""
        while True:
            try:
                with files.reading(self.path) as connection:
                    return read_once(connection, self._texts, self.path, work)
            except translate.ChangedError:
                # It is open now, and read as such.
                continue

    def run(
        self, commands: Sequence[Command], *, on: object = None, purpose: Purpose | None = Purpose.MESSAGES
    ) -> Sequence[Result] | Refused:
        """Refuse."""
        del commands, on, purpose
        raise self._refusal()

    def after_commit(self, action: Callable[[], None], *, on: object = None) -> None:
        """Refuse: nothing is committed."""
        del action, on
        raise self._refusal()

    def write(self, work: Callable[[Unit], T], purpose: Purpose) -> T:
        """Refuse."""
        del work, purpose
        raise self._refusal()

    @functools.cached_property
    def instance(self) -> str:
        """What no copy of the file has."""
        return files.instance(self.path, self.read(lambda unit: unit.device.volume().volume))

    def changes(self) -> None:
        """Return nothing: a reader does not wait."""

    def take_housekeeping_turn(
        self, space_id: int, owner_id: int | None, now_us: int, *, unchanged: bool
    ) -> HousekeepingTurn:
        """Return that housekeeping is left to others."""
        del space_id, owner_id, now_us, unchanged
        return HousekeepingTurn.OTHERS

    def compare_clocks(self) -> None:
        """Do nothing: all processes use the machine's clock."""

    def comes_free(self, seconds: float) -> bool:
        """Return that there is nothing to wait for: a reader does not write."""
        del seconds
        return True

    def write_on(self, connection: object, work: Callable[[Unit], T]) -> T:
        """Refuse."""
        del connection, work
        raise self._refusal()

    def is_joined(self, connection: object = None) -> bool:
        """Return no: a reader does not write."""
        del connection
        return False

    def quiesced(self, seconds: float) -> contextlib.AbstractContextManager[None]:
        """Refuse."""
        del seconds
        raise self._refusal()

    @contextlib.contextmanager
    def snapshot(self, of: str = "", memory: Collection[str] = ()) -> Iterator[SqliteSnapshot]:
        """Open a snapshot of the volume as it is now, while others write. A reader sees persistent messages only."""
        del memory
        refuse_token(of)
        with files.reading(self.path) as connection, contextlib.closing(SqliteSnapshot(self.path, connection)) as made:
            yield made

    def allocate_disk(self, pages: int, progress: Callable[[int], None]) -> None:
        """Refuse."""
        del pages, progress
        raise self._refusal()

    def health(self, info: DeviceInfo) -> list[Finding]:
        """Return nothing: there is no server, and files are checked from outside."""
        del info
        return []

    def sync(self, *, others: bool = False) -> None:
        """Do nothing: a reader writes nothing."""
        del others

    def check_place(self) -> None:
        """Do nothing: a reader loses nothing."""

    def close(self) -> None:
        """Do nothing: nothing is kept open."""

    def _refusal(self) -> QueueError:
        return translate.read_only(self.path)
