"""The recovery of transactions over several volumes whose coordinator did not come to its end.

Whoever works in a queue space finds by the housekeeping that a branch is in doubt there, or that decisions are to be
told, and has it seen to by a thread of its own, which no call waits for: the decider may be on another machine. What
cannot be reached is tried again after growing pauses, and the log says so once.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from qmadmin.capacity import refusal
from qmadmin.volume_makers import FileMaker, hurried, maker_of, path_of
from qmcore.acts import deciding, manage_spaces, recovering
from qmcore.acts.deciding import Answer, Decider, Place, Question
from qmcore.acts.returning import Cause, Ending
from qmcore.errors import NotOpenError, OperatingSystemError, QueueError, SystemFailureError
from qmcore.times import MICROS
from qmcore.two_phase import OUR_FORMAT
from qmcore.xid import Xid

if TYPE_CHECKING:
    from qmadmin.application_databases import KnownDatabase
    from qmadmin.attachment import Attachment
    from qmadmin.device import Device
    from qmcore.application_database import ApplicationDatabase
    from qmcore.attached import DeciderSeen
    from qmcore.port import Volume
    from qmcore.probe import Attached
    from qmcore.records import Decision, TransactionRecord
    from qmcore.space import Space

logger = logging.getLogger("qmadmin.transacting")

ROLE: Final = "recovery"
"""What others see attached to a decider, or to a participant, while it is asked or told."""

_AT_A_TIME: Final = 1000
"""Branches that are told of decisions in one round."""
_MOST: Final = 10_000
"""Decisions among which one is looked for."""
_CONNECT_SECONDS: Final = 5
"""How long a server that decides, or is to be told, may take to answer."""
_LOCK_SECONDS: Final = 1.0
"""How long other writers are waited for."""
_IDLE_SECONDS: Final = 3.0
"""How long the thread waits for more to do."""
_STOP_SECONDS: Final = 1.0
"""How long the end of a device waits for what is under way."""
_ROUND_SECONDS: Final = 1.0
"""How long to wait between two looks at a queue space."""
_LONGEST_PAUSE: Final = 60.0
_QUIET_US: Final = 60 * MICROS
"""For how long a branch may wait for a database before the log tells of it: its coordinator may be at work."""

_recoveries: weakref.WeakValueDictionary[int, Recovery] = weakref.WeakValueDictionary()
"""Those of the devices that this process has open: it may know more of them than where they are, such as a password."""


def of_open_devices() -> list[tuple[Device, Recovery]]:
    """Return the devices that this process has open, each with its recovery."""
    # Not while other threads open more: this is one look.
    recoveries = [found for each in _recoveries.valuerefs() if (found := each()) is not None]
    return [(device, recovery) for recovery in recoveries if (device := recovery.device) is not None]


def recovery_of(device: Device) -> Recovery:
    """Return the recovery of an open device; raises NotOpenError for another one."""
    for its, recovery in of_open_devices():
        if its is device:
            return recovery
    raise NotOpenError(f"device {device.path!r} is closed", path=device.path)


class Recovery:
    """Ends what coordinators have left in the queue spaces of one device."""

    def __init__(self, device: Device, opens: Callable[[str], Device]) -> None:
        """Take what opens other devices."""
        self.opens = opens
        self._device = weakref.ref(device)
        _recoveries[id(self)] = self
        self._changed = threading.Condition()
        self._spaces: set[str] = set()
        """Queue spaces in which there is something to do."""
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._pauses: dict[Place, tuple[float, float]] = {}
        """Until when a place is not asked again, and for how long that is."""
        self._waits: dict[Xid, tuple[float, float]] = {}
        """The same of branches of which nothing is decided yet."""
        self._next_rounds: dict[str, float] = {}
        """When a queue space is seen to again at the earliest."""
        self._left: set[Xid] = set()
        """Branches of which the log says that an administrator has to end them, or who can."""
        self._waiting: dict[str, set[Xid]] = {}
        """The branches that were found in a queue space at the last look: of others nothing is kept."""
        self.databases: dict[str, KnownDatabase] = {}
        """What the process knows of databases of the application, by their names."""

    @property
    def device(self) -> Device | None:
        """The device; None once it was closed or collected."""
        return None if self._stopped else self._device()

    def known(self, database: ApplicationDatabase) -> KnownDatabase:
        """Return what the process knows of a database of the application, which is asked the first time."""
        from qmadmin.application_databases import KnownDatabase

        device, found = self._device(), self.databases.get(database.name)
        if found is None and device is not None:
            found = self.databases.setdefault(database.name, KnownDatabase(database.facts(), device.clock))
        elif found is not None and found.is_outdated and not database.has_begun:
            found.facts, found.is_outdated = database.facts(), False
        assert found is not None  # noqa: S101 - whoever asks has the device
        database.xid_form = found.facts.xid_form
        return found

    def see_to(self, attachment: Attachment) -> None:
        """Have the branches and decisions of a queue space seen to, and return at once."""
        name, now = attachment.opened.space.name, time.monotonic()
        with self._changed:
            if self._stopped or now < self._next_rounds.get(name, 0.0):
                return
            self._next_rounds[name] = now + _ROUND_SECONDS
            self._spaces.add(name)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="qmadmin-recovery", daemon=True)
                self._thread.start()
            self._changed.notify()

    def ask(self, attachment: Attachment, xid: Xid, decider: Decider, *, ends_living: bool) -> Answer | None:
        """Return what a decider says of a branch, now; None where it cannot be reached.

        With `ends_living` a coordinator that has not decided yet is ended there, also if it lives. Of a copy of the
        branch nothing but a decision to commit says anything, and nothing is ended for it.
        """
        device = self._device()
        if device is None:
            return None
        is_copy = recovering.is_copy(attachment.volume, xid)
        try:
            with contextlib.ExitStack() as stack:
                there = self._open(device, decider.place, stack)
                answer = _answers(there, {xid: decider}, ends_living=ends_living and not is_copy).get(xid)
        except QueueError as error:
            logger.warning("%s cannot be asked for transaction %s: %s", decider.place, xid, error)
            return None
        if answer is None:
            logger.warning("%s is not the one that decides on transaction %s", decider.place, xid)
            return None
        return answer if answer is Answer.COMMITTED or not is_copy else Answer.UNKNOWN

    def tell(self, attachment: Attachment, xid: Xid) -> bool:
        """Have a branch committed for which it was decided here, now; return whether that is done, or was before."""
        device, opened = self._device(), attachment.opened
        decisions = attachment.volume.read(lambda unit: unit.transactions.decisions.of_space(opened.space.id, _MOST))
        its = next((each for each in decisions if (each.gtrid, each.told.branch) == (xid.gtrid, xid.bqual)), None)
        place = None if its is None else Place.of(its.told.place)
        if device is None or place is None:
            return False
        try:
            with contextlib.ExitStack() as stack:
                there = self._open(device, place, stack)
                return bool(recovering.end(there.volume, there.opened, {xid: Answer.COMMITTED}))
        except QueueError as error:
            logger.warning("%s cannot be told of transaction %s: %s", place, xid, error)
            return False

    @contextlib.contextmanager
    def looked_at(self, place: Place) -> Iterator[tuple[Volume, Space]]:
        """Give a queue space where it is, for a look, without attaching. Raises what keeps it from being reached."""
        device = self._device()
        if device is None:
            raise NotOpenError("the device is closed")
        with contextlib.ExitStack() as stack:
            device = self._device_of(device, place, stack)
            volume = device.volume_of_space(place.space, looks=True)
            yield volume, volume.read(lambda unit: manage_spaces.find(unit, place.space))

    def looks(self, volume: Volume) -> Callable[[list[TransactionRecord]], Mapping[int, DeciderSeen]]:
        """Return what tells, of records of a volume, whether the deciders of branches can be reached."""
        from qmadmin import deciders  # Programs that do not ask need not load it.

        return functools.partial(deciders.seen, self, volume)

    def stop(self) -> None:
        """Do no more; what is under way is waited for, but not for long."""
        with self._changed:
            self._stopped, thread = True, self._thread
            self._changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_STOP_SECONDS)

    # ---- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._spaces or self._stopped, _IDLE_SECONDS)
                if self._stopped or not self._spaces:
                    self._thread = None
                    return
                name = self._spaces.pop()
            try:
                self._see_to(name)
            except QueueError as error:
                logger.info("recovery in queue space %r goes on later: %s", name, error)
            except Exception:
                logger.exception("recovery in queue space %r failed", name)

    def _see_to(self, name: str) -> None:
        device = self._device()
        attachment = None if device is None else device.probe.attachments.get(name)
        if device is None or attachment is None:
            return
        volume, opened = attachment.volume, attachment.opened
        now = volume.clock.now()
        records, decisions = volume.read(
            lambda unit: (
                recovering.waiting(unit, opened, now),
                unit.transactions.decisions.of_space(opened.space.id, _AT_A_TIME),
            )
        )
        self._keep(name, {record.xid for record in records if record.xid is not None})
        if any(record.decider == recovering.PRESUMES_ABORT for record in records):
            recovering.end_presumed(volume, opened)
        opened.has_distributed = bool(records or decisions or opened.known_outcomes)
        for place, deciders in self._to_ask(attachment, records).items():
            self._ask(device, attachment, place, deciders)
        self._tell(device, attachment, decisions)

    def _keep(self, name: str, waiting: set[Xid]) -> None:
        """Forget what is known of branches that do not wait any more."""
        for xid in self._waiting.pop(name, set()) - waiting:
            self._waits.pop(xid, None)
            self._left.discard(xid)
        if waiting:
            self._waiting[name] = waiting

    def _to_ask(self, attachment: Attached, records: list[TransactionRecord]) -> dict[Place, dict[Xid, Decider]]:
        """Return the branches for which a decider is to be asked now, by where that is."""
        to_ask: dict[Place, dict[Xid, Decider]] = {}
        for record in records:
            xid, decider = record.xid, Decider.of(record.decider)
            if xid is None or time.monotonic() < self._waits.get(xid, (0.0, 0.0))[0]:
                continue
            if decider is not None and decider.place.is_database:
                if attachment.volume.clock.now() - (record.prepared_us or 0) > _QUIET_US:
                    self._leave_to_application(attachment, xid, decider.place)
            elif recovering.is_copy(attachment.volume, xid):
                self.leave(attachment, xid, recovering.COPIED)
            elif decider is not None:
                to_ask.setdefault(decider.place, {})[xid] = decider
        return to_ask

    def _ask(self, device: Device, attachment: Attached, place: Place, deciders: Mapping[Xid, Decider]) -> None:
        """Ask a decider for branches, end them by what it says, and note there that they are told."""
        with self.reached(device, place) as there:
            if there is None:
                return
            answers = _answers(there, deciders)
            for xid in deciders:
                answer = answers.get(xid)
                if answer is None:
                    self.leave(attachment, xid, f"{place} is not the one that decides on it")
                elif answer is Answer.UNKNOWN:
                    self.leave(attachment, xid, f"an earlier state of {place}, which decides, was restored, or a copy")
                if answer in (None, Answer.UNKNOWN, Answer.UNDECIDED):
                    self._waits[xid] = _longer(self._waits.get(xid))
                else:
                    self._waits.pop(xid, None)
            done = recovering.end(attachment.volume, attachment.opened, answers)
            told = [(xid.gtrid, xid.bqual) for xid in done if answers[xid] is Answer.COMMITTED]
            if told:
                deciding.forget(there.volume, there.opened, told)

    def leave(self, attachment: Attached, xid: Xid, why: str) -> None:
        """Leave a branch to an administrator; the log says so once."""
        self._tell_once(logging.ERROR, attachment, xid, f"qcommittrans or qaborttrans: {why}")

    def _leave_to_application(self, attachment: Attached, xid: Xid, place: Place) -> None:
        """Leave a branch to whoever can reach a database of the application; the log says so once."""
        what = f"recovery with a connection to {place}: call qmadmin.recover"
        self._tell_once(logging.WARNING, attachment, xid, what)

    def _tell_once(self, level: int, attachment: Attached, xid: Xid, what: str) -> None:
        if xid not in self._left:
            self._left.add(xid)
            logger.log(level, "transaction %s of queue space %r waits for %s", xid, attachment.opened.space.name, what)

    def _tell(self, device: Device, attachment: Attached, decisions: list[Decision]) -> None:
        """Have branches committed for which it was decided, and forget decisions that everybody knows."""
        volume, opened = attachment.volume, attachment.opened
        by_place: dict[Place, list[Xid]] = {}
        for each in decisions:
            place = Place.of(each.told.place)
            # Whoever works with a database has it told.
            if place is not None and not place.is_database:
                by_place.setdefault(place, []).append(Xid(OUR_FORMAT, each.gtrid, each.told.branch))
        done: list[tuple[bytes, bytes]] = []
        for place, xids in by_place.items():
            with self.reached(device, place) as there:
                if there is not None:
                    answers = dict.fromkeys(xids, Answer.COMMITTED)
                    done += [(xid.gtrid, xid.bqual) for xid in recovering.end(there.volume, there.opened, answers)]
        if done or opened.known_outcomes:
            deciding.forget(volume, opened, done)

    # ---- places ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def reached(self, device: Device, place: Place) -> Iterator[Attached | None]:
        """Give a queue space where it is; None where it cannot be reached now, or could not just now."""
        pause = self._pauses.get(place)
        with contextlib.ExitStack() as stack:
            there = None
            if pause is None or time.monotonic() >= pause[0]:
                try:
                    there = self._open(device, place, stack)
                except QueueError as error:
                    self._pauses[place] = _longer(pause)
                    if pause is None:
                        logger.warning("branches in doubt have to wait for %s: %s", place, error)
                else:
                    self._pauses.pop(place, None)
            yield there

    def _open(self, device: Device, place: Place, stack: contextlib.ExitStack) -> Attached:
        """Open a queue space for as long as the stack lasts: of this device, or of another one."""
        device = self._device_of(device, place, stack)
        if not device.comes_free(place.space, _LOCK_SECONDS):
            raise SystemFailureError(f"others keep {place} locked", blocked=True)
        stack.enter_context(device.open_space(place.space, role=ROLE))
        return device.probe.attachments[place.space]

    def _device_of(self, device: Device, place: Place, stack: contextlib.ExitStack) -> Device:
        """Return the device of a place, wherever it is now: this one, or another that is open as long as the stack."""
        if place.is_database:
            raise OperatingSystemError(
                f"only the application can reach {place}", hint="Call qmadmin.recover with a connection to it."
            )
        if place.device == device.path:
            return device
        from qmadmin import moved_devices  # Programs that recover nothing elsewhere need not load it.

        config = moved_devices.now_at(place.device)
        return device if path_of(config) == device.path else stack.enter_context(self._device_at(config))

    def _device_at(self, config: str) -> Device:
        """Open a device that QMCONFIG names so, if this user would run its capacity commands; on a server in any case.

        What is known of one that the process has open is how to connect.
        """
        path = path_of(config)
        known = next((device for device, _ in of_open_devices() if device.path == path), None)
        if known is not None:
            return self.opens(hurried(known.config, _CONNECT_SECONDS))
        maker = maker_of(config)
        why = refusal(maker, [path], "") if isinstance(maker, FileMaker) else ""
        if why:
            raise OperatingSystemError(
                f"device {path!r} is not opened: {why}", hint="Run a program as the user to whom the device belongs."
            )
        return self.opens(hurried(config, _CONNECT_SECONDS))


def _answers(there: Attached, deciders: Mapping[Xid, Decider], *, ends_living: bool = False) -> dict[Xid, Answer]:
    """Return what a decider says of branches; nothing of those that are not its."""
    its = {xid: decider for xid, decider in deciders.items() if deciding.has_begun(there.opened.space, xid.gtrid)}
    questions = [Question(xid.gtrid, decider) for xid, decider in its.items()]
    ending = Ending(Cause.ABORTED if ends_living else Cause.DEATH)
    found = deciding.ask(there.volume, there.opened, questions, ending, ends_living=ends_living)
    return {xid: found[xid.gtrid] for xid in its}


def _longer(pause: tuple[float, float] | None) -> tuple[float, float]:
    """Return until when to wait next, and for how long that is: twice as long as the last time."""
    seconds = 1.0 if pause is None else min(pause[1] * 2, _LONGEST_PAUSE)
    return time.monotonic() + seconds, seconds
