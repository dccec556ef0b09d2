"""kill -9 in mid-message, at every point: the queues lose nothing and double nothing."""

import signal
import sys

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


APPLICATION = """
import os

import qmadmin

app = qmadmin.App(os.environ["DEVICE"], space="QSPACE")
app.handler("WORK")(call)
"""


class Face:
    """A program that has a function work on the messages of the queue WORK."""

    def lay_out(self, site, source):
        """Write down the function `call`, and what the program reads besides."""
        site.services('[services.WORK]\npython = "server:call"', server=source)

    def command(self, site):
        return site.command("-q", "WORK")

    def start(self, site, *options, **settings):
        return site.launch([*self.command(site), *options], DEVICE=str(site.device), **settings)

    def run(self, site, **settings):
        """Run it until the queue is empty, and return its exit status."""
        return self.start(site, "-e", **settings).wait()


class WorkerProgram(Face):
    """The same with an application in Python."""

    def lay_out(self, site, source):
        super().lay_out(site, source + APPLICATION)

    def command(self, site):
        del site
        return [sys.executable, "-m", "qmadmin.program", "run", "server:app"]


@pytest.fixture(scope="module", params=[Face(), WorkerProgram()], ids=["tmqforward", "qmadmin run"])
def face(request):
    return request.param


@pytest.fixture
def space(site):
    return site.lay_out(QueueDefinition(name="WORK", retries=3), "RPLYQ", "ERRQUE")


def assert_each_request_has_one_reply(site, space):
    assert [reply.text for reply in site.all_of("RPLYQ")] == REQUESTS
    assert [space.usage(queue).messages for queue in ("WORK", "RPLYQ", "ERRQUE")] == [0, 0, 0]


def send(space):
    for body in REQUESTS:
        space.enqueue("WORK", body, reply_queue="RPLYQ")


def run_until_killed(face, site, space, point):
    """Work on the requests and die at that step, 0 for none; then let another process go on."""
    face.lay_out(site, KILLING)
    send(space)
    status = face.run(site, POINT=str(point))
    if point:
        assert status == -signal.SIGKILL
        site.wait_until_alone()
        assert face.run(site, POINT="0") == 0
    assert_each_request_has_one_reply(site, space)
    calls = site.calls()
    assert sorted(set(calls)) == REQUESTS
    # Only what was not yet committed is called again.
    assert len(calls) <= len(REQUESTS) + 1
    assert {call for call in calls if calls.count(call) > 1} <= {"2"}


@pytest.fixture(scope="module")
def steps(tmp_path_factory, face, fork_server):
    from tests.fix_process import Site

    site = Site(tmp_path_factory.mktemp("steps"), fork_server)
    space = site.lay_out("WORK", "RPLYQ", "ERRQUE")
    run_until_killed(face, site, space, 0)
    site.close()
    return int((site.directory / "steps").read_text())


@pytest.mark.matrix
@pytest.mark.parametrize("part", range(POINTS))
def test_consumer_killed_between_two_calls_neither_loses_nor_doubles(face, site, space, steps, part):
    run_until_killed(face, site, space, 1 + (steps - 2) * part // (POINTS - 1))


@pytest.mark.matrix
@pytest.mark.parametrize("site", ["postgres"], indirect=True)
@pytest.mark.parametrize("part", range(9))
def test_neither_does_one_at_work_on_a_server(face, site, space, part):
    run_until_killed(face, site, space, 0)
    steps = int((site.directory / "steps").read_text())
    (site.directory / "calls").unlink()
    # The driver waits in loops, so that there are not always as many steps.
    run_until_killed(face, site, space, 1 + (steps * 4 // 5) * part // 8)


@pytest.mark.parametrize("site", ["file", "postgres"], indirect=True)
def test_message_of_a_consumer_killed_while_the_function_works_is_worked_on_again(face, site, space):
    face.lay_out(site, BEGIN_AND_WAIT)
    send(space)
    consumer = face.start(site)
    site.wait_for_calls()
    consumer.tell(signal.SIGKILL)
    assert consumer.wait() == -signal.SIGKILL
    site.wait_until_alone()
    assert space.usage("RPLYQ").messages == 0
    (site.directory / "go").touch()
    assert face.run(site) == 0
    assert_each_request_has_one_reply(site, space)
    calls = [line.split()[1] for line in site.calls()]
    assert len(calls) == 5
    assert calls[0] == calls[1]


def test_message_whose_consumer_was_killed_is_given_to_another_at_once(face, site, space):
    face.lay_out(site, BEGIN_AND_WAIT)
    send(space)
    first = face.start(site)
    site.wait_for_calls(1)
    second = face.start(site)
    site.wait_for_calls(2)
    (site.directory / "go").touch()
    first.tell(signal.SIGKILL)
    replies = [space.dequeue("RPLYQ", wait=60).text for _ in REQUESTS]
    assert sorted(replies) == REQUESTS
    second.stop()
    assert [space.usage(queue).messages for queue in ("WORK", "RPLYQ", "ERRQUE")] == [0, 0, 0]


def test_message_that_kills_its_consumers_stays_where_there_is_no_error_queue(face, site):
    space = site.lay_out("WORK", error_queue="")
    face.lay_out(site, BEGIN_AND_WAIT)
    space.enqueue("WORK", "poison")
    for calls in (1, 2):
        consumer = face.start(site)
        site.wait_for_calls(calls)
        consumer.tell(signal.SIGKILL)
        consumer.wait()
    message = eventually(lambda: space.dequeue("WORK"))
    assert (message.text, message.retries) == ("poison", 2)


def test_message_that_kills_its_consumers_reaches_the_error_queue(face, site, space):
    face.lay_out(site, BEGIN_AND_WAIT)
    space.enqueue("WORK", "poison")
    for calls in range(1, 5):
        consumer = face.start(site)
        site.wait_for_calls(calls)
        consumer.tell(signal.SIGKILL)
        consumer.wait()
    assert eventually(lambda: space.dequeue("ERRQUE")).text == "poison"
