"""Queues that are stopped while they are moved, and started again as they were unless they are to stay stopped."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from qmadmin.device import Device
from qmadmin.opening import open_device
from qmadmin.space import QueueSpace
from qmadmin.transfer.selecting import ArchiveSelection
from qmcore.acts import outstanding
from qmcore.errors import InUseError
from qmcore.queue import Queue

ROLE = "move"
"""The name of a process that moves queues, as others see it."""

_WAIT_SECONDS = 30.0
"""How many seconds transactions that hold messages of a queue may take to end before it is moved."""


class StoppedQueues:
    """Queues that are stopped for a move, and in which directions they were started before."""

    def __init__(self, undo: contextlib.ExitStack) -> None:
        self.enabled: dict[tuple[str, str], tuple[bool, bool]] = {}
        self._undo = undo

    def stop(self, space: QueueSpace, queue: Queue) -> None:
        """Stop a queue; in the end it is started again as it was."""
        before = (queue.enqueue_enabled, queue.dequeue_enabled)
        self._undo.callback(space.start_queue, queue.name, enqueue=before[0], dequeue=before[1])
        space.stop_queue(queue.name, wait=_WAIT_SECONDS)
        self.enabled[space.name, queue.name] = before

    @property
    def were_started(self) -> bool:
        """Whether there is a queue that was started before in one direction at least."""
        return any(map(any, self.enabled.values()))

    def stay(self) -> None:
        """Keep the queues stopped."""
        self._undo.pop_all()


@contextlib.contextmanager
def stopped_queues(config: str, selection: ArchiveSelection) -> Iterator[StoppedQueues]:
    """Stop queues for the block, and start them again as they were unless they are to stay stopped.

    Raises InUseError if another move of a queue space is under way, in which case nothing is stopped, or if
    transactions that hold messages of a queue do not end in time.
    """
    with open_device(config) as device, contextlib.ExitStack() as opened, contextlib.ExitStack() as undo:
        found = StoppedQueues(undo)
        for name in selection.chosen_spaces([space.name for space in device.spaces()], f"device {device.path!r}"):
            space = opened.enter_context(device.open_space(name, role=ROLE))
            # Two that begin at the same time see each other, because both are attached by now.
            _refuse_other_moves(device, name)
            for queue in space.queues():
                if selection.has_queue(queue.name):
                    found.stop(space, queue)
        yield found


def _refuse_other_moves(device: Device, name: str) -> None:
    """Refuse a move while another process moves queues of the same queue space."""
    own = device.attachment(name, ROLE)
    there = outstanding.attached(own.volume, own.opened.space.id)
    moves = [process for process in there if process.role == ROLE and process.alive]
    # One of them is this one.
    if len(moves) > 1:
        raise InUseError(
            f"queues of queue space {name!r} are being moved by two processes: {' and '.join(map(str, moves[:2]))}",
            hint="Begin again when the other move has ended; both could move the same messages.",
            space=name,
        )
