"""The API for tasks of asyncio: the calls of the synchronous one, awaited.

    from qmadmin import aio

    async with aio.open_device("QUE") as device, device.open_space("QSPACE") as space:
        msgid = await space.enqueue("STRING", "this is a q example", reply_queue="RPLYQ")
        reply = await space.dequeue("RPLYQ", corrid=msgid, wait=10)

Each call has the signature and the meaning of that of `qmadmin`, and is done by it, in a thread of the device.
"""

from qmadmin.aio.async_device import Device, create_device, open_device
from qmadmin.aio.async_space import QueueSpace
from qmadmin.aio.over_resources import outcome, transaction
from qmadmin.aio.task_transactions import Transaction
from qmadmin.connections import AsyncApplicationConnection as ApplicationConnection

__all__ = [
    "ApplicationConnection", "Device", "QueueSpace", "Transaction", "create_device", "open_device", "outcome",
    "transaction",
]  # fmt: skip
