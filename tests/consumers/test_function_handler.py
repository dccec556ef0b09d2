"""Functions in Python, called in the thread of whoever calls."""

import contextlib
import gc
import inspect
import subprocess
import sys
import threading
import time
import weakref

import pytest

from qmadmin.consumers import deadlines as deadlines_module
from qmadmin.consumers import rollback_terms
from qmadmin.consumers.deadlines import Deadline, Deadlines
from qmadmin.consumers.function_handler import FunctionHandler
from qmadmin.forwarder import Failure, Reply, Unavailable
from qmadmin.transacting import Transaction
from tests.fix_process import environment, eventually
from tests.fix_service import NO_BODY, Calling, call, failure_of, threads_named, unavailability_of


@pytest.fixture
def serve():
    """Make a service of a function."""
    made = []

    def make(function):
        made.append(FunctionHandler(function))
        return made[-1]

    yield make
    for service in made:
        service.close()


def raising(error):
    def function(request):
        raise error

    return function


def spin(request):
    """Work for longer than any test may take."""
    end = time.monotonic() + 240
    while time.monotonic() < end:
        pass


@pytest.mark.parametrize("seconds", [60.0, float("inf")])
def test_function_is_called_with_the_message_and_its_answer_is_the_reply(serve, seconds):
    service = serve(lambda request: request.text.upper())
    assert call(service, "hello", seconds) == Reply("HELLO")
    assert call(serve(lambda request: None), "hello", seconds) == Reply(None)


def test_reply_may_have_a_return_code_a_type_and_headers(serve):
    reply = Reply(b"a", urcode=7, type="JSON", headers={"a": "b"})
    assert call(serve(lambda request: reply)) is reply


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no account 17"), "ValueError: no account 17"),
        (SystemExit("enough"), "SystemExit: enough"),
        (GeneratorExit(), "GeneratorExit"),
        (ValueError("x" * 5000), "ValueError: " + "x" * 985 + "..."),
    ],
)
def test_any_exception_is_a_failure_with_its_kind_and_text(serve, error, reason):
    failed = failure_of(serve(raising(error)))
    assert str(failed) == reason
    assert failed.__cause__ is error


def test_failure_says_more_and_comes_through_as_it_is(serve):
    error = Failure("no", body="b", urcode=3, permanent=True, retry_after=1.5)
    assert failure_of(serve(raising(error))) is error


@pytest.mark.parametrize("takes", [Failure, Transaction.rollback, Transaction.give_back])
def test_all_that_a_failure_says_of_its_message_is_passed_on_to_the_rollback(takes):
    said = rollback_terms(Failure("no"))
    of_the_message = inspect.signature(Failure).parameters.keys() - {"reason", *Reply.__dataclass_fields__}
    assert said.keys() == of_the_message == of_the_message & inspect.signature(takes).parameters.keys()


class Careless(Failure):
    def __init__(self, number):
        self.number = number


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Failure("no", body=object()), f"Failure: no; {NO_BODY}"),
        (Failure("no", body="\ud800"), "Failure: no; its body has no UTF-8 form"),
        (Failure("no", retry_after=-1), "Failure: no; its retry_after must be seconds from 0 to 2147483647, got -1"),
        (
            Failure("no", retry_after=float("nan")),
            "Failure: no; its retry_after must be seconds from 0 to 2147483647, got",
        ),
        (Failure("no", retry_after="5"), "Failure: no; its retry_after must be seconds from 0 to 2147483647, got '5'"),
        (Unavailable("no", retry_after=1e20), "Unavailable: no; its retry_after must be seconds from 0 to 2147483647"),
        (Failure("a\0\ud800"), "Failure: a\\x00\\ud800; its reason cannot be recorded as it is"),
        (
            Careless(17),
            "Careless: 17; it cannot be read: AttributeError: 'Careless' object has no attribute 'retry_after'",
        ),
        (ValueError("a\0\ud800"), "ValueError: a\\x00\\ud800"),
    ],
)
def test_failure_that_makes_no_sense_is_one_without_what_it_says(serve, error, reason):
    failed = failure_of(serve(raising(error)))
    assert str(failed).startswith(reason)
    assert (failed.reply, failed.permanent, failed.retry_after) == (Reply(), False, None)
    assert failed.__cause__ is error


def test_service_that_cannot_work_at_present_says_so(serve):
    error = Unavailable("closed", retry_after=5)
    assert unavailability_of(serve(raising(error))) is error


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            {"a": object()},
            'its answer cannot be encoded: the body\'s ["a"] is of type object, which JSON does not have',
        ),
        (Reply(b"", urcode="7"), "its user return code is str, and not int"),
        (Reply(object()), NO_BODY),
        ("\ud800", "its body has no UTF-8 form"),
        (Reply(b"", type=7), "its type is int, and not str"),
        (Reply(b"", headers=["a"]), "its headers are list, not a mapping of names to values"),
    ],
)
def test_answer_that_is_no_reply_is_a_failure(serve, answer, reason):
    assert str(failure_of(serve(lambda request: answer))) == reason


def test_function_that_takes_too_long_is_interrupted_in_any_thread(serve):
    calling = Calling(serve(spin), seconds=0.05)
    assert str(calling.wait()) == "no reply within 0.05 seconds"
    assert str(failure_of(serve(spin), seconds=0.05)) == "no reply within 0.05 seconds"


def test_function_that_swallows_the_interruption_has_failed_all_the_same(serve):
    def stubborn(request):
        try:
            spin(request)
        except BaseException:  # noqa: BLE001 - it is stubborn
            return "done"

    assert str(failure_of(serve(stubborn), seconds=0.05)) == "no reply within 0.05 seconds"


def test_answer_that_comes_too_late_is_none(serve):
    # What sleeps in the system is not interrupted: it returns when it likes.
    def late(request):
        time.sleep(0.1)
        return "done"

    assert str(failure_of(serve(late), seconds=0.01)) == "no reply within 0.01 seconds"


def test_interruption_never_hits_what_comes_after_the_call(serve):
    # Calls that end just when their time is over: each has one of two ends, and nothing happens behind it.
    def function(request):
        return "done" if sum(range(2000)) and request.text != "spin" else spin(request)

    service = serve(function)
    ends = set()
    for number in range(1000):
        try:
            ends.add(call(service, "" if number % 50 else "spin", seconds=1e-6 * (number % 200)).body)
        except Failure as error:
            ends.add(str(error).partition(" within")[0])
        # Enough for an exception that was left behind to be raised.
        for _ in range(20):
            assert ends
    assert ends == {"done", "no reply"}


def test_interruption_that_was_decided_on_is_waited_for(serve, monkeypatch):
    # The function returns after the decision to interrupt it, and before it is interrupted.
    decided, returned, watches = threading.Event(), threading.Event(), []

    class SlowWatch(Deadline):
        def __init__(self, at, act):
            def slowly():
                decided.set()
                threading.Timer(0.05, returned.set).start()
                assert returned.wait(60)
                act()

            watches.append(self)
            super().__init__(at, slowly)

    monkeypatch.setattr(deadlines_module, "Deadline", SlowWatch)
    service = serve(lambda request: decided.wait(60))
    assert str(failure_of(service, seconds=0.001)) == "no reply within 0.001 seconds"
    # It would be raised here.
    eventually(lambda: watches[0].acted)


STUBBORN = """
import sys
from qmadmin.consumers.function_handler import FunctionHandler
from tests.fix_service import failure_of

def stubborn(request):
    try:
        while True:
            pass
    except BaseException:
        return "done"

print(failure_of(FunctionHandler(stubborn), seconds=0.01))
sys.settrace(lambda *_: None)
(lambda: None)()
print("traced")
"""


def test_interruption_leaves_nothing_that_python_goes_on_looking_for():
    # It would not notice a signal either: no other end than to be killed.
    command = [sys.executable, "-c", STUBBORN]
    ran = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=240, check=False)
    assert (ran.stdout, ran.stderr) == ("no reply within 0.01 seconds\ntraced\n", "")


def test_several_threads_call_at_once_and_each_has_its_own_deadline(serve):
    meeting = threading.Barrier(3)

    def function(request):
        meeting.wait(60)
        if request.text == "slow":
            spin(request)
        return request.text

    service = serve(function)
    slow = Calling(service, "slow", seconds=1)
    others = [Calling(service, str(number), seconds=50) for number in range(2)]
    assert [other.wait().body for other in others] == ["0", "1"]
    assert str(slow.wait()) == "no reply within 1 seconds"


def test_call_leaves_nothing_behind(serve):
    class Thing:
        pass

    kept = []

    def function(request):
        thing = Thing()
        kept.append(weakref.ref(thing))
        raise ValueError(thing)

    service = serve(function)
    gc.disable()
    try:
        with contextlib.suppress(Failure):
            call(service)
        assert kept[0]() is None
    finally:
        gc.enable()


def test_closed_service_has_no_thread(serve):
    service = serve(lambda request: "done")
    before = threads_named("qmadmin-deadlines")
    call(service, seconds=50)
    (thread,) = threads_named("qmadmin-deadlines") - before
    service.close()
    assert not thread.is_alive()


# ---- deadlines ----


@pytest.fixture
def deadlines():
    deadlines = Deadlines("a test")
    yield deadlines
    deadlines.close()


def test_watch_acts_when_its_time_has_come_and_then_cannot_be_ended(deadlines):
    acted = []
    watch = Deadline(time.monotonic(), lambda: acted.append("acted"))
    deadlines.add(watch)
    eventually(lambda: watch.acted)
    assert acted == ["acted"]
    assert not watch.end()


def test_watch_that_has_ended_never_acts(deadlines):
    watch = Deadline(time.monotonic() - 1, lambda: pytest.fail("it acted"))
    assert watch.end()
    deadlines.add(watch)
    other = Deadline(time.monotonic(), lambda: None)
    deadlines.add(other)
    eventually(lambda: other.acted)
    assert not watch.acted


def test_earlier_watch_is_not_kept_waiting_by_a_later_one(deadlines):
    deadlines.add(Deadline(time.monotonic() + 10_000, lambda: None))
    soon = Deadline(time.monotonic() + 0.01, lambda: None)
    deadlines.add(soon)
    eventually(lambda: soon.acted)
