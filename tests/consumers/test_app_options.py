"""Workers in Python: what may be declared, by which options, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import qmadmin
from qmadmin.consumers import Failure
from qmcore.errors import InvalidArgumentError, QueueError
from tests.fix_app import Order, bodies

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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


def test_a_generator_function_is_no_handler(app: qmadmin.App) -> None:
    def each(message: qmadmin.Message) -> Iterator[str]:
        yield message.text

    with pytest.raises(InvalidArgumentError, match="each is a generator function"):
        app.handler("orders")(each)


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
