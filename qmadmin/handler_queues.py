"""Queues and subscriptions that an application creates for its handlers, where there are none."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from qmcore.errors import InUseError

if TYPE_CHECKING:
    from qmadmin.space import QueueSpace


def create_for_handler(space: QueueSpace, queue: str, consumer: str | None) -> None:
    """Create the queue of a handler, and let its consumer subscribe; `queue:consumer` may be one text."""
    if consumer is None and ":" in queue:
        queue, consumer = _as_consumer(space, queue)
    if consumer is None:
        space.create_queue(queue, exist_ok=True)
        return
    space.create_queue(queue, exist_ok=True, multiple_consumers=True)
    # One that has subscribed with a rule or topics keeps them.
    with contextlib.suppress(InUseError):
        space.subscribe(queue, consumer)


def _as_consumer(space: QueueSpace, text: str) -> tuple[str, str | None]:
    """Return a queue for several and its consumer where the text means that; else it is the name of a queue."""
    several = {each.name: each.definition.multiple_consumers for each in space.queues()}
    queue, _, consumer = text.rpartition(":")
    return (queue, consumer) if text not in several and several.get(queue) else (text, None)
