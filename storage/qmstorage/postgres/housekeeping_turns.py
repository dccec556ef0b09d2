"""Turns of housekeeping: one process does it for all that are attached to a queue space.

There is a turn for each nine tenths of a second, with a number by the time. It belongs to the session that has locked
its number first: a look for what is due costs several statements, which each of many processes would ask for each
second. Nothing is written for it, and a turn that nobody uses, because its process has died, is over soon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qmcore.records import HousekeepingTurn
from qmstorage.postgres import keys
from qmstorage.postgres.tables import quoted

if TYPE_CHECKING:
    from qmstorage.postgres.sessions import Session

_TURN_MICROS: Final = 900_000
"""How long a turn lasts. Each process asks once a second, and is early now and then."""

_TAKE: Final = """
SELECT pg_try_advisory_lock(%s), EXISTS (SELECT FROM {0}.owner WHERE id = %s), pg_advisory_unlock(%s),
'{0}.device'::regclass::oid
"""


def take(session: Session, space_id: int, owner_id: int | None, now_us: int) -> tuple[HousekeepingTurn, int]:
    """Take the turn of this time in a queue space, unless somebody has it; return whose it is, and the table's number.

    The answer also tells whether the owner of this process is still recorded. A session lets go of a turn when it asks
    for a later one, or ends: turns that are over must be free, should the clock be set back.
    """
    turn = keys.key(session.schema, keys.Kind.TURN, space_id << 40 | now_us // _TURN_MICROS)
    last = session.turns.pop(space_id, None)
    # A lock that a session has it would get once more; none is asked for, or left, by null.
    asked, over = (None, None) if turn == last else (turn, last)
    question = _TAKE.format(quoted(session.schema))
    ((is_ours, is_attached, _, table),) = session.connection.execute(question, [asked, owner_id, over])
    if is_ours or turn == last:
        session.turns[space_id] = turn
    if is_ours:
        return HousekeepingTurn.OURS, table
    return HousekeepingTurn.OTHERS if is_attached else HousekeepingTurn.LOST, table
