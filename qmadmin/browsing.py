"""A cursor over the messages that can be dequeued from a queue."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from qmcore.acts import looking
from qmcore.acts.stores import stores
from qmcore.condition import Condition
from qmcore.damage import is_damage
from qmcore.errors import QueueError
from qmcore.message import Message, MessageInfo, State
from qmcore.port import Unit
from qmcore.queue import Queue
from qmcore.records import Cursor, Part

if TYPE_CHECKING:
    from qmadmin.attachment import Attachment

T = TypeVar("T")

_AT_A_TIME = 500


def ignore_count(_count: int) -> None:
    """Ignore how many messages a listing leaves out; the log has them."""


class BrowseCursor:
    """The messages that were in a queue when the cursor was made, and can be dequeued when their turn comes.

    It is an iterator that holds no lock: each message is read when its turn comes, and skipped if it is gone, or a
    transaction holds it, by then. Later messages are not shown. `exhausted` is true at the end, and `left_out` is how
    many damaged messages have been skipped so far, which qcheck finds.
    """

    def __init__(
        self, attachment: Attachment, queue: str, condition: Condition | None, check_open: Callable[[], None]
    ) -> None:
        self._attachment = attachment
        self._queue = queue
        self._check_open = check_open
        self._exhausted = False
        self.left_out = 0
        self._order = attachment.volume.read(lambda unit: self._known(unit).definition.order)
        self._newest = attachment.volume.read(lambda unit: unit.counters.last_sequence(attachment.opened.space.id))
        self._places = listed(attachment, queue, State.READY, condition, self._pass_over)

    @property
    def exhausted(self) -> bool:
        """Whether the cursor is at its end."""
        return self._exhausted

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        self._check_open()
        for (key, _), _info in self._places:
            assert isinstance(key, bytes)  # noqa: S101 - ready messages are listed by their keys
            if self._order.sequence_in(key) > self._newest:
                continue
            found = self._read(key)
            if found is not None:
                return found
        self._exhausted = True
        raise StopIteration

    def _pass_over(self, count: int) -> None:
        self.left_out += count

    def _read(self, key: bytes) -> Message | None:
        try:
            return self._attachment.volume.read(lambda unit: self._message(unit, key))
        except QueueError as error:
            if not is_damage(error):
                raise
            self._pass_over(1)
            return None

    def _message(self, unit: Unit, key: bytes) -> Message | None:
        known = self._attachment.opened.definitions(unit)
        queue = known.queue(self._queue)
        for store in stores(unit, known.space.id):
            found = store.peek(known.space, queue.name, queue.id, key)
            if found is not None:
                return found
        return None

    def _known(self, unit: Unit) -> Queue:
        return self._attachment.opened.definitions(unit).queue(self._queue)


def listed(
    attachment: Attachment,
    queue: str,
    state: State,
    condition: Condition | None,
    left_out: Callable[[int], None] = ignore_count,
) -> Iterator[tuple[Cursor, MessageInfo]]:
    """Yield the messages of a queue in one state from all stores, in their order, with their cursors.

    `left_out` is called with the number of damaged messages that are not listed.
    """

    def in_store(number: int) -> Iterator[tuple[Cursor, MessageInfo]]:
        return parts_of(
            lambda at: attachment.volume.read(
                lambda unit: looking.listing(unit, attachment.opened, number, queue, state, at, _AT_A_TIME, condition)
            ),
            left_out,
        )

    return heapq.merge(*map(in_store, range(looking.STORES)), key=lambda item: item[0])


def parts_of(read: Callable[[Cursor | None], Part[T]], left_out: Callable[[int], None]) -> Iterator[tuple[Cursor, T]]:
    """Yield a listing that is read in parts, each after a cursor; `left_out` is called with the number left out."""
    cursor: Cursor | None = None
    while True:
        part = read(cursor)
        if part.left_out:
            left_out(part.left_out)
        if not part:
            return
        yield from part
        cursor = part[-1][0]
