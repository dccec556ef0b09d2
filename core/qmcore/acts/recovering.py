"""The ends of prepared branches that a coordinator of ours has left, by what their decider says.

A branch is ended in a step that is on the disk before anybody notes that it was told, and so is the look that finds
none: what a crash would bring back is not taken for done.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from functools import partial
from typing import Final

from qmcore.acts import in_doubt
from qmcore.acts.deciding import Answer
from qmcore.acts.returning import Cause, Ending, is_of_the_store
from qmcore.definitions import OpenSpace
from qmcore.errors import QueueError, UnknownXidError
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.records import Outcome, Owner, TransactionRecord
from qmcore.space import Space
from qmcore.times import MICROS
from qmcore.xid import Xid

logger = logging.getLogger("qmadmin.transacting")

GRACE_US: Final = MICROS
"""How long a branch is prepared before anybody but its coordinator asks for it."""

PRESUMES_ABORT: Final = "abort"
"""What a branch has in place of a decider that rolls back with its process, as whoever prepared it wanted."""

COPIED: Final = "it was prepared in another place, from which this one was copied or restored"
"""Why a copy of a branch does not end by itself."""

_AT_A_TIME: Final = 100
_INCARNATION: Final = 8
"""Bytes of the incarnation of a queue space."""


def qualifier_of(volume: Volume, space: Space) -> bytes:
    """Return the qualifier of a branch in a queue space: no other one has it, and no copy of its volume."""
    return bytes.fromhex(space.incarnation) + _digest(volume.instance)


def is_copy(volume: Volume, xid: Xid) -> bool:
    """Return whether a branch was prepared in another place, from which this one was copied or restored."""
    return xid.bqual[_INCARNATION:] != _digest(volume.instance)


def waiting(unit: Unit, opened: OpenSpace, now: int) -> list[TransactionRecord]:
    """Return the branches that somebody has to ask their decider for, the longest first.

    They were prepared a while ago, or an administrator has ended them, and what was decided is not known.
    """
    prepared = [
        record
        for record in in_doubt.prepared(unit, opened.space.id)
        if record.decider and (record.prepared_us or 0) <= now - GRACE_US
    ]
    ended = [
        record
        for record in unit.transactions.heuristics(opened.space.id)
        if record.decider not in ("", PRESUMES_ABORT) and not record.decided
    ]
    return [*prepared, *ended]


def end_presumed(volume: Volume, opened: OpenSpace) -> list[Xid]:
    """Roll back the branches that presume an abort and whose process is dead; return their identifiers.

    Copies presume nothing.
    """

    def look(unit: Unit) -> tuple[list[Owner], list[TransactionRecord]]:
        records = [each for each in in_doubt.prepared(unit, opened.space.id) if each.decider == PRESUMES_ABORT]
        return unit.owners.of_space(opened.space.id) if records else [], records

    owners, records = volume.read(look)
    living = volume.liveness.living(owners) if owners else set()
    left = [
        each.xid
        for each in records
        if each.xid is not None and each.owner_id not in living and not is_copy(volume, each.xid)
    ]
    for xid in left:
        logger.warning(
            "transaction %s of queue space %r has lost its process after the vote, and its abort is presumed: what its"
            " other data managers have committed stays",
            xid,
            opened.space.name,
        )
    return end(volume, opened, dict.fromkeys(left, Answer.ROLLED_BACK))


def end(volume: Volume, opened: OpenSpace, answers: Mapping[Xid, Answer], *, also_copies: bool = False) -> list[Xid]:
    """End branches as their decider says, and return those that need not be told any more: also those that are gone.

    Only an administrator ends copies, too.
    """
    done: list[Xid] = []
    xids = [xid for xid, answer in answers.items() if answer.end and (also_copies or not is_copy(volume, xid))]
    for first in range(0, len(xids), _AT_A_TIME):
        some = xids[first : first + _AT_A_TIME]
        try:
            _end_together(volume, opened, some, answers)
            done += some
        except QueueError as error:
            if is_of_the_store(error) or len(some) == 1:
                raise
            # One that is refused keeps no other from its end.
            for xid in some:
                try:
                    _end_together(volume, opened, [xid], answers)
                    done.append(xid)
                except QueueError as refusal:
                    logger.error("transaction %s of queue space %r: %s", xid, opened.space.name, refusal)  # noqa: TRY400
    return done


def complete(volume: Volume, opened: OpenSpace, xid: Xid) -> None:
    """Commit the branch of a transaction that is decided: a crash may bring it back, and recovery commits it then."""

    def commit(unit: Unit) -> None:
        try:
            in_doubt.commit(unit, opened, xid, volume.clock.now())
        except UnknownXidError:
            # Somebody else was first.
            return

    volume.write(commit, Purpose.COMPLETING)


# ---- steps -----------------------------------------------------------------------------------------------------------


def _end_together(volume: Volume, opened: OpenSpace, xids: list[Xid], answers: Mapping[Xid, Answer]) -> None:
    volume.write(lambda unit: _end(unit, opened, xids, answers, volume.clock.now()), Purpose.PROMISE)


def _end(unit: Unit, opened: OpenSpace, xids: list[Xid], answers: Mapping[Xid, Answer], now: int) -> None:
    for xid in xids:
        record, committed = unit.transactions.find(opened.space.id, xid), answers[xid] is Answer.COMMITTED
        if record is None or record.state is Outcome.ACTIVE:
            continue
        if record.state.is_heuristic:
            if record.decided:
                # It was compared while the decision was there, which may be forgotten by now.
                continue
            _compare(unit, record, xid, answers[xid])
            continue
        try:
            if committed:
                in_doubt.commit(unit, opened, xid, now)
            else:
                in_doubt.roll_back(unit, opened, xid, now, Ending(Cause.DEATH))
        except UnknownXidError:
            # Somebody else has just ended it.
            continue
        told = xid, opened.space.name, answers[xid].end
        unit.afterwards(partial(logger.info, "transaction %s of queue space %r was %s by recovery", *told))
    unit.counters.bring_to_disk(opened.space.id)


def _compare(unit: Unit, record: TransactionRecord, xid: Xid, answer: Answer) -> None:
    """Compare how an administrator has ended a branch with what was decided."""
    if (record.state is Outcome.HEURISTIC_COMMIT) is (answer is Answer.COMMITTED):
        unit.transactions.forget_uncompared(record.space_id, xid)
        return
    unit.transactions.note_decided(record.space_id, xid, answer.end)
    unit.afterwards(
        partial(
            logger.error,
            "transaction %s was %s, and its coordinator has decided otherwise: it was %s elsewhere",
            xid,
            in_doubt.how_ended(record),
            answer.end,
        )
    )


@functools.lru_cache(maxsize=64)
def _digest(instance: str) -> bytes:
    import hashlib  # Programs that have no such transactions need not load it.

    return hashlib.sha256(instance.encode()).digest()[:8]
