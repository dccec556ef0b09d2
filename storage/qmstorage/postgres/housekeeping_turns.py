"""Turns of housekeeping: one process does it for all that are attached to a queue space.

A turn lasts for less than a second and has a number, by the time. It belongs to the session that has locked its number
first: a look for what is due costs several statements, which each of many processes would ask for each second. Nothing
is written for it, and a turn that nobody uses, because its process has died or only waits, is over soon.
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

_TAKE: Final = "SELECT pg_try_advisory_lock(%s), EXISTS (SELECT FROM {}.owner WHERE id = %s)"
_END: Final = "SELECT pg_advisory_unlock(%s)"


def take(session: Session, space_id: int, owner_id: int | None, now_us: int) -> HousekeepingTurn:
    """Take the turn of this time in a queue space, unless somebody has it; return whose it is.

    The session keeps it until it takes another of that queue space, or ends. Where it is another's, the answer also
    tells whether the owner of this process is still recorded, in the same journey.
    """
    turn = keys.key(session.schema, keys.Kind.TURN, space_id << 40 | now_us // _TURN_MICROS)
    last = session.turns.get(space_id)
    # A lock that a session has it would get once more; none is asked for by null.
    asked = None if turn == last else turn
    ((is_ours, is_attached),) = session.connection.execute(_TAKE.format(quoted(session.schema)), [asked, owner_id])
    if not is_ours:
        return HousekeepingTurn.OTHERS if is_attached else HousekeepingTurn.LOST
    session.turns[space_id] = turn
    if last is not None:
        session.connection.execute(_END, [last])
    return HousekeepingTurn.OURS
