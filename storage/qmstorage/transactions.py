"""Transactions, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qmcore.purpose import WrongPurposeError, once
from qmcore.records import Outcome, TransactionRecord
from qmcore.two_phase import Prepare
from qmcore.xid import Xid
from qmstorage.decisions import Decisions
from qmstorage.schema import heuristic, trans
from qmstorage.sql import (
    ColumnElement,
    bindparam,
    delete,
    func,
    literal,
    literal_column,
    null,
    or_,
    select,
    update,
)
from qmstorage.statements import Row, given, insert_into
from qmstorage.unit_part import UnitPart


def written_state(outcome: Outcome) -> ColumnElement[str]:
    """Return a state as it stands in the text of a statement."""
    return literal_column(f"'{outcome.value}'")


def _is_one_of(*outcomes: Outcome) -> ColumnElement[bool]:
    return or_(*(trans.c.state == written_state(outcome) for outcome in outcomes))


_ADD = insert_into(trans)
_OF_OWNER = (given(trans.c.id, "trans_id"), given(trans.c.owner_id, "of_owner"))
ACTIVE_OF_OWNER = (*_OF_OWNER, trans.c.state == written_state(Outcome.ACTIVE))
END = delete(trans).where(*ACTIVE_OF_OWNER)
_FORGET_COMMITTED = delete(trans).where(given(trans.c.id, "trans_id"), trans.c.state == Outcome.COMMITTED.value)
# Locked, where several write at the same time: whoever ends the transaction then finds all that it holds.
_IS_ACTIVE = select(trans.c.id).where(*ACTIVE_OF_OWNER).with_for_update(read=True)
_RECORD = select(
    trans.c.id,
    trans.c.space_id,
    trans.c.owner_id,
    trans.c.state,
    trans.c.started_at,
    trans.c.deadline,
    trans.c.xid_format,
    trans.c.xid_global,
    trans.c.xid_branch,
    trans.c.prepared_at,
    trans.c.queues,
    trans.c.consumer,
    trans.c.nonpersistent,
    trans.c.suspended_at,
    trans.c.decider,
)
_OF_SPACE = given(trans.c.space_id, "of_space")
_TRANSACTIONS = _RECORD.where(_OF_SPACE).order_by(trans.c.started_at, trans.c.id)
_HAS_XID = (
    _OF_SPACE,
    given(trans.c.xid_format, "of_format"),
    given(trans.c.xid_global, "of_global"),
    given(trans.c.xid_branch, "of_branch"),
)
_FIND = _RECORD.where(*_HAS_XID)
_COUNT = select(func.count()).select_from(trans).where(_OF_SPACE, _is_one_of(Outcome.ACTIVE, Outcome.PREPARED))
_PREPARE = (
    update(trans)
    .where(*ACTIVE_OF_OWNER)
    .values(
        state=literal(Outcome.PREPARED.value),
        deadline=null(),
        xid_format=bindparam("its_format"),
        xid_global=bindparam("its_global"),
        xid_branch=bindparam("its_branch"),
        prepared_at=bindparam("prepared"),
        queues=bindparam("of_queues"),
        consumer=bindparam("by"),
        nonpersistent=bindparam("in_memory"),
        decider=bindparam("decided_by"),
    )
)
_REOPEN = (
    update(trans)
    .where(*_HAS_XID, trans.c.state == written_state(Outcome.PREPARED))
    .values(state=literal(Outcome.ACTIVE.value), xid_format=null(), xid_global=null(), xid_branch=null())
    .returning(*_RECORD.selected_columns)
)
_REOPEN_THIS = _REOPEN.where(given(trans.c.id, "trans_id"))
_SUSPEND = (
    update(trans)
    .where(*ACTIVE_OF_OWNER)
    .values(secret=bindparam("its_secret"), suspended_at=bindparam("suspended"), queues=bindparam("of_queues"))
)
_IN_SPACE = (given(trans.c.id, "trans_id"), _OF_SPACE)
# One statement: of several that have the secret one finds it, and whoever ends it for the owner of before does not.
_RESUME = (
    update(trans)
    .where(*_IN_SPACE, given(trans.c.secret, "its_secret"), trans.c.state == written_state(Outcome.ACTIVE))
    .values(owner_id=bindparam("new_owner"), secret=null(), suspended_at=null())
    .returning(*_RECORD.selected_columns)
)
_IS_KNOWN = select(trans.c.id).where(*_IN_SPACE)
_ADD_HEURISTIC = insert_into(heuristic)
_HEURISTIC = select(
    heuristic.c.trans_id,
    heuristic.c.space_id,
    heuristic.c.owner_id,
    heuristic.c.state,
    heuristic.c.started_at,
    heuristic.c.xid_format,
    heuristic.c.xid_global,
    heuristic.c.xid_branch,
    heuristic.c.prepared_at,
    heuristic.c.consumer,
    heuristic.c.ended_at,
    heuristic.c.ended_by,
    heuristic.c.decider,
    heuristic.c.decided,
)
_HEURISTICS = _HEURISTIC.where(given(heuristic.c.space_id, "of_space")).order_by(heuristic.c.started_at)
_IS_HEURISTIC = (
    given(heuristic.c.space_id, "of_space"),
    given(heuristic.c.xid_format, "of_format"),
    given(heuristic.c.xid_global, "of_global"),
    given(heuristic.c.xid_branch, "of_branch"),
)
_FIND_HEURISTIC = _HEURISTIC.where(*_IS_HEURISTIC)
_IS_UNCOMPARED = (*_IS_HEURISTIC, heuristic.c.decided.is_(None))
_FORGET_UNCOMPARED = delete(heuristic).where(*_IS_UNCOMPARED)
_NOTE_DECIDED = update(heuristic).where(*_IS_UNCOMPARED).values(decided=bindparam("now_decided"))
_FORGET_HEURISTIC = delete(heuristic).where(*_IS_HEURISTIC)


class Transactions(UnitPart):
    """Transactions, and what was decided on distributed ones."""

    @property
    def decisions(self) -> Decisions:
        """Decisions on distributed transactions."""
        return Decisions(self.unit)

    def add(self, record: TransactionRecord) -> None:
        """Record an active transaction."""
        if self.purpose.again:
            raise WrongPurposeError(self.purpose, "begins a transaction, and may be done twice")
        self.run(
            _ADD,
            id=record.id,
            space_id=record.space_id,
            owner_id=record.owner_id,
            state=record.state.value,
            started_at=record.started_us,
            deadline=record.deadline_us,
            xid_format=None if record.xid is None else record.xid.format_id,
            xid_global=None if record.xid is None else record.xid.gtrid,
            xid_branch=None if record.xid is None else record.xid.bqual,
            prepared_at=None,
            queues=None,
            consumer=None,
            nonpersistent=None,
            secret=None,
            suspended_at=None,
            decider=None,
        )

    def end(self, transaction_id: int, owner_id: int) -> bool:
        """Remove the transaction if that owner still has it; False means that it was given up, or is committed."""
        return self.run(END, trans_id=transaction_id, of_owner=owner_id).rowcount > 0

    def forget_committed(self, transaction_id: int) -> None:
        """Remove a committed transaction, because memory has followed it."""
        self.run(_FORGET_COMMITTED, trans_id=transaction_id)

    def is_active(self, transaction_id: int, owner_id: int) -> bool:
        """Return whether that owner still has the transaction, and it is active."""
        if self.purpose.again:
            raise WrongPurposeError(self.purpose, "goes on with a transaction, and may be done twice")
        return self.one(_IS_ACTIVE, trans_id=transaction_id, of_owner=owner_id) is not None

    @once
    def suspend(self, transaction_id: int, owner_id: int, secret: str, now_us: int, queue_ids: Sequence[int]) -> bool:
        """Let an active transaction be resumed by a secret; False where that owner has it no more."""
        its = {"trans_id": transaction_id, "of_owner": owner_id, "its_secret": secret, "suspended": now_us}
        return self.run(_SUSPEND, of_queues=_listed(queue_ids), **its).rowcount > 0

    @once
    def resume(self, space_id: int, transaction_id: int, owner_id: int, secret: str) -> TransactionRecord | None:
        """Give the suspended transaction that has the secret, which is used up, to another owner, and return it."""
        row = self.one(_RESUME, trans_id=transaction_id, of_space=space_id, its_secret=secret, new_owner=owner_id)
        return None if row is None else _record(row)

    def is_known(self, space_id: int, transaction_id: int) -> bool:
        """Return whether the queue space has the transaction, in whatever state it is."""
        return self.one(_IS_KNOWN, trans_id=transaction_id, of_space=space_id) is not None

    def of_space(self, space_id: int) -> list[TransactionRecord]:
        """Return the transactions of a queue space, the longest first."""
        return list(map(_record, self.all(_TRANSACTIONS, of_space=space_id)))

    def find(self, space_id: int, xid: Xid) -> TransactionRecord | None:
        """Return the transaction of a queue space that has an identifier, in whatever state it is."""
        row = self.one(_FIND, of_space=space_id, **_named(xid))
        if row is not None:
            return _record(row)
        row = self.one(_FIND_HEURISTIC, of_space=space_id, **_named(xid))
        return None if row is None else _heuristic(row)

    def prepare(self, command: Prepare, now_us: int, nonpersistent: int) -> bool:
        """Record that a transaction is prepared; False where it is not active, or not that owner's.

        In memory it has so many messages.
        """
        xid, owner_id = command.xid, command.owner_id
        return (
            self.run(
                _PREPARE,
                trans_id=command.transaction_id,
                of_owner=owner_id,
                its_format=xid.format_id,
                its_global=xid.gtrid,
                its_branch=xid.bqual,
                prepared=now_us,
                of_queues=f"{_listed(command.taken_from)}/{_listed(command.brings_to)}",
                by=command.guard.consumer,
                in_memory=nonpersistent,
                decided_by=command.decider or None,
            ).rowcount
            > 0
        )

    def reopen(self, space_id: int, xid: Xid, transaction_id: int | None = None) -> TransactionRecord | None:
        """Make a prepared transaction active, and nameless, for the rest of the work, which ends it, and return it.

        Return None where there is none with that identifier, or it is another one than this. Who ends it at the same
        time waits, and finds it ended.
        """
        if transaction_id is None:
            row = self.one(_REOPEN, of_space=space_id, **_named(xid))
        else:
            row = self.one(_REOPEN_THIS, of_space=space_id, trans_id=transaction_id, **_named(xid))
        return None if row is None else _record(row, xid)

    def add_heuristic(self, record: TransactionRecord) -> None:
        """Record how a transaction was ended without the decision of its coordinator."""
        assert record.xid is not None  # noqa: S101 - it was prepared
        self.run(
            _ADD_HEURISTIC,
            space_id=record.space_id,
            xid_format=record.xid.format_id,
            xid_global=record.xid.gtrid,
            xid_branch=record.xid.bqual,
            trans_id=record.id,
            owner_id=record.owner_id,
            state=record.state.value,
            started_at=record.started_us,
            prepared_at=record.prepared_us,
            consumer=record.consumer,
            ended_at=record.ended_us,
            ended_by=record.ended_by,
            decider=record.decider or None,
            decided=record.decided or None,
        )

    def note_decided(self, space_id: int, xid: Xid, decided: str) -> None:
        """Record what was decided on a transaction that was ended otherwise."""
        self.run(_NOTE_DECIDED, of_space=space_id, now_decided=decided, **_named(xid))

    def heuristics(self, space_id: int) -> list[TransactionRecord]:
        """Return those of a queue space that were ended so, the longest first."""
        return list(map(_heuristic, self.all(_HEURISTICS, of_space=space_id)))

    def forget_heuristic(self, space_id: int, xid: Xid) -> bool:
        """Remove such a record; False where there is none."""
        return self.run(_FORGET_HEURISTIC, of_space=space_id, **_named(xid)).rowcount > 0

    def forget_uncompared(self, space_id: int, xid: Xid) -> None:
        """Remove such a record where it is not noted that otherwise was decided."""
        self.run(_FORGET_UNCOMPARED, of_space=space_id, **_named(xid))

    def count(self, space_id: int) -> int:
        """Return how many transactions of the queue space are open."""
        return int(self.all(_COUNT, of_space=space_id)[0][0])


def _named(xid: Xid) -> dict[str, Any]:
    return {"of_format": xid.format_id, "of_global": xid.gtrid, "of_branch": xid.bqual}


def _listed(queue_ids: Sequence[int]) -> str:
    return " ".join(map(str, queue_ids))


def _numbers(listed: str) -> tuple[int, ...]:
    return tuple(map(int, listed.split()))


def _record(row: Row, named: Xid | None = None) -> TransactionRecord:
    """Return the transaction of a row, which has lost its identifier where that is `named`."""
    number, space_id, owner_id, state, started, deadline, form, gtrid, bqual, prepared, queues, *rest = row
    consumer, nonpersistent, suspended, decider = rest
    # Of one that is suspended it is not said for what it has messages there.
    taken_from, slash, brings_to = (queues or "").partition("/")
    return TransactionRecord(
        id=number,
        space_id=space_id,
        owner_id=owner_id,
        state=Outcome(state),
        started_us=started,
        deadline_us=deadline,
        xid=named if form is None else Xid(form, bytes(gtrid), bytes(bqual)),
        prepared_us=prepared,
        taken_from=_numbers(taken_from),
        brings_to=_numbers(brings_to if slash else taken_from),
        consumer=consumer or "",
        nonpersistent=nonpersistent or 0,
        suspended_us=suspended,
        decider=decider or "",
    )


def _heuristic(row: Row) -> TransactionRecord:
    number, space_id, owner_id, state, started, form, gtrid, bqual, prepared, consumer, *rest = row
    ended, ended_by, decider, decided = rest
    return TransactionRecord(
        id=number,
        space_id=space_id,
        owner_id=owner_id,
        state=Outcome(state),
        started_us=started,
        deadline_us=None,
        xid=Xid(form, bytes(gtrid), bytes(bqual)),
        prepared_us=prepared,
        consumer=consumer,
        ended_us=ended,
        ended_by=ended_by,
        decider=decider or "",
        decided=decided or "",
    )
