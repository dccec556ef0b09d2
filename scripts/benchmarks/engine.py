"""The engine through its public API, everything that it promises switched on."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import sqlite3
from collections.abc import Iterator
from typing import Any, ClassVar

import qmadmin
from benchmarks.subject import BODY, QUEUE, WARM_UP, GoesOn, version_of
from benchmarks.working import Function
from qmadmin import aio
from qmadmin.volume_makers import address_of

SPACE = "BENCH"
_PAGES = 4_000_000
_MESSAGES = 3_000_000
_QUEUES = 1100
_AT_A_TIME = 1000
_VALUE = {
    "order": 17,
    "customer": {"name": "Ann Example", "city": "Zürich"},
    "lines": [{"sku": f"chair-{number:04}", "quantity": number, "price": 19.9, "gift": False} for number in range(14)],
    "note": "Please ring twice. If nobody opens, leave it with the neighbours on the first floor, left, please",
}
"""An order that has 1,024 bytes in JSON."""


MODULES = (
    "qmadmin.aio",
    "qmadmin.app",
    "qmadmin.consumers.function_consumer",
    "qmadmin.consuming",
    "qmadmin.opening",
    "qmadmin.transacting",
)
"""What its clients load late."""

_TASKS = 64
"""Tasks of one event loop that enqueue at the same time."""


class Measured:
    """A queue space with an error queue and two queues, each with retries."""

    durability = "full"
    commits: ClassVar = dict.fromkeys(
        ("produce", "produce_json", "produce_awaited", "produce_in_tasks", "consume", "produce_many", "consume_many",
         "answer", "work", "work_together"), 1,
    ) | {"answer_on_second": 2, "answer_on_third": 3, "record_apart": 2, "record_together": 2,
         "record_prepared": 3}  # fmt: skip

    driver = ""
    """The driver and its version; "" is that of PostgreSQL."""
    modules = (*MODULES, "qmstorage.postgres.opening")

    def __init__(self) -> None:
        self.version = f"qmadmin {qmadmin.__version__}, {self.driver or version_of('psycopg')}"
        for module in self.modules:
            # Here, once, and not in each of the clients, which would load them when they are first used.
            importlib.import_module(module)

    def set_up(self, url: str) -> None:
        """Create the device, the queue space and the queues."""
        with qmadmin.create_device(url, _PAGES, durability=self.durability) as device:
            device.create_space(
                qmadmin.SpaceDefinition(
                    name=SPACE,
                    ipc_key=40000,
                    pages=_PAGES - 1000,
                    queues=_QUEUES,
                    transactions=2000,
                    processes=200,
                    actions=200,
                    messages=_MESSAGES,
                    error_queue="errors",
                )
            )
            with device.open_space(SPACE) as space:
                for name in (QUEUE, WARM_UP):
                    space.create_queue(qmadmin.QueueDefinition(name=name, retries=3))

    def fill(self, url: str, count: int) -> None:
        """Enqueue a thousand at a time."""
        with opened(url) as space:
            for done in range(0, count, _AT_A_TIME):
                space.enqueue_many(QUEUE, [BODY] * min(_AT_A_TIME, count - done))

    def hand_out(self, url: str, count: int) -> None:
        """Enqueue numbers."""
        with opened(url) as space:
            space.enqueue_many(QUEUE, range(count))

    def work(self, url: str, workers: int, function: Function) -> None:
        """Run an application, which has a transaction for each message."""
        _work(url, function, workers=workers)

    def work_together(self, url: str, size: int, function: Function) -> None:
        """Run an application with one worker, which has a transaction for so many messages."""
        _work(url, function, batch=size)

    def empty(self, url: str) -> None:
        """Purge the queues."""
        with opened(url) as space:
            for name in (QUEUE, WARM_UP):
                space.purge(name)

    def open(self, url: str) -> Client:
        """Return a client."""
        return Client(url)


class Client:
    """A process that is attached to the queue space."""

    def __init__(self, url: str) -> None:
        self._resources = contextlib.ExitStack()
        self._space = self._resources.enter_context(opened(url))

    def produce(self, queue: str, goes_on: GoesOn) -> None:
        """Enqueue messages outside of a transaction."""
        while goes_on(True):
            self._space.enqueue(queue, BODY)

    def produce_json(self, queue: str, goes_on: GoesOn) -> None:
        """Enqueue values that are as long in JSON."""
        while goes_on(True):
            self._space.enqueue(queue, _VALUE)

    def produce_awaited(self, queue: str, goes_on: GoesOn) -> None:
        """Enqueue messages from a task of asyncio, one at a time."""
        asyncio.run(self._await_enqueues(queue, 1, goes_on))

    def produce_in_tasks(self, queue: str, goes_on: GoesOn) -> None:
        """Enqueue messages from many tasks, each of them one at a time."""
        asyncio.run(self._await_enqueues(queue, _TASKS, goes_on))

    async def _await_enqueues(self, queue: str, tasks: int, goes_on: GoesOn) -> None:
        space = await aio.Device(self._space.device).open_space(self._space.name)
        more = goes_on(True)

        async def produce() -> None:
            nonlocal more
            while more:
                await space.enqueue(queue, BODY)
                more = goes_on(True) and more

        await asyncio.gather(*(produce() for _ in range(tasks)))
        await space.close()

    def consume(self, queue: str, goes_on: GoesOn) -> None:
        """Dequeue messages outside of a transaction."""
        found = True
        while goes_on(found):
            found = self._space.dequeue(queue) is not None

    def produce_many(self, queue: str, size: int, goes_on: GoesOn) -> None:
        """Enqueue so many messages in each call."""
        while goes_on(True):
            self._space.enqueue_many(queue, [BODY] * size)

    def consume_many(self, queue: str, size: int, goes_on: GoesOn) -> None:
        """Dequeue so many messages in each call."""
        found = True
        while goes_on(found):
            found = bool(self._space.dequeue_many(queue, size))

    def answer(self, queue: str, goes_on: GoesOn) -> None:
        """Dequeue a request and enqueue its reply in one transaction."""
        found = True
        while goes_on(found):
            with self._space.transaction():
                request = self._space.dequeue(queue)
                found = request is not None
                if request is not None:
                    self._space.enqueue(WARM_UP, BODY, corrid=request.msgid)

    def answer_on_second(self, queue: str, goes_on: GoesOn) -> None:
        """Dequeue a request and enqueue its reply on another volume, in one transaction."""
        self._answer_elsewhere(queue, goes_on, 1)

    def answer_on_third(self, queue: str, goes_on: GoesOn) -> None:
        """Dequeue a request and enqueue a reply on each of two other volumes, in one transaction."""
        self._answer_elsewhere(queue, goes_on, 2)

    def _answer_elsewhere(self, queue: str, goes_on: GoesOn, others: int) -> None:
        with contextlib.ExitStack() as stack:
            spaces = [stack.enter_context(_elsewhere(self._space.device.config, number)) for number in range(others)]
            found = True
            while goes_on(found):
                with qmadmin.transaction(self._space, *spaces):
                    request = self._space.dequeue(queue)
                    found = request is not None
                    if request is not None:
                        for space in spaces:
                            space.enqueue(WARM_UP, BODY, corrid=request.msgid)

    def record_apart(self, queue: str, goes_on: GoesOn) -> None:
        """Dequeue a request, and write a row in a file or a database of the application, by two commits."""
        with _application(self._space.device.config) as (rows, write):
            found = True
            while goes_on(found):
                with self._space.transaction():
                    found = self._space.dequeue(queue) is not None
                rows.execute(write, (BODY,))
                rows.commit()

    def record_together(self, queue: str, goes_on: GoesOn) -> None:
        """Do the same in one transaction, on which the application's file or database decides."""
        self._record(queue, goes_on, decides=True)

    def record_prepared(self, queue: str, goes_on: GoesOn) -> None:
        """Do the same in one transaction, for which the application's database prepares."""
        self._record(queue, goes_on, decides=False)

    def _record(self, queue: str, goes_on: GoesOn, *, decides: bool) -> None:
        with _application(self._space.device.config) as (rows, write):
            found = True
            while goes_on(found):
                with qmadmin.transaction(self._space, rows, decider=rows if decides else None):
                    found = self._space.dequeue(queue) is not None
                    rows.execute(write, (BODY,))

    def close(self) -> None:
        """Detach."""
        self._resources.close()


@contextlib.contextmanager
def opened(url: str) -> Iterator[qmadmin.QueueSpace]:
    """Give the queue space of a device that `Measured` has laid out."""
    with qmadmin.open_device(url) as device, device.open_space(SPACE) as space:
        yield space


@contextlib.contextmanager
def _application(url: str) -> Iterator[tuple[Any, str]]:
    """Give a connection to a file, or the database, of an application, and what writes a row there."""
    connection: Any
    if address_of(url) is None:
        connection, made, write = sqlite3.connect(f"{url}-application"), "body BLOB", "INSERT INTO request VALUES (?)"
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    else:
        import psycopg

        connection = psycopg.connect(of_application(url))
        made, write = "body bytea", "INSERT INTO request VALUES (%s)"
        # The clients come at the same time.
        connection.execute("SELECT pg_advisory_xact_lock(1)")
    with contextlib.closing(connection):
        connection.execute(f"CREATE TABLE IF NOT EXISTS request ({made})")
        qmadmin.create_decision_table(connection)
        connection.commit()
        yield connection, write


def of_application(url: str) -> str:
    """Return the URL of the database that an application has beside that of a queue space."""
    head, mark, parameters = url.partition("?")
    return f"{head}_application{mark}{parameters}"


@contextlib.contextmanager
def _elsewhere(url: str, number: int) -> Iterator[qmadmin.QueueSpace]:
    """Give a queue space on another volume, which is made at its first use."""
    address = address_of(url)
    other = f"{url}-{number}" if address is None else url.replace(address.schema, f"{address.schema}_{number}")
    with qmadmin.open_device(other, create=True) as device:
        device.create_space(SPACE, exist_ok=True, messages=_MESSAGES)
        with device.open_space(SPACE) as space:
            space.create_queue(WARM_UP, exist_ok=True)
            yield space
            space.purge(WARM_UP)


def _work(url: str, function: Function, workers: int = 1, batch: int = 1) -> None:
    app = qmadmin.App(url, space=SPACE)

    @app.handler(QUEUE, workers=workers, batch=batch)
    def called(message: qmadmin.Message) -> None:
        function(message.json())

    app.run(until_empty=True)
    app.close()
