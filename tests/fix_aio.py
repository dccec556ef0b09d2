"""Devices for tasks of asyncio, and waits for what other tasks and threads do."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

from qmadmin import aio
from qmadmin.device import Device

DEADLINE = 240.0
"""Seconds, for what hangs."""


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
