"""Coroutine functions, whose calls run in one event loop."""

import asyncio
import contextvars
import math
import threading

import pytest

from qmadmin.consumers.function_handler import CoroutineHandler, EventLoop
from qmadmin.forwarder import Failure, Reply, Unavailable, enqueue, space
from qmadmin.forwarder.program_log import WORDING
from qmcore.errors import ProtocolError
from tests.fix_service import NO_BODY, Calling, bodies, call, call_in, failure_of, threads_named, unavailability_of

CALLABLES = """
async def f(request):
    return 'a'


class Desk:
    async def __call__(self, request):
        return 'b'


desk = Desk()
"""

colour = contextvars.ContextVar("colour", default="none")


@pytest.fixture
def loop():
    return EventLoop(WORDING)


@pytest.fixture
def serve(loop):
    made = []

    def make(function):
        made.append(CoroutineHandler(function, loop))
        return made[-1]

    yield make
    for service in made:
        service.close()


def raising(error):
    async def function(request):
        raise error

    return function


@pytest.mark.parametrize("seconds", [60.0, math.inf])
def test_coroutine_is_awaited_and_its_answer_is_the_reply(serve, seconds):
    async def function(request):
        await asyncio.sleep(0)
        return request.text.upper()

    assert call(serve(function), "hello", seconds) == Reply("HELLO")


def test_calls_of_all_services_run_in_one_loop_at_the_same_time(serve):
    there = {}
    meeting = asyncio.Barrier(4)

    async def function(request):
        await meeting.wait()
        there[request.text] = threading.get_ident(), id(asyncio.get_running_loop())

    services = [serve(function), serve(function)]
    for calling in [Calling(services[number % 2], str(number)) for number in range(4)]:
        assert calling.wait() == Reply()
    assert len(there) == 4
    assert len(set(there.values())) == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no account 17"), "ValueError: no account 17"),
        (TimeoutError("of its own"), "TimeoutError: of its own"),
        (asyncio.CancelledError(), "CancelledError"),
        (SystemExit("enough"), "SystemExit: enough"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_any_exception_is_a_failure_and_the_loop_goes_on(serve, error, reason):
    service = serve(raising(error))
    assert [str(failure_of(service)) for _ in range(2)] == [reason] * 2


def test_failure_and_unavailable_come_through_as_they_are(serve):
    error, closed = Failure("no", permanent=True), Unavailable("closed", retry_after=1)
    assert failure_of(serve(raising(error))) is error
    assert unavailability_of(serve(raising(closed))) is closed


def test_failure_that_makes_no_sense_is_one_without_what_it_says(serve):
    told = f"Failure: no; {NO_BODY}"
    assert str(failure_of(serve(raising(Failure("no", body=object()))))) == told


def test_answer_that_is_no_reply_is_a_failure(serve):
    async def function(request):
        return object()

    assert str(failure_of(serve(function))) == NO_BODY


def test_coroutine_that_takes_too_long_is_cancelled(serve):
    heard = []

    async def function(request):
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    assert str(failure_of(serve(function), seconds=0.05)) == "no reply within 0.05 seconds"
    assert heard == ["cancelled"]


def test_coroutine_that_swallows_its_cancellation_has_failed_all_the_same(serve):
    async def function(request):
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            return "done"

    assert str(failure_of(serve(function), seconds=0.05)) == "no reply within 0.05 seconds"


def test_context_of_the_caller_is_seen_in_the_coroutine(serve):
    async def function(request):
        return colour.get()

    service = serve(function)
    context = contextvars.copy_context()
    context.run(colour.set, "blue")
    assert (context.run(call, service).body, call(service).body) == ("blue", "none")


def test_messages_that_it_enqueues_belong_to_the_transaction_of_the_call(serve, queues):
    async def function(request):
        await asyncio.sleep(0)
        enqueue("NEXT", request.body)
        assert queues.usage("NEXT").messages == 0
        assert request.text == "good", "it is bad"

    service = serve(function)
    call_in(queues, service, "good")
    assert bodies(queues) == [b"good"]
    with pytest.raises(Failure, match="it is bad"):
        call_in(queues, service, "bad")
    assert bodies(queues) == []


def test_queue_space_is_not_to_be_had_in_a_coroutine(serve, queues):
    async def function(request):
        with pytest.raises(ProtocolError, match="not available in a coroutine"):
            space()

    call_in(queues, serve(function))


def test_task_that_is_left_behind_enqueues_nothing_any_more(serve, queues):
    raised = []
    go = asyncio.Event()

    async def late():
        await go.wait()
        try:
            enqueue("NEXT", "late")
        except ProtocolError as error:
            raised.append(str(error))

    async def function(request):
        if request.text == "leave":
            function.task = asyncio.create_task(late())
        else:
            go.set()
            await function.task

    service = serve(function)
    call_in(queues, service, "leave")
    call(service, "go")
    assert raised == ["no handler of a message is being called here"]
    assert bodies(queues) == []


def test_task_that_wants_to_end_the_process_does_not(serve, caplog):
    async def leave():
        raise SystemExit("enough")

    async def function(request):
        await asyncio.gather(asyncio.create_task(leave()))

    service = serve(function)
    assert str(failure_of(service)) == "SystemExit: enough"
    assert str(failure_of(service)) == "SystemExit: enough"
    assert "a task of a service ended the event loop, which goes on" in caplog.text


def test_last_service_that_is_closed_ends_the_loop_and_what_is_left_in_it(loop):
    heard = []

    async def linger():
        try:
            await asyncio.sleep(1000)
        finally:
            heard.append("cancelled")

    async def function(request):
        function.task = asyncio.create_task(linger())
        await asyncio.sleep(0)

    before = threads_named("qmadmin-event-loop")
    first, second = CoroutineHandler(function, loop), CoroutineHandler(function, loop)
    call(first)
    first.close()
    (thread,) = threads_named("qmadmin-event-loop") - before
    assert (thread.is_alive(), heard) == (True, [])
    second.close()
    assert (thread.is_alive(), heard) == (False, ["cancelled"])
    third = CoroutineHandler(function, loop)
    call(third)
    third.close()


def test_coroutine_function_of_the_services_file_is_found(services):
    assert call(services.make('python = "server:f"', server=CALLABLES)).body == "a"
    assert call(services.make('python = "server:desk"', server=CALLABLES)).body == "b"
