"""A cursor over what can be dequeued from a queue."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from qmcore.acts import looking
from qmcore.acts.stores import stores
from qmcore.condition import Condition
from qmcore.message import Message, MessageInfo, State
from qmcore.port import Unit
from qmcore.queue import Queue
from qmcore.records import Cursor

if TYPE_CHECKING:
    from qmadmin.device import Attachment

_AT_A_TIME = 500


class BrowseCursor:
    """The messages that were in a queue when the cursor was made, and can be dequeued when their turn comes.

    It is an iterator that holds no lock: each message is read when its turn comes, and passed over if it is gone, or a
    transaction holds it, by then. What has arrived since is not shown. `exhausted` tells that there are no more.
    """

    def __init__(
        self, attachment: Attachment, queue: str, condition: Condition | None, check_open: Callable[[], None]
    ) -> None:
        self._attachment = attachment
        self._queue = queue
        self._check_open = check_open
        self._exhausted = False
        self._order = attachment.volume.read(lambda unit: self._known(unit).definition.order)
        self._newest = attachment.volume.read(lambda unit: unit.last_sequence(attachment.opened.space.id))
        self._places = listed(attachment, queue, State.READY, condition)

    @property
    def exhausted(self) -> bool:
        """Whether the cursor has come to its end."""
        return self._exhausted

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        self._check_open()
        for (key, _), _info in self._places:
            assert isinstance(key, bytes)  # noqa: S101 - ready messages are listed by their keys
            if self._order.sequence_in(key) > self._newest:
                continue
            found = self._attachment.volume.read(lambda unit, key=key: self._message(unit, key))  # type: ignore[misc]
            if found is not None:
                return found
        self._exhausted = True
        raise StopIteration

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
    attachment: Attachment, queue: str, state: State, condition: Condition | None
) -> Iterator[tuple[Cursor, MessageInfo]]:
    """Yield the messages of a queue in one state from all stores, in their order, with their cursors."""
    parts = (_listed_in(attachment, number, queue, state, condition) for number in range(looking.STORES))
    return heapq.merge(*parts, key=lambda item: item[0])


def _listed_in(
    attachment: Attachment, store_number: int, queue: str, state: State, condition: Condition | None
) -> Iterator[tuple[Cursor, MessageInfo]]:
    cursor: Cursor | None = None
    while part := attachment.volume.read(
        lambda unit, at=cursor: looking.listing(  # type: ignore[misc]
            unit, attachment.opened, store_number, queue, state, at, _AT_A_TIME, condition
        )
    ):
        yield from part
        cursor = part[-1][0]
