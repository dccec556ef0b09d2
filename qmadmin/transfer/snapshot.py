"""Snapshots of queue spaces at one moment, which several processes read while others write.

On SQLite each reader has a read transaction of its own, which they begin while writers wait, for some milliseconds. On
PostgreSQL the first one exports its snapshot, which the others import at any time.

Queues that are moved are stopped meanwhile, and started again as they were unless they are to stay stopped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from qmadmin.device import Device
from qmadmin.opening import open_device
from qmadmin.space import QueueSpace
from qmadmin.transfer import Executor, Local, Workers, local_workers
from qmadmin.transfer.selecting import ArchiveSelection
from qmcore.acts import manage_spaces, outstanding
from qmcore.errors import InUseError
from qmcore.port import Snapshot, Unit
from qmcore.queue import Queue
from qmcore.space import Space

T = TypeVar("T")

_STILL_SECONDS = 30.0
"""How many seconds other processes may take to finish their writes."""

_BEGIN_SECONDS = 5.0
"""How many seconds a reader may take to begin, while writers wait; it takes milliseconds."""

Tokens = Mapping[str, str]
"""Tokens with which another process opens the same snapshot, by the paths of the volumes."""


class SnapshotReader:
    """The reader of a snapshot in one process."""

    def __init__(self, device: Device, names: Sequence[str]) -> None:
        self.volumes = {name: device.volume_of_space(name, looks=True) for name in names}
        self._stack = contextlib.ExitStack()
        self._snapshots: dict[str, Snapshot] = {}
        self._queues: dict[str, dict[str, Queue]] = {}

    def begin(self, tokens: Tokens) -> Tokens:
        """Begin the snapshot, the same as that of the tokens if there are any; return its own tokens."""
        for volume in self.volumes.values():
            if volume.path not in self._snapshots:
                token = tokens.get(volume.path, "") or next(iter(self.tokens.values()), "")
                memory = [space for space, its in self.volumes.items() if its.path == volume.path]
                self._snapshots[volume.path] = self._stack.enter_context(volume.snapshot(token, memory))
        return self.tokens

    @property
    def tokens(self) -> Tokens:
        """The tokens of this snapshot; "" for a volume without one."""
        return {path: snapshot.token for path, snapshot in self._snapshots.items()}

    def read(self, name: str, work: Callable[[Unit, Space], T]) -> T:
        """Run `work`, which changes nothing, on a queue space."""
        return self._snapshots[self.volumes[name].path].read(lambda unit: work(unit, manage_spaces.find(unit, name)))

    def read_queue(self, space: str, name: str, work: Callable[[Unit, Space, Queue], T]) -> T:
        """Run `work`, which changes nothing, on a queue of a queue space."""
        if space not in self._queues:
            # They do not change within the snapshot.
            self._queues[space] = self.read(
                space, lambda unit, found: {queue.name: queue for queue in unit.queues.of_space(found.id)}
            )
        queue = self._queues[space][name]
        return self.read(space, lambda unit, found: work(unit, found, queue))

    def close(self) -> None:
        """End the snapshot."""
        self._stack.close()


@contextlib.contextmanager
def reading(config: str, names: Sequence[str], tokens: Tokens) -> Iterator[SnapshotReader]:
    """Open a device for the block, which gets a reader of it; with tokens the reader has begun."""
    with open_device(config) as device, contextlib.closing(SnapshotReader(device, names)) as reader:
        if tokens:
            reader.begin(tokens)
        yield reader


@contextlib.contextmanager
def snapshot_of(
    device: Device, names: Sequence[str], executor: Executor
) -> Iterator[tuple[SnapshotReader, Workers, int]]:
    """Yield a reader in this process, workers that each have another one, and the time of the snapshot."""
    if not device.readonly:
        for name in names:
            # Transactions of dead processes would be taken for open ones.
            device.tidy_space(name)
    with contextlib.closing(SnapshotReader(device, names)) as own, contextlib.ExitStack() as stack:
        moment = device.clock.now()
        if isinstance(executor, Local):
            _begin_together(own)
            yield own, local_workers(own), moment
        elif device.kind == "postgresql":
            yield own, stack.enter_context(executor.workers(reading, device.config, names, own.begin({}))), moment
        else:
            workers = stack.enter_context(executor.gathered(reading, device.config, names, {}))
            moment = device.clock.now()
            # A worker that does not answer must not keep all processes from writing.
            _begin_together(own, lambda: workers.each(SnapshotReader.begin, {}, seconds=_BEGIN_SECONDS))
            yield own, workers, moment


def _begin_together(own: SnapshotReader, others: Callable[[], object] = lambda: None) -> None:
    with contextlib.ExitStack() as still:
        # Always in the same order, or two exports could deadlock.
        for _, volume in sorted({volume.path: volume for volume in own.volumes.values()}.items()):
            still.enter_context(volume.quiesced(_STILL_SECONDS))
        own.begin({})
        others()


# ---- queues that are stopped meanwhile -------------------------------------------------------------------------------


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
        for name in selection.spaces_of(device):
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
