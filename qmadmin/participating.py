"""Who takes part in the commit of a transaction over several resources: one decides, the others are subordinates.

A participant is what the transaction has done on one volume, or in the database of an application. The coordinator
(`qmadmin/coordinating.py`) knows no more of them than what stands here.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from qmcore.acts import deciding, preparing, recovering
from qmcore.acts.deciding import Answer, Decider, Place, Question, presumed
from qmcore.acts.returning import Cause, Ending
from qmcore.application_database import WrittenDecision
from qmcore.errors import AbortedError, ProtocolError, QueueError
from qmcore.numbers import random_number
from qmcore.purpose import Purpose
from qmcore.two_phase import DECIDES_WITHIN_US, OUR_FORMAT, Era, Told
from qmcore.xid import Xid

if TYPE_CHECKING:
    from qmadmin.application_databases import Databases, KnownDatabase
    from qmadmin.attachment import Attachment
    from qmcore.acts.transaction_part import Branch
    from qmcore.application_database import ApplicationDatabase
    from qmcore.port import Volume

Part: TypeAlias = "tuple[Attachment, Branch]"

_NUMBER: Final = 8
"""Bytes of each number in the qualifier of a database's branch."""


class Deciding(ABC):
    """The participant whose commit contains the decision."""

    gtrid: bytes
    place: Place

    @property
    def is_sent(self) -> bool:
        """Whether the commit may be on its way, where `decide` has raised."""
        return True

    def is_lost(self, refusal: QueueError) -> bool:
        """Return whether it can never be asked any more, which was refused so."""
        del refusal
        return False

    @abstractmethod
    def begin(self) -> Decider:
        """Make the coordinator known; return what the subordinates keep of the decider."""

    @abstractmethod
    def decide(self, asked: Decider, told: Sequence[Told]) -> None:
        """Commit, with the decision; QueueErrors that prove something mean that nothing was done."""

    @abstractmethod
    def ask(self, asked: Decider) -> Answer:
        """Return whether it is decided; what is still on its way is refused from now on."""

    @abstractmethod
    def note(self, done: Sequence[bytes]) -> None:
        """Note that the caller knows the outcome, and that branches of these qualifiers have followed for good."""


class DecidingQueueSpace(Deciding):
    """A queue space decides, in the database transaction that commits its branch, and others on its volume."""

    def __init__(self, part: Part, beside: Sequence[Part]) -> None:
        self._attachment, self._branch = part
        self._branches = [self._branch, *(branch for _, branch in beside)]
        self.gtrid = deciding.gtrid_of(self._branch.opened.space, self._branch.id)
        self.place = self._attachment.place

    def begin(self) -> Decider:
        """Record its branch before anything is prepared: whoever takes the coordinator for dead ends that."""
        volume, branch = self._attachment.volume, self._branch
        if not branch.recorded:
            preparing.begin(volume, branch, Xid(OUR_FORMAT, self.gtrid))
        return deciding.decider_of(volume, branch.opened, self.place)

    def decide(self, asked: Decider, told: Sequence[Told]) -> None:
        """Commit its branch, with the decision."""
        deciding.decide(self._attachment.volume, self._branches, self.gtrid, asked, self._branch.started_us, told)

    def ask(self, asked: Decider) -> Answer:
        """Ask the queue space, and end the branch there."""
        question = Question(self.gtrid, asked)
        return deciding.ask(
            self._attachment.volume, self._branch.opened, [question], Ending(Cause.UNTRIED), ends_living=True
        )[self.gtrid]

    def note(self, done: Sequence[bytes]) -> None:
        """Have it forgotten by the next housekeeping, which also has the others told in a way that lasts."""
        opened = self._branch.opened
        opened.known_outcomes += [(self.gtrid, branch) for branch in (b"", *done)]
        opened.has_distributed = True


class DecidingDatabase(Deciding):
    """A database of the application decides, by a row in its table of decisions."""

    def __init__(
        self,
        database: ApplicationDatabase,
        known: KnownDatabase,
        era: Era,
        started_us: int,
        noting_failure: Callable[[], AbstractContextManager[None]] = nullcontext,
        gtrid: bytes = b"",
    ) -> None:
        """Take what is known of it, when the transaction began, and what notes whom a failure of the end is of.

        Also the global identifier, where that was made before.
        """
        self._database = database
        self._known = known
        self._era = era
        self._started_us = started_us
        self._noting_failure = noting_failure
        self.gtrid = gtrid or known.facts.table + random_number().to_bytes(_NUMBER)
        self.place = Place(database.name, "")

    def begin(self) -> Decider:
        """Nothing is recorded: whoever takes the coordinator for dead writes the opposite of the decision."""
        return Decider(self.place, self._known.facts.instance, self._era.id, self._era.decisions)

    def decide(self, asked: Decider, told: Sequence[Told]) -> None:
        """Write the decision into the transaction of the application, and commit that."""
        with self._noting_failure():
            self.write(asked, told, commits=True)
            self.count(asked)

    @property
    def is_sent(self) -> bool:
        """Whether the database was sent the commit."""
        return self._database.is_commit_sent

    def write(self, asked: Decider, told: Sequence[Told], *, commits: bool = False) -> None:
        """Write the decision into the transaction of the application, whose commit decides, or also commit that."""
        now, self._told = self._known.clock.now(), told
        if now - self._started_us > DECIDES_WITHIN_US:
            raise AbortedError("the transaction has begun more than a day ago, and is not committed any more")
        try:
            table = self._database.table
            decisions = table.decide(self.gtrid, asked.era, asked.decisions, told, now, commits=commits)
            if decisions is None:
                raise AbortedError(
                    f"database {self._database.name!r} was set back to an earlier state, or its table of decisions was"
                    " made anew, while the transaction was open",
                    hint="Begin it again; nothing of it remains.",
                )
        except BaseException:
            # It may have been set back, or made anew: the next one asks, and counts anew.
            self._known.is_outdated, self._known.era = True, None
            raise
        self._decisions = decisions

    def count(self, asked: Decider) -> None:
        """Note that it is decided, on the disk."""
        self._known.count(asked.era, self._decisions)

    def is_lost(self, refusal: QueueError) -> bool:
        """Return whether the connection is lost, which does not come back."""
        return refusal.unreachable

    def ask(self, asked: Decider) -> Answer:
        """Look for the decision, once the transaction is over, and write the opposite where there is none."""
        self._database.let_go()
        return ask(self._database, self._known, {self.gtrid: asked})[self.gtrid]

    def note(self, done: Sequence[bytes]) -> None:
        """Have it forgotten by the next look, once all branches are known to have followed for good."""
        told = [each for each in self._told if each.branch not in done]
        self._known.outcomes[self.gtrid] = WrittenDecision(self.gtrid, told, self._known.clock.now())


def decider_of(part: Part) -> tuple[bytes, Decider]:
    """Return the global identifier of a transaction that a queue space decides by a branch, and that as the decider."""
    (attachment, branch), opened = part, part[1].opened
    gtrid = deciding.gtrid_of(opened.space, branch.id)
    return gtrid, deciding.decider_of(attachment.volume, opened, attachment.place)


def ask(database: ApplicationDatabase, known: KnownDatabase, asked: dict[bytes, Decider]) -> dict[bytes, Answer]:
    """Return what a database knows of transactions, by their global identifiers, while it has no transaction open.

    Of what is not decided it is written that it will never be: a coordinator that was stopped is refused then.
    """
    written = database.table.decided(asked)
    eras = {era: database.table.counted(era) for era in {decider.era for decider in asked.values()}}
    answers = {
        gtrid: Answer.COMMITTED if written.get(gtrid) else presumed(decider, known.instance_of(decider), eras)
        for gtrid, decider in asked.items()
    }
    to_oppose = {gtrid for gtrid, answer in answers.items() if answer is Answer.ROLLED_BACK and gtrid not in written}
    if to_oppose:
        opposed = database.table.oppose(to_oppose, known.clock.now())
        # The decision may have come in between.
        answers |= dict.fromkeys(to_oppose - opposed, Answer.COMMITTED)
    return answers


class Subordinate(ABC):
    """A participant that prepares, and follows the decision."""

    place: Place
    volume: Volume | None = None
    """On which it prepares, and which is synced then; a database syncs by itself."""
    told: Told
    """What the decider keeps of it; there is one from the prepare on."""
    is_lost = False
    """Whether it cannot be completed here any more, however long that is tried."""

    @abstractmethod
    def prepare(self, gtrid: bytes, asked: Decider) -> None:
        """Prepare: on the disk, once the volume is synced."""

    @abstractmethod
    def complete(self) -> bool:
        """Commit what is prepared; return whether that is on the disk, so that nobody need look any more."""


class PreparedQueueSpace(Subordinate):
    """The branch of a queue space."""

    def __init__(self, part: Part) -> None:
        self._attachment, self._branch = part
        self.place, self.volume = self._attachment.place, self._attachment.volume

    def prepare(self, gtrid: bytes, asked: Decider) -> None:
        """Prepare it, for the sync that follows."""
        volume, branch = self._attachment.volume, self._branch
        self._xid = Xid(OUR_FORMAT, gtrid, recovering.qualifier_of(volume, branch.opened.space))
        self.told = Told(self._xid.bqual, self.place.text)
        preparing.prepare(volume, branch, self._xid, asked.text, purpose=Purpose.PREPARING)

    def complete(self) -> bool:
        """Commit it, unsynced: recovery looks, in a synced step, before the decision is forgotten."""
        recovering.complete(self._attachment.volume, self._branch.opened, self._xid)
        return False


class PreparedDatabase(Subordinate):
    """The transaction of a database of the application."""

    def __init__(self, database: ApplicationDatabase, databases: Databases) -> None:
        self._database = database
        self._databases = databases
        self._instance = databases.known(database).facts.instance
        self.place = Place(database.name, "")

    def prepare(self, gtrid: bytes, asked: Decider) -> None:
        """Prepare it; what recovery has to know of the decider is in the identifier, as there is no other place."""
        xid = self._databases.begun_as.get(self._database.name) or branch_of(gtrid, self._instance, asked)
        self.told = Told(xid.bqual, self.place.text)
        with self._databases.noting_failure():
            self._database.prepare(xid)

    def complete(self) -> bool:
        """Commit it, on the disk."""
        try:
            self._database.commit()
        except QueueError as error:
            self.is_lost = error.unreachable
            raise
        return True


def branch_of(gtrid: bytes, instance: str, asked: Decider) -> Xid:
    """Return the identifier of the branch in a database."""
    return Xid(OUR_FORMAT, gtrid, Qualifier.of(instance, asked).packed)


class Qualifier(NamedTuple):
    """What the branch qualifier of a database says: which database it is, and what is known of the decider."""

    database: bytes
    era: int
    decisions: int
    decider: bytes

    @classmethod
    def of(cls, instance: str, decider: Decider) -> Qualifier:
        """Return that of a database, which no copy has."""
        return cls(_digest(instance), decider.era, decider.decisions, _digest(decider.instance))

    @classmethod
    def unpacked(cls, bqual: bytes) -> Qualifier:
        """Return what `packed` has given."""
        parts = [bqual[at : at + _NUMBER] for at in range(0, 4 * _NUMBER, _NUMBER)]
        return cls(parts[0], int.from_bytes(parts[1]), int.from_bytes(parts[2]), parts[3])

    @property
    def packed(self) -> bytes:
        """As bytes, half of what X/Open allows, as drivers take it as text."""
        return self.database + self.era.to_bytes(_NUMBER) + self.decisions.to_bytes(_NUMBER) + self.decider

    def is_of(self, instance: str) -> bool:
        """Return whether it is that of a database, and of no copy."""
        return self.database == _digest(instance)

    def decider_at(self, place: Place, *instances: str) -> Decider:
        """Return the decider at a place, which is that of the branch only where the instance is the same."""
        same = next((instance for instance in instances if self.decider == _digest(instance)), "")
        return Decider(place, same, self.era, self.decisions)


def _digest(instance: str) -> bytes:
    return hashlib.sha256(instance.encode()).digest()[:_NUMBER]


def chosen(parts: Sequence[Part], wanted: Attachment | None) -> Part:
    """Return the branch that decides: the one that is wanted, else one for which nothing has to be written before."""
    able = [part for part in parts if part[0].is_durable]
    if not able:
        names = " and ".join(repr(attachment.opened.space.name) for attachment, _ in parts)
        raise ProtocolError(
            f"no queue space of {names} can decide on a transaction over several resources, because their devices are"
            " relaxed: their commits need not be on the disk",
            hint="Let a queue space of a device with full durability take part.",
        )
    first = next((part for part in able if part[1].recorded), able[0])
    return first if wanted is None else next((part for part in able if part[0].place == wanted.place), first)
