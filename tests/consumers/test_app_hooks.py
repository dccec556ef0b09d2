"""Workers in Python: the hooks of an App."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

import qmadmin
from qmadmin.consumers import Failure, Park, Reply, Snooze, Unavailable
from qmadmin.forwarder import enqueue
from qmadmin.testing import ShiftedClock
from qmcore.errors import InvalidArgumentError
from tests.fix_app import Order, bodies

if TYPE_CHECKING:
    from collections.abc import Iterator


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


# ---- on failure ------------------------------------------------------------------------------------------------------


@pytest.fixture
def shifted() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture
def moved(app_place: str, shifted: ShiftedClock) -> Iterator[qmadmin.App]:
    """An application on a queue space whose time the test moves."""
    made = qmadmin.App(app_place, space="QS")
    with qmadmin.create_device(app_place, clock=shifted) as device:
        device.create_space("QS")
        with device.open_space("QS") as space, made.using(space):
            yield made


def has_no_reply(message: qmadmin.Message) -> object:
    return Reply("done", urcode=2**70)


def cannot_be_encoded(message: qmadmin.Message) -> object:
    return {"when": object()}


def takes_too_long(message: qmadmin.Message) -> None:
    while True:
        threading.Event().wait(0.001)


async def is_awaited_too_long(message: qmadmin.Message) -> None:
    await asyncio.sleep(3600)


async def has_a_message_that_cannot_be_enqueued(message: qmadmin.Message) -> None:
    enqueue("nowhere", message.body)


def ends_the_process(message: qmadmin.Message) -> None:
    sys.exit("enough")


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (has_no_reply, "the user return code must be"),
        (cannot_be_encoded, "which JSON does not have"),
        (takes_too_long, "no reply within 0.05 seconds"),
        (is_awaited_too_long, "no reply within 0.05 seconds"),
        (has_a_message_that_cannot_be_enqueued, "there is no queue 'nowhere'"),
        (ends_the_process, "enough"),
    ],
)
def test_hooks_on_failure_hear_once_of_each_failure_also_of_what_follows_the_call(
    app: qmadmin.App, function: Any, reason: str, batch: int
) -> None:
    heard = []
    app.handler("orders", retries=1, retry_delay=0, batch=batch, timeout=0.05)(function)
    app.on_failure(lambda message, error: heard.append((message.retries, str(error))))
    app.space.create_queue("answers")
    app.space.enqueue("orders", "a vase", reply_queue="answers")
    app.run(until_empty=True)
    assert [retries for retries, _ in heard] == [0, 1]
    assert all(reason in error for _, error in heard), heard
    assert bodies(app, "errors") == ["a vase"]


@pytest.mark.parametrize("batch", [1, 3])
def test_they_hear_of_a_commit_that_is_refused(moved: qmadmin.App, shifted: ShiftedClock, batch: int) -> None:
    heard = []

    @moved.handler("orders", batch=batch, timeout=60)
    def ship(message: qmadmin.Message) -> None:
        shifted.advance(3600)

    moved.on_failure(lambda message, error: heard.append((message.text, str(error))))
    moved.space.create_queue("orders", retries=0)
    ship.enqueue("a vase")
    moved.run(until_empty=True)
    assert heard == [("a vase", "the transaction was rolled back: its timeout of 65 seconds is over")]
    assert bodies(moved, "errors") == ["a vase"]


def test_they_hear_of_a_call_that_never_returns_and_may_not_return_either(app: qmadmin.App) -> None:
    heard, leave = [], threading.Event()

    @app.handler("orders", retries=0, timeout=0.01)
    def ship(message: qmadmin.Message) -> None:
        leave.wait()

    @app.handler("more")
    def go_on(message: qmadmin.Message) -> None:
        app.stop()

    @app.on_failure
    def block(message: qmadmin.Message, error: BaseException) -> None:
        heard.append((message.text, str(error)))
        go_on.enqueue("now")
        leave.wait()

    ship.enqueue("a vase")
    try:
        app.run(grace=0)
    finally:
        leave.set()
    assert heard == [("a vase", "no reply within 0.01 seconds")]
    assert bodies(app, "errors") == ["a vase"]


@pytest.mark.parametrize("batch", [1, 3])
def test_what_they_enqueue_is_sent_although_the_call_has_failed(app: qmadmin.App, batch: int) -> None:
    @app.handler("orders", batch=batch, retries=0)
    def ship(order: Order) -> None:
        app.enqueue("alerts", "not sent")
        raise ValueError(order.number)

    @app.on_failure
    def tell(message: qmadmin.Message, error: BaseException) -> None:
        app.enqueue("alerts", f"{message.json()['number']}: {error}")

    app.space.create_queue("alerts")
    for number in (1, 2):
        ship.enqueue(Order(number))
    app.run(until_empty=True)
    assert bodies(app, "alerts") == ["1: 1", "2: 2"]


@pytest.mark.parametrize("outcome", [Snooze(3600), Park("no price yet"), Unavailable("closed", retry_after=3600)])
def test_they_hear_nothing_of_what_is_no_failure(app: qmadmin.App, outcome: Exception) -> None:
    heard = []

    @app.handler("orders")
    def ship(message: qmadmin.Message) -> None:
        app.stop()
        raise outcome

    app.on_failure(lambda message, error: heard.append(error))
    ship.enqueue("a vase")
    app.run()
    assert heard == []


# ---- around calls ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("is_coroutine", [False, True], ids=["function", "coroutine"])
def test_a_hook_around_a_call_that_blocks_is_over_its_deadline_as_the_function_would_be(
    app: qmadmin.App, where: str, is_coroutine: bool
) -> None:
    heard, left = [], []

    def plain(message: qmadmin.Message) -> None: ...

    async def awaited(message: qmadmin.Message) -> None: ...

    # Time enough to come to the hook that blocks, beside busy processes too.
    app.handler("orders", retries=0, timeout=0.5)(awaited if is_coroutine else plain)

    @app.around_calls
    @contextlib.contextmanager
    def outer(message: qmadmin.Message) -> Iterator[None]:
        try:
            yield
        finally:
            left.append("outer")

    @app.around_calls
    @contextlib.contextmanager
    def blocks(message: qmadmin.Message) -> Iterator[None]:
        if where == "before":
            takes_too_long(message)
        yield
        takes_too_long(message)

    app.on_failure(lambda message, error: heard.append(str(error)))
    app.enqueue("orders", "a vase")
    app.run(until_empty=True)
    assert heard == ["no reply within 0.5 seconds"]
    assert left == ["outer"]
    assert bodies(app, "errors") == ["a vase"]


def test_a_hook_around_a_call_whose_time_is_over_can_clean_up(app: qmadmin.App) -> None:
    left = []
    app.handler("orders", retries=0, timeout=0.05)(takes_too_long)

    @app.around_calls
    @contextlib.contextmanager
    def session(message: qmadmin.Message) -> Iterator[None]:
        try:
            yield
        except Failure as failure:
            # Longer than a moment, of which no time is left.
            app.space.peek("orders")
            left.append(str(failure))
            raise

    app.enqueue("orders", "a vase")
    app.run(until_empty=True)
    assert left == ["no reply within 0.05 seconds"]
