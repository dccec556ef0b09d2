"""How messages come and go in few statements: each is a journey to the server and back."""

from __future__ import annotations

from collections.abc import Sequence

from qmcore import message_rows
from qmstorage import rows
from qmstorage.holding import Holdings
from qmstorage.schema import message
from qmstorage.sql import ARRAY, BigInteger, bindparam, func, select
from qmstorage.statements import Row, Statement

_THESE = message.c.id == func.any(bindparam("ids", type_=ARRAY(BigInteger)))
_READ = select(*rows.READ).where(_THESE)
_READ_FACTS = select(*rows.WITHOUT_BODY).where(_THESE)


class SharedArrivals(Holdings):
    """How messages are read."""

    def found_rows(self, message_ids: Sequence[int], *, body: bool) -> dict[int, Row]:
        """Return the rows of those of these messages that have one, by their numbers."""
        return self._rows(_READ if body else _READ_FACTS, message_ids)

    def _rows(self, statement: Statement, message_ids: Sequence[int]) -> dict[int, Row]:
        return {row[message_rows.ID]: row for row in self.all(statement, ids=list(message_ids))}
