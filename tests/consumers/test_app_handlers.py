"""Workers in Python: functions that are declared with an App are called with the messages of its queues."""

from __future__ import annotations

import asyncio
import functools

import pytest

import qmadmin
from qmadmin.consumers import Failure, Reply, Unavailable
from tests.fix_app import Order, bodies
from tests.fix_store import eventually


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


def test_each_consumer_of_a_queue_has_a_handler_for_all_of_its_messages(app: qmadmin.App) -> None:
    got: list[tuple[str, str]] = []

    @app.handler("news", consumer="billing")
    def bill(message: qmadmin.Message) -> None:
        got.append(("bill", message.text))

    @app.handler("news", consumer="audit")
    def audit(message: qmadmin.Message) -> None:
        got.append(("audit", message.text))

    assert sorted(app.handlers) == ["news:audit", "news:billing"]
    bill.enqueue("one")
    app.enqueue("news", "two")
    app.run(until_empty=True)
    assert sorted(got) == [("audit", "one"), ("audit", "two"), ("bill", "one"), ("bill", "two")]
    assert app.space.usage("news").messages == 0


def test_a_queue_space_consumes_for_a_consumer(app: qmadmin.App) -> None:
    got: list[str] = []
    app.space.create_queue("news", multiple_consumers=True)
    for name in ("audit", "billing"):
        app.space.subscribe("news", name)
    app.space.enqueue("news", "one")
    app.space.consume("news", lambda message: got.append(message.text), consumer="billing", until_empty=True)
    assert got == ["one"]
    assert [app.space.usage(f"news:{name}").messages for name in ("audit", "billing")] == [1, 0]


def test_a_queue_for_several_has_no_handler_for_nobody(app: qmadmin.App) -> None:
    app.space.create_queue("news", multiple_consumers=True)
    app.space.subscribe("news", "billing")

    @app.handler("news")
    def read(message: qmadmin.Message) -> None:
        del message

    with pytest.raises(
        qmadmin.InvalidArgumentError, match="'news' has several consumers, and its handler is for none"
    ) as refused:
        app.run(until_empty=True)
    assert "consumer=; its subscriptions are: 'billing'" in refused.value.hint


def test_a_queue_and_its_consumer_may_be_one_text(app: qmadmin.App) -> None:
    got: list[str] = []
    app.space.create_queue("news", multiple_consumers=True)

    @app.handler("news:billing")
    def bill(message: qmadmin.Message) -> None:
        got.append(message.text)

    app.enqueue("news", "one")
    app.run(until_empty=True)
    assert got == ["one"]
    assert [each.name for each in app.space.subscriptions("news")] == ["billing"]


def test_a_consumer_that_has_subscribed_with_a_rule_keeps_it(app: qmadmin.App) -> None:
    app.space.create_queue("news", multiple_consumers=True)
    app.space.subscribe("news", "billing", rule="priority > 50")

    @app.handler("news", consumer="billing")
    def bill(message: qmadmin.Message) -> None:
        del message

    app.run(until_empty=True)
    assert [each.rule for each in app.space.subscriptions("news")] == ["priority > 50"]


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
    app: qmadmin.App, app_place: str
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
    with qmadmin.open_device(app_place) as device, device.open_space("QS") as space:
        space.consume(["orders"], ship, until_empty=True)
    assert bodies(app, "invoices") == ["good", "good"]
    assert bodies(app, "errors") == ["bad"]


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
