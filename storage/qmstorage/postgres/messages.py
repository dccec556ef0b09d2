"""Messages in few statements: each is a journey to the server and back."""

from __future__ import annotations

from collections.abc import Sequence

from qmcore import message_rows
from qmstorage import rows
from qmstorage.messages import Messages
from qmstorage.schema import message
from qmstorage.sql import ARRAY, BigInteger, bindparam, func, select
from qmstorage.statements import Row

_THESE = message.c.id == func.any(bindparam("ids", type_=ARRAY(BigInteger)))
_READ = select(*rows.READ).where(_THESE)
_READ_FACTS = select(*rows.WITHOUT_BODY).where(_THESE)
_CHARGED = select(message.c.id, message.c.pages, message.c.size, message.c.expires_at).where(_THESE)


class SharedMessages(Messages):
    """Messages, wherever they stand."""

    def found_rows(self, message_ids: Sequence[int], *, body: bool) -> dict[int, Row]:
        """Return the rows of those of these messages that have one, by their numbers."""
        found = self.all(_READ if body else _READ_FACTS, ids=list(message_ids))
        return {row[message_rows.ID]: row for row in found}

    def charged(self, message_ids: Sequence[int]) -> list[Row]:
        """Return the number, the pages, the size and the expiry of those of these messages that have a record."""
        return self.all(_CHARGED, ids=list(message_ids))
