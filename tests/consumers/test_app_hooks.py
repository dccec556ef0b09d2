"""Workers in Python: the hooks of an App."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import qmadmin
from qmadmin.consumers import Unavailable
from qmcore.errors import InvalidArgumentError
from tests.fix_app import Order, bodies

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


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
