"""Devices for tasks of asyncio, and waits for what other tasks and threads do."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from qmadmin import aio
from qmadmin.device import Device
from tests.fix_store import device_path, make_queue, maker_of_devices, space_definition
from tests.fix_waits import waits

DEADLINE = 240.0
"""Seconds, for what hangs."""


@pytest.fixture(params=["file", "memory", "postgres"])
def device_of_tasks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Device]:
    """A device on the machine's own clock, with a queue space `SPACE` and the queues `Q` and `R`."""
    path = device_path(request.param, request, tmp_path)
    with maker_of_devices(request.param, request)(path, 50_000) as made:
        made.create_space(space_definition(pages=20_000, messages=20_000, actions=0))
        with made.open_space("SPACE") as space:
            make_queue(space, "Q", retries=3)
            make_queue(space, "R")
        yield made


def run(device: Device, story: Callable[[aio.QueueSpace], Awaitable[object]]) -> None:
    """Run what tasks do with a queue space of a device in an event loop."""

    async def main() -> None:
        async with opened(device) as space:
            await asyncio.wait_for(story(space), DEADLINE)

    asyncio.run(main())


async def asleep(space: aio.QueueSpace, count: int) -> None:
    """Wait until that many tasks sleep, and the thread of the queue space listens."""
    await until(lambda: len([task for task in asyncio.all_tasks() if task.get_name().startswith("waits")]) == count)
    await until(lambda: waits(space.synchronous))


def begin(awaitable: Coroutine[Any, Any, Any], name: str = "waits") -> asyncio.Task[Any]:
    return asyncio.create_task(awaitable, name=name)


@contextlib.asynccontextmanager
async def opened(device: Device, name: str = "SPACE") -> AsyncIterator[aio.QueueSpace]:
    """Open a queue space of a device for the tasks of this loop; the device is closed in the end."""
    async with aio.Device(device) as made, made.open_space(name) as space:
        yield space


async def until(reached: Callable[[], object]) -> None:
    """Let other tasks go on until something is reached."""
    end = time.monotonic() + DEADLINE
    while not reached():
        assert time.monotonic() < end
        await asyncio.sleep(0.001)
