"""Queue spaces of a device as they all stood at one moment, to be read by several processes, while others write.

On SQLite each reader has a read transaction of its own, which they begin while nobody writes: that takes milliseconds.
On PostgreSQL the first one exports its snapshot, which the others join whenever they come.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from qmadmin.opening import open_device
from qmadmin.transfer.workers import Alone, Crew, Workers, myself
from qmcore.acts import manage_spaces

if TYPE_CHECKING:
    from qmadmin.device import Device
    from qmcore.port import Snapshot, Unit
    from qmcore.queue import Queue
    from qmcore.space import Space

T = TypeVar("T")

_STILL_SECONDS = 30.0
"""How long others may take to come to an end with what they write."""

_BEGIN_SECONDS = 5.0
"""How long a reader may take to begin, while nobody may write; it takes milliseconds."""

Tokens = Mapping[str, str]
"""What makes a snapshot of a volume the same as another one, by the paths of the volumes."""


class Reader:
    """One process's look at queue spaces of a device."""

    def __init__(self, device: Device, names: Sequence[str]) -> None:
        self.volumes = {name: device.volume_of_space(name) for name in names}
        self._stack = contextlib.ExitStack()
        self._snapshots: dict[str, Snapshot] = {}
        self._queues: dict[str, dict[str, Queue]] = {}

    def begin(self, tokens: Tokens) -> Tokens:
        """Have everything stand still from now on, or as it does for whom the tokens are from; return our own."""
        for volume in self.volumes.values():
            if volume.path not in self._snapshots:
                token = tokens.get(volume.path, "") or next(iter(self.tokens.values()), "")
                memory = [space for space, its in self.volumes.items() if its.path == volume.path]
                self._snapshots[volume.path] = self._stack.enter_context(volume.snapshot(token, memory))
        return self.tokens

    @property
    def tokens(self) -> Tokens:
        """What makes other snapshots the same; "" where nothing does."""
        return {path: snapshot.token for path, snapshot in self._snapshots.items()}

    def read(self, name: str, work: Callable[[Unit, Space], T]) -> T:
        """Run `work`, which changes nothing, on a queue space."""
        return self._snapshots[self.volumes[name].path].read(lambda unit: work(unit, manage_spaces.find(unit, name)))

    def read_queue(self, space: str, name: str, work: Callable[[Unit, Space, Queue], T]) -> T:
        """Run `work`, which changes nothing, on a queue of a queue space."""
        if space not in self._queues:
            # They do not change while everything stands still.
            self._queues[space] = self.read(
                space, lambda unit, found: {queue.name: queue for queue in unit.queues(found.id)}
            )
        queue = self._queues[space][name]
        return self.read(space, lambda unit, found: work(unit, found, queue))

    def close(self) -> None:
        """Let go of everything."""
        self._stack.close()


@contextlib.contextmanager
def reading(config: str, names: Sequence[str], tokens: Tokens) -> Iterator[Reader]:
    """Give a reader of a device of its own; with tokens it has begun."""
    with open_device(config) as device, contextlib.closing(Reader(device, names)) as reader:
        if tokens:
            reader.begin(tokens)
        yield reader


@contextlib.contextmanager
def pictured(device: Device, names: Sequence[str], workers: Workers) -> Iterator[tuple[Reader, Crew, int]]:
    """Give a reader of this process, a crew each of which has another one, and the moment that all of them show."""
    if not device.readonly:
        for name in names:
            # What processes that died have left would be taken for open transactions.
            device.tidy_space(name)
    with contextlib.closing(Reader(device, names)) as own, contextlib.ExitStack() as stack:
        moment = device.clock.now()
        if isinstance(workers, Alone):
            _begin_still(own)
            yield own, myself(own), moment
        elif device.kind == "postgresql":
            yield own, stack.enter_context(workers.apart(reading, device.config, names, own.begin({}))), moment
        else:
            team = stack.enter_context(workers.together(reading, device.config, names, {}))
            moment = device.clock.now()
            # One that does not answer must not keep everybody from writing.
            _begin_still(own, lambda: team.each(Reader.begin, {}, seconds=_BEGIN_SECONDS))
            yield own, team, moment


def _begin_still(own: Reader, others: Callable[[], object] = lambda: None) -> None:
    with contextlib.ExitStack() as still:
        # In one order, or two exports could hold each other up.
        for _, volume in sorted({volume.path: volume for volume in own.volumes.values()}.items()):
            still.enter_context(volume.quiesced(_STILL_SECONDS))
        own.begin({})
        others()
