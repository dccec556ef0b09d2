"""The recovery of transactions in which databases of applications take part, by whoever has a connection to one.

What a queue space has in doubt that a database decides, and what a database has prepared, nobody can end without a
connection: so it is done where the application gives one, at its start, and with each transaction that it begins.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from qmadmin.application_databases import KnownDatabase
from qmadmin.opening import database_of
from qmadmin.participating import Qualifier, ask
from qmadmin.recovery import Recovery, of_open_devices
from qmcore.acts import deciding, recovering
from qmcore.acts.deciding import Answer, Decider, Place, Question
from qmcore.acts.returning import Cause, Ending
from qmcore.application_database import OPPOSITES_KEPT_US, ApplicationDatabase, WrittenDecision
from qmcore.errors import InvalidArgumentError, QueueError
from qmcore.times import MICROS
from qmcore.two_phase import OUR_FORMAT, Told
from qmcore.xid import Xid

if TYPE_CHECKING:
    from qmadmin.connections import DatabaseConnection
    from qmadmin.device import Device
    from qmcore.port import Unit
    from qmcore.probe import Attached
    from qmcore.records import Decision, TransactionRecord

logger = logging.getLogger("qmadmin.transacting")

_AT_A_TIME: Final = 1000
_ALL: Final = 100_000
"""Decisions that an application looks at when it starts: each process leaves those of its last second."""
_PATIENCE_US: Final = 60 * MICROS
"""How long a coordinator that lives is waited for, before its transaction is ended in its stead."""
_CALLER_KEPT_US: Final = 24 * 3600 * MICROS
"""How long a decision is kept for a caller who does not say that it knows."""


def recover(*connections: DatabaseConnection) -> int:
    """End what coordinators have left in doubt for which databases of the application are needed.

    Call it at the start of an application whose databases take part in `qmadmin.transaction`, with a connection to
    each, none of which has a transaction open, and after its devices were opened; each transaction with a database does
    the same for that, at most once a second. Branches in queue spaces that this process has open, and transactions that
    are prepared in the databases, are ended by what was decided; where nothing was, and the coordinator is not alive or
    has not decided within a minute, they roll back.

    Returns how many are still in doubt. Raises InvalidArgumentError for what is no connection, or has a transaction
    open, and what the databases refuse.
    """
    opened = of_open_devices()
    if not opened:
        raise InvalidArgumentError(
            "no device is open in this process, so that nothing is known of its queue spaces",
            hint="Open the devices whose queue spaces take part in transactions first.",
        )
    databases = [database_of(connection) for connection in connections]
    try:
        for database in databases:
            database.open()
        known = {database.name: opened[0][1].known(database) for database in databases}
        recoveries = [DatabaseRecovery(database, known, databases) for database in databases]
        # What is prepared ends first: then the database that has decided need not keep the decision.
        for recovery in recoveries:
            recovery.end_prepared()
        return sum(recovery.run() for recovery in recoveries)
    finally:
        for database in databases:
            if database.is_open():
                database.roll_back()


class DatabaseRecovery:
    """Recovery with one database, and others that are at hand; none has a transaction open."""

    def __init__(
        self,
        database: ApplicationDatabase,
        known: Mapping[str, KnownDatabase],
        at_hand: Sequence[ApplicationDatabase] = (),
    ) -> None:
        self._database = database
        self._known = known[database.name]
        self._all_known = known
        self._at_hand = at_hand
        self._left = 0

    def run(self) -> int:
        """End what can be ended; return how many are still in doubt."""
        written = self._database.table.decisions(self._known.clock.now(), _ALL) if self._known.facts.table else []
        return self._end_all(written, elsewhere=True)

    def run_beside_work(self) -> None:
        """End what can be ended at once: what this process has decided itself, and what waits in what it has open."""
        self.end_prepared()
        until = self._known.clock.now() - recovering.GRACE_US
        own = [each for each in list(self._known.outcomes.values())[:_AT_A_TIME] if each.decided_us < until]
        self._end_all(own, elsewhere=False)

    def _end_all(self, written: Sequence[WrittenDecision], *, elsewhere: bool) -> int:
        if self._known.facts.table:
            for _, recovery, attachment in _attachments():
                try:
                    self._end_branches(recovery, attachment)
                except QueueError as error:
                    self._left += 1
                    logger.info("recovery in queue space %r goes on later: %s", attachment.opened.space.name, error)
            if written:
                self._tell(written, elsewhere=elsewhere)
        return self._left

    # ---- what the database decides -----------------------------------------------------------------------------------

    def _end_branches(self, recovery: Recovery, attachment: Attached) -> None:
        """End the branches of a queue space that wait for a decision of the database."""
        volume, opened, now = attachment.volume, attachment.opened, attachment.volume.clock.now()
        # Whether its coordinator lives says more than how long it is prepared.
        records = volume.read(lambda unit: recovering.waiting(unit, opened, now + recovering.GRACE_US))
        waiting: dict[Xid, tuple[Decider, TransactionRecord]] = {}
        for record in records:
            decider = Decider.of(record.decider)
            if record.xid is None or decider is None or not decider.place.is_database:
                continue
            if not record.xid.gtrid.startswith(self._known.facts.table):
                if decider.place.device == self._database.name:
                    self._leave(recovery, attachment, record.xid)
            elif recovering.is_copy(volume, record.xid):
                self._left += 1
            else:
                waiting[record.xid] = decider, record
        if not waiting:
            return
        decided = self._database.table.decided({xid.gtrid for xid in waiting})
        asked = {
            xid.gtrid: decider
            for xid, (decider, record) in waiting.items()
            if xid.gtrid in decided or not self._is_under_way(attachment, record, now)
        }
        self._left += len(waiting) - len(asked)
        said = ask(self._database, self._known, asked) if asked else {}
        answers = {xid: said[xid.gtrid] for xid in waiting if xid.gtrid in said}
        for xid, answer in answers.items():
            if answer is Answer.UNKNOWN:
                self._leave(recovery, attachment, xid)
        recovering.end(volume, opened, answers)

    def _leave(self, recovery: Recovery, attachment: Attached, xid: Xid) -> None:
        self._left += 1
        recovery.leave(attachment, xid, f"an earlier state of database {self._database.name!r} was restored, or a copy")

    def _is_under_way(self, attachment: Attached, record: TransactionRecord, now: int) -> bool:
        """Return whether the coordinator lives and may be about to decide: it is refused after that."""
        if record.state.is_heuristic or now - (record.prepared_us or 0) > _PATIENCE_US:
            return False
        volume, space_id = attachment.volume, attachment.opened.space.id
        owners = volume.read(lambda unit: unit.owners.of_space(space_id))
        return record.owner_id in volume.liveness.living(owners)

    def _tell(self, written: Sequence[WrittenDecision], *, elsewhere: bool) -> None:
        """Have branches committed for which the database has decided, and forget what all know."""
        now, own = self._known.clock.now(), self._known.outcomes
        by_place: dict[Place, list[Xid]] = {}
        for each in written:
            for told in each.told:
                place = Place.of(told.place)
                if place is not None:
                    by_place.setdefault(place, []).append(Xid(OUR_FORMAT, each.gtrid, told.branch))
        is_open = {device.path for device, _ in of_open_devices()}
        waiting: set[bytes] = set()
        for place, xids in by_place.items():
            # A call of the application does not wait for another machine.
            reaches = elsewhere or place.is_database or place.device in is_open
            done = self._told(place, xids) if reaches else set()
            waiting.update(xid.gtrid for xid in xids if xid not in done)
            self._left += len(xids) - len(done)
        forgotten = {
            each.gtrid
            for each in written
            if each.gtrid not in waiting and (each.gtrid in own or each.decided_us < now - _CALLER_KEPT_US)
        }
        if forgotten:
            self._database.table.forget(forgotten, now - OPPOSITES_KEPT_US)
            for gtrid in forgotten:
                own.pop(gtrid, None)

    def _told(self, place: Place, xids: Sequence[Xid]) -> set[Xid]:
        """Return those of some branches at a place that have followed for good."""
        if place.is_database:
            done = set[Xid]()
            for there in self._at_hand:
                its = {
                    xid
                    for xid in xids
                    if any(map(Qualifier.unpacked(xid.bqual).is_of, self._all_known[there.name].instances))
                }
                done |= its - {xid for xid, _ in there.prepared()} if its else set()
            return done
        device, recovery = of_open_devices()[0]
        with recovery.reached(device, place) as attached:
            if attached is None:
                return set()
            return set(recovering.end(attached.volume, attached.opened, dict.fromkeys(xids, Answer.COMMITTED)))

    # ---- what the database has prepared ------------------------------------------------------------------------------

    def end_prepared(self) -> None:
        """End what is prepared in the database."""
        if self._known.facts.cannot_prepare:
            return
        # Before it is looked what is prepared: what is decided later is not taken for done.
        decisions = self._decisions_to_tell()
        left = set()
        for xid, seconds in self._known.prepared(self._database):
            answer = None
            its = Qualifier.unpacked(xid.bqual)
            if not any(map(its.is_of, self._known.instances)):
                if self._database.lists_others:
                    continue
            else:
                answer = self._asked_of_database(xid, its, seconds) or self._asked_of_space(xid, its)
            if answer is None or not answer.end:
                left.add(xid)
                continue
            try:
                self._database.end_prepared(xid, commits=answer is Answer.COMMITTED)
            except QueueError as error:
                # Another role may have prepared it, which alone may end it.
                left.add(xid)
                self._known.tell_once(xid, f"transaction {xid} cannot be ended on {self._database.name!r}: {error}")
                continue
            logger.info("transaction %s on database %r was %s by recovery", xid, self._database.name, answer.end)
        self._left += len(left)
        for attachment, xids in decisions:
            done = [(xid.gtrid, xid.bqual) for xid in xids if xid not in left]
            if done:
                deciding.forget(attachment.volume, attachment.opened, done)

    def _decisions_to_tell(self) -> list[tuple[Attached, list[Xid]]]:
        """Return what queue spaces have decided of which this database is to be told."""
        found = []
        for _, _, attachment in _attachments():
            read = partial(_decisions_of, attachment.opened.space.id)
            its = [
                Xid(OUR_FORMAT, each.gtrid, each.told.branch)
                for each in attachment.volume.read(read)
                if self._is_told(each.told)
            ]
            found.append((attachment, its))
        return found

    def _is_told(self, told: Told) -> bool:
        """Return whether this database is told, by whatever name it was known."""
        place = Place.of(told.place)
        is_database = place is not None and place.is_database
        return is_database and any(map(Qualifier.unpacked(told.branch).is_of, self._known.instances))

    def _asked_of_database(self, xid: Xid, its: Qualifier, seconds: float) -> Answer | None:
        for there in self._at_hand:
            known = self._all_known[there.name]
            if known.facts.table and xid.gtrid.startswith(known.facts.table):
                if xid.gtrid not in there.table.decided([xid.gtrid]) and seconds * MICROS < _PATIENCE_US:
                    return None
                decider = its.decider_at(Place(there.name, ""), *known.instances)
                return ask(there, known, {xid.gtrid: decider})[xid.gtrid]
        return None

    def _asked_of_space(self, xid: Xid, its: Qualifier) -> Answer | None:
        for device, _, attachment in _attachments():
            volume, opened = attachment.volume, attachment.opened
            if deciding.has_begun(opened.space, xid.gtrid):
                place = Place(device.path, opened.space.name)
                question = Question(xid.gtrid, its.decider_at(place, volume.instance))
                try:
                    return deciding.ask(volume, opened, [question], Ending(Cause.DEATH))[xid.gtrid]
                except QueueError as error:
                    logger.warning("%s cannot be asked for transaction %s: %s", place, xid, error)
        return None


def _attachments() -> Iterator[tuple[Device, Recovery, Attached]]:
    """Yield the queue spaces that this process has open for writing."""
    for device, recovery in of_open_devices():
        if not device.readonly:
            for attachment in list(device.probe.attachments.values()):
                yield device, recovery, attachment


def _decisions_of(space_id: int, unit: Unit) -> list[Decision]:
    return unit.transactions.decisions.of_space(space_id, _AT_A_TIME)
