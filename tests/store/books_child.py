"""A real process that dies in the midst of a transaction."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from typing import Any

from qmadmin.opening import open_device
from qmcore.acts import enqueue_in_transaction
from qmcore.errors import QueueError
from qmcore.message import Body, EnqueueControl
from tests.fix_store import DEADLINE, MovableClock

Item = tuple[str, Body, EnqueueControl]


@functools.cache
def _server() -> ForkServerContext:
    """Return what starts processes quickly: from one that has imported everything and opened nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.store.books_child", "qmstorage.sqlite.opening", "qmadmin.space"])
    return context


def die_in_a_transaction(
    path: str, memory: str, now: int, spill: int, queues: list[str], items: list[Item]
) -> tuple[list[list[str]], str]:
    """Let a process dequeue from these queues and enqueue this in one transaction, and kill it.

    Returns the identifiers that it dequeued, and the error that its enqueue met, if any.
    """
    ours, its = _server().Pipe(duplex=False)
    process = _server().Process(target=_work, args=(its, path, memory, now, spill, queues, items))
    process.start()
    its.close()
    try:
        assert ours.poll(DEADLINE), "the process said nothing"
        result: tuple[list[list[str]], str] = ours.recv()
    finally:
        process.kill()
        process.join(DEADLINE)
        process.close()
        ours.close()
    return result


def _work(pipe: Connection, path: str, memory: str, now: int, spill: int, queues: list[str], items: list[Any]) -> None:
    os.environ["QM_SHM_DIR"] = memory
    enqueue_in_transaction.SPILL_BYTES = spill
    found, refused = [], ""
    space = open_device(path, clock=MovableClock(now)).open_space("SPACE")
    with space.transaction():
        for queue in queues:
            message = space.dequeue(queue)
            found.append([] if message is None else [message.msgid])
        try:
            space.put_many(items)
        except QueueError as error:
            refused = type(error).__name__
        pipe.send((found, refused))
        signal.pause()
