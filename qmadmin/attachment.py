"""The attachment of this process to a queue space, which all operations on it use, and its pending rollbacks."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar

from qmcore import names
from qmcore.acts import deciding, housekeeping, in_doubt, processes, rolling_back, waiting
from qmcore.acts.returning import Cause, Ending
from qmcore.errors import (
    AbortedError,
    HeuristicError,
    NotOpenError,
    OperatingSystemError,
    OutcomeUnknownError,
    QueueError,
    UnknownXidError,
    may_pass,
)
from qmcore.purpose import Purpose
from qmcore.records import HousekeepingTurn

if TYPE_CHECKING:
    from qmadmin.device import Device
    from qmadmin.recovery import Recovery
    from qmcore.acts.deciding import Place
    from qmcore.acts.transaction_part import Branch
    from qmcore.definitions import OpenSpace
    from qmcore.port import Unit, Volume
    from qmcore.records import Owner
    from qmcore.times import Clock
    from qmcore.xid import Xid

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("qmadmin.transacting")

_HOUSEKEEPING_SECONDS = 1.0
"""The seconds after which a process cleans up again after others."""


class PendingRollbacks:
    """The rollbacks that this process has to do in a queue space; each is noted before it begins, until it is done.

    Only a noted rollback can be done: noting it returns the function that does it.
    """

    def __init__(self, volume: Volume, opened: OpenSpace, clock: Clock) -> None:
        self._volume = volume
        self._opened = opened
        self._clock = clock
        self.left: dict[int, tuple[Branch, Ending]] = {}
        """Rollbacks that are not done, by the number of the transaction."""
        self._at_work: set[int] = set()
        """Those that a thread is doing."""
        self._told: set[int] = set()
        """Those for which the log says why they are postponed."""

    def add(self, branch: Branch, ending: Ending) -> Callable[[], None]:
        """Note a rollback, and return the function that does it; the first note of a transaction decides how it ends.

        If the store refuses, as on a full disk, it stays noted, and the log says so.
        """
        self.left.setdefault(branch.id, (branch, ending))

        def roll_back() -> None:
            try:
                self._roll_back(branch)
            except QueueError as refusal:
                self._tell_once(branch, refusal)

        return roll_back

    def insist(self, branch: Branch) -> None:
        """Do the rollback of a branch if it is not done yet; raises what the store refuses."""
        self._roll_back(branch)

    def roll_back_all(self, *, prepared: bool = False) -> None:
        """Do all noted rollbacks, or those of what may be prepared, as far as the store allows.

        Errors do not concern the caller.
        """
        for branch, _ in self.left.copy().values():
            if prepared and branch.promised is None:
                continue
            try:
                self._roll_back(branch)
            except Exception as error:  # noqa: BLE001 - it does not concern the caller
                self._tell_once(branch, error)

    def finish(self, queue: str) -> None:
        """Do the rollbacks with messages of a queue before one is taken from it, because those messages come first.

        Raises the error if the disk is full, the store is unreachable or others block it: nothing may be taken then.
        """
        for branch, _ in self._having(queue):
            try:
                self._roll_back(branch)
            except QueueError as refusal:
                self._tell_once(branch, refusal)
                if isinstance(refusal, OperatingSystemError | OutcomeUnknownError) or may_pass(refusal):
                    raise

    def finish_on(self, unit: Unit, queue: str) -> None:
        """Do the same in a transaction of the application. Because it may not commit, all rollbacks stay noted."""
        for branch, ending in self._having(queue):
            rolling_back.undo(unit, branch, self._clock.now(), ending)

    def _having(self, queue: str) -> list[tuple[Branch, Ending]]:
        """Return the rollbacks with messages of the queue, as far as known, that no thread is doing."""
        known = self._opened.known
        found = None if known is None else known.takers.get(queue)
        return [
            (branch, ending)
            for branch, ending in self.left.copy().values()
            if branch.id not in self._at_work and (found is None or found.id in branch.queue_ids)
        ]

    def _roll_back(self, branch: Branch) -> None:
        noted = self.left.get(branch.id)
        if noted is None:
            # Another thread has done it.
            return
        _, ending = noted
        try:
            self._at_work.add(branch.id)
            rolling_back.roll_back(self._volume, branch, self._clock.now(), ending)
        finally:
            self._at_work.discard(branch.id)
        self.left.pop(branch.id, None)
        self._told.discard(branch.id)

    def _tell_once(self, branch: Branch, error: Exception) -> None:
        """Log why a rollback is postponed, but not again at each attempt."""
        if branch.id in self._told:
            return
        self._told.add(branch.id)
        unexpected = None if isinstance(error, QueueError) else error
        logger.error(
            "a rollback on queue space %r is postponed: %s", self._opened.space.name, error, exc_info=unexpected
        )


class PendingDecisions:
    """The ends of prepared branches that a coordinator in this process has decided, and that are still to be done."""

    def __init__(self, volume: Volume, opened: OpenSpace, clock: Clock) -> None:
        self._volume = volume
        self._opened = opened
        self._clock = clock
        self.left: dict[Xid, bool] = {}
        """Whether to commit, by the identifier of the branch, until it is over."""
        self._taken_up: set[Xid] = set()
        """Those that an upkeep is doing, perhaps in another thread."""

    def note(self, xid: Xid, *, commits: bool) -> None:
        """Note how a branch is to end; it is so from now on, whatever interrupts that."""
        self.left[xid] = commits

    def carry_out(self, xid: Xid) -> None:
        """End a branch as was noted; what the store refuses is left to later, and the log says so.

        Raises UnknownXidError and HeuristicError where others have ended it.
        """
        try:
            self._end(xid)
        except (UnknownXidError, HeuristicError):
            raise
        except QueueError as refusal:
            what, name = "commit" if self.left.get(xid) else "rollback", self._opened.space.name
            logger.error("the %s of transaction %s on queue space %r is postponed: %s", what, xid, name, refusal)  # noqa: TRY400

    def carry_out_all(self) -> None:
        """Do what is noted, as far as the store allows. Errors do not concern the caller."""
        for xid in self.left.copy():
            self._taken_up.add(xid)
            try:
                # Where nobody has it any more, it was done when its answer was lost.
                self._end(xid)
            except HeuristicError as error:
                logger.error("transaction %s was decided otherwise: %s", xid, error)  # noqa: TRY400
            except QueueError as refusal:
                logger.debug("transaction %s stays in doubt: %s", xid, refusal)
            self._taken_up.discard(xid)

    def _end(self, xid: Xid) -> None:
        commits, now, opened = self.left.get(xid), self._clock.now(), self._opened
        if commits is None:
            # Another thread has done it.
            return
        try:
            if commits:
                self._volume.write(lambda unit: in_doubt.commit(unit, opened, xid, now), Purpose.PROMISE)
            else:
                ending = Ending(Cause.ROLLBACK)
                self._volume.write(lambda unit: in_doubt.roll_back(unit, opened, xid, now, ending), Purpose.PROMISE)
        except (UnknownXidError, HeuristicError) as error:
            is_ours = self.left.pop(xid, None) is None or xid in self._taken_up
            if is_ours and isinstance(error, UnknownXidError):
                return
            raise
        self.left.pop(xid, None)


class Attachment:
    """This process's attachment to a queue space, shared by everything in the process that has the space open."""

    def __init__(
        self,
        volume: Volume,
        opened: OpenSpace,
        clock: Clock,
        place: Place,
        *,
        is_durable: bool,
        recovery: Recovery,
    ) -> None:
        """Take where the queue space is, whether commits there are on the disk, and what ends branches in doubt."""
        self.volume = volume
        self.opened = opened
        self.clock = clock
        self.place = place
        self.is_durable = is_durable
        self.recovery = recovery
        self.next_housekeeping = clock.monotonic() + _HOUSEKEEPING_SECONDS
        """When it is due, by the monotonic clock."""
        self.owed = PendingRollbacks(volume, opened, clock)
        self.decided = PendingDecisions(volume, opened, clock)

    @property
    def owner(self) -> Owner:
        """The identity of this process; on a device that is open for reading only no process is attached."""
        return self.opened.owner

    def do_housekeeping(
        self, *, now: bool = False, waits: bool = False, unchanged: bool = False, connection: object = None
    ) -> None:
        """Do due housekeeping, and clean up after dead processes, unless that was done in the last second.

        A waiting call does all that is due in each queue, any other call one step. If the volume is `unchanged` since
        the last time, no other process can have taken this one for dead. Nothing is done in a transaction of the
        application (`connection`), which would have to end before.
        """
        moment = self.clock.monotonic()
        if not now and moment < self.next_housekeeping:
            return
        self.volume.check_place()
        if not self.volume.readonly and not self.volume.is_joined(connection):
            self.next_housekeeping = moment + _HOUSEKEEPING_SECONDS
            self.owed.roll_back_all()
            self.decided.carry_out_all()
            waiting.forget_left(self.volume, self.opened)
            if not self._is_attached(now=now, waits=waits, unchanged=unchanged) and self.opened.me is not None:
                self._attach_again(self.opened.me)
            self.recover()

    def recover(self) -> None:
        """Have branches in doubt ended, and their decisions told, beside the work; nobody waits for that."""
        if self.opened.has_distributed:
            self.recovery.see_to(self)

    def _is_attached(self, *, now: bool, waits: bool, unchanged: bool) -> bool:
        """Clean up after dead processes if it is due, or `now`; return whether this process still counts as alive."""
        me = self.opened.me
        turn = self.volume.take_housekeeping_turn(
            self.opened.space.id, None if me is None else me.id, self.clock.now(), unchanged=unchanged or now
        )
        if now or turn is HousekeepingTurn.OURS:
            return housekeeping.run(self.volume, self.opened, self.clock, one_step=not waits)
        return turn is HousekeepingTurn.OTHERS

    def renew(self, error: BaseException) -> None:
        """Attach again after an operation was refused because this process was taken for dead."""
        lost = self.opened.me
        if lost is None or not isinstance(error, AbortedError):
            return
        if not self.volume.read(lambda unit: unit.owners.is_attached(lost.id)):
            self._attach_again(lost)

    def _attach_again(self, lost: Owner) -> None:
        processes.attach(self.volume, self.opened, lost.role, self.clock)
        self.volume.liveness.release(lost)
        self.volume.memories.detach(self.opened.space)
        logger.warning(
            "this process was taken for dead; it has attached to queue space %r again", self.opened.space.name
        )

    def is_current(self) -> bool:
        """Return whether the queue space is still the one that was opened, and not another of the same name."""
        found = self.volume.read(lambda unit: unit.spaces.find(self.opened.space.name))
        return found is not None and found.incarnation == self.opened.space.incarnation

    def forget(self) -> None:
        """Release the heartbeat of the attachment, because the queue space is gone."""
        if self.opened.me is not None:
            self.volume.liveness.release(self.opened.me)
            self.volume.memories.detach(self.opened.space)

    def detach(self) -> None:
        """Leave the queue space."""
        if self.opened.me is None:
            return
        # Others end what is active, and not what may be prepared.
        self.owed.roll_back_all(prepared=True)
        self.decided.carry_out_all()
        if self.opened.known_outcomes:
            # Otherwise the decisions are kept for a day.
            with contextlib.suppress(QueueError):
                deciding.forget(self.volume, self.opened, ())
        try:
            processes.detach(self.volume, self.opened, self.opened.me, self.clock)
        except QueueError as refusal:
            name = self.opened.space.name
            logger.error("detaching from queue space %r failed and is left to other processes: %s", name, refusal)  # noqa: TRY400


class SpaceHandle:
    """A queue space that is open until the handle, or its device, is closed."""

    def __init__(self, device: Device, name: str, role: str) -> None:
        self._device = device
        self.probe = device.probe
        self._role = role
        self._closed = False
        self.name = names.space_name(name)
        device.use(self.name, role)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self._device.path!r}{' closed' if self._closed else ''}>"

    @property
    def device(self) -> Device:
        """The device that it was opened from."""
        return self._device

    def close(self) -> None:
        """Close the queue space; the process detaches from it when nothing in the process has it open any more."""
        if not self._closed:
            self._closed = True
            self._device.drop(self.name)

    @property
    def _attachment(self) -> Attachment:
        if self._closed:
            self._check_open()
        return self._device.attachment(self.name, self._role)

    def _ready(self, connection: object = None) -> Attachment:
        """Return the attachment for an operation, before which it has done what housekeeping is due."""
        if self._closed:
            self._check_open()
        device = self._device
        attachment = device.attachment(self.name, self._role)
        if device.clock.monotonic() >= attachment.next_housekeeping:
            attachment.do_housekeeping(connection=connection)
        return attachment

    @property
    def _now(self) -> int:
        return self._device.clock.now()

    def _read(self, act: Callable[Concatenate[Unit, OpenSpace, P], T], *given: P.args, **named: P.kwargs) -> T:
        """Run a reading act on the queue space; return its result."""
        attachment = self._attachment
        return attachment.volume.read(lambda unit: act(unit, attachment.opened, *given, **named))

    def _promise(self, act: Callable[Concatenate[Unit, OpenSpace, P], T], *given: P.args, **named: P.kwargs) -> T:
        """Run an act that others rely on, on other machines and disks: what it does is on the disk in any case."""
        attachment = self._attachment
        return attachment.volume.write(lambda unit: act(unit, attachment.opened, *given, **named), Purpose.PROMISE)

    def _write(self, act: Callable[Concatenate[Unit, OpenSpace, P], T], *given: P.args, **named: P.kwargs) -> T:
        """Run an act of an administrator that changes the queue space; return its result."""
        attachment = self._attachment
        return attachment.volume.write(
            lambda unit: act(unit, attachment.opened, *given, **named), Purpose.ADMINISTRATION
        )

    def _subscribe(self, act: Callable[Concatenate[Unit, OpenSpace, P], T], *given: P.args, **named: P.kwargs) -> T:
        """Run an act that changes who subscribes, whatever transactions applications have open; return its result."""
        attachment = self._attachment
        return attachment.volume.write(lambda unit: act(unit, attachment.opened, *given, **named), Purpose.SUBSCRIBING)

    def _run(self, act: Callable[Concatenate[Volume, OpenSpace, P], T], *given: P.args, **named: P.kwargs) -> T:
        """Run an act on the queue space that uses several transactions of the store; return its result."""
        attachment = self._attachment
        return act(attachment.volume, attachment.opened, *given, **named)

    def _release_due(self, queue: str) -> None:
        """Release what is due in the queue, so that information about it is current."""
        self._attachment.do_housekeeping(now=True)
        self._run(housekeeping.freshen_now, queue, self._now)

    def _check_open(self) -> None:
        if self._closed:
            raise NotOpenError(f"queue space {self.name!r} is closed", space=self.name)


def attachment_of(handle: SpaceHandle) -> Attachment:
    """Return the attachment of a handle; NotOpenError for one that is closed."""
    return handle._attachment  # noqa: SLF001 - of this module
