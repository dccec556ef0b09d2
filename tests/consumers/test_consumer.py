"""A consumer of functions and other handlers, over queues of every store: no services file, no program, no daemon."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections import Counter

import pytest

from qmadmin.consumers import (
    Failure,
    Handler,
    Order,
    Park,
    Policy,
    Reply,
    RunPolicy,
    Snooze,
    Unavailable,
    Wording,
    current,
)
from qmadmin.consumers.consumer import Consumer, Stop
from qmadmin.consumers.function_handler import EventLoop, FunctionHandler, handler_of
from qmcore.backoff import Growth
from qmcore.message import EnqueueControl, State
from qmcore.queue import RetryPolicy
from tests.fix_store import ROOT, SOURCES, drain, make_queue

PATIENCE = 60


@pytest.fixture
def space(store):
    opened = store.space(error_queue="ERRORS")
    for name in ("Q", "OTHER", "REPLIES"):
        make_queue(opened, name, retries=2)
    make_queue(opened, "ERRORS")
    return opened


@pytest.fixture
def stop():
    return Stop()


def consume(space, stop, handlers, policy=None, **how):
    """Have functions and handlers work on queues until these are empty, or a stop is asked for; return the consumer."""
    loop, closing = EventLoop(Wording()), []
    for queue, handler in handlers.items():
        closing.append(handler if isinstance(handler, Handler) else handler_of(handler, loop))
        handlers = handlers | {queue: closing[-1]}
    consumer = Consumer(stop, RunPolicy(**({"until_empty": True} | how)))
    try:
        consumer.serve({queue: (handler, policy or Policy()) for queue, handler in handlers.items()})
        consumer.run(space)
    finally:
        for handler in closing:
            handler.close()
    return consumer


def told_of(consumer, queue="Q"):
    return consumer.statistics[queue].forwarding()


def fill(space, queue="Q", count=12, **control):
    space.enqueue_many(queue, [str(number).encode() for number in range(count)], EnqueueControl(**control))


def test_a_function_gets_each_message_once_and_its_replies_are_queued(space, stop):
    fill(space, reply_queue="REPLIES")
    seen = []

    def upper(request):
        seen.append(request.text)
        return f"done {request.text}"

    told = told_of(consume(space, stop, {"Q": upper}))
    assert seen == [str(number) for number in range(12)]
    assert drain(space, "REPLIES") == [f"done {number}" for number in range(12)]
    assert (told.calls, told.successes, told.failures, told.in_flight) == (12, 12, 0, 0)


@pytest.mark.parametrize("terms", [{}, {"batch": 3}, {"gives_up": True}], ids=["alone", "in batches", "giving up"])
@pytest.mark.parametrize("retries", [0, 4])
def test_the_policy_of_a_handler_says_how_often_a_message_is_tried_whatever_its_queue_says(space, stop, terms, retries):
    fill(space, count=3)
    calls = Counter()

    def fails(request):
        calls[request.text] += 1
        raise Failure("no")

    told = told_of(consume(space, stop, {"Q": fails}, Policy(retry_policy=RetryPolicy(retries=retries), **terms)))
    assert set(calls.values()) == {1 + retries}
    assert (told.failures, told.retries) == (3 * (1 + retries), 3 * retries)
    assert sorted(drain(space, "ERRORS")) == ["0", "1", "2"]


def test_the_policy_of_a_handler_says_for_how_long_a_failed_message_waits(space, stop, clock):
    fill(space, count=1)
    waits = []

    def fails(request):
        raise Failure("no")

    for _ in range(2):
        consume(space, stop, {"Q": fails}, Policy(retry_policy=RetryPolicy(retry_delay=60, retry_growth=Growth.LINEAR)))
        waits.append((next(space.messages("Q")).available_at - clock.moment(0)).total_seconds())
        clock.advance(waits[-1])
    assert waits == [60, 120]


def test_what_a_function_enqueues_is_there_with_the_commit_of_its_message_only(space, stop):
    fill(space, count=2)

    def chain(request):
        current.enqueue("OTHER", request.body)
        if request.text == "1":
            raise ValueError("it is odd")

    consume(space, stop, {"Q": chain})
    assert (drain(space, "OTHER"), drain(space, "ERRORS")) == (["0"], ["1"])


def test_workers_call_it_at_the_same_time(space, stop):
    fill(space, count=4)
    together = threading.Barrier(4)
    told = told_of(consume(space, stop, {"Q": lambda _: str(together.wait(PATIENCE))}, Policy(workers=4)))
    assert (told.successes, told.workers, together.broken) == (4, 4, False)


def test_a_limit_holds_over_all_queues(space, stop):
    running, most, lock = Counter(), [], threading.Lock()

    def count(request):
        with lock:
            running["now"] += 1
            most.append(running["now"])
        current.space().peek("REPLIES")
        with lock:
            running["now"] -= 1

    for queue in ("Q", "OTHER"):
        fill(space, queue)
    consumer = consume(space, stop, {"Q": count, "OTHER": count}, Policy(workers=3), total_workers=1)
    assert (told_of(consumer).successes, told_of(consumer, "OTHER").successes, max(most)) == (12, 12, 1)


def test_a_message_whose_calls_fail_is_tried_again_and_then_goes_to_the_error_queue(space, stop):
    fill(space, count=3)

    def fail(request):
        if request.text == "0":
            raise Failure("never", permanent=True)
        if request.text == "1":
            raise ValueError(request.text)

    told = told_of(consume(space, stop, {"Q": fail}))
    assert [info.origin.error for info in space.messages("ERRORS")] == ["never", "ValueError: 1"]
    assert (told.successes, told.failures, told.retries, told.last_error) == (1, 4, 2, "ValueError: 1")


def test_a_queue_whose_handler_cannot_work_is_left_alone_for_a_while_and_that_is_no_try(space, stop, caplog):
    fill(space, count=1)
    refusals = iter(["down", "down"])

    def sometimes(request):
        if why := next(refusals, ""):
            raise Unavailable(why, retry_after=0.001)

    told = told_of(consume(space, stop, {"Q": sometimes}))
    assert (told.refused, told.failures, told.successes, told.trouble) == (2, 0, 1, "")
    assert [line for line in caplog.messages if "'Q'" in line] == ["queue 'Q' is paused: down"]


class Moves(Handler):
    """What a link would be: it is no function, and answers nobody."""

    def __init__(self):
        self.away = iter(["the link is down"])

    def ready(self):
        if why := next(self.away, ""):
            raise Unavailable(why, retry_after=0.001)

    def call(self, call):
        current.enqueue("OTHER", call.request.body)


def test_any_handler_is_asked_before_a_message_is_taken_and_need_not_reply(space, stop):
    fill(space, count=3, reply_queue="REPLIES")
    told = told_of(consume(space, stop, {"Q": Moves()}))
    assert (drain(space, "OTHER"), drain(space, "REPLIES"), told.calls) == (["0", "1", "2"], [], 3)


def test_a_coroutine_function_is_a_handler_too(space, stop):
    async def answer(request):
        current.enqueue("OTHER", request.body)
        return Reply(request.body, urcode=7)

    fill(space, count=2, reply_queue="REPLIES")
    consume(space, stop, {"Q": answer}, Policy(workers=2))
    assert sorted(drain(space, "OTHER")) == ["0", "1"]
    assert [info.urcode for info in space.messages("REPLIES")] == [7, 7]


def test_batches_commit_together_and_a_failure_takes_none_of_the_others_back(space, stop):
    def odd(request):
        current.enqueue("OTHER", request.body)
        if request.text in "13":
            raise Failure("odd", permanent=True)

    fill(space, count=5)
    consume(space, stop, {"Q": odd}, Policy(batch=5))
    assert (drain(space, "OTHER"), drain(space, "ERRORS")) == (["0", "2", "4"], ["1", "3"])


def test_a_call_that_takes_too_long_is_ended_and_has_failed(space, stop):
    def endless(request):
        while True:
            threading.Event().wait(0.001)

    fill(space, count=1)
    told = told_of(consume(space, stop, {"Q": endless}, Policy(seconds=0.05)))
    assert (told.failures, told.last_error) == (3, "no reply within 0.05 seconds")


def test_a_stop_lets_the_calls_that_run_finish_and_takes_no_more(space, stop):
    fill(space)

    def once(request):
        stop.ask("enough")

    told = told_of(consume(space, stop, {"Q": once}, until_empty=False))
    assert (told.successes, space.usage("Q").messages) == (1, 11)


def test_a_call_that_does_not_end_in_time_after_a_stop_is_given_back_untried(space, stop):
    fill(space, count=1)
    leave = threading.Event()

    def slow(request):
        stop.ask("enough")
        leave.wait(PATIENCE)

    consumer = consume(space, stop, {"Q": slow}, until_empty=False, grace_seconds=0)
    leave.set()
    assert [(info.retries, info.state.value) for info in space.messages("Q")] == [(0, "ready")]
    assert told_of(consumer).in_flight == 0


def test_handlers_may_change_while_it_runs(space, stop):
    fill(space, count=1)
    fill(space, "OTHER", count=1)
    seen = []
    consumer = Consumer(stop)

    def first(request):
        seen.append(("first", request.queue))
        changed.set()

    def second(request):
        seen.append(("second", request.queue))
        stop.ask("enough")

    def change():
        if changed.is_set():
            changed.clear()
            consumer.serve({"OTHER": (FunctionHandler(second), Policy())})

    changed = threading.Event()
    consumer.serve({"Q": (FunctionHandler(first), Policy())})
    consumer.run(space, between=change)
    assert seen == [("first", "Q"), ("second", "OTHER")]


def test_what_it_knows_of_its_queues_outlives_one_run(space, stop):
    consumer = Consumer(stop, RunPolicy(until_empty=True))
    consumer.serve({"Q": (FunctionHandler(lambda _: None), Policy())})
    for runs in (1, 2):
        fill(space, count=3)
        consumer.run(space)
        assert told_of(consumer).successes == 3 * runs


def test_others_see_how_it_goes(space, stop, clock):
    fill(space, count=1)
    heard = []

    def ask(request):
        heard.extend(told.queue for _, told in space.forwardings())
        if heard:
            stop.ask("enough")
            return
        raise Unavailable("not yet", retry_after=0.01)

    consumer = Consumer(stop, clock=clock)
    consumer.serve({"Q": (FunctionHandler(ask), Policy())})
    # The reporter's second is one of the store's clock, which stands still here.
    consumer.run(space, between=lambda: clock.advance(1))
    assert heard == ["Q"]


@pytest.mark.parametrize("batch", [1, 10])
def test_a_message_is_put_off_without_a_try_and_others_go_on(space, stop, batch, caplog):
    fill(space, count=4, reply_queue="REPLIES")

    def put_off(request):
        current.enqueue("OTHER", request.body)
        if request.text == "1":
            raise Snooze(30, "the shop is closed")
        if request.text == "2":
            raise Park("no price yet")

    with caplog.at_level(logging.DEBUG, "qmadmin.consumers"):
        told = told_of(consume(space, stop, {"Q": put_off}, Policy(batch=batch)))
    assert (told.calls, told.successes, told.failures, told.refused, told.in_flight) == (4, 2, 0, 0, 0)
    assert told.last_error == ""
    snoozed, parked = space.messages("Q")
    assert (snoozed.state, snoozed.retries) == (State.DELAYED, 0)
    assert (parked.state, parked.retries, parked.last_error) == (State.PARKED, 0, "no price yet")
    assert drain(space, "OTHER") == ["0", "3"]
    assert len(drain(space, "REPLIES")) == 2
    (info,) = [record for record in caplog.records if record.levelno == logging.INFO]
    assert info.getMessage() == f"handler 'Q' has parked message {parked.msgid}: no price yet"
    (debug,) = [record for record in caplog.records if "puts message" in record.getMessage()]
    assert debug.getMessage().endswith(f"puts message {snoozed.msgid} off for 30 seconds: the shop is closed")


@pytest.mark.parametrize("outcome", [Snooze(30), Park("later")])
def test_a_message_out_of_tries_is_put_off_as_well(space, stop, outcome):
    make_queue(space, "ONCE")
    fill(space, "ONCE", count=1)
    consume(space, stop, {"ONCE": raising(outcome)})
    assert (space.usage("ONCE").messages, space.usage("ERRORS").messages) == (1, 0)


@pytest.mark.parametrize("batch", [1, 10])
def test_in_a_strict_order_the_others_wait_for_a_snoozed_message_and_pass_a_parked_one(space, stop, clock, batch):
    fill(space, count=3)
    seen = []

    def put_off(request):
        seen.append(request.text)
        if request.text == "0":
            raise Park("no price yet")
        if seen.count("1") == 1:
            raise Snooze(0.3)

    def pass_time():
        if seen[-1:] == ["1"]:
            clock.advance(1)

    consumer = Consumer(stop, RunPolicy(until_empty=True), clock=clock)
    consumer.serve({"Q": (FunctionHandler(put_off), Policy(order=Order.STRICT, batch=batch))})
    consumer.run(space, between=pass_time)
    assert seen == ["0", "1", "1", "2"]
    assert space.usage("Q").parked == 1


@pytest.mark.parametrize("wrong", [Snooze(-1), Snooze(float("nan")), Snooze("soon"), Snooze(None), Park("a\0b")])
def test_what_puts_off_in_a_way_that_cannot_be_is_a_failure(space, stop, wrong):
    fill(space, count=1)
    told = told_of(consume(space, stop, {"Q": raising(wrong)}))
    assert (told.failures, told.retries, space.usage("ERRORS").messages) == (3, 2, 1)


def test_to_return_what_is_to_be_raised_is_a_failure_that_says_so(space, stop):
    fill(space, count=1)
    consume(space, stop, {"Q": lambda _: Snooze(30)})
    failed = space.dequeue("ERRORS").last_error
    assert failed.startswith("its answer cannot be encoded")
    assert failed.endswith("got Snooze; it is to be raised")


def raising(error):
    """Return a handler that raises an exception."""

    def function(_request):
        raise error

    return function


def test_a_strict_order_has_one_worker():
    with pytest.raises(ValueError, match="a strict order requires one worker, got 2"):
        Policy(order=Order.STRICT, workers=2)


def test_it_loads_no_program():
    source = (
        "import qmadmin.consumers.consumer, qmadmin.consumers.function_handler, sys\n"
        "rooms = ('forwarder', 'shell', 'spark', 'monitoring')\n"
        "print([name for name in sys.modules if name in ('click', 'rich', 'urllib3', 'asyncio', 'tomllib')"
        " or name.split('.')[1:2] and name.split('.')[0] == 'qmadmin' and name.split('.')[1] in rooms])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=ROOT, env={"PYTHONPATH": SOURCES}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "[]\n"
