"""What may follow the publication of an import, or its end: both a limited number of messages at a time."""

from __future__ import annotations

from qmcore.definitions import OpenSpace
from qmcore.imports import ImportJob
from qmcore.port import Unit


def merge(unit: Unit, opened: OpenSpace, job: ImportJob, limit: int, now: int) -> int:
    """Move at most `limit` messages of a published import into the queues that they are appended to.

    What the import has replaced is removed in the same way. Return about how many messages are left; at 0 the import is
    DONE. A message keeps its number and its place in the order, and is seen in its queue from now on. The unit is alone
    on the volume. Raises BadQueueError where a queue that messages are appended to is gone, and InvalidArgumentError
    where one of another order stands in its place: with a queue such as it was, it goes on.
    """
    raise NotImplementedError


def abandon(unit: Unit, opened: OpenSpace, job: ImportJob, limit: int) -> int:
    """Give up an import that was not published: delete at most `limit` of its messages.

    Return about how many are left; at 0 nothing of the import is there any more, and its room is given back. From the
    first call on nothing can be loaded. The unit is alone on the volume. Raises ProtocolError where it was published.
    """
    raise NotImplementedError
