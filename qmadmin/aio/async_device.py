"""An open device, as the tasks of an event loop use it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from qmadmin import device, opening
from qmadmin.aio.async_space import QueueSpace
from qmadmin.aio.face import OpenFace, Opening, awaited, iterated
from qmadmin.aio.task_transactions import Transaction
from qmadmin.aio.threads import Threads
from qmadmin.aio.waits import Waits

if TYPE_CHECKING:
    from datetime import timedelta

    from qmcore.device import DeviceInfo

P = ParamSpec("P")
T = TypeVar("T")
_Sync = device.Device


class Device(OpenFace[device.Device]):
    """An open device. Its calls are those of `qmadmin.Device`, awaited by tasks of the event loop that opened it.

    What blocks is done in threads of the device, 16 at most. After a fork, the child opens the device again.
    """

    def __init__(self, synchronous: device.Device, threads: Threads | None = None) -> None:
        self.synchronous = synchronous
        self.threads = threads or Threads(synchronous.path)
        self._waits: dict[str, Waits] = {}

    @property
    def path(self) -> str:
        """Its path, or its URL."""
        return self.synchronous.path

    @property
    def kind(self) -> str:
        """The kind of store: "sqlite" or "postgresql"."""
        return self.synchronous.kind

    @property
    def config(self) -> str:
        """The value of QMCONFIG with which another process opens the device; it may contain a password."""
        return self.synchronous.config

    @property
    def readonly(self) -> bool:
        """Whether it can only be read."""
        return self.synchronous.readonly

    @property
    def info(self) -> DeviceInfo:
        """The device's record about itself."""
        return self.synchronous.info

    def transaction(self, timeout: float | timedelta | None = None) -> Transaction:
        """Return a transaction over all queue spaces of the device: `async with device.transaction() as tx:`.

        It is like that of a queue space, and commits together what was done on whatever volumes.
        """
        return Transaction((self,), functools.partial(self.synchronous.transaction, timeout))

    async def do(self, act: Callable[[device.Device], T]) -> T:
        """Have a thread do something with the device, and return its result."""
        return await self.threads.do(functools.partial(act, self.synchronous))

    async def close(self) -> None:
        """Close the device and its open queue spaces. Open transactions roll back; waiting calls end."""
        self.threads.check_here()
        ended = [thread for waits in self._waits.values() if (thread := waits.close(self.threads.closed()))]

        def close() -> None:
            for thread in ended:
                thread.join()
            self.synchronous.close()

        await self.threads.close(close)

    def open_space(self, name: str, *, role: str = "application") -> Opening[QueueSpace]:
        """Open a queue space and attach this process to it: `async with device.open_space("QS") as space:`, or await.

        Raises as the synchronous one does.
        """

        async def opened() -> QueueSpace:
            return QueueSpace(self, await self.do(lambda found: found.open_space(name, role=role)))

        return Opening(opened)

    def waits_of(self, name: str) -> Waits:
        """Return the waits of the tasks on a queue space."""
        found = self._waits.get(name)
        if found is None:
            open_space = functools.partial(self.synchronous.open_space, name)
            found = self._waits[name] = Waits(self.threads.loop, open_space, name)
        return found

    entries = awaited(_Sync.entries)
    create_entry = awaited(_Sync.create_entry)
    rename_entry = awaited(_Sync.rename_entry)
    remove_entry = awaited(_Sync.remove_entry)
    free_ranges = awaited(_Sync.free_ranges)
    is_there = awaited(_Sync.is_there)
    places = awaited(_Sync.places)
    table_of_contents = awaited(_Sync.table_of_contents)
    runs_commands = awaited(_Sync.runs_commands)
    set_commands = awaited(_Sync.set_commands)
    spaces = awaited(_Sync.spaces)
    missing_volumes = awaited(_Sync.missing_volumes)
    space = awaited(_Sync.space)
    queues = awaited(_Sync.queues)
    queue_usages = awaited(_Sync.queue_usages)
    tidy_space = awaited(_Sync.tidy_space)
    space_usage = awaited(_Sync.space_usage)
    create_space = awaited(_Sync.create_space)
    extend_space = awaited(_Sync.extend_space)
    change_space = awaited(_Sync.change_space)
    destroy_space = awaited(_Sync.destroy_space)
    left_messages = awaited(_Sync.left_messages)
    take_back_space = awaited(_Sync.take_back_space)
    loss_by_rename = awaited(_Sync.loss_by_rename)
    missing_volume_of = awaited(_Sync.missing_volume_of)
    clear_memory = awaited(_Sync.clear_memory)
    refuse_space = awaited(_Sync.refuse_space)
    attached = awaited(_Sync.attached)
    forwardings = awaited(_Sync.forwardings)
    transactions = awaited(_Sync.transactions)
    decisions = awaited(_Sync.decisions)
    memory_files = awaited(_Sync.memory_files)
    backup = awaited(_Sync.backup)
    audited = awaited(_Sync.audited)
    comes_free = awaited(_Sync.comes_free)
    check = iterated(_Sync.check, ahead=1)


def _opening(function: Callable[P, device.Device]) -> Callable[P, Opening[Device]]:
    """Return a function that opens a device as one of the synchronous API does."""

    @functools.wraps(function)
    def call(*given: P.args, **named: P.kwargs) -> Opening[Device]:
        async def opened() -> Device:
            path = str(given[0] if given else named["path_or_url"])
            threads = Threads(path)
            try:
                return Device(await threads.do(functools.partial(function, *given, **named)), threads)
            except BaseException:
                threads.end()
                raise

        return Opening(opened)

    return call


open_device = _opening(opening.open_device)
create_device = _opening(opening.create_device)
