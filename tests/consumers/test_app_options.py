"""Workers in Python: what may be declared, by which options, and what is refused."""

from __future__ import annotations

import inspect
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import qmadmin
from qmadmin.consumers import Failure
from qmadmin.consumers.handler_options import HandlerOptions, RunOptions, handler_keys
from qmadmin.consumers.handling import keys_of
from qmadmin.forwarder.descriptions import Description
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
        ({"retries": "often"}, "the retries of the handler of queue 'orders' must be a whole number from 0 to"),
        ({"retry_delay": -1}, "the retry_delay of the handler of queue 'orders' must be whole seconds from 0 to"),
        (
            {"retry_growth": "fast"},
            "the retry_growth of the handler of queue 'orders' must be one of none, linear",
        ),
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
        ({"timeout": -1}, "the timeout of the handler of queue 'orders' must be a number of seconds above 0"),
        ({"order": "any"}, "must be one of skip, strict, parallel, got 'any'"),
        ({"order": "strict", "workers": 2}, 'order = "strict" requires workers = 1, got 2'),
        ({"batch": 1001}, "must be a whole number from 1 to 1000, got 1001"),
        ({"gives_up": 1}, "the gives_up of the handler of queue 'orders' must be True or False"),
        ({"pace": float("nan")}, "must be a number of seconds from 0 to"),
        ({"give_up": True}, "has no option 'give_up'; did you mean 'gives_up'"),
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


# ---- the options, each declared once ---------------------------------------------------------------------------------


def test_the_options_of_handlers_are_the_keys_of_services_and_those_of_the_forwarder() -> None:
    assert list(HandlerOptions.__annotations__) == list(handler_keys())
    assert keys_of(Description).keys() < handler_keys().keys()
    for name in HandlerOptions.__annotations__:
        assert f"`{name}`" in (HandlerOptions.__doc__ or "")


def test_a_queue_space_consumes_with_all_options_of_runs() -> None:
    taken = inspect.signature(qmadmin.QueueSpace.consume).parameters
    assert RunOptions.__annotations__.keys() == taken.keys() - {"self", "queues", "handler", "consumer", "options"}
    for name in RunOptions.__annotations__:
        assert f"`{name}`" in (RunOptions.__doc__ or "")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"grace": -1}, "the grace must be a number of seconds from 0 to"),
        ({"idle": "long"}, "the idle must be a number of seconds from 0 to"),
        ({"total_workers": 10_001}, "the total_workers must be a whole number from 0 to 10000, got 10001"),
        ({"once": "yes"}, "the once must be True or False, got 'yes'"),
        ({"gracious": 1}, "a run has no option 'gracious'; did you mean 'grace'"),
    ],
)
def test_an_option_of_a_run_that_is_not_one_is_refused(tmp_path: Path, options: Any, sentence: str) -> None:
    app = qmadmin.App(tmp_path / "QUE", space="QS")
    app.handler("orders")(len)
    with pytest.raises(InvalidArgumentError, match=sentence):
        app.run(**options)


def test_times_may_be_spans_and_texts(app: qmadmin.App) -> None:
    policies = [
        app.handler(f"q{number}", timeout=timeout, retry_delay=delay)(lambda message: None).policy
        for number, (timeout, delay) in enumerate(
            [(600, 60), (timedelta(minutes=10), timedelta(minutes=1)), ("10m", "1m")]
        )
    ]
    assert policies[0] == policies[1] == policies[2]
    app.run(until_empty=True, grace="1m", idle=timedelta(seconds=0.5))


@pytest.mark.parametrize("batch", [1, 5])
def test_a_handler_that_gives_up_answers_the_client_and_does_not_try_again(app: qmadmin.App, batch: int) -> None:
    tried = []

    @app.handler("orders", gives_up=True, batch=batch)
    def ship(message: qmadmin.Message) -> None:
        tried.append(message.text)
        if message.text != "silent":
            raise Failure("no vases", body=f"no {message.text}")
        if tried.count("silent") == 1:
            raise Failure("try again", retry_after=0)

    app.space.create_queue("refusals")
    for body in ("vase", "silent", "cup"):
        ship.enqueue(body, failure_queue="refusals")
    app.run(until_empty=True)
    assert sorted(tried) == ["cup", "silent", "silent", "vase"]
    assert sorted(bodies(app, "refusals")) == ["no cup", "no vase"]
    assert bodies(app, "errors") == []


def test_once_takes_one_message_of_each_queue_whatever_its_batch(app: qmadmin.App) -> None:
    got = []
    ship = app.handler("orders", batch=5)(lambda message: got.append(message.text))
    for body in ("a vase", "a cup"):
        ship.enqueue(body)
    app.run(once=True)
    assert got == ["a vase"]


def test_total_workers_holds_over_the_queues_that_are_consumed(app: qmadmin.App) -> None:
    running, most, lock = [], [], threading.Lock()

    def count(message: qmadmin.Message) -> None:
        with lock:
            running.append(message.msgid)
            most.append(len(running))
        app.space.peek("orders")
        with lock:
            running.remove(message.msgid)

    for name in ("orders", "more"):
        app.space.create_queue(name)
        for number in range(6):
            app.space.enqueue(name, str(number))
    app.space.consume(["orders", "more"], count, until_empty=True, workers=3, order="parallel", total_workers=1)
    assert (len(most), max(most)) == (12, 1)
