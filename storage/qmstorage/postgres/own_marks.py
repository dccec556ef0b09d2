"""What sessions tell by rows of their own: which of them writes a row of the counters; and whom they notify."""

from __future__ import annotations

from typing import Any, Final

from qmstorage.schema import counter, waiter
from qmstorage.sql import BigInteger, Integer, Text, bindparam, exists, func, literal_column, postgresql, select
from qmstorage.statements import given

_ZERO: Any = literal_column("0")


def _by(name: str, kind: Any) -> Any:
    return bindparam(name, type_=kind)


LOCK: Final = select(func.pg_advisory_xact_lock_shared(_by("key", BigInteger())))
"""Takes the lock of the volume together with others, before anything is looked at."""

_OF_SPACE: Final = (given(counter.c.space_id, "space_id"), counter.c.queue_id == _ZERO)
_FIRST_ROW: Final = dict.fromkeys(counter.columns.keys(), _ZERO) | {
    "space_id": _by("space_id", Integer()),
    "slot": _by("slot", Integer()),
    "generation": _by("session", BigInteger()),
}
MARK: Final = (
    postgresql.insert(counter)
    .from_select(
        list(_FIRST_ROW), select(*_FIRST_ROW.values()).where(exists().where(*_OF_SPACE, counter.c.slot == _ZERO))
    )
    .on_conflict_do_update(
        index_elements=("space_id", "queue_id", "slot"), set_={"generation": _by("session", BigInteger())}
    )
    .returning(counter.c.sequence)
)
"""Notes which session writes a row of the counters from now on, and gives the last number that the row tells of.

It does nothing where the queue space is gone.
"""

TELL: Final = select(func.pg_notify(_by("channel", Text()), literal_column("''"))).where(
    exists().where(given(waiter.c.queue_id, "of_queue"))
)
"""Tells those who wait for a queue, if there are any."""

LEVEL: Final = select(
    func.max(counter.c.generation).filter(counter.c.slot == _ZERO),
    *(func.coalesce(func.sum(counter.c[name]), _ZERO).label(name) for name in ("messages", "pages", "size")),
).where(*_OF_SPACE)
"""Gives the generation of a queue space, null where it is gone, and its messages, pages and bytes."""
