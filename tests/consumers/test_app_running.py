"""Workers in Python: how an App starts, runs, forks and stops."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

import qmadmin
from qmcore.errors import InvalidArgumentError, QueueError
from tests.fix_app import Order, bodies
from tests.fix_store import eventually

if TYPE_CHECKING:
    from pathlib import Path


def test_an_application_that_is_closed_during_a_call_ends_after_it(app: qmadmin.App) -> None:
    app.space.create_queue("invoices", exist_ok=True)

    @app.handler("orders")
    def ship(message: qmadmin.Message) -> None:
        closing = threading.Thread(target=app.close)
        closing.start()
        closing.join()
        app.enqueue("invoices", message.body)

    for body in ("a vase", "a cup"):
        ship.enqueue(body)
    app.run()
    assert bodies(app, "invoices") == ["a vase"]
    assert bodies(app, "orders") == ["a cup"]


def test_a_coroutine_that_blocks_the_event_loop_does_not_keep_the_run_from_its_end(
    app: qmadmin.App, caplog: pytest.LogCaptureFixture
) -> None:
    goes_on = threading.Event()

    @app.handler("orders")
    async def ship(message: qmadmin.Message) -> None:
        app.stop()
        goes_on.wait(60)

    ship.enqueue("a vase")
    try:
        app.run(grace=0)
        assert not goes_on.is_set()
        assert "blocks the event loop" in caplog.text
    finally:
        goes_on.set()


def test_an_application_without_handlers_does_not_run(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="has no handlers"):
        qmadmin.App(tmp_path / "QUE", space="QS", create=True).run()


def test_a_device_that_does_not_exist_is_refused_when_it_is_first_used(tmp_path: Path) -> None:
    app = qmadmin.App(tmp_path / "QUE", space="QS")

    @app.handler("orders")
    def ship(order: Order) -> None: ...

    with pytest.raises(QueueError, match="QUE"):
        ship.enqueue(Order(1))
    with pytest.raises(QueueError, match="QUE"):
        app.run()
    assert list(tmp_path.iterdir()) == []


def test_a_queue_that_does_not_exist_is_refused_at_the_start(app_place: str) -> None:
    with qmadmin.open_device(app_place, create=True) as device:
        device.create_space("QS")
    app = qmadmin.App(app_place, space="QS")

    @app.handler("orders")
    def ship(order: Order) -> None: ...

    with contextlib.closing(app), pytest.raises(QueueError, match="orders"):
        app.run()


def test_it_runs_beside_the_block_and_ends_with_it(app: qmadmin.App) -> None:
    got = []

    @app.handler("orders")
    def ship(order: Order) -> None:
        got.append(order.number)

    with app.running():
        ship.enqueue(Order(1))
        eventually(lambda: got == [1], "the call")
    ship.enqueue(Order(2))
    assert app.space.usage("orders").ready == 1
    app.run(until_empty=True)
    assert got == [1, 2]


def test_a_stop_from_another_thread_ends_it(app: qmadmin.App) -> None:
    called = threading.Event()

    @app.handler("orders")
    def ship(order: Order) -> None:
        called.set()

    ship.enqueue(Order(1))
    thread = threading.Thread(target=app.run)
    thread.start()
    assert called.wait(60)
    app.stop()
    thread.join(60)
    assert not thread.is_alive()


def test_it_runs_in_an_event_loop_and_a_cancellation_ends_it(app: qmadmin.App) -> None:
    got = []
    called = threading.Event()

    @app.handler("orders")
    async def ship(order: Order) -> None:
        got.append(order.number)
        called.set()

    async def main() -> None:
        task = asyncio.create_task(app.run_async())
        await asyncio.to_thread(ship.enqueue, Order(1))
        assert await asyncio.to_thread(called.wait, 60)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(main())
    assert app.space.usage("orders").messages == 0


def test_an_error_at_the_start_is_raised_where_it_was_started(tmp_path: Path) -> None:
    app = qmadmin.App(tmp_path / "QUE", space="QS")

    @app.handler("orders")
    def ship(order: Order) -> None: ...

    with pytest.raises(QueueError, match="QUE"):
        asyncio.run(app.run_async())
    with pytest.raises(QueueError, match="QUE"), app.running():
        pass


def test_the_figures_are_those_of_a_forwarder(app: qmadmin.App) -> None:
    @app.handler("orders", workers=3)
    def ship(order: Order) -> None:
        if order.number == 2:
            raise ValueError("no")

    for number in (1, 2):
        ship.enqueue(Order(number))
    with app.running():

        def told() -> bool:
            found = [told for _, told in app.space.forwardings()]
            return [(each.successes, each.failures, each.workers) for each in found] == [(1, 1, 3)]

        eventually(told, "the figures")


PROGRAM = """
import sys, qmadmin
app = qmadmin.App(sys.argv[1], space="QS", create=True)

@app.handler("orders")
def ship(order: dict) -> None:
    print("shipped", order["number"], flush=True)

if __name__ == "__main__":
    app.run()
    print("ended", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_program_ends_at_a_signal_and_loses_nothing(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "worker.py").write_text(PROGRAM)
    with qmadmin.open_device(tmp_path / "QUE", create=True) as device:
        device.create_space("QS")
        with device.open_space("QS") as space:
            space.create_queue("orders")
            space.enqueue("orders", {"number": 1})
            command = [sys.executable, str(tmp_path / "worker.py"), str(tmp_path / "QUE")]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
                assert program.stdout is not None
                assert program.stdout.readline() == "shipped 1\n"
                program.send_signal(number)
                assert program.stdout.readline() == "ended\n"
            assert program.returncode == 0


def test_after_a_fork_the_child_opens_it_itself(app_place: str) -> None:
    app = qmadmin.App(app_place, space="QS", create=True)

    @app.handler("orders")
    def ship(order: Order) -> None: ...

    ship.enqueue(Order(1))
    child = os.fork()
    if not child:
        try:
            ship.enqueue(Order(2))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert app.space.usage("orders").messages == 2
    app.close()


def test_a_server_that_handles_sigterm_keeps_it_while_it_runs_an_application(app: qmadmin.App) -> None:
    heard = []

    @app.handler("orders")
    def ship(message: qmadmin.Message) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        told = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, lambda: (heard.append("SIGTERM"), told.set()))
        working = asyncio.create_task(app.run_async())
        await asyncio.wait_for(told.wait(), 60)
        assert not working.done()
        app.stop()
        await working
        assert loop.remove_signal_handler(signal.SIGTERM)

    ship.enqueue("a vase")
    asyncio.run(serve())
    assert heard == ["SIGTERM"]
