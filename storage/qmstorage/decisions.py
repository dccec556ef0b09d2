"""Decisions on distributed transactions, and the eras in which they are counted, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qmcore.records import Decision
from qmcore.refusals import Reason, Refused
from qmcore.two_phase import DECIDES_WITHIN_US, Decide, Decided, Told
from qmstorage.schema import decision, era, heuristic
from qmstorage.sql import bindparam, delete, literal, select, update
from qmstorage.statements import given, insert_into
from qmstorage.unit_part import UnitPart

if TYPE_CHECKING:
    from qmstorage.unit import SqlUnit

_ADD = insert_into(decision)
_ADD_ERA = insert_into(era)
_IS_BRANCH = decision.c.place != literal("")
_FORGET_CALLERS = delete(decision).where(
    given(decision.c.space_id, "of_space"),
    decision.c.place == literal(""),
    decision.c.decided_at < bindparam("before", type_=decision.c.decided_at.type),
)
_OF_SPACE = (
    select(decision.c.xid_global, decision.c.xid_branch, decision.c.place, decision.c.decided_at)
    .where(given(decision.c.space_id, "of_space"), _IS_BRANCH)
    .order_by(decision.c.decided_at, decision.c.xid_global, decision.c.xid_branch)
    .limit(bindparam("most"))
)
_OF_TRANSACTION = (given(decision.c.space_id, "of_space"), given(decision.c.xid_global, "of_global"))
_IS_DECIDED = select(decision.c.decided_at).where(*_OF_TRANSACTION).limit(1)
_TO_COMPARE = select(heuristic.c.space_id).where(
    given(heuristic.c.space_id, "of_space"), heuristic.c.decider.is_not(None), heuristic.c.decided.is_(None)
)
_HAS_WORK = (
    select(decision.c.space_id)
    .where(given(decision.c.space_id, "of_space"), _IS_BRANCH)
    .union_all(_TO_COMPARE)
    .limit(1)
)
_TOLD = delete(decision).where(*_OF_TRANSACTION, given(decision.c.xid_branch, "of_branch"))
_COUNT = (
    update(era)
    .where(
        given(era.c.space_id, "of_space"),
        given(era.c.id, "of_era"),
        era.c.decisions >= bindparam("known", type_=era.c.decisions.type),
    )
    .values(decisions=era.c.decisions + 1)
    .returning(era.c.decisions)
)
_COUNTED = select(era.c.decisions).where(given(era.c.space_id, "of_space"), given(era.c.id, "of_era"))
_FORGET_ERAS = delete(era).where(
    given(era.c.space_id, "of_space"), era.c.began_at < bindparam("before", type_=era.c.began_at.type)
)


class Decisions(UnitPart):
    """Decisions to commit distributed transactions, each as long as somebody is to be told."""

    def begin_era(self, space_id: int, era_id: int, now_us: int) -> None:
        """Begin to count decisions in an era."""
        self.run(_ADD_ERA, space_id=space_id, id=era_id, decisions=0, began_at=now_us)

    def counted(self, space_id: int, era_id: int) -> int | None:
        """Return how many decisions were made in an era; None where there is no such era."""
        row = self.one(_COUNTED, of_space=space_id, of_era=era_id)
        return None if row is None else int(row[0])

    def forget_old(self, space_id: int, callers_before_us: int, eras_before_us: int) -> None:
        """Forget callers who were to be told before a time, and eras that began before another one."""
        self.run(_FORGET_CALLERS, of_space=space_id, before=callers_before_us)
        self.run(_FORGET_ERAS, of_space=space_id, before=eras_before_us)

    def count(self, space_id: int, era_id: int, known: int) -> int | None:
        """Count one more decision in an era; None where it has fewer than are known, or there is no such era."""
        row = self.one(_COUNT, of_space=space_id, of_era=era_id, known=known)
        return None if row is None else int(row[0])

    def add(self, space_id: int, gtrid: bytes, told: Sequence[Told], now_us: int) -> None:
        """Record a decision for all who are to be told."""
        own = {"space_id": space_id, "xid_global": gtrid, "decided_at": now_us}
        self.many(_ADD, [{**own, "xid_branch": branch, "place": place} for branch, place in told])

    def has_work(self, space_id: int) -> bool:
        """Return whether anybody is to be told of a decision, or a heuristic end to be compared with one."""
        return self.one(_HAS_WORK, of_space=space_id) is not None

    def is_decided(self, space_id: int, gtrid: bytes) -> bool:
        """Return whether there is a decision on a transaction."""
        return self.one(_IS_DECIDED, of_space=space_id, of_global=gtrid) is not None

    def of_space(self, space_id: int, most: int) -> list[Decision]:
        """Return at most so many branches that are to be told, the longest first."""
        rows = self.all(_OF_SPACE, of_space=space_id, most=most)
        return [Decision(bytes(gtrid), Told(bytes(branch), place), decided) for gtrid, branch, place, decided in rows]

    def forget(self, space_id: int, gtrid: bytes, branch: bytes) -> None:
        """Note that a branch, or the caller, need not be told any more."""
        self.run(_TOLD, of_space=space_id, of_global=gtrid, of_branch=branch)


def decide(unit: SqlUnit, command: Decide) -> Decided | Refused:
    """Record the decision to commit a distributed transaction, in the database transaction that commits the decider.

    That commit, which goes before, has seen that the queue space is as it was.
    """
    guard, now = command.guard, unit.clock.now()
    if now - command.began_us > DECIDES_WITHIN_US:
        return Refused(Reason.LATE)
    decisions = unit.transactions.decisions
    counted = decisions.count(guard.space_id, command.era, command.known)
    if counted is None:
        return Refused(Reason.SET_BACK)
    decisions.add(guard.space_id, command.gtrid, command.told, now)
    return Decided(counted)
