"""Reading messages in bulk on PostgreSQL: the server hands them over a part at a time.

A cursor of the server is faster than COPY, of which the driver parses each row by itself (measured), and other
statements can be run in between.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Final

from qmcore.bulk_rows import BYTES_MAX, ROWS_MAX, Tally
from qmcore.condition import Condition
from qmcore.message import State
from qmcore.queue import Queue
from qmcore.records import Cursor
from qmcore.space import Space
from qmstorage.bulk_read import BODIES, BulkRead
from qmstorage.postgres.sessions import BY_KEYS
from qmstorage.schema import message
from qmstorage.sql import ARRAY, BigInteger, bindparam, func
from qmstorage.statements import Row

_BODIES = BODIES.where(message.c.id == func.any(bindparam("ids", type_=ARRAY(BigInteger))))


class SharedBulkRead(BulkRead):
    """Messages in bulk."""

    # What the server sends at once is in memory twice, and its sizes are known only then.
    body_max = BYTES_MAX // ROWS_MAX

    def tally(self, queue_id: int, state: State) -> Tally:
        """Return how many messages of the queue are in a state, counted one by one."""
        with self._led_by_keys():
            return super().tally(queue_id, state)

    def boundaries(
        self,
        space: Space,
        in_queue: Queue,
        state: State,
        every: int,
        condition: Condition | None = None,
        *,
        most: int | None = None,
    ) -> list[tuple[Cursor, int]]:
        """Return the cursor of each `every`-th message, and of the last, with how many messages end with it."""
        with self._led_by_keys():
            return super().boundaries(space, in_queue, state, every, condition, most=most)

    def rows_of(self, text: str, values: dict[str, Any]) -> Generator[Row]:
        """Yield the rows of a statement while others are run."""
        name = f"carried_{secrets.token_hex(4)}"
        with self.cursor.connection.cursor(name, binary=True, scrollable=False) as cursor:
            with self._led_by_keys():
                cursor.execute(text, values, binary=True)
            while found := cursor.fetchmany(ROWS_MAX):
                yield from found

    def bodies_of(self, message_ids: Sequence[int]) -> Iterator[tuple[int, int, int | None, bytes | None]]:
        """Yield of each message its number, its size, and its body or the number of the body that is kept apart."""
        yield from self.all(_BODIES, ids=list(message_ids))

    def made_whole(self, batch: list[Row], lacking: Sequence[int], space: Space) -> list[Row]:
        """Return a batch with the bodies that its rows at these places lack."""
        if not lacking:
            return batch
        with self._led_by_keys():
            return super().made_whole(batch, lacking, space)

    @contextlib.contextmanager
    def _led_by_keys(self) -> Iterator[None]:
        """Make the planner use keys, whatever it believes of the tables.

        Sessions do so anyway. A snapshot does not: most of its statements read everything.
        """
        before = self.cursor.execute(_NOW).fetchone()
        self.cursor.execute(_set(dict.fromkeys(BY_KEYS, "off")))
        yield
        # Where the statement has failed, the transaction has too.
        self.cursor.execute(_set(dict(zip(BY_KEYS, before, strict=True))))


_NOW: Final = "SELECT " + ", ".join(f"current_setting('{name}')" for name in BY_KEYS)


def _set(settings: dict[str, str]) -> str:
    return "SELECT " + ", ".join(f"set_config('{name}', '{value}', true)" for name, value in settings.items())
