"""A volume on SQLite: one held connection, one writer at a time, commits shared by whoever is waiting.

Threads that write at the same time are committed together (`group_commit`), and processes queue at a gate. A commit is
made durable after the gate is open again: one fdatasync of the log covers all that was committed before, by whomever.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from qmcore.errors import InvalidArgumentError, NotOpenError
from qmcore.port import Unit
from qmcore.probe import Point, Probe
from qmcore.purpose import Purpose
from qmcore.records import HousekeepingTurn, Use
from qmcore.refusals import Refused
from qmcore.transitions import Dispose
from qmstorage.forks import FORKS
from qmstorage.refused import RefusedError
from qmstorage.sqlite import aliases, files, filling, joining, translate
from qmstorage.sqlite.committing import Committer
from qmstorage.sqlite.group_commit import CommitQueue, Work
from qmstorage.sqlite.liveness import FileLiveness
from qmstorage.sqlite.memories import FileMemories
from qmstorage.sqlite.memory_files import MemoryFiles
from qmstorage.sqlite.snapshot import OpenSnapshots, SqliteSnapshot, refuse_token
from qmstorage.sqlite.transitions import VERBS
from qmstorage.sqlite.unit import SqliteUnit, ours, read_once, roll_back
from qmstorage.sqlite.wal import WriterResources
from qmstorage.statements import Texts

if TYPE_CHECKING:
    from qmcore.device import DeviceInfo
    from qmcore.findings import Finding
    from qmcore.times import Clock
    from qmcore.transitions import Command, Result

T = TypeVar("T")

_LOOK_SECONDS = 1.0
"""How often a process that writes looks whether the files are still those that it opened."""

_OPEN_AGAIN = "Close the device and open it again."

_FORK_SECONDS = 1.0
"""How long a fork waits for work that is being done; it is milliseconds, unless the disk hangs."""

_WALK_SECONDS = 60.0
"""How long it waits for a question to all that is stored; it is a second or two for a million messages."""


class SqliteVolume:
    """One SQLite file, or SQLite in memory, as the engine's port wants it. Open for reading and writing."""

    readonly = False
    syncs_apart = True
    sweeps = False

    def __init__(
        self,
        path: str,
        connection: sqlite3.Connection,
        probe: Probe,
        clock: Clock,
        *,
        durable: bool,
    ) -> None:
        self.path = path
        self.has_vanished = False
        self.probe = probe
        self.clock = clock
        self._connection = connection
        self._texts = Texts(files.DIALECT)
        self._memory_files = MemoryFiles(path, connection)
        self._snapshots = OpenSnapshots()
        self._writing = threading.Lock()
        self._queue = CommitQueue()
        self._closed = self._advice = ""
        self._levels: dict[int, Use] = {}
        # What is to be done when applications commit that work with us in transactions of their own.
        self.joined_transactions = joining.ApplicationTransactions(self)
        self.was_joined = False  # Whether an application has ever done so.
        try:
            self._resources = WriterResources(path, probe, durable=durable)
        except OSError as error:
            connection.close()
            raise translate.from_os(error, "opening the files beside device", path) from error
        self._gate: contextlib.AbstractContextManager[None] = self._resources.gate or contextlib.nullcontext()
        its = self._texts, self._memory_files, self._resources
        self._committer = Committer(path, connection, *its, self._check_usable, clock)
        self._belongings = aliases.Belongings(path)
        self.memories = FileMemories(path, connection, self._texts, self._memory_files, self._alone)
        self.liveness = FileLiveness(path, self._resources.owners, self._resources.wakeups)
        self.wakeups = self._resources.wakeups
        self._next_look = time.monotonic() + _LOOK_SECONDS
        FORKS.add(self)

    def run(
        self, commands: Sequence[Command], *, on: object = None, purpose: Purpose | None = Purpose.MESSAGES
    ) -> Sequence[Result] | Refused:
        """Execute commands, all or none, and return what came of each."""
        try:
            if on is not None:
                return self.write_on(on, lambda unit: ours(unit).execute(commands))
            if purpose is None:
                return self.look(lambda unit: unit.execute(commands))
            if len(commands) > 1 or isinstance(commands[0], Dispose):
                # What a disposition is refused for is found out only as it is done: then all is undone.
                return self.done(Work(SqliteUnit.execute, commands, purpose=purpose))
            (command,) = commands
            request = command if purpose.durable and not purpose.apart else None
            work = Work(VERBS[type(command)], command, purpose=purpose, looks_first=True, request=request)
            result: Result | Refused = self.done(work)
            return result if isinstance(result, Refused) else (result,)
        except RefusedError as error:
            return error.refused

    def after_commit(self, action: Callable[[], None], *, on: object = None) -> None:
        """Have something done once the application has committed; without a connection at once."""
        joining.after_commit(self, on, action)

    def write(self, work: Callable[[Unit], T], purpose: Purpose) -> T:
        """Run `work` in one database transaction and commit it; an exception leaves everything as it was."""
        # There is one writer at a time, and no connection that could be lost.
        return self.done(Work(work, purpose=purpose))

    def done(self, work: Work[T]) -> T:
        """Queue a work, and return its outcome once it is committed and, if that is promised, on the disk."""
        if self.was_joined and self.is_joined():
            raise joining.would_wait_for_itself(self.path)
        if time.monotonic() > self._next_look:
            self.check_place()
        log = self._resources.log if work.purpose.durable and not work.purpose.apart else None
        try:
            self._queue.append(work)
            if self.probe.actions:
                self.probe.reach(Point.QUEUED, len(self._queue))
            if log is None:
                self._commit_in_turn(work)
            else:
                work.serves = True
                self._queue.commit_durably(work, self._commit_in_turn, log)
                if work.purpose.always:
                    log.sync(work.commit, always=True)
                if work.served:
                    self._committer.tell(work.served)
        except BaseException:
            self._queue.leave(work)
            self._clear_away()
            raise
        return work.outcome() if work.error is not None or work.actions else work.result

    def read(self, work: Callable[[Unit], T]) -> T:
        """Run `work` in one database transaction that changes nothing."""
        if time.monotonic() > self._next_look:
            self.check_place()
        with self._writing:
            self._check_usable()
            return read_once(self._connection, self._texts, self.path, work, self._memory_files.texts)

    def look(self, work: Callable[[SqliteUnit], T]) -> T:
        """Run `work`, which changes nothing; each statement that it runs is a database transaction by itself."""
        if time.monotonic() > self._next_look:
            self.check_place()
        with self._writing:
            self._check_usable()
            cursor = self._connection.cursor()
            try:
                return work(SqliteUnit(cursor, self._texts, self._memory_files.texts))
            except sqlite3.Error as error:
                raise translate.from_sqlite(error, self.path) from error
            finally:
                # One that was not read to its end would keep the log from being written again.
                cursor.close()

    def comes_free(self, seconds: float) -> bool:
        """Return whether a write could begin within the seconds, which other writers may take until then."""
        if time.monotonic() > self._next_look:
            self.check_place()
        end = time.monotonic() + seconds
        if not self._writing.acquire(timeout=seconds):
            return False
        try:
            self._check_usable()
            gate = self._resources.gate
            with gate.within(end - time.monotonic()) if gate else contextlib.nullcontext(enter_result=True) as inside:
                return inside and files.can_begin(self._connection, end - time.monotonic())
        except sqlite3.Error as error:
            raise translate.from_sqlite(error, self.path) from error
        finally:
            self._writing.release()

    def write_on(self, connection: object, work: Callable[[Unit], T]) -> T:
        """Run `work` on the caller's own connection to the file, in its transaction; it stands or falls with that."""
        return joining.write_on(self, self._texts, connection, work)

    def is_joined(self, connection: object = None) -> bool:
        """Return whether this thread has joined a transaction of the application, or is about to join this one."""
        if connection is not None and joining.is_in_transaction(connection):
            return True
        return self.joined_transactions.is_joined_here()

    @functools.cached_property
    def instance(self) -> str:
        """What no copy of the file has."""
        return files.instance(self.path, self.read(lambda unit: unit.device.volume().volume))

    def memory_levels(self) -> dict[int, Use]:
        """Return how much the memories of queue spaces hold that this process has open, as far as it is known at once.

        Another thread may be at work, and wait for the transaction of the very thread that asks.
        """

        def levels(unit: Unit) -> dict[int, Use]:
            memories = {space_id: unit.memory(space_id) for space_id in list(self._memory_files.texts)}
            return {
                space_id: memory.counters.level(space_id) for space_id, memory in memories.items() if memory is not None
            }

        if self._memory_files.texts and self._writing.acquire(blocking=False):
            try:
                self._levels = read_once(self._connection, self._texts, self.path, levels, self._memory_files.texts)
            finally:
                self._writing.release()
        return self._levels

    def allocate_disk(self, pages: int, progress: Callable[[int], None]) -> None:
        """Make the file have `pages` free pages, so that a full disk is found now; `progress` gets percent."""
        filling.allocate_disk(self, pages, progress)

    @contextlib.contextmanager
    def quiesced(self, seconds: float) -> Iterator[None]:
        """Keep out all writers, other processes and programs with connections of their own; readers go on.

        Raises SystemFailureError, which is `blocked`, where others do not come to an end within the seconds.
        """
        if self.is_joined():
            raise joining.would_wait_for_itself(self.path)
        end = time.monotonic() + seconds
        if not self._writing.acquire(timeout=seconds):
            raise translate.not_still(self.path)
        try:
            self._check_usable()
            gate = self._resources.gate
            with gate.within(end - time.monotonic()) if gate else contextlib.nullcontext(enter_result=True) as inside:
                if not inside or not files.begin_within(self._connection, end - time.monotonic()):
                    raise translate.not_still(self.path)
                try:
                    yield
                finally:
                    roll_back(self._connection)
        finally:
            self._writing.release()

    @contextlib.contextmanager
    def snapshot(self, of: str = "", memory: Collection[str] = ()) -> Iterator[SqliteSnapshot]:
        """Give the volume as it stands now, while others go on writing. One in memory has none."""
        if self._resources.log is None:
            raise InvalidArgumentError("a device in memory has no second connection that could check it")
        refuse_token(of)
        self._check_usable()
        if lost := self._belongings.lost() or self._lost_memory():
            # Whoever looks next lets go: this may be in the middle of something.
            raise NotOpenError(lost, path=self.path)
        with contextlib.ExitStack() as stack:
            yield stack.enter_context(self._snapshots.one(self.path, memory))

    def health(self, info: DeviceInfo) -> list[Finding]:
        """Return nothing: there is no server, and files are looked at from outside."""
        del info
        return []

    def check_place(self) -> None:
        """Refuse to go on where what belongs to the volume was removed or replaced, and close it for others to open."""
        self._next_look = time.monotonic() + _LOOK_SECONDS
        lost = self._belongings.lost()
        reason = lost or self._lost_memory()
        if reason:
            # Who goes on without the memory has to know that it is lost.
            self._advice = translate.IF_LOST if lost else _OPEN_AGAIN
            self._end(reason)
            self.has_vanished = bool(lost)
        self._check_usable()

    def _lost_memory(self) -> str:
        """Return a sentence that says what of a memory was removed or replaced; "" where nothing was.

        That of a queue space which is destroyed, or has no memory any more, is missed by nobody.
        """
        for path, space, incarnation in self._memory_files.lost():
            found = self.read(lambda unit, name=space: unit.spaces.find(name))  # type: ignore[misc]
            if found is not None and found.incarnation == incarnation and found.definition.memory:
                return (
                    f"{path!r}, which belongs to the memory of queue space {space!r}, was removed or replaced while it"
                    " was open, and non-persistent messages may be lost"
                )
        return ""

    def changes(self) -> object:
        """Return what is another value after each commit that changes something; None where that is not known."""
        if self._resources.log is None:
            return None
        with self._writing:
            self._check_usable()
            try:
                versions = [files.version(self._connection, name) for name in self._memory_files.schemas()]
            except sqlite3.Error as error:
                raise translate.from_sqlite(error, self.path) from error
            return versions, self._connection.total_changes

    def take_housekeeping_turn(
        self, space_id: int, owner_id: int | None, now_us: int, *, unchanged: bool
    ) -> HousekeepingTurn:
        """Return who does the housekeeping of a queue space: this process, where nobody did in the last second."""
        if self._resources.turns.take(space_id, now_us):
            return HousekeepingTurn.OURS
        if unchanged or owner_id is None or self.read(lambda unit: unit.owners.is_attached(owner_id)):
            return HousekeepingTurn.OTHERS
        return HousekeepingTurn.LOST

    def compare_clocks(self) -> None:
        """Do nothing: all go by the machine's clock."""

    def close(self) -> None:
        """Close the volume; whoever waits is woken."""
        self._end(f"device {self.path!r} is closed")

    def _end(self, reason: str) -> None:
        if self._closed:
            return
        self._closed = self._committer.closed = reason
        FORKS.discard(self)
        self.wakeups.wake_own()
        with self._writing:
            self._snapshots.close()
            try:
                if self._resources.log is not None:
                    self._belongings.leave(self._resources.log, self._connection)
                    # First: those who have committed and not synced yet are served by it.
                    self._resources.log.close()
            finally:
                self._close_connection()
                self._resources.close()

    def _close_connection(self) -> None:
        """Leave the log to processes that have lost SQLite's locks: to SQLite we seem to be the last one then."""
        with contextlib.ExitStack() as later:
            if self._resources.owners.has_process_without_lock():
                with contextlib.suppress(sqlite3.Error):
                    reader = later.enter_context(contextlib.closing(files.connect(self.path, "ro")))
                    # Whoever may only read removes nothing.
                    reader.execute("PRAGMA application_id")
            self._connection.close()

    def sync(self, *, others: bool = False) -> None:
        """Return once all that we have committed is on the disk, also if relaxed; `others`: whoever has written it."""
        log = self._resources.log
        if log is not None and others:
            with self._writing:
                log.note_commit()
        if log is not None:
            log.sync(log.written, always=True)

    def pause(self) -> bool:
        """Wait until no work is being done and let none begin, because the process is about to fork."""
        with contextlib.ExitStack() as undo:
            undo.callback(self._snapshots.resume)
            if not self._snapshots.pause(_WALK_SECONDS):
                return False
            for lock in (self._writing, self._snapshots.registering):
                if not lock.acquire(timeout=_FORK_SECONDS):
                    return False
                undo.callback(lock.release)
            # One may have been made meanwhile.
            if not self._snapshots.pause(_FORK_SECONDS):
                return False
            undo.pop_all()
        return True

    def resume(self) -> None:
        """Let work begin again, after the fork."""
        self._snapshots.registering.release()
        self._writing.release()
        self._snapshots.resume()

    def give_to_parent(self, *, idle: bool) -> None:
        """Close, in a forked process, what it has inherited, without touching what is the parent's.

        SQLite keeps the locks of a process in memory, and a fork copies that: a connection that the child opens would
        take the parent's locks for its own and have none; the parent, which then seems to be alone, would delete the
        log under it. With the inherited connection closed the child starts from nothing.

        A volume that was not idle, because its work took too long to wait for, is left as it is: to close it would
        undo the parent's work.
        """
        self._closed = f"device {self.path!r} was opened by the parent process, before a fork"
        self._committer.closed = self._closed
        if self._resources.handoff is not None:
            self._resources.handoff.give_to_parent(self._closed)
        if idle:
            self._snapshots.give_to_parent()
            self._connection.close()
            self._resources.abandon()
        self._writing = threading.Lock()
        self._queue.start_afresh()
        self._snapshots.registering = threading.Lock()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep out all who write, in this process and in others."""
        with self._writing, self._gate:
            self._check_usable()
            try:
                yield
            except sqlite3.Error as error:
                raise translate.from_sqlite(error, self.path) from error

    def _clear_away(self) -> None:
        """Take away what an interrupt may have left: a closed gate, where it is entered or left, or a posted work.

        Another thread that is at work does so when it is done, and others may have to wait until then.
        """
        if self._closed or self._writing.locked():
            return
        if self._resources.gate is not None:
            self._resources.gate.open()
        if self._resources.handoff is not None:
            self._resources.handoff.take_off()

    def _commit_in_turn(self, work: Work[Any]) -> int:
        with self._writing:
            return 0 if work.settled else self._queue.commit_all(self._committer.commit)

    def _check_usable(self) -> None:
        if self._closed:
            raise NotOpenError(self._closed, hint=self._advice, path=self.path)
        log = self._resources.log
        if log is not None and log.lost is not None:
            log.check()
