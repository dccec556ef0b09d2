"""FastAPI: requests send messages, and handlers in the same process work on them as long as the server runs.

    uvicorn fastapi_shop:web
    curl --json '{"number": 17, "what": "a chair"}' localhost:8000/orders

The queues are in the device shop.qm or what SHOP_DEVICE says; several processes of the server share them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

from fastapi import FastAPI
from pydantic import BaseModel

import qmadmin

queues = qmadmin.App(os.environ.get("SHOP_DEVICE", "shop.qm"), space="SHOP", create=True)


class Order(BaseModel):
    """What somebody has ordered."""

    number: int
    what: str


@queues.handler("orders", workers=2)
async def ship(order: Order) -> None:
    """Ship an order: the invoice is sent if, and only if, this ends well."""
    if order.what == "a vase":
        raise qmadmin.Failure("no vases in stock", permanent=True)
    queues.enqueue("invoices", {"number": order.number})


@contextlib.asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Call the handlers while the server runs; at its end, calls that run may end."""
    queues.space.create_queue("invoices", exist_ok=True)
    with queues.running(grace=10):
        yield
    queues.close()


web = FastAPI(lifespan=lifespan)


@web.post("/orders", status_code=202)
def place(order: Order) -> dict[str, str | None]:
    """Accept an order: when the answer is sent, it is on the disk."""
    return {"msgid": ship.enqueue(order)}


@web.get("/orders")
def waiting() -> dict[str, int]:
    """Say how many orders are still to be shipped."""
    return {"waiting": queues.space.usage("orders").messages}
