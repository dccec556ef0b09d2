"""Works that a process leaves to the one which has the writer: each is done once, whoever dies or stands still."""

import contextlib
import signal
import sys

import pytest

from tests.fix_handoff import FIRST, KNOWING, places_of
from tests.fix_store import drain

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere processes wait for their turn")


def queued(device):
    """Return the bodies of the queue, in their order."""
    with device.open_space("SPACE") as space:
        return drain(space)


def after(act, *others):
    """Return what the queue has after the work of the owner, and the works of others."""
    return sorted([FIRST, "owner's", *others] if act == "enqueue" else others)


BEFORE_COMMIT = ["taken", "answered"]
AFTER_COMMIT = ["committed", "noted", "synced"]
ACTS = pytest.mark.parametrize(("act", "said"), [("enqueue", "done"), ("dequeue", FIRST)])


@ACTS
def test_who_is_inside_does_the_work_of_who_waits(meeting, file_device, act, said):
    server, owner = meeting("never", act)
    server.say()
    for child, word in ((server, "done"), (owner, said)):
        child.expect(word)
        child.say()
        child.finish()
    assert sorted(queued(file_device)) == after(act, "server's")


@ACTS
@pytest.mark.parametrize("step", [*BEFORE_COMMIT, *AFTER_COMMIT])
def test_a_work_is_done_once_wherever_the_process_that_does_it_is_killed(meeting, file_device, act, said, step):
    server, owner = meeting(step, act)
    server.say()
    server.expect(step)
    server.kill()
    owner.expect(said)
    owner.kill()
    assert sorted(queued(file_device)) == after(act, *(["server's"] if step in AFTER_COMMIT else []))


@pytest.mark.parametrize("step", BEFORE_COMMIT)
@pytest.mark.parametrize("interrupted", [False, True])
def test_works_of_several_are_done_once_where_who_did_them_ends_before_his_commit(
    meeting, file_device, step, interrupted
):
    """Whoever comes next does them again, and counts a commit: the answers that are left must not seem to be in it."""
    server, *owners = meeting(step, owners=3)
    server.say()
    server.expect(step)
    if interrupted:
        server.say("interrupt")
        server.expect("interrupted")
    else:
        server.kill()
    for owner in owners:
        owner.expect("done")
        owner.kill()
    assert sorted(queued(file_device)) == [FIRST, *["owner's"] * 3]


def test_a_queue_is_not_said_to_be_empty_by_a_commit_that_comes_to_nothing(meeting, file_device):
    server, owner = meeting("answered", "dequeue", served_by=["dequeue"])
    server.say()
    server.expect("answered")
    server.kill()
    owner.expect(FIRST)


@ACTS
@pytest.mark.parametrize("step", [*BEFORE_COMMIT, *AFTER_COMMIT])
def test_a_work_is_done_once_wherever_its_owner_is_killed_after_it_was_taken(meeting, file_device, act, said, step):
    server, owner = meeting(step, act)
    server.say()
    server.expect(step)
    owner.kill()
    server.say()
    server.expect("done")
    assert sorted(queued(file_device)) == after(act, "server's")


@ACTS
def test_nothing_is_done_for_an_owner_that_was_killed_before(meeting, file_device, act, said):
    server, owner = meeting("never", act)
    owner.kill()
    server.say()
    server.expect("done")
    assert queued(file_device) == [FIRST, "server's"]


@ACTS
def test_nothing_is_done_for_an_owner_that_was_interrupted_before(meeting, file_device, act, said):
    server, owner = meeting("never", act)
    owner.signal(signal.SIGINT)
    owner.expect("interrupted")
    server.say()
    server.expect("done")
    assert queued(file_device) == [FIRST, "server's"]


@pytest.mark.parametrize("act", ["enqueue", "dequeue"])
def test_nothing_is_done_for_an_owner_that_was_interrupted_twice_and_lives_on(meeting, file_device, act):
    """The second time where it takes back what it has posted."""
    server, owner = meeting("never", act, "twice")
    owner.signal(signal.SIGINT)
    owner.expect("interrupted")
    server.say()
    server.expect("done")
    owner.say("dequeue")
    owner.expect(FIRST)
    assert queued(file_device) == ["server's"]


@ACTS
def test_an_owner_that_stood_still_for_longer_than_it_would_wait_finds_its_answer(meeting, file_device, act, said):
    server, owner = meeting("never", act, "late")
    server.say()
    server.expect("done")
    owner.say()
    owner.expect(said)
    assert sorted(queued(file_device)) == after(act, "server's")


@ACTS
def test_an_owner_that_stood_still_for_longer_than_it_would_wait_goes_through_an_open_gate(
    meeting, file_device, act, said
):
    server, owner = meeting("never", act, "late")
    server.kill()
    owner.say()
    owner.expect(said)
    assert queued(file_device) == after(act)


@ACTS
def test_an_owner_that_stood_still_finds_its_answer(meeting, file_device, act, said):
    server, owner = meeting("never", act)
    owner.freeze()
    server.say()
    server.expect("done")
    owner.signal(signal.SIGCONT)
    owner.expect(said)
    assert sorted(queued(file_device)) == after(act, "server's")


@ACTS
@pytest.mark.parametrize("step", [*BEFORE_COMMIT, "committed"])
def test_the_outcome_is_unknown_where_who_has_begun_stands_still(meeting, file_device, act, said, step):
    server, owner = meeting(step, act, "impatient")
    server.say()
    server.expect(step)
    server.freeze()
    owner.expect("QMEUNKNOWN")
    server.signal(signal.SIGCONT)
    server.say()
    server.expect("done")
    assert sorted(queued(file_device)) == after(act, "server's")


@ACTS
def test_a_work_is_refused_and_never_done_where_who_is_inside_stands_still_before_it_is_taken(
    meeting, file_device, act, said
):
    server, owner = meeting("never", act, "impatient")
    server.freeze()
    owner.expect("QMESYSTEM")
    server.signal(signal.SIGCONT)
    server.say()
    server.expect("done")
    assert queued(file_device) == [FIRST, "server's"]


@ACTS
def test_a_work_that_its_owner_gives_up_while_it_is_read_is_not_done(meeting, file_device, act, said):
    server, owner = meeting("read", act, "impatient")
    server.say()
    server.expect("read")
    owner.expect("QMESYSTEM")
    server.say()
    server.expect("done")
    assert queued(file_device) == [FIRST, "server's"]


@ACTS
@pytest.mark.parametrize("step", ["noted", "synced"])
def test_an_owner_brings_to_the_disk_himself_what_is_committed_where_the_other_stands_still(
    meeting, file_device, act, said, step
):
    server, owner = meeting(step, act)
    server.say()
    server.expect(step)
    server.freeze()
    owner.expect(said)
    server.signal(signal.SIGCONT)
    server.say()
    server.expect("done")
    assert sorted(queued(file_device)) == after(act, "server's")


@ACTS
def test_an_owner_brings_to_the_disk_himself_what_the_other_could_not(meeting, file_device, act, said):
    server, owner = meeting("sync fails", act)
    server.say()
    server.expect("QMEUNKNOWN")
    owner.expect(said)
    assert sorted(queued(file_device)) == after(act, "server's")


def test_the_outcome_is_unknown_where_it_cannot_be_read_whether_the_work_is_committed(meeting, file_device):
    server, owner = meeting("committed", "enqueue", "counts unread")
    server.say()
    server.expect("committed")
    server.kill()
    owner.expect("QMEUNKNOWN")
    assert sorted(queued(file_device)) == after("enqueue", "server's")


@pytest.mark.parametrize("killed", [False, True])
def test_the_outcome_is_unknown_where_the_answer_is_damaged(meeting, file_device, killed):
    server, owner = meeting("committed", "enqueue", "impatient")
    server.say()
    server.expect("committed")
    with contextlib.closing(places_of(file_device.path)) as places:
        # As if nothing had ever been written there.
        places.answer(0, 0, 0, b"")
    if killed:
        server.kill()
    else:
        server.say()
        server.expect("done")
    owner.expect("QMEUNKNOWN")
    assert sorted(queued(file_device)) == after("enqueue", "server's")


@pytest.mark.parametrize("how", ["garbage", "too short"])
def test_a_work_that_fails_in_another_process_is_done_by_its_owner(meeting, file_device, how):
    server, owner = meeting("never", "enqueue", how)
    server.say()
    server.expect("done")
    owner.expect("done")
    assert sorted(queued(file_device)) == after("enqueue", "server's")


def test_a_work_is_done_once_where_sqlite_undoes_the_transaction_by_itself(meeting, file_device):
    """As it does where the disk is full: another may be inside before anything can be said."""
    server, owner = meeting("undone")
    server.say()
    server.expect("done")
    owner.expect("done")
    assert sorted(queued(file_device)) == after("enqueue", "server's")


PRODUCING = """
with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space:
    say("ready")
    heard()
    for number in range(int(sys.argv[3])):
        space.enqueue("Q", f"{sys.argv[2]}-{number}")
        say(number)
"""

CONSUMING = """
with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space:
    say("ready")
    heard()
    while True:
        message = space.dequeue("Q")
        if message is not None:
            say(message.text)
            if message.text == "end":
                break
"""


def test_nothing_is_lost_or_done_twice_where_processes_are_killed_among_others(start, file_device):
    each, killed_at = 400, 150
    producers = [start(PRODUCING, file_device.path, who, each) for who in "abc"]
    consumers = [start(CONSUMING, file_device.path) for _ in range(3)]
    for child in (*producers, *consumers):
        child.expect("ready")
    for child in (*producers, *consumers):
        child.say()
    producers[0].expect(*map(str, range(killed_at)))
    producers[0].kill()
    seen = [consumers[0].line() for _ in range(killed_at)]
    consumers[0].kill()
    acknowledged = {f"a-{number}" for number in range(killed_at + len(producers[0].lines_left()))}
    for who, child in zip("bc", producers[1:], strict=True):
        acknowledged |= {f"{who}-{number}" for number in range(len(child.lines_left()))}
        child.finish()
    with file_device.open_space("SPACE") as space:
        for _ in consumers[1:]:
            space.enqueue("Q", "end")
        for child in consumers:
            seen += child.lines_left()
        left = drain(space)
    bodies = [body for body in (*seen, *left) if body != "end"]
    assert len(set(bodies)) == len(bodies), "none comes twice"
    assert len(acknowledged - set(bodies)) <= 1, "but for one that the killed consumer was just given"
    assert len(set(bodies) - acknowledged) <= 1, "but for one that the killed producer was just told of"


def test_a_child_that_is_forked_while_its_parent_waits_is_refused_and_the_parent_gets_its_answer(meeting, file_device):
    server, owner = meeting("never", "enqueue", "forks")
    owner.say()
    server.say()
    server.expect("done")
    owner.expect("done", "child 7")
    assert sorted(queued(file_device)) == after("enqueue", "server's")


def test_a_child_that_is_forked_while_its_parent_waits_does_nothing_where_the_gate_is_open_for_it(meeting, file_device):
    server, owner = meeting("never", "enqueue", "forks at the gate")
    server.kill()
    owner.say()
    owner.expect("child 7", "done")
    assert sorted(queued(file_device)) == after("enqueue")


FORKING = (
    KNOWING
    + """
if os.fork() == 0:
    handoff.tell([(place, 7)])
    os._exit(0)
say(os.wait()[1], handoff_memory.open_places(files.surroundings(sys.argv[1])).synced[place])
"""
)


def test_a_child_that_is_forked_before_others_are_told_leaves_that_to_its_parent(start, file_device):
    start(FORKING, file_device.path).expect("0 0")


FORKING_INSIDE = """
from qmstorage.sqlite.group_commit import Work

def arrives_and_forks(*arguments, **more):
    Work.run = arrive
    arrive(*arguments, **more)
    global forked
    forked = os.fork()
    if forked == 0:
        os.read(reading, 1)

with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space:
    space.enqueue("Q", "one")
    reading, writing = os.pipe()
    arrive, Work.run = Work.run, arrives_and_forks
    try:
        space.enqueue("Q", "two")
        how = "done"
    except QueueError as error:
        how = error.name
    if forked == 0:
        os._exit(7 if how == "QMENOTOPEN" else 8)
    say(how)
    heard()
    os.write(writing, b"!")
    say("child", os.waitpid(forked, 0)[1] >> 8)
"""
"""Enqueues a message, and forks in the midst of that, as a signal handler may; the child goes on later."""


def test_a_child_that_is_forked_inside_does_not_commit_over_what_others_have_written(start, file_device):
    """SQLite's locks are its parent's."""
    parent = start(FORKING_INSIDE, file_device.path)
    parent.expect("done")
    with file_device.open_space("SPACE") as space:
        for number in range(20):
            space.enqueue("Q", str(number))
    parent.say()
    parent.expect("child 7")
    assert queued(file_device) == ["one", "two", *map(str, range(20))]


def test_what_a_dead_process_has_posted_is_cleared_away_though_it_was_done(meeting, file_device):
    server, owner = meeting("never")
    owner.freeze()
    server.say()
    server.expect("done")
    owner.kill()
    with file_device.open_space("SPACE") as space:
        places = places_of(file_device.path)
        assert places.any_posted()
        space.enqueue("Q", "more")
        assert not places.any_posted()
        places.close()


# ---- interrupts -----------------------------------------------------------------------------------------------------

ROUNDS = """
import contextlib
from importlib import import_module
from qmstorage.sqlite import handoff, handoff_memory, writer_gate
from tests.interrupts import InterruptedAt

looks, post, enters = handoff_memory.Places.any_posted, handoff.Handoff.post, writer_gate.WriterGate.try_enter
posted = []

def pauses_and_looks(its):
    handoff_memory.Places.any_posted = looks
    say("inside")
    heard()
    return looks(its)

def notes_and_posts(its, request):
    left = post(its, request)
    if left:
        posted.append(request)
    return left

def enters_or_tells(its):
    inside = enters(its)
    if posted and not inside:
        writer_gate.WriterGate.try_enter = enters
        say("posted")
    return inside

_, path, who, module = sys.argv
line = 0
with open_device(path) as device, device.open_space("SPACE") as space:
    space.enqueue("ERRORS", "something else")
    say("ready")
    while heard() != "end":
        line += 1
        handoff_memory.Places.any_posted = pauses_and_looks if who == "server" else looks
        posted.clear()
        if who == "owner":
            handoff.Handoff.post, writer_gate.WriterGate.try_enter = notes_and_posts, enters_or_tells
        how = "done"
        with contextlib.ExitStack() as stack:
            if module:
                its = stack.enter_context(InterruptedAt(import_module(module), line))
            try:
                space.enqueue("Q", who)
            except KeyboardInterrupt:
                how = "interrupted"
        say(how if not module or its.was_reached else "not reached")
"""
"""Enqueues messages, each interrupted a line later, as one who does works of others or one who leaves them his."""


@pytest.mark.parametrize("module", ["committing", "handoff", "handoff_requests", "handoff_memory"])
@pytest.mark.parametrize("interrupted", ["server", "owner"])
def test_a_work_is_done_once_and_the_next_too_wherever_an_interrupt_comes(start, file_device, interrupted, module):
    module = f"qmstorage.sqlite.{module}"
    server, owner = (
        start(ROUNDS, file_device.path, who, module if who == interrupted else "") for who in ("server", "owner")
    )
    for child in (server, owner):
        child.expect("ready")
    said = set()
    with file_device.open_space("SPACE") as space:
        while "not reached" not in said:
            server.say()
            word = server.line()
            if word == "inside":
                owner.say()
                owner_word = owner.line()
                server.say()
                word = server.line()
                if owner_word == "posted":
                    owner_word = owner.line()
            else:
                owner.say()
                owner_word = owner.line()
                if owner_word == "posted":
                    owner_word = owner.line()
            bodies = drain(space)
            assert len(set(bodies)) == len(bodies), f"{bodies}, as the server is {word} and the owner {owner_word}"
            for who, its_word in (("server", word), ("owner", owner_word)):
                assert who in bodies or its_word == "interrupted"
            usage = space.usage("Q")
            assert (usage.ready, usage.held) == (0, 0)
            said |= {word, owner_word}
    assert said == {"done", "interrupted", "not reached"}
