"""Suspended transactions and real processes: who resumes them, and what the death of either process means."""

import math
import threading

import pytest

from qmadmin.opening import open_device
from qmcore.errors import NotSuspendedError
from qmcore.probe import Point
from qmcore.records import Outcome
from tests.fix_store import DEADLINE, Work, attachment_of, bodies_held, drain, make_queue

SUSPENDS = """
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
with space.transaction() as tx:
    space.enqueue("OUT", space.dequeue("Q").text)
    say(tx.suspend())
while True:
    say(heard())
"""
"""Takes a message and answers it, and suspends that; then it stays."""

RESUMES = """
with open_device(sys.argv[1]) as device, device.open_space("SPACE", role="second") as space:
    say("ready")
    token = heard()
    try:
        tx = space.resume(token)
    except NotSuspendedError as refused:
        say("refused", refused.resumed)
    else:
        with tx:
            say("resumed", space.dequeue("Q"))
            if heard() == "commit":
                space.enqueue("OUT", "of the second")
            else:
                tx.rollback()
        say("done")
"""


@pytest.fixture
def space(real_device):
    with real_device.open_space("SPACE") as space:
        make_queue(space, "OUT")
        space.enqueue("Q", "x")
        yield space


def ended(space):
    """Return what is left when housekeeping has ended what dead processes had: waiting messages, and answers."""
    attachment_of(space).do_housekeeping(now=True)
    found = [(message.text, message.retries) for message in iter(lambda: space.dequeue("Q"), None)]
    return found, drain(space, "OUT"), space.transactions()


@pytest.fixture
def suspender(space, start):
    return start(SUSPENDS, space.device.config)


@pytest.fixture
def token(suspender):
    return suspender.line()


@pytest.mark.parametrize("end", ["commit", "roll back"])
def test_another_process_resumes_it_and_ends_it(space, start, suspender, token, end):
    second = start(RESUMES, space.device.config)
    second.expect("ready")
    second.say(token)
    second.expect("resumed None")
    (info,) = space.transactions()
    assert (info.state, info.owner.role, info.owner.pid) == (Outcome.ACTIVE, "second", second.pid)
    # Its first process goes, and takes nothing with it.
    suspender.kill()
    attachment_of(space).do_housekeeping(now=True)
    assert bodies_held(space) == (0, 0, 1)
    second.say(end)
    second.expect("done")
    second.finish()
    left, answers, open_ones = ended(space)
    wanted = ([], ["x", "of the second"]) if end == "commit" else ([("x", 1)], [])
    assert (left, answers, open_ones) == (*wanted, [])


def test_the_death_of_the_process_that_has_suspended_it_rolls_it_back(space, suspender, token):
    assert space.dequeue("Q") is None
    suspender.kill()
    with pytest.raises(NotSuspendedError, match="has ended") as refused:
        space.resume(token)
    assert refused.value.resumed is False
    assert ended(space) == ([("x", 1)], [], [])


def test_the_death_of_the_process_that_has_resumed_it_rolls_it_back(space, start, suspender, token):
    second = start(RESUMES, space.device.config)
    second.expect("ready")
    second.say(token)
    second.expect("resumed None")
    second.kill()
    # Its first process lives, and has no part in it any more.
    suspender.say("lives")
    suspender.expect("lives")
    with pytest.raises(NotSuspendedError):
        space.resume(token)
    assert ended(space) == ([("x", 1)], [], [])


def test_of_several_processes_one_resumes_it(space, start, suspender, token):
    others = [start(RESUMES, space.device.config) for _ in range(3)]
    for other in others:
        other.expect("ready")
    for other in others:
        other.say(token)
    said = [other.line() for other in others]
    assert sorted(said) == ["refused True", "refused True", "resumed None"]
    others[said.index("resumed None")].say("commit")
    assert others[said.index("resumed None")].line() == "done"
    assert ended(space) == ([], ["x", "of the second"], [])


FORKS = """
with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space:
    with space.transaction() as tx:
        space.enqueue("OUT", space.dequeue("Q").text)
        if os.fork() == 0:
            try:
                tx.suspend()
            except ProtocolError as refused:
                say(str(refused).rpartition(" process ")[0])
            os._exit(0)
        os.wait()
        token = tx.suspend()
    if os.fork() == 0:
        with space.resume(token):
            space.enqueue("OUT", "of the fork")
        device.close()
        os._exit(0)
    os.wait()
    try:
        space.resume(token)
    except NotSuspendedError:
        say("ended")
"""


def test_a_fork_does_not_suspend_its_parents_and_resumes_it_as_any_other_process(space, start):
    child = start(FORKS, space.device.config)
    child.expect("the transaction belongs to", "ended")
    child.finish()
    assert ended(space) == ([], ["x", "of the fork"], [])


def test_housekeeping_that_has_seen_its_owner_dead_leaves_alone_what_was_resumed_since(space, suspender, token):
    looked, resumed = threading.Event(), threading.Event()
    # Only what the test asks for.
    attachment_of(space).next_housekeeping = math.inf
    with open_device(space.device.config) as device, device.open_space("SPACE") as keeper:

        def has_looked(_fact):
            keeper.probe.leave(Point.BEFORE_WRITE)
            looked.set()
            assert resumed.wait(DEADLINE)

        def is_about_to_resume(_fact):
            space.probe.leave(Point.BEFORE_WRITE)
            suspender.kill()
            works.append(Work(lambda: attachment_of(keeper).do_housekeeping(now=True)))
            assert looked.wait(DEADLINE)

        works = []
        keeper.probe.at(Point.BEFORE_WRITE, has_looked)
        space.probe.at(Point.BEFORE_WRITE, is_about_to_resume)
        with space.resume(token):
            resumed.set()
            assert works[0].results() == [None]
            (info,) = keeper.transactions()
            assert (info.state, info.lives) == (Outcome.ACTIVE, True)
        assert len(device.attached("SPACE")) == 2
    assert ended(space) == ([], ["x"], [])
