"""A queue space of `qmadmin.aio` with the face of the synchronous one, so that the contract of the stores holds it too.

Each thread of a test has a task of one event loop, in which all calls of the thread are awaited, one after the other:
a transaction that the thread begins is one of its task.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Self

from qmadmin import aio
from qmadmin.device import Device
from qmadmin.space import QueueSpace

_Call = Callable[[], Coroutine[Any, Any, Any]]

_END = object()


class AwaitedDevice:
    """An event loop in a thread of its own, over a device that is open."""

    def __init__(self, device: Device) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._local = threading.local()
        self._serving: list[asyncio.Task[None]] = []
        self._device: aio.Device = self.wait(self._opened(device))

    async def _opened(self, device: Device) -> aio.Device:
        return aio.Device(device)

    def space(self, synchronous: QueueSpace) -> AwaitedSpace:
        """Return the face of a queue space that is open."""
        return AwaitedSpace(self, aio.QueueSpace(self._device, synchronous))

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Have the loop do something in a task of its own."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def do(self, call: _Call) -> Any:
        """Await a call in the task of this thread."""
        if not hasattr(self._local, "calls"):
            self._local.calls = self.wait(self._begin_task())
        answer: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._loop.call_soon_threadsafe(self._local.calls.put_nowait, (call, answer))
        return answer.result()

    async def _begin_task(self) -> asyncio.Queue[Any]:
        calls: asyncio.Queue[Any] = asyncio.Queue()
        self._serving.append(asyncio.create_task(_serve(calls)))
        return calls

    def close(self) -> None:
        """Close the device, and end the loop."""
        self.wait(self._closed())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _closed(self) -> None:
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._device.close()


async def _serve(calls: asyncio.Queue[Any]) -> None:
    while True:
        call, answer = await calls.get()
        try:
            answer.set_result(await call())
        except BaseException as error:  # noqa: BLE001 - it is the thread's
            answer.set_exception(error)
        # They must not live until the next call.
        del call, answer


class _Awaited:
    """The calls of an object of `qmadmin.aio`, each awaited; what it does not have is that of the synchronous one."""

    def __init__(self, device: AwaitedDevice, awaited: Any) -> None:
        self._device = device
        self._awaited = awaited

    def __getattr__(self, name: str) -> Any:
        found = getattr(type(self._awaited), name, None)
        if inspect.isasyncgenfunction(found):
            return lambda *given, **named: self._each(getattr(self._awaited, name)(*given, **named))
        if inspect.iscoroutinefunction(found):
            return lambda *given, **named: self._device.do(lambda: getattr(self._awaited, name)(*given, **named))
        return getattr(self._awaited if found is not None else self._awaited.synchronous, name)

    def __repr__(self) -> str:
        return repr(self._awaited)

    def _each(self, found: Any) -> Iterator[Any]:
        async def following() -> Any:
            return await anext(found, _END)

        while (each := self._device.do(following)) is not _END:
            yield each


class AwaitedSpace(_Awaited):
    """A queue space."""

    @property
    def definition(self) -> Any:
        async def read() -> Any:
            return await self._awaited.definition

        return self._device.do(read)

    def transaction(self, timeout: Any = None) -> AwaitedTransaction:
        begun = self._awaited.transaction(timeout)
        self._device.do(begun.__aenter__)
        return AwaitedTransaction(self._device, begun)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._device.do(self._awaited.close)


class AwaitedTransaction(_Awaited):
    """A transaction of the task of the thread that has begun it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._device.do(lambda: self._awaited.__aexit__(kind, error, trace))
