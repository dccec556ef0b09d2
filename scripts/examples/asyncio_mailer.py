"""Plain asyncio: tasks take orders and confirm each of them, until SIGTERM or Ctrl-C.

    python asyncio_mailer.py

An order and its confirmation are one transaction. A task that is stopped at work gives its order back at once, which is
no try. The queues are in the device shop.qm or what SHOP_DEVICE says.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
from typing import Any

from qmadmin import aio

TASKS = 20


async def confirm(order: dict[str, int]) -> str:
    """Do what takes its time elsewhere."""
    await asyncio.sleep(order.get("seconds", 0))
    return f"order {order['number']} is confirmed"


async def work(space: aio.QueueSpace) -> None:
    """Take one order after the other."""
    while True:
        async with space.transaction():
            order = await space.dequeue("orders", wait=math.inf)
            # A wait without an end returns with one.
            assert order is not None
            text = await confirm(order.json())
            await space.enqueue("mails", text)
        print(text, flush=True)


async def main() -> None:
    """Work until a signal comes."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with aio.open_device(os.environ.get("SHOP_DEVICE", "shop.qm"), create=True) as device:
        await device.create_space("SHOP", exist_ok=True)
        async with device.open_space("SHOP") as space:
            for queue in ("orders", "mails"):
                await space.create_queue(queue, exist_ok=True)
            tasks = [asyncio.create_task(work(space)) for _ in range(TASKS)]
            stopped = asyncio.create_task(stop.wait())
            # A task that fails ends the program, too.
            waiting: list[asyncio.Task[Any]] = [stopped, *tasks]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in waiting:
                each.cancel()
            await asyncio.wait(waiting)
    for task in tasks:
        if not task.cancelled():
            await task


if __name__ == "__main__":
    asyncio.run(main())
