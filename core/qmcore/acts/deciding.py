"""The decision on a distributed transaction that we coordinate ourselves, at its decider, and who asks for it.

The commit of one branch, which is not prepared, contains the decision: a record of all who are to be told. Whoever
finds a prepared branch asks there. Where no decision is and none can come, the branch rolls back; so that none can
come, the branch of the coordinator is ended first, on the disk: its process may only have been taken for dead.

A decider that was set back to an earlier state presumes nothing. Decisions are counted in eras, one for each process
and day; a branch keeps how many there were at least when it began. Neither an era that began later nor one with fewer
decisions is in a state that was restored.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Self

from qmcore.acts.commit import commit
from qmcore.acts.returning import Ending, give_back
from qmcore.acts.sending import Part
from qmcore.acts.transaction_part import Branch
from qmcore.definitions import Definitions, OpenSpace
from qmcore.numbers import random_number
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.records import Owner, TransactionRecord
from qmcore.space import Space
from qmcore.times import MICROS
from qmcore.transitions import Command
from qmcore.two_phase import Decide, Era, Told

ERA_US: Final = 24 * 3600 * MICROS
_ERAS_KEPT_US: Final = 40 * 24 * 3600 * MICROS
"""How long eras are kept: a branch that is prepared for longer is left to an administrator."""
_CALLER_KEPT_US: Final = 24 * 3600 * MICROS
"""How long a decision is kept for a caller who does not say that it knows."""
_NUMBER: Final = 8
"""Bytes of the number of a transaction."""


_encoded: Final = json.JSONEncoder(ensure_ascii=False).encode


class Place(NamedTuple):
    """Where a queue space is: the path of its device, or its URL without user and password, and its name.

    Without a name it is a database of the application, which only that can reach.
    """

    device: str
    space: str

    def __str__(self) -> str:
        return f"database {self.device!r}" if self.is_database else f"queue space {self.space!r} on {self.device!r}"

    @property
    def is_database(self) -> bool:
        """Whether it is a database of the application."""
        return not self.space

    @property
    def text(self) -> str:
        """How it is stored."""
        return _text_of(self)

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Return what was stored; None for what has another form."""
        try:
            device, space = json.loads(text)
        except (TypeError, ValueError):
            return None
        return cls(str(device), str(space))


@functools.lru_cache(maxsize=64)
def _text_of(place: Place) -> str:
    return _encoded(place)


class Decider(NamedTuple):
    """What a prepared branch keeps of its decider.

    `instance` is what a copy of its volume does not have. `decisions` of the `era` are known, and on the disk there.
    """

    place: Place
    instance: str
    era: int
    decisions: int

    @property
    def text(self) -> str:
        """How it is stored."""
        return _encoded([*self.place, *self[1:]])

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Return what was stored; None for what has another form."""
        try:
            device, space, instance, era, decisions = json.loads(text)
        except (TypeError, ValueError):
            return None
        return cls(Place(str(device), str(space)), str(instance), int(era), int(decisions))


class Answer(enum.Enum):
    """What a decider knows of a transaction."""

    COMMITTED = "it has decided to commit"
    ROLLED_BACK = "it will never decide to commit"
    UNDECIDED = "its coordinator lives and has not decided yet"
    UNKNOWN = "an earlier state of it was restored, or a copy is in its place"

    @property
    def end(self) -> str:
        """How the branches end: "committed" or "rolled back"; empty where that is not known."""
        return {Answer.COMMITTED: "committed", Answer.ROLLED_BACK: "rolled back"}.get(self, "")


class Question(NamedTuple):
    """A transaction that a decider is asked for."""

    gtrid: bytes
    decider: Decider


def gtrid_of(space: Space, transaction_id: int) -> bytes:
    """Return the global identifier of a transaction that a queue space decides by its branch of that number."""
    return bytes.fromhex(space.incarnation) + transaction_id.to_bytes(_NUMBER)


def transaction_of(gtrid: bytes) -> int:
    """Return the number of the decider's branch."""
    return int.from_bytes(gtrid[-_NUMBER:])


def has_begun(space: Space, gtrid: bytes) -> bool:
    """Return whether a global identifier is one that a queue space has given, under this incarnation or another."""
    incarnation = gtrid[:-_NUMBER].hex()
    return incarnation in (space.incarnation, *(piece.incarnation for piece in space.adopted))


def decider_of(volume: Volume, opened: OpenSpace, place: Place) -> Decider:
    """Return a queue space as the decider of a transaction that begins to be prepared now."""
    now, era = volume.clock.now(), opened.era
    if era is None or now >= era.until_us:
        era = Era(random_number(), 0, now + ERA_US)
        begun = era.id
        volume.write(lambda unit: unit.transactions.decisions.begin_era(opened.space.id, begun, now), Purpose.PROMISE)
        opened.era = era
    return Decider(place, volume.instance, era.id, era.decisions)


def decide(
    volume: Volume, branches: Sequence[Branch], gtrid: bytes, decider: Decider, began_us: int, told: Sequence[Told]
) -> None:
    """Commit the decider's branch, the first one, with others on its volume, and the decision in it."""
    branch = branches[0]

    def build(opened: OpenSpace, known: Definitions, told: Sequence[Told]) -> list[Command]:
        its = decider.era, decider.decisions, began_us, [Told(b"", ""), *told]
        return [Decide(opened.guard(known), gtrid, *its)]

    try:
        decided = commit(volume, branches, Part(branch.opened, build, told))
    except BaseException:
        # It may have been set back: the next one counts anew.
        branch.opened.era = None
        raise
    era = branch.opened.era
    if decided is not None and era is not None and era.id == decider.era and era.decisions < decided.decisions:
        branch.opened.era = era._replace(decisions=decided.decisions)


def ask(
    volume: Volume, opened: OpenSpace, questions: Iterable[Question], ending: Ending, *, ends_living: bool = False
) -> dict[bytes, Answer]:
    """Return what the decider knows of transactions, by their global identifiers; what it says is on the disk.

    A branch of a coordinator that does not live is rolled back there first, as the ending says; with `ends_living`
    that of one that lives, too.
    """
    asked = {question.gtrid: question.decider for question in questions}
    numbers, its_eras = {transaction_of(gtrid) for gtrid in asked}, {decider.era for decider in asked.values()}
    # Not asked within the work, which waits for no other.
    space_id, instance = opened.space.id, volume.instance

    def look(unit: Unit) -> tuple[list[Owner], list[TransactionRecord]]:
        records = [record for record in unit.transactions.of_space(space_id) if record.id in numbers]
        return unit.owners.of_space(space_id) if records else [], records

    owners, records = volume.read(look)
    living = volume.liveness.living(owners) if owners else set()
    found = {record.id: record for record in records}

    def answer(unit: Unit) -> dict[bytes, Answer]:
        eras = {era: unit.transactions.decisions.counted(space_id, era) for era in its_eras}
        answers = {}
        for gtrid, decider in asked.items():
            number = transaction_of(gtrid)
            record = found.get(number)
            is_left = record is not None and (ends_living or record.owner_id not in living)
            # Whoever is just deciding comes before this, or is refused.
            if record is not None and is_left and unit.transactions.end(number, record.owner_id):
                give_back(unit, opened, number, opened.definitions(unit).by_id, volume.clock.now(), ending)
                answers[gtrid] = Answer.ROLLED_BACK
            elif unit.transactions.decisions.is_decided(space_id, gtrid):
                answers[gtrid] = Answer.COMMITTED
            elif record is not None and not is_left:
                answers[gtrid] = Answer.UNDECIDED
            else:
                answers[gtrid] = presumed(decider, instance, eras)
        unit.counters.bring_to_disk(space_id)
        return answers

    return volume.write(answer, Purpose.PROMISE)


def foreseen(volume: Volume, space_id: int, questions: Iterable[Question]) -> dict[bytes, Answer]:
    """Return what the decider knows of transactions now, as `ask` does, and change nothing.

    A branch of a coordinator that does not live is left, and counts as undecided.
    """
    instance = volume.instance

    def look(unit: Unit) -> dict[bytes, Answer]:
        there = {record.id for record in unit.transactions.of_space(space_id)}
        answers = {}
        for gtrid, decider in questions:
            if unit.transactions.decisions.is_decided(space_id, gtrid):
                answers[gtrid] = Answer.COMMITTED
            elif transaction_of(gtrid) in there:
                answers[gtrid] = Answer.UNDECIDED
            else:
                eras = {decider.era: unit.transactions.decisions.counted(space_id, decider.era)}
                answers[gtrid] = presumed(decider, instance, eras)
        return answers

    return volume.read(look)


def forget(volume: Volume, opened: OpenSpace, told: Sequence[tuple[bytes, bytes]]) -> None:
    """Note that branches of transactions, by their identifiers, need not be told any more.

    The callers of this process that know by now need not either; old eras go, and the others after a day.
    """
    now, space_id = volume.clock.now(), opened.space.id
    known = list(opened.known_outcomes)

    def note(unit: Unit) -> None:
        decisions = unit.transactions.decisions
        for gtrid, branch in (*told, *known):
            decisions.forget(space_id, gtrid, branch)
        decisions.forget_old(space_id, now - _CALLER_KEPT_US, now - _ERAS_KEPT_US)

    volume.write(note, Purpose.TIDY)
    for outcome in known:
        # Another thread may have done the same.
        with contextlib.suppress(ValueError):
            opened.known_outcomes.remove(outcome)


def presumed(decider: Decider, instance: str, eras: Mapping[int, int | None]) -> Answer:
    """Return what it means that a decider has neither the branch nor a decision."""
    counted = eras[decider.era]
    is_whole = decider.instance == instance and counted is not None and counted >= decider.decisions
    return Answer.ROLLED_BACK if is_whole else Answer.UNKNOWN
