"""What a service does in the transaction in which its request is taken."""

import contextvars
import threading

import pytest

from qmadmin.consumers import Call, current
from qmadmin.consumers.function_handler import FunctionHandler
from qmadmin.forwarder import Failure, Unavailable, enqueue, space
from qmcore.errors import BadQueueError, InvalidArgumentError, ProtocolError
from tests.fix_service import bodies, call, call_in, request_of


@pytest.fixture
def serve():
    made = []

    def make(function):
        made.append(FunctionHandler(function))
        return made[-1]

    yield make
    for service in made:
        service.close()


def chain(request):
    enqueue("NEXT", request.body, priority=7)
    assert not request.text.startswith("bad"), "it is bad"
    return "done"


def test_message_that_a_service_enqueues_is_there_with_its_options_when_the_call_is_done(serve, queues):
    assert call_in(queues, serve(chain), "a").body == "done"
    (message,) = queues.messages("NEXT")
    assert message.priority == 7


def test_message_that_a_service_enqueues_is_not_there_when_the_call_fails(serve, queues):
    with pytest.raises(Failure):
        call_in(queues, serve(chain), "bad")
    assert bodies(queues) == []


def test_calls_on_the_queue_space_of_the_request_belong_to_its_transaction(serve, queues):
    def function(request):
        assert space() is queues
        space().enqueue("NEXT", "a")
        assert queues.usage("NEXT").messages == 0

    call_in(queues, serve(function))
    assert bodies(queues) == [b"a"]


def in_a_thread(act):
    """Run something in a thread that knows the call; return what it raised."""
    raised = []

    def run():
        try:
            act()
        except Exception as error:  # noqa: BLE001 - it is looked at
            raised.append(error)

    thread = threading.Thread(target=contextvars.copy_context().run, args=[run])
    thread.start()
    thread.join()
    return raised


def test_message_of_another_thread_of_the_service_is_there_when_the_call_is_done(serve, queues):
    def function(request):
        assert in_a_thread(lambda: enqueue("NEXT", "a")) == []
        assert queues.usage("NEXT").messages == 0

    call_in(queues, serve(function))
    assert bodies(queues) == [b"a"]


def test_queue_space_is_not_to_be_had_in_another_thread(serve, queues):
    def function(request):
        (raised,) = in_a_thread(space)
        return str(raised)

    assert "in a coroutine or a worker process" in call_in(queues, serve(function)).body


def test_option_that_there_is_not_is_refused_where_it_is_given(serve, queues):
    def function(request):
        (raised,) = in_a_thread(lambda: enqueue("NEXT", "a", prority=7))
        raise raised

    with pytest.raises(Failure, match=r"TypeError: .*prority"):
        call_in(queues, serve(function))


@pytest.mark.parametrize("queue", ["NONE", "STOPPED"])
def test_service_may_go_on_when_a_message_cannot_be_enqueued(serve, queues, queue):
    def function(request):
        with pytest.raises((BadQueueError, Unavailable)):
            enqueue(queue, "a")
        enqueue("NEXT", "b")

    call_in(queues, serve(function))
    assert bodies(queues) == [b"b"]


def test_queue_that_is_stopped_is_no_fault_of_the_message(serve, queues):
    with pytest.raises(Unavailable, match=r"^its message for queue 'STOPPED' cannot be enqueued now: "):
        call_in(queues, serve(lambda request: enqueue("STOPPED", "a")))


def test_full_queue_space_is_no_fault_of_the_message(serve, queues):
    for _ in range(50):
        queues.enqueue("NEXT", "a")
    with pytest.raises(Unavailable, match="cannot be enqueued now: "):
        call_in(queues, serve(lambda request: in_a_thread(lambda: enqueue("NEXT", "a"))[0:0] or None))


@pytest.mark.parametrize(
    ("queue", "options", "reason"),
    [
        ("NONE", {}, "its message for queue 'NONE' cannot be enqueued: there is no queue 'NONE'"),
        ("NEXT", {"priority": 700}, "its message for queue 'NEXT' cannot be enqueued: the priority"),
    ],
)
def test_call_fails_when_a_message_of_another_thread_cannot_be_enqueued(serve, queues, queue, options, reason):
    with pytest.raises(Failure) as failed:
        call_in(queues, serve(lambda request: in_a_thread(lambda: enqueue(queue, "a", **options))[0:0] or None))
    assert str(failed.value).startswith(reason)
    assert isinstance(failed.value.__cause__, (BadQueueError, InvalidArgumentError))


def test_nothing_is_to_be_had_where_no_service_is_called(queues):
    for act in (space, lambda: enqueue("NEXT", "a")):
        with pytest.raises(ProtocolError, match="no handler of a message is being called here"):
            act()


def test_nothing_is_enqueued_after_the_end_of_the_call(queues):
    with current.CurrentCall(queues, Call(request_of())):
        later = contextvars.copy_context()
    with pytest.raises(ProtocolError, match="no handler of a message is being called here"):
        later.run(enqueue, "NEXT", "a")


def test_call_without_a_queue_space_enqueues_nothing(serve):
    assert call(serve(lambda request: "done")).body == "done"
    with pytest.raises(Failure, match="ProtocolError: no handler of a message is being called here"):
        call(serve(chain))
