"""Workers in Python: functions that are declared with an App are called with the messages of its queues."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

import qmadmin
from qmadmin.consumers import Failure, Reply, Unavailable
from qmcore.errors import InvalidArgumentError, QueueError
from tests.fix_store import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclasses.dataclass
class Order:
    """What is sold."""

    number: int
    what: str = "a vase"


@pytest.fixture(params=["file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "QUE") if request.param == "file" else request.getfixturevalue("database_url")


@pytest.fixture
def app(place: str) -> Iterator[qmadmin.App]:
    made = qmadmin.App(place, space="QS", create=True)
    yield made
    made.close()


def bodies(app: qmadmin.App, queue: str) -> list[str]:
    return [message.text for message in app.space.dequeue_many(queue, 1000)]


# ---- handlers --------------------------------------------------------------------------------------------------------


def test_a_handler_may_have_a_retry_policy_of_its_own(app: qmadmin.App) -> None:
    tries = []

    @app.handler("orders", retries=2, retry_delay=0)
    def ship(message: qmadmin.Message) -> None:
        tries.append(message.retries)
        raise Failure("no")

    ship.enqueue("a vase")
    app.run(until_empty=True)
    assert tries == [0, 1, 2]
    assert bodies(app, "errors") == ["a vase"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"retries": "often"}, "the number of retries of the handler of queue 'orders' must be"),
        ({"retry_delay": -1}, "the retry delay of the handler of queue 'orders' in seconds must be"),
        ({"retry_growth": "fast"}, "the retry growth of the handler of queue 'orders' must be none, linear or"),
    ],
)
def test_a_retry_policy_that_means_nothing_is_refused(app: qmadmin.App, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidArgumentError, match=sentence):
        app.handler("orders", **options)


def test_a_handler_is_called_with_each_message_of_its_queue(app: qmadmin.App) -> None:
    got = []

    @app.handler("orders")
    def ship(message: qmadmin.Message) -> None:
        got.append(message.text)

    for text in ("one", "two", "three"):
        ship.enqueue(text)
    app.run(until_empty=True)
    assert got == ["one", "two", "three"]
    assert app.space.usage("orders").messages == 0


def test_a_handler_without_an_annotation_gets_the_message(app: qmadmin.App) -> None:
    got = []

    @app.handler("orders")
    def ship(message):  # type: ignore[no-untyped-def]
        got.append(message.msgid)

    sent = ship.enqueue("x")
    app.run(until_empty=True)
    assert got == [sent]


def test_a_handler_gets_the_body_as_its_annotation_says(app: qmadmin.App) -> None:
    got: list[object] = []

    @app.handler("orders")
    def ship(order: Order) -> None:
        got.append(order)

    @app.handler("counts")
    def count(counts: dict[str, int]) -> None:
        got.append(counts)

    ship.enqueue(Order(17))
    count.enqueue({"vases": 2})
    app.run(until_empty=True)
    assert sorted(map(str, got)) == sorted(map(str, [Order(17), {"vases": 2}]))


def test_the_function_stays_callable_and_keeps_its_name(app: qmadmin.App) -> None:
    @app.handler("orders")
    def ship(order: Order, *, twice: bool = False) -> int:
        """Ship it."""
        return order.number * (2 if twice else 1)

    assert ship(Order(17), twice=True) == 34
    assert (ship.__name__, ship.__doc__, ship.queue) == ("ship", "Ship it.", "orders")


def test_a_body_that_is_not_what_is_annotated_fails_for_good(app: qmadmin.App) -> None:
    @app.handler("orders")
    def ship(order: Order) -> None:
        raise AssertionError(order)

    app.space.enqueue("orders", {"number": "seventeen"})
    app.space.enqueue("orders", b"\xff no JSON")
    app.run(until_empty=True)
    assert len(app.space.dequeue_many("errors", 10)) == 2


def test_follow_up_messages_stand_or_fall_with_the_request_whoever_calls_the_handler(
    app: qmadmin.App, place: str
) -> None:
    app.space.create_queue("invoices", exist_ok=True)
    app.space.create_queue("orders", exist_ok=True, retries=0)

    @app.handler("orders")
    def ship(message: qmadmin.Message) -> None:
        app.enqueue("invoices", message.body)
        app.space.enqueue("invoices", message.body)
        if message.text == "bad":
            raise Failure("no")

    for body in ("bad", "good"):
        ship.enqueue(body)
    with qmadmin.open_device(place) as device, device.open_space("QS") as space:
        space.consume(["orders"], ship, until_empty=True)
    assert bodies(app, "invoices") == ["good", "good"]
    assert bodies(app, "errors") == ["bad"]


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


def test_a_handler_that_is_declared_after_the_first_use_gets_its_queue_too(app: qmadmin.App) -> None:
    seen = []
    assert app.space.name == "QS"
    app.handler("late")(lambda message: seen.append(message.text)).enqueue("a vase")
    app.run(until_empty=True)
    assert seen == ["a vase"]


def test_decorators_decide_what_a_handler_returns(app: qmadmin.App) -> None:
    seen = []

    async def awaited(message: qmadmin.Message) -> None:
        seen.append(message.text)

    def plain(message: qmadmin.Message) -> None:
        seen.append(message.text)

    @app.handler("orders")
    @functools.wraps(awaited)
    def run(message: qmadmin.Message) -> None:
        asyncio.run(awaited(message))

    @app.handler("more")
    @functools.wraps(plain)
    async def call(message: qmadmin.Message) -> None:
        plain(message)

    run.enqueue("a vase")
    call.enqueue("a cup")
    app.run(until_empty=True)
    assert sorted(seen) == ["a cup", "a vase"]


def test_a_generator_function_is_no_handler(app: qmadmin.App) -> None:
    def each(message: qmadmin.Message) -> Iterator[str]:
        yield message.text

    with pytest.raises(InvalidArgumentError, match="each is a generator function"):
        app.handler("orders")(each)


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


def test_what_it_returns_is_the_reply_and_follow_up_messages_commit_with_it(app: qmadmin.App) -> None:
    @app.handler("orders")
    def ship(order: Order) -> dict[str, int]:
        bill.enqueue(order)
        app.enqueue("audit", f"shipped {order.number}")
        return {"shipped": order.number}

    @app.handler("bills", workers=2)
    def bill(order: Order) -> None:
        return None

    app.space.create_queue("answers")
    app.space.create_queue("audit")
    sent = ship.enqueue(Order(17), reply_queue="answers")
    app.run(until_empty=True)
    answer = app.space.dequeue("answers", corrid=sent)
    assert answer is not None
    assert answer.json() == {"shipped": 17}
    assert bodies(app, "audit") == ["shipped 17"]


def test_nothing_that_a_failed_call_enqueued_is_sent(app: qmadmin.App) -> None:
    @app.handler("orders")
    def ship(order: Order) -> None:
        app.enqueue("audit", "shipped")
        raise ValueError("no vases")

    app.space.create_queue("audit")
    ship.enqueue(Order(17))
    app.run(until_empty=True)
    assert bodies(app, "audit") == []
    (info,) = app.space.messages("orders")
    assert info.retries == 1
    assert info.available_at is not None


def test_a_failure_says_more_than_another_exception(app: qmadmin.App) -> None:
    calls = []

    @app.handler("orders")
    def ship(order: Order) -> Reply:
        calls.append(order.number)
        if order.number == 1:
            raise Failure("never", permanent=True)
        if order.number == 2:
            raise Failure("soon", retry_after=3600)
        return Reply("done", urcode=7)

    app.space.create_queue("answers")
    for number in (1, 2, 3):
        ship.enqueue(Order(number), reply_queue="answers")
    app.run(until_empty=True)
    assert sorted(calls) == [1, 2, 3]
    (failed,) = app.space.dequeue_many("errors", 10)
    assert failed.json()["number"] == 1
    assert failed.origin is not None
    assert "never" in (failed.origin.error or "")
    answer = app.space.dequeue("answers")
    assert answer is not None
    assert (answer.text, answer.urcode) == ("done", 7)


def test_a_coroutine_is_awaited_and_its_messages_commit_with_the_request(app: qmadmin.App) -> None:
    running = 0
    most = 0
    together = asyncio.Barrier(4)

    @app.handler("orders", workers=4)
    async def ship(order: Order) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        # Four at a time get past it.
        await asyncio.wait_for(together.wait(), 60)
        running -= 1
        assert app.enqueue("audit", str(order.number)) is None
        return "done"

    app.space.create_queue("audit")
    for number in range(8):
        ship.enqueue(Order(number))
    app.run(until_empty=True)
    assert most == 4
    assert sorted(bodies(app, "audit")) == sorted(map(str, range(8)))


def test_what_is_returned_and_cannot_be_encoded_is_a_failure(app: qmadmin.App) -> None:
    @app.handler("orders")
    def ship(order: Order) -> object:
        return {"when": object()}

    ship.enqueue(Order(1))
    app.run(until_empty=True)
    (info,) = app.space.messages("orders")
    assert info.retries == 1


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda: None, "cannot be called with one argument"),
        (lambda _one, _two: None, "cannot be called with one argument"),
        (lambda *, _one: None, "cannot be called with one argument"),
        ("ship", "must be a function, got 'ship'"),
    ],
)
def test_what_cannot_be_called_with_a_message_is_refused(tmp_path: Path, function: Any, sentence: str) -> None:
    app = qmadmin.App(tmp_path / "QUE", space="QS")
    with pytest.raises(InvalidArgumentError, match=sentence):
        app.handler("orders")(function)
    assert app.handlers == {}


def test_a_queue_gets_no_second_handler(tmp_path: Path) -> None:
    app = qmadmin.App(tmp_path / "QUE", space="QS")
    app.handler("orders")(len)
    with pytest.raises(
        InvalidArgumentError, match="queue 'orders' has the handler len already, and gets no second one"
    ):
        app.handler("orders")(repr)
    app.handler("lambdas")(lambda message: None)
    with pytest.raises(InvalidArgumentError, match="gets no second one"):
        app.handler("lambdas")(lambda message: None)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"worker": 4}, "has no option 'worker'"),
        ({"workers": 0}, "must be a whole number from 1 to 1000, got 0"),
        ({"timeout": -1}, "must be seconds from 0"),
        ({"order": "any"}, "must be skip or strict, got 'any'"),
        ({"order": "strict", "workers": 2}, "needs one worker"),
        ({"replies": "no"}, "must be True or False"),
    ],
)
def test_an_option_that_is_not_one_is_refused(tmp_path: Path, options: Any, sentence: str) -> None:
    app = qmadmin.App(tmp_path / "QUE", space="QS")
    with pytest.raises(InvalidArgumentError, match=sentence):
        app.handler("orders", **options)


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


def test_a_queue_that_does_not_exist_is_refused_at_the_start(place: str) -> None:
    with qmadmin.open_device(place, create=True) as device:
        device.create_space("QS")
    app = qmadmin.App(place, space="QS")

    @app.handler("orders")
    def ship(order: Order) -> None: ...

    with contextlib.closing(app), pytest.raises(QueueError, match="orders"):
        app.run()


# ---- running ---------------------------------------------------------------------------------------------------------


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


def test_after_a_fork_the_child_opens_it_itself(place: str) -> None:
    app = qmadmin.App(place, space="QS", create=True)

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


# ---- without an app --------------------------------------------------------------------------------------------------


def test_a_queue_space_consumes_without_an_app(app: qmadmin.App) -> None:
    got: list[Order] = []

    def ship(order: Order) -> str:
        got.append(order)
        return "done"

    for name in ("orders", "more", "answers"):
        app.space.create_queue(name)
    app.space.enqueue("orders", Order(1), reply_queue="answers")
    app.space.enqueue("more", Order(2))
    app.space.consume(["orders", "more"], ship, until_empty=True, workers=2)
    assert sorted(order.number for order in got) == [1, 2]
    assert bodies(app, "answers") == ["done"]
    with pytest.raises(QueueError, match="nowhere"):
        app.space.consume("nowhere", ship)
    with pytest.raises(InvalidArgumentError, match="has no option 'worker'"):
        app.space.consume("orders", ship, worker=2)  # type: ignore[call-arg]
    with pytest.raises(InvalidArgumentError, match="no queue"):
        app.space.consume([], ship)


# ---- hooks -----------------------------------------------------------------------------------------------------------


def test_hooks_see_the_start_the_calls_the_failures_and_the_end(app: qmadmin.App) -> None:
    told: list[str] = []

    @app.handler("orders")
    def ship(order: Order) -> None:
        told.append(f"ship {order.number}")
        if order.number == 2:
            raise ValueError("no vases")

    @app.on_start
    def begin() -> None:
        told.append("start")

    @app.on_end
    def end() -> None:
        told.append("end")

    @app.around_calls
    @contextlib.contextmanager
    def session(message: qmadmin.Message) -> Iterator[None]:
        told.append(f"open {message.json()['number']}")
        try:
            yield
        finally:
            told.append("close")

    @app.on_failure
    def track(message: qmadmin.Message, error: BaseException) -> None:
        told.append(f"{message.json()['number']}: {error!r}")

    ship.enqueue(Order(1))
    ship.enqueue(Order(2))
    app.run(until_empty=True)
    assert told == [
        "start", "open 1", "ship 1", "close", "open 2", "ship 2", "close", "2: ValueError('no vases')", "end",
    ]  # fmt: skip


def test_a_hook_around_a_call_that_raises_fails_the_call(app: qmadmin.App) -> None:
    @app.handler("orders")
    def ship(order: Order) -> None:
        raise AssertionError

    @app.around_calls
    def broken(message: qmadmin.Message) -> Any:
        raise RuntimeError("no session")

    ship.enqueue(Order(1))
    app.run(until_empty=True)
    (info,) = app.space.messages("orders")
    assert info.retries == 1


def test_what_a_hook_raises_is_judged_as_if_the_function_had_raised_it(app: qmadmin.App) -> None:
    calls = []

    @app.handler("orders", retries=0)
    def ship(message: qmadmin.Message) -> None:
        calls.append(message.text)

    @app.around_calls
    def refuse(message: qmadmin.Message) -> contextlib.AbstractContextManager[None]:
        if message.text == "unavailable":
            raise Unavailable("not now", retry_after="soon")  # type: ignore[arg-type]
        raise InvalidArgumentError("this hook was called wrongly")

    for body in ("unavailable", "wrong"):
        ship.enqueue(body)
    app.run(until_empty=True)
    assert sorted(bodies(app, "errors")) == ["unavailable", "wrong"]
    assert calls == []


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


def test_a_hook_on_failure_that_raises_changes_nothing(app: qmadmin.App, caplog: pytest.LogCaptureFixture) -> None:
    @app.handler("orders")
    def ship(order: Order) -> None:
        raise ValueError

    @app.on_failure
    def broken(message: qmadmin.Message, error: BaseException) -> None:
        raise RuntimeError("the tracker is away")

    ship.enqueue(Order(1))
    app.run(until_empty=True)
    assert "the tracker is away" in caplog.text
    (info,) = app.space.messages("orders")
    assert info.retries == 1


def test_a_handler_that_is_unavailable_uses_up_no_try(app: qmadmin.App) -> None:
    tried = []

    @app.handler("orders")
    def ship(order: Order) -> None:
        tried.append(order)
        if len(tried) == 1:
            raise Unavailable("the warehouse is closed", retry_after=0.01)

    ship.enqueue(Order(1))
    with app.running():
        eventually(lambda: len(tried) == 2 and not app.space.usage("orders").messages, "the second call")
