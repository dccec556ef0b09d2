"""Consumers of one queue in processes of their own: each gets all, whatever happens to the others."""

import contextlib

import pytest

from qmcore.errors import NoRecipientsError, QueueError
from qmcore.findings import Severity
from tests.fix_store import count_rows, drain, eventually, make_queue

CONSUME = """
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
name, most = sys.argv[2], int(sys.argv[3])
say("ready")
heard()
taken = []
while len(taken) < most:
    with space.transaction():
        message = space.dequeue("TOPIC", consumer=name, wait=60)
        taken.append(message.text)
        if len(taken) % 7 == 0:
            space.enqueue("OUT", message.text)
say(*taken)
"""

PRODUCE = """
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
mark, most = sys.argv[2], int(sys.argv[3])
say("ready")
heard()
sent = []
for number in range(most):
    try:
        space.enqueue("TOPIC", f"{mark}{number}")
    except NoRecipientsError:
        continue
    sent.append(f"{mark}{number}")
say(*sent)
"""

PRODUCE_BY_TURNS = """
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
most = int(sys.argv[2])
say("ready")
heard()
for number in range(most):
    mark = "ab"[number % 2]
    with space.transaction() if number % 3 else contextlib.nullcontext():
        space.enqueue("TOPIC", f"{mark}{number}", headers={"mark": mark}, topic=f"x.{mark}")
say("done")
"""

HOLD = """
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
transaction = space.transaction()
transaction.join_context()
say(*(space.dequeue("TOPIC", consumer=name).text for name in sys.argv[2:]))
heard()
"""

COUNT = 120


@pytest.fixture
def space(real_device):
    with real_device.open_space("SPACE") as opened:
        make_queue(opened, "TOPIC", multiple_consumers=True, retries=1)
        make_queue(opened, "OUT")
        yield opened


def sound(device):
    """Prove that what is stored and what is counted agree."""
    assert [each.sentence for each in device.check("SPACE") if each.severity is Severity.ERROR] == []


def test_each_consumer_gets_each_message_once(real_device, space, start):
    names = ("one", "two", "three")
    for name in names:
        space.subscribe("TOPIC", name)
    consumers = [start(CONSUME, real_device.path, name, 2 * COUNT) for name in names]
    producers = [start(PRODUCE, real_device.path, mark, COUNT) for mark in "ab"]
    for child in (*consumers, *producers):
        child.expect("ready")
    for child in (*consumers, *producers):
        child.say()
    sent = [child.line().split() for child in producers]
    taken = [child.line().split() for child in consumers]
    for child in (*consumers, *producers):
        child.finish()
    for its in taken:
        assert sorted(its) == sorted([*sent[0], *sent[1]])
        # Those of one sender come in their order.
        assert [text for text in its if text[0] == "a"] == sent[0]
    assert space.usage("TOPIC").messages == 0
    assert count_rows(space, "message", "share") == (len(drain(space, "OUT")), 0)
    sound(real_device)


def test_processes_that_share_a_name_share_its_messages(real_device, space, start):
    for name in ("one", "two"):
        space.subscribe("TOPIC", name)
    consumers = [start(CONSUME, real_device.path, "one", COUNT // 2) for _ in range(2)]
    for child in consumers:
        child.expect("ready")
        child.say()
    sent = [f"x{number}" for number in range(COUNT)]
    for text in sent:
        space.enqueue("TOPIC", text)
    taken = [child.line().split() for child in consumers]
    for child in consumers:
        child.finish()
    assert sorted([*taken[0], *taken[1]]) == sorted(sent)
    assert drain(space, "TOPIC:two") == sent
    sound(real_device)


def test_what_is_enqueued_after_a_consumer_has_subscribed_in_another_process_is_for_it(real_device, space, start):
    space.subscribe("TOPIC", "first")
    producer = start(PRODUCE, real_device.path, "a", COUNT)
    producer.expect("ready")
    producer.say()
    made = []
    for number in range(8):
        before = space.usage("TOPIC").enqueued
        space.subscribe("TOPIC", f"late{number}")
        made.append((f"late{number}", before))
    sent = producer.line().split()
    producer.finish()
    assert len(sent) == COUNT
    for name, before in made:
        its = drain(space, f"TOPIC:{name}")
        # All that came behind its first one, and that is none that was there before.
        assert its == sent[COUNT - len(its) :]
        assert len(its) <= COUNT - before
    assert drain(space, "TOPIC:first") == sent
    sound(real_device)


@pytest.mark.parametrize(
    "terms",
    [
        [{"rule": "header.mark = 'a'"}, {"rule": "header.mark = 'b'"}],
        [{"topics": ["*.a"]}, {"topics": ["*.b"]}],
    ],
    ids=["rule", "topics"],
)
def test_what_is_enqueued_after_a_change_in_another_process_is_by_the_new_terms(real_device, space, start, terms):
    space.subscribe("TOPIC", "all")
    space.subscribe("TOPIC", "some", **terms[0])
    producer = start("import contextlib" + PRODUCE_BY_TURNS, real_device.path, COUNT)
    producer.expect("ready")
    producer.say()
    moments = []
    for turn in range(1, 7):
        eventually(lambda at=turn: space.usage("TOPIC").enqueued > at * COUNT // 9, "some more messages")
        before = space.usage("TOPIC").enqueued
        space.change_subscription("TOPIC", "some", **terms[turn % 2])
        moments.append((before, space.usage("TOPIC").enqueued))
    producer.expect("done")
    producer.finish()
    sent = drain(space, "TOPIC:all")
    assert sent == [f"{'ab'[number % 2]}{number}" for number in range(COUNT)]
    taken = drain(space, "TOPIC:some")
    for number, text in enumerate(sent):
        # How many changes were over, and how many had begun, when it came: it is by the terms of one of them.
        least, most = (sum(moment[at] <= number for moment in moments) for at in (1, 0))
        by_each = {text[0] == "ab"[turns % 2] for turns in range(least, most + 1)}
        assert (text in taken) in by_each, (number, moments)
    assert taken == [text for text in sent if text in taken]
    sound(real_device)


def test_one_that_unsubscribes_while_others_send_leaves_nothing_behind(real_device, space, start):
    for name in ("stays", "goes"):
        space.subscribe("TOPIC", name)
    producer = start(PRODUCE, real_device.path, "a", COUNT)
    producer.expect("ready")
    producer.say()
    eventually(lambda: space.usage("TOPIC").enqueued > COUNT // 4, "some messages")
    space.unsubscribe("TOPIC", "goes")
    sent = producer.line().split()
    producer.finish()
    assert drain(space, "TOPIC:stays") == sent
    # Whoever calls looks after the queue space now and then.
    eventually(
        lambda: space.dequeue("OUT") is None and count_rows(space, "message", "ready", "share") == (0, 0, 0),
        "nothing of the one that went",
    )
    sound(real_device)


def test_the_last_one_that_unsubscribes_leaves_senders_without_anybody(real_device, space, start):
    space.subscribe("TOPIC", "goes")
    producer = start(PRODUCE, real_device.path, "a", COUNT)
    producer.expect("ready")
    producer.say()
    eventually(lambda: space.usage("TOPIC").enqueued > COUNT // 4, "some messages")
    space.unsubscribe("TOPIC", "goes")
    sent = producer.line().split()
    producer.finish()
    with pytest.raises(NoRecipientsError):
        space.enqueue("TOPIC", "x")
    assert space.usage("TOPIC").enqueued == len(sent)
    # Whoever calls looks after the queue space now and then.
    eventually(
        lambda: space.dequeue("OUT") is None and count_rows(space, "message", "ready", "share") == (0, 0, 0),
        "nothing of the one that went",
    )


def test_a_consumer_that_dies_gets_its_messages_back_and_the_others_have_theirs(real_device, space, start):
    for name in ("one", "two"):
        space.subscribe("TOPIC", name)
    for text in ("a", "b"):
        space.enqueue("TOPIC", text)
    child = start(HOLD, real_device.path, "one", "two")
    assert child.line().split() == ["a", "a"]
    assert drain(space, "TOPIC:two") == ["b"]
    child.kill()
    found = space.dequeue("TOPIC:one", wait=60)
    while found.text != "a":
        found = space.dequeue("TOPIC:one", wait=60)
    assert found.retries == 1
    assert space.dequeue("TOPIC:two", wait=60).text == "a"
    with contextlib.suppress(QueueError):
        drain(space, "TOPIC:one")
    assert space.usage("TOPIC").messages == 0
    assert count_rows(space, "message", "share") == (0, 0)
    sound(real_device)
