"""FastAPI and qmadmin.aio: a request sends a message and awaits the answer, without a thread for each that waits.

    uvicorn fastapi_quotes:web
    curl --json '{"what": "a chair"}' localhost:8000/quotes

The queues are in the device shop.qm or what SHOP_DEVICE says; several processes of the server share them. The clerk
who answers may be any other program.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel

from qmadmin import aio

PRICES = {"a chair": 49, "a table": 190}
SECONDS = float(os.environ.get("SHOP_SECONDS", "10"))


class Wish(BaseModel):
    """What somebody wants to know the price of."""

    what: str


async def answer(space: aio.QueueSpace) -> None:
    """Answer wishes: each of them and its answer are one transaction, which a cancellation gives back."""
    while True:
        async with space.transaction():
            wish = await space.dequeue("wishes", wait=math.inf)
            # A wait without an end returns with one.
            assert wish is not None
            price = PRICES.get(wish.json()["what"])
            await space.enqueue(wish.reply_queue or "quotes", {"price": price}, corrid=wish.msgid, expires_in=60)


@contextlib.asynccontextmanager
async def lifespan(web: FastAPI) -> AsyncIterator[None]:
    """Open the queues in the event loop of the server, and let a clerk work while it runs."""
    async with aio.open_device(os.environ.get("SHOP_DEVICE", "shop.qm"), create=True) as device:
        await device.create_space("SHOP", exist_ok=True)
        async with device.open_space("SHOP") as space:
            for queue in ("wishes", "quotes"):
                await space.create_queue(queue, exist_ok=True)
            web.state.space = space
            clerk = asyncio.create_task(answer(space))
            yield
            clerk.cancel()
            await asyncio.wait([clerk])


def queues(request: Request) -> aio.QueueSpace:
    """Return the open queue space."""
    space: aio.QueueSpace = request.app.state.space
    return space


# Its annotations are looked up here, by FastAPI too.
Queues = Annotated[aio.QueueSpace, Depends(queues)]

web = FastAPI(lifespan=lifespan)


@web.post("/quotes")
async def quote(wish: Wish, space: Queues) -> dict[str, Any]:
    """Ask for a price, and await it; each request gets its own answer."""
    msgid = await space.enqueue("wishes", wish, reply_queue="quotes", expires_in=SECONDS)
    reply = await space.dequeue("quotes", corrid=msgid, wait=SECONDS)
    if reply is None:
        raise HTTPException(504, "nobody has answered in time")
    return {"what": wish.what, **reply.json()}
