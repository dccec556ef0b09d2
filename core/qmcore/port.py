"""The port: what the engine asks of a store, as protocols. `Volume` is the whole, `Unit` one database transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from qmcore.device import DeviceInfo
from qmcore.probe import Probe
from qmcore.purpose import Purpose
from qmcore.queue import Queue
from qmcore.records import HousekeepingTurn, Owner, Use
from qmcore.refusals import Refused
from qmcore.space import Space
from qmcore.store import MemoryStore, Store
from qmcore.transitions import (
    Command,
    Commit,
    Committed,
    Dispose,
    Disposed,
    Enqueue,
    Enqueued,
    Guard,
    Reached,
    Result,
    Route,
    Source,
)
from qmcore.unit_parts import (
    AuditRecords,
    DeviceRecords,
    HighestRecords,
    HistoryRecords,
    ImportRecords,
    OwnerRecords,
    QueueRecords,
    ScheduleRecords,
    SpaceRecords,
    TransactionRecords,
    WaitRecords,
)

if TYPE_CHECKING:
    from qmcore.findings import Finding
    from qmcore.times import Clock


class Memories(Protocol):
    """The memories that a process uses; `Unit.memory` gives the messages in one."""

    def attach(self, space: Space, queues: Sequence[Queue]) -> bool:
        """Open the memory of a queue space for its non-persistent messages; return whether it had to be made."""

    def detach(self, space: Space) -> None:
        """Let go of the memory of a queue space, once for each time that it was attached."""

    def remove(self, space: Space, *, unused: bool = False) -> None:
        """Remove the memory of a queue space; with `unused` only where no process is attached to the queue space."""

    def files(self, space: Space) -> list[tuple[str, int]]:
        """Return the files of a queue space's memory, and their sizes in bytes; a database has a schema instead."""


class Liveness(Protocol):
    """What tells others, without a timeout, that a process lives."""

    def new_owner(self, space_id: int, role: str, now_us: int) -> Owner:
        """Lock a private file that tells others, as long as this process lives, that it does."""

    def release(self, owner: Owner, wakeups: Sequence[str] = ()) -> None:
        """Remove the private file of an owner, ours or one that died, and the wake-ups that it has left."""

    def living(self, owners: Sequence[Owner]) -> set[int]:
        """Return the numbers of those owners whose processes live and are still attached."""

    def is_same_boot(self, owner: Owner) -> bool:
        """Return whether the machine has run without restart since the owner attached."""


W = TypeVar("W")


class WakeupAddress(Protocol):
    """Where any process that shares the volume can wake a waiter of this one."""

    address: str

    def close(self) -> None:
        """Remove the address: nobody can wake its waiter any more."""


class Wakeup(WakeupAddress, Protocol):
    """What one waiter sleeps on, in a thread of its own."""

    def wait(self, seconds: float) -> bool:
        """Sleep until woken or until the seconds are over; return whether it was woken."""


class WakeupSet(Protocol[W]):
    """What an event loop sleeps on for thousands of waiters: one descriptor, which tells that some were woken."""

    def fileno(self) -> int:
        """Return the descriptor, which can be read while there is something for `woken` to tell."""

    def wakeup(self, waiter: W, *, in_turn: bool = False) -> WakeupAddress:
        """Return an address by which a waiter is woken; `in_turn` as for `Wakeups.new`."""

    def woken(self) -> list[W]:
        """Return each waiter that was woken since the last call; it may be all of them where they were many."""

    def close(self) -> None:
        """Give up the descriptor, and all addresses that are left: nobody can wake their waiters any more."""


class Wakeups(Protocol):
    """The wake-ups of a volume."""

    @property
    def deaf_seconds(self) -> float:
        """For how long a wait that was just recorded is mostly not woken: what is under way by then may wake nobody.

        A commit may take longer, and its process may be gone before it wakes anybody. So where this is not 0, a waiter
        looks again each second, too, or now and then where many wait. 0: nothing is ever missed.
        """

    def new(self, *, in_turn: bool = False) -> Wakeup:
        """Return a new wake-up of this process.

        Of those that wait `in_turn` a message may wake one alone. They are for waiters that take any message of one
        queue, and pass on what they leave (`WaitRecords.pass_on`).
        """

    def new_set(self) -> WakeupSet[Any]:
        """Return a new set of wake-ups, for an event loop of this process."""

    def wake(self, addresses: Sequence[str]) -> None:
        """Wake the waiters at these addresses, of whichever process; one that is gone is passed over."""

    def wake_own(self) -> None:
        """Wake all waiters of this process; a signal handler may call it."""


T = TypeVar("T")


class CapacityCommandRecords(Protocol):
    """High limits of queues that were reached, and who is to start their commands."""

    def claim_reached(
        self, guard: Guard, route: Route, now_us: int, *, on_disk: bool, in_memory: bool
    ) -> Sequence[Reached]:
        """Claim the commands of limits that an arrival has reached, in one of the stores or in both, and return them.

        What has expired by now does not count. Nothing is claimed by whoever is not attached.
        """

    def rearm_reached(self, guard: Guard, source: Source, *, on_disk: bool, in_memory: bool) -> None:
        """Arm the commands again whose low limit a departure has reached, from one of the stores or from both."""

    def of_space(self, space_id: int) -> list[tuple[Reached, int]]:
        """Return the commands that were claimed and not started yet, each with the owner who was to."""

    def take_over(self, claim: Reached, of_owner: int, owner_id: int) -> bool:
        """Claim what another owner had claimed; False where somebody else did."""

    def is_claimed(self, claim: Reached) -> bool:
        """Return whether the command is still to be started: its queue may be gone, or its claim undone."""

    def settle(self, claim: Reached) -> None:
        """Note that the command was started."""

    def rearm(self, queue_id: int, *, memory: bool) -> bool:
        """Let the high limit be reached again; False where it was not reached, or its command is not started yet."""

    def is_tripped(self, queue_id: int, *, memory: bool) -> bool:
        """Return whether the high limit was reached and the use has not been down at the low limit since."""


class Unit(Store, Protocol):
    """One short database transaction. It is the store on disk itself."""

    commits_memory: bool
    """Whether a commit is atomic over disk and memory, so that memory never has to follow the disk."""

    @property
    def history(self) -> HistoryRecords:
        """Messages that are kept after they were consumed."""

    @property
    def transactions(self) -> TransactionRecords:
        """Transactions."""

    @property
    def capacity_commands(self) -> CapacityCommandRecords:
        """Capacity commands of queues."""

    @property
    def device(self) -> DeviceRecords:
        """The device list and the table of contents."""

    @property
    def audit(self) -> AuditRecords:
        """Destructive acts."""

    @property
    def spaces(self) -> SpaceRecords:
        """Queue spaces."""

    @property
    def queues(self) -> QueueRecords:
        """Queues, but for those that imports hide."""

    @property
    def schedules(self) -> ScheduleRecords:
        """Schedules."""

    @property
    def imports(self) -> ImportRecords:
        """Imports and their hidden queues."""

    @property
    def owners(self) -> OwnerRecords:
        """Those who are attached."""

    @property
    def waits(self) -> WaitRecords:
        """Waits for messages."""

    @property
    def highest(self) -> HighestRecords:
        """The highest use of limits."""

    def generation(self, space_id: int) -> int | None:
        """Return a number that changes with each change of a definition; None where the queue space is gone."""

    def memory(self, space_id: int) -> MemoryStore | None:
        """Return the store of a queue space's non-persistent messages, where it has one and this process can use it."""

    def memory_level(self, space_id: int) -> Use:
        """Return how much the memory of a queue space holds, also where this unit has no part in it."""

    def enqueue(self, command: Enqueue) -> Enqueued | Refused:
        """Let messages arrive in a queue."""

    def settle(self, command: Commit) -> Committed | Refused:
        """Commit a transaction: what it holds goes, and what it brings arrives."""

    def dispose(self, command: Dispose) -> Disposed | Refused:
        """Dispose of messages of a queue that were looked at just now."""

    def follow(self, command: Commit) -> Sequence[Reached]:
        """Do in memory what a commit meant that the disk has seen alone; return the capacity commands to start."""

    def afterwards(self, action: Callable[[], None]) -> None:
        """Have something done by whoever asked for the unit, once it is committed."""


class Snapshot(Protocol):
    """A volume as it stood at one moment, whatever is written meanwhile."""

    @property
    def token(self) -> str:
        """The name by which others, also in other processes, join the snapshot; "" where none can.

        It holds for as long as this snapshot does.
        """

    def read(self, work: Callable[[Unit], T]) -> T:
        """Run `work`, which changes nothing. A fork of this process waits for it, or until it calls `run_unlocked`."""

    def run_unlocked(self, call: Callable[[], None]) -> None:
        """Call, within `read`, what may fork; a fork that waits goes first."""

    def integrity(self, step: Callable[[int], None]) -> list[str]:
        """Return what is wrong with the file itself; `step` gets the percent that are done."""

    def copy_to(self, path: str, step: Callable[[int], None]) -> None:
        """Write all of it to a file, which must be empty; `step` gets the percent that are done."""

    def release(self) -> None:
        """End the snapshot in the store; nothing is read from it any more."""

    def deferring_forks(self) -> AbstractContextManager[Callable[[Callable[[], None]], None]]:
        """Defer forks of this process while the store's library works on other files.

        Yields a function that calls another one and allows forks meanwhile; call it every now and then.
        """


class Volume(Protocol):
    """One physical store. Safe for use by several threads."""

    @property
    def clock(self) -> Clock:
        """The clock that all go by who share the volume."""

    @property
    def path(self) -> str:
        """The file, as the device list names it."""

    @property
    def readonly(self) -> bool:
        """Whether the volume can only be read."""

    @property
    def instance(self) -> str:
        """What no copy of the volume has, be it restored or copied; a server that takes over for another has it."""

    @property
    def has_vanished(self) -> bool:
        """Whether the store was found removed, or another in its place: it is of no use until it is opened again."""

    @property
    def probe(self) -> Probe:
        """What is told of each step; that of the device."""

    @property
    def memories(self) -> Memories:
        """The memories of queue spaces."""

    @property
    def liveness(self) -> Liveness:
        """Which owners live."""

    @property
    def wakeups(self) -> Wakeups:
        """What those who wait sleep on, and how they are woken."""

    def run(
        self, commands: Sequence[Command], *, on: object = None, purpose: Purpose | None = Purpose.MESSAGES
    ) -> Sequence[Result] | Refused:
        """Execute commands, all or none, and return what came of each. Without a purpose they change nothing.

        With `on`, a connection of the application to the store, it stands or falls with the transaction of that.
        """

    def after_commit(self, action: Callable[[], None], *, on: object = None) -> None:
        """Have something done once the application has committed the transaction of its connection `on`.

        Without one it is done at once.
        """

    def write(self, work: Callable[[Unit], T], purpose: Purpose) -> T:
        """Run `work` in one database transaction and commit it; an exception leaves everything as it was.

        `purpose` says what it is for, and so what the store promises; a work that does what its purpose does not allow
        is refused with WrongPurposeError. `work` may be run more than once and must have no effect outside of its unit.
        Whatever it is for, it is done again where its result is a `Nothing`, or a list of `Empty`, and nobody can tell
        whether it was committed.
        """

    def read(self, work: Callable[[Unit], T]) -> T:
        """Run `work` in one database transaction that changes nothing; WrongPurposeError where it does."""

    def comes_free(self, seconds: float) -> bool:
        """Return whether a write could begin within the seconds, which other writers may take until then."""

    def write_on(self, connection: object, work: Callable[[Unit], T]) -> T:
        """Run `work` on the caller's own connection to the store, in its transaction; it stands or falls with that."""

    def is_joined(self, connection: object = None) -> bool:
        """Return whether this thread has a transaction of the application open, for which `write` would wait for ever.

        It has joined one on the store, or is about to join that of the connection.
        """

    def quiesced(self, seconds: float) -> AbstractContextManager[None]:
        """Keep writers out for as long as the block lasts; readers go on.

        Raises SystemFailureError, which is `blocked`, where others do not come to an end within the seconds.
        """

    def snapshot(self, of: str = "", memory: Collection[str] = ()) -> AbstractContextManager[Snapshot]:
        """Open a snapshot of the volume as it is now, or join another one, while others go on writing.

        `of` is the token of the other. Raises InvalidArgumentError for one that does not exist, or no longer. Where
        snapshots have no tokens, several that begin within one `quiesced` are the same.

        `memory` names queue spaces whose non-persistent messages are in it too, where there are any and the volume
        is open for writing. Only one that begins within `quiesced`, or has tokens, is of one moment over both.
        """

    def allocate_disk(self, pages: int, progress: Callable[[int], None]) -> None:
        """Make the volume have `pages` free pages on disk, so that a full disk is found now; tell the percent done."""

    def health(self, info: DeviceInfo) -> list[Finding]:
        """Return what a doctor has to say of what is around the store of a device: its server, settings and rights."""

    @property
    def sweeps(self) -> bool:
        """Whether consumers of queues for several leave something to be swept, as they work beside each other."""

    @property
    def syncs_apart(self) -> bool:
        """Whether a work whose purpose is `apart` has to be brought to the disk by `sync`."""

    def sync(self, *, others: bool = False) -> None:
        """Return once all that this process has committed is on the disk, also where commits need not be there.

        With `others` all that was written, by whomever. Raises OutcomeUnknownError where the disk fails.
        """

    def check_place(self) -> None:
        """Raise NotOpenError, now and from now on, where the store was removed or another put in its place."""

    def changes(self) -> object:
        """Return what is another value after each commit that changes something; None where that is not known."""

    def take_housekeeping_turn(
        self, space_id: int, owner_id: int | None, now_us: int, *, unchanged: bool
    ) -> HousekeepingTurn:
        """Return who does the housekeeping of a queue space: this process, where nobody did in the last second.

        Where others do it, the answer tells too whether our owner, `owner_id`, was taken for dead. That is not looked
        for where the caller knows by `changes` that the volume is `unchanged`.
        """

    def compare_clocks(self) -> None:
        """Bring the clock of this process up to date with the one that all who share the volume go by."""

    def close(self) -> None:
        """Close the volume; whoever waits is woken."""
