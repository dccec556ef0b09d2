"""What transactions hold on SQLite, in the statements that take it the least time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from qmcore.records import Role, Use
from qmstorage import bodies, rows
from qmstorage.holdings import Holdings, for_each_role
from qmstorage.schema import held
from qmstorage.sql import delete, select
from qmstorage.statements import Row

HELD: Final = for_each_role(lambda its: select(held.c.message_id, held.c.pages, held.c.size).where(*its))
_LET_GO: Final = for_each_role(lambda its: delete(held).where(*its))


class ExclusiveHoldings(Holdings):
    """What transactions hold: messages that they took, and ones that they bring and do not keep themselves."""

    def delete(self, transaction_id: int, queue_id: int, role: Role) -> Use:
        """Delete what the transaction has of the queue for this; return how much that was."""
        its = self.run_in_order(HELD[role], queue_id, transaction_id).fetchall()
        self.delete_these(its, transaction_id, queue_id, role)
        return use_of(its)

    def delete_these(self, its: Sequence[Row], transaction_id: int, queue_id: int, role: Role) -> None:
        """Delete what a transaction has of a queue for this: the number, the pages and the size of each."""
        for _, _, size in its:
            if size > bodies.IN_ROW_MAX:
                super().delete(transaction_id, queue_id, role)
                return
        execute, texts = self.cursor.execute, self.texts.in_order
        for number, _, _ in its:
            execute(texts[rows.FORGET], (number,))
        if its:
            execute(texts[_LET_GO[role]], (queue_id, transaction_id))


def use_of(its: Sequence[Row]) -> Use:
    """Return how much messages are, by the number, the pages and the size of each."""
    if len(its) == 1:
        ((_, pages, size),) = its
        return Use(1, pages, size)
    return Use(len(its), sum(pages for _, pages, _ in its), sum(size for _, _, size in its))
