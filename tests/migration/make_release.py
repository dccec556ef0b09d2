"""Wrote the device and the archive of release 0.1.0, which later releases upgrade and read. It never runs again.

It ran with that release: `python make_release.py DIRECTORY`, and with a URL of PostgreSQL behind it for the device
there, of which `pg_dump --inserts --no-owner --no-privileges` made the file.
"""

import contextlib
import os
import sys
from pathlib import Path

import qmadmin
from qmadmin.version import __version__
from qmcore.limits import CapacityLimit, Threshold, Unit
from qmcore.order import OutOfOrder, QueueOrder

DECADES = 2**31 - 1
SPACE = {"queues": 8, "transactions": 9, "processes": 10, "messages": 1_000}
QUEUES = (
    qmadmin.QueueDefinition(name="ERRQ"),
    qmadmin.QueueDefinition(
        name="Q",
        order=QueueOrder.parse("priority,fifo"),
        out_of_order=OutOfOrder.TOP | OutOfOrder.MSGID,
        retries=1,
        threshold=Threshold(CapacityLimit(80, Unit.PERCENT), CapacityLimit(10, Unit.PERCENT), "echo high"),
        retention=DECADES,
        keep_expired=True,
        error_queue="ERRQ",
    ),
    qmadmin.QueueDefinition(name="GROUPS", grouping=True),
    qmadmin.QueueDefinition(name="STOPPED"),
)


def fill(space):
    """Fill a queue space with what there can be: all states, all kinds of bodies, terms, a message that was moved."""
    for definition in QUEUES:
        space.create_queue(definition)
    space.enqueue("Q", b"low", priority=10, corrid="order 1", reply_queue="STOPPED")
    space.enqueue("Q", "text", priority=90, headers={"key": "value"})
    space.enqueue("Q", bytes(1_100_000), priority=50)
    space.enqueue("Q", b"later", delay=DECADES)
    space.enqueue("Q", b"expires", expires_in=DECADES, error_queue="STOPPED", priority=20)
    space.enqueue("Q", b"in memory", persistent=False, priority=1)
    with space.transaction():
        space.enqueue("GROUPS", b"one")
        space.enqueue("GROUPS", b"two")
    space.enqueue("Q", b"consumed", priority=100)
    space.dequeue("Q")
    space.enqueue("Q", b"fails", priority=100, expires_in=DECADES)
    for _ in range(2):
        with contextlib.suppress(ZeroDivisionError), space.transaction():
            assert space.dequeue("Q").body == b"fails"
            raise ZeroDivisionError
    space.stop_queue("STOPPED")


def leave_a_transaction(path):
    """Leave a message that a transaction has dequeued, whose process ends without a word."""
    if os.fork() == 0:
        space = qmadmin.open_device(path).open_space("QS")
        transaction = space.transaction()
        transaction.__enter__()
        space.enqueue("GROUPS", b"never committed")
        assert space.dequeue("Q").body == b"text"
        os._exit(0)
    os.wait()


def make(path, second):
    """Make the device, with a second volume."""
    with qmadmin.create_device(path, 2_100) as device:
        device.create_entry(second, 0, 500)
        for name, pages in ("QS", 2_000), ("OTHER", 400):
            device.create_space(
                qmadmin.SpaceDefinition(
                    name=name, ipc_key=42_001, pages=pages, error_queue="ERRQ", memory=65_536, **SPACE
                )
            )
        with device.open_space("QS") as space:
            fill(space)
        with device.open_space("OTHER") as space:
            space.create_queue(qmadmin.QueueDefinition(name="Q2"))
            space.enqueue("Q2", b"elsewhere")
        device.audit_outcome(device.audit("qdestroy -f GONE", "queue QS/GONE"), "done")
    leave_a_transaction(path)


if __name__ == "__main__":
    assert __version__ == "0.1.0"
    if sys.argv[2:]:
        make(sys.argv[2], "second")
    else:
        make(Path(sys.argv[1]) / "QUE", Path(sys.argv[1]) / "second")
