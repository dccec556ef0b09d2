"""kill -9 in mid-message, at every point: the queues lose nothing and double nothing."""

import signal

import pytest

from qmadmin import QueueDefinition
from tests.fix_process import BEGIN_AND_WAIT, eventually

REQUESTS = ["1", "2", "3", "4"]
POINTS = 24

# Counts the calls and returns of functions, Python's and C's, from the end of the second call of the service to the
# beginning of the third: the reply is queued, the commit made, the next message taken. At a given count it kills.
KILLING = """
import os, pathlib, signal, sys

HERE = pathlib.Path(__file__).parent
POINT = int(os.environ["POINT"])
steps = 0


def step(frame, event, argument):
    global steps
    steps += 1
    if steps == POINT:
        (HERE / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)


def call(request):
    sys.setprofile(None)
    with open(HERE / "calls", "a") as calls:
        calls.write(request.text + "\\n")
    if request.text == "3":
        (HERE / "steps").write_text(str(steps))
    if request.text == "2" and not (HERE / "killed").exists():
        sys.setprofile(step)
    return request.text
"""


@pytest.fixture
def space(site):
    return site.lay_out(QueueDefinition(name="WORK", retries=3), "RPLYQ", "ERRQUE")


def assert_each_request_has_one_reply(site, space):
    assert [reply.text for reply in site.all_of("RPLYQ")] == REQUESTS
    assert [space.usage(queue).messages for queue in ("WORK", "RPLYQ", "ERRQUE")] == [0, 0, 0]


def send(space):
    for body in REQUESTS:
        space.enqueue("WORK", body, reply_queue="RPLYQ")


def run_until_killed(site, space, point):
    """Forward the requests and die at that step, 0 for none; then let another forwarder go on."""
    site.services('[services.WORK]\npython = "server:call"', server=KILLING)
    send(space)
    status = site.run("-q", "WORK", "-e", POINT=str(point)).process.returncode
    if point:
        assert status == -signal.SIGKILL
        site.wait_until_alone()
        assert site.run("-q", "WORK", "-e", POINT="0").process.returncode == 0
    assert_each_request_has_one_reply(site, space)
    calls = site.calls()
    assert sorted(set(calls)) == REQUESTS
    # Only what was not yet committed is called again.
    assert len(calls) <= len(REQUESTS) + 1
    assert {call for call in calls if calls.count(call) > 1} <= {"2"}


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    from tests.fix_process import Site

    site = Site(tmp_path_factory.mktemp("steps"))
    space = site.lay_out("WORK", "RPLYQ", "ERRQUE")
    run_until_killed(site, space, 0)
    site.close()
    return int((site.directory / "steps").read_text())


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=() if part % 6 == 2 else pytest.mark.slow) for part in range(POINTS)]
)
def test_forwarder_killed_between_two_calls_neither_loses_nor_doubles(site, space, steps, part):
    run_until_killed(site, space, 1 + (steps - 2) * part // (POINTS - 1))


@pytest.mark.parametrize("site", ["postgres"], indirect=True)
@pytest.mark.parametrize("part", [pytest.param(part, marks=() if part == 8 else pytest.mark.slow) for part in range(9)])
def test_neither_does_one_at_work_on_a_server(site, space, part):
    run_until_killed(site, space, 0)
    steps = int((site.directory / "steps").read_text())
    (site.directory / "calls").unlink()
    # The driver waits in loops, so that there are not always as many steps.
    run_until_killed(site, space, 1 + (steps * 4 // 5) * part // 8)


@pytest.mark.parametrize("site", ["file", "postgres"], indirect=True)
def test_forwarder_killed_while_the_service_works_calls_it_again(site, space):
    site.services('[services.WORK]\npython = "server:call"', server=BEGIN_AND_WAIT)
    send(space)
    forwarder = site.start("-q", "WORK")
    site.wait_for_calls()
    forwarder.tell(signal.SIGKILL)
    assert forwarder.wait() == -signal.SIGKILL
    site.wait_until_alone()
    assert space.usage("RPLYQ").messages == 0
    (site.directory / "go").touch()
    assert site.run("-q", "WORK", "-e").process.returncode == 0
    assert_each_request_has_one_reply(site, space)
    calls = [line.split()[1] for line in site.calls()]
    assert len(calls) == 5
    assert calls[0] == calls[1]


def test_message_whose_consumer_was_killed_is_given_to_another_at_once(site, space):
    site.services('[services.WORK]\npython = "server:call"', server=BEGIN_AND_WAIT)
    send(space)
    first = site.start("-q", "WORK")
    site.wait_for_calls(1)
    second = site.start("-q", "WORK")
    site.wait_for_calls(2)
    (site.directory / "go").touch()
    first.tell(signal.SIGKILL)
    replies = [space.dequeue("RPLYQ", wait=60).text for _ in REQUESTS]
    assert sorted(replies) == REQUESTS
    second.stop()
    assert [space.usage(queue).messages for queue in ("WORK", "RPLYQ", "ERRQUE")] == [0, 0, 0]


def test_message_that_kills_its_consumers_stays_where_there_is_no_error_queue(site):
    space = site.lay_out("WORK", error_queue="")
    site.services('[services.WORK]\npython = "server:call"', server=BEGIN_AND_WAIT)
    space.enqueue("WORK", "poison")
    for calls in (1, 2):
        forwarder = site.start("-q", "WORK")
        site.wait_for_calls(calls)
        forwarder.tell(signal.SIGKILL)
        forwarder.wait()
    message = eventually(lambda: space.dequeue("WORK"))
    assert (message.text, message.retries) == ("poison", 2)


def test_message_that_kills_its_consumers_reaches_the_error_queue(site, space):
    site.services('[services.WORK]\npython = "server:call"', server=BEGIN_AND_WAIT)
    space.enqueue("WORK", "poison")
    for calls in range(1, 5):
        forwarder = site.start("-q", "WORK")
        site.wait_for_calls(calls)
        forwarder.tell(signal.SIGKILL)
        forwarder.wait()
    assert eventually(lambda: space.dequeue("ERRQUE")).text == "poison"
