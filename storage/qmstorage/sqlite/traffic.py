"""What each message passes, in the statements that take SQLite the least time.

There is one writer at a time, so that what was looked up is still so when it is changed. RETURNING takes longer than a
statement more; values that are given by name, and columns that are given nothing, take longer than the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from qmcore.message_rows import BODY_ID, EXPIRES, ID, PAGES, SIZE, fault_in
from qmcore.records import Role, Use
from qmstorage import bodies, rows
from qmstorage.holding import Holdings, for_each_role
from qmstorage.messages import Sound
from qmstorage.schema import held, message
from qmstorage.sql import bindparam, delete, insert, select
from qmstorage.sqlite.counters import ExclusiveCounters
from qmstorage.sqlite.damage import DecodedDamage
from qmstorage.sqlite.listing import DecodedListing
from qmstorage.sqlite.states import ExclusiveStates
from qmstorage.sqlite.undecoded import Undecoded
from qmstorage.statements import Row, given
from qmstorage.unit import MemoryStore
from qmstorage.unit_part import LastingPartOf, PartOf

HOLD: Final = insert(held).values(
    {column.name: bindparam(column.name) for column in held.columns if column.name not in ("delay", "lifetime")}
)
_ITS_ID = given(message.c.id, "of_message")
READ: Final = select(*rows.READ).where(_ITS_ID)
_READ_FACTS: Final = select(*rows.WITHOUT_BODY).where(_ITS_ID)
_AT_ONCE: Final = 32
"""How many messages one statement reads, where there are so many."""

_ONE_OF_THEM: Final = message.c.id.in_([bindparam(f"id_{place}", type_=message.c.id.type) for place in range(_AT_ONCE)])
_READ_MANY: Final = select(*rows.READ).where(_ONE_OF_THEM)
_READ_MANY_FACTS: Final = select(*rows.WITHOUT_BODY).where(_ONE_OF_THEM)
HELD: Final = for_each_role(lambda its: select(held.c.message_id, held.c.pages, held.c.size).where(*its))
_LET_GO: Final = for_each_role(lambda its: delete(held).where(*its))


class Traffic(Holdings):
    """What each message passes."""

    def found_rows(self, message_ids: Sequence[int], *, body: bool) -> dict[int, Row]:
        """Return the rows of those of these messages that have one, by their numbers."""
        execute, texts = self.cursor.execute, self.texts.in_order
        found: dict[int, Row] = {}
        if len(message_ids) < _AT_ONCE:
            text = texts[READ if body else _READ_FACTS]
            for message_id in message_ids:
                for row in execute(text, (message_id,)):
                    found[message_id] = row
            return found
        for start in range(0, len(message_ids), _AT_ONCE):
            part = message_ids[start : start + _AT_ONCE]
            # As many values as the statement has places for.
            places = [*part, *[part[0]] * (_AT_ONCE - len(part))]
            rows_of = execute(texts[_READ_MANY if body else _READ_MANY_FACTS], places).fetchall()
            found.update((row[ID], row) for row in rows_of)
        return found

    def sound(self, found: Sequence[Row], *, body: bool) -> list[Sound] | tuple[int, str]:
        """Return what messages are, of which their numbers, keys and retries are given.

        Where one is damaged, return its number and what is wrong with it.
        """
        if len(found) >= _AT_ONCE:
            return super().sound(found, body=body)
        execute, text = self.cursor.execute, self.texts.in_order[READ if body else _READ_FACTS]
        its = []
        for number, key, retries in found:
            row: Row | None = execute(text, (number,)).fetchone()
            if row is None or row[BODY_ID] is not None:
                row, fault = self.whole(row, retries, body=body)
            else:
                fault = fault_in(row, retries)
            if fault is not None:
                return number, fault
            its.append((key, retries, row))
        return its

    def remove_rows(self, its: Sequence[Sound]) -> None:
        """Delete the rows of messages, and the bodies that are kept apart."""
        execute, text = self.cursor.execute, self.texts.in_order[rows.FORGET]
        for _, _, row in its:
            execute(text, (row[ID],))
            if row[BODY_ID] is not None:
                self.discard_body(row[BODY_ID])

    def hold(self, transaction_id: int, queue_id: int, its: Sequence[Sound], role: Role) -> None:
        """Let the transaction hold messages of a queue that were taken out of `ready`."""
        execute, text = self.cursor.execute, self.texts.in_order[HOLD]
        for key, retries, row in its:
            held = row[ID], queue_id, key, retries, row[PAGES], row[SIZE], row[EXPIRES], int(role)
            execute(text, (transaction_id, *held))

    def _delete_held(self, transaction_id: int, queue_id: int, role: Role) -> Use:
        its = self.run_in_order(HELD[role], queue_id, transaction_id).fetchall()
        self.delete_held(its, transaction_id, queue_id, role)
        return use_of(its)

    def delete_held(self, its: Sequence[Row], transaction_id: int, queue_id: int, role: Role) -> None:
        """Delete what a transaction has of a queue for this: the number, the pages and the size of each."""
        for _, _, size in its:
            if size > bodies.IN_ROW_MAX:
                super()._delete_held(transaction_id, queue_id, role)
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


class SqliteMemoryStore(Traffic, Undecoded, MemoryStore):
    """The non-persistent messages of a queue space, in its memory."""

    counters = LastingPartOf(ExclusiveCounters)
    states = LastingPartOf(ExclusiveStates)
    listing = PartOf(DecodedListing)
    damage = PartOf(DecodedDamage)
