"""The record of destructive acts in SQL."""

from __future__ import annotations

from typing import Final

from qmcore.audit import KEPT, AuditEntry
from qmcore.purpose import once
from qmstorage.schema import audit
from qmstorage.sql import bindparam, delete, insert, select, update
from qmstorage.statements import given
from qmstorage.unit_part import UnitPart

_ADD = (
    insert(audit)
    .values({column.name: bindparam(column.name) for column in audit.columns if column.name not in ("id", "outcome")})
    .returning(audit.c.id)
)
COLUMNS: Final = ("at", "user_name", "uid", "host", "pid", "command", "target", "outcome")
"""The columns of `values_of`, for a file that is being restored or upgraded, where there is no unit."""

_FORGET = delete(audit).where(audit.c.id <= bindparam("last"))
_SET_OUTCOME = (
    update(audit)
    .where(given(audit.c.id, "of_entry"), given(audit.c.at, "then"), given(audit.c.pid, "by"))
    .values(outcome=bindparam("new_outcome"))
)
_AUDITED = select(audit).order_by(audit.c.id.desc()).limit(bindparam("most"))


def values_of(entry: AuditEntry) -> tuple[str | int | None, ...]:
    """Return the values of an entry in the order of the columns."""
    who = (entry.at_us, entry.user, entry.uid, entry.host, entry.pid)
    return (*who, entry.command, entry.target, entry.outcome)


class Audit(UnitPart):
    """Destructive acts, and what came of them."""

    @once
    def add(self, entry: AuditEntry) -> int:
        """Record an act and return the number of the entry; the oldest beyond those that are kept are removed."""
        ((number,),) = self.all(
            _ADD,
            at=entry.at_us,
            user_name=entry.user,
            uid=entry.uid,
            host=entry.host,
            pid=entry.pid,
            command=entry.command,
            target=entry.target,
        )
        self.run(_FORGET, last=number - KEPT)
        return int(number)

    def set_outcome(self, entry: AuditEntry, outcome: str) -> None:
        """Record what came of an act, if it is recorded."""
        # The device may have been replaced by now, and another entry have this number.
        self.run(_SET_OUTCOME, of_entry=entry.id, then=entry.at_us, by=entry.pid, new_outcome=outcome)

    def last(self, limit: int) -> list[AuditEntry]:
        """Return the last `limit` acts, the newest first."""
        return [
            AuditEntry(
                id=row[0],
                at_us=row[1],
                user=row[2],
                uid=row[3],
                host=row[4],
                pid=row[5],
                command=row[6],
                target=row[7],
                outcome=row[8],
            )
            for row in self.all(_AUDITED, most=limit)
        ]
