"""Many sessions of PostgreSQL on one queue: none waits for another, and nothing is lost or doubled."""

import re
import threading
from collections import Counter

import pytest

from qmcore.acts.dequeue import Wanted, claims_for
from qmcore.message import EnqueueControl
from qmcore.purpose import Purpose
from qmcore.queue import Delivery
from qmcore.records import Forwarding
from qmcore.selection import FIRST, FIRST_CHOICE
from qmcore.transitions import Claimed
from qmstorage import claiming
from qmstorage.postgres.states import SharedStates
from tests.fix_store import Work, attachment_of, drain, eventually, make_queue
from tests.fix_storm import session_of

SELECTIONS = {
    "the first": {},
    "by corrid": {"corrid": "c"},
    "by pattern": {"corrid_like": "c%"},
    "by condition": {"condition": "priority > 10"},
}


def fill(space, queue="Q", count=100, **control):
    return space.enqueue_many(queue, [str(at) for at in range(count)], EnqueueControl(corrid=b"c", **control))


class Recording:
    """A cursor that notes what it runs."""

    def __init__(self, cursor):
        self._cursor = cursor
        self.texts = []

    def execute(self, text, values=None, /):
        self.texts.append(text)
        return self._cursor.execute(text, values)

    def __getattr__(self, name):
        return getattr(self._cursor, name)

    def __iter__(self):
        return iter(self._cursor)


@pytest.mark.parametrize("selection", [name for name in SELECTIONS if name != "the first"])
@pytest.mark.parametrize("many", [False, True])
def test_a_dequeue_locks_the_ready_messages_that_it_takes_in_one_statement(arena, selection, many):
    """Where they are the first ones, that is a statement of the function which takes them."""
    space = arena.space()
    make_queue(space)
    fill(space)
    session = session_of(arena.volume)
    recording = session.cursor = Recording(session.cursor)
    how = SELECTIONS[selection]
    assert space.dequeue_many("Q", 5, **how) if many else space.dequeue("Q", **how)
    (locking,) = dict.fromkeys(text for text in recording.texts if re.search(r"\bready\b", text))
    assert locking.startswith("SELECT")
    assert locking.endswith("FOR UPDATE OF ready SKIP LOCKED")


@pytest.mark.parametrize("selection", SELECTIONS)
def test_who_holds_a_message_in_an_open_unit_keeps_nobody_waiting(arena, selection):
    space, how = arena.space(memory=1_000_000), SELECTIONS[selection]
    make_queue(space, retries=5)
    fill(space, count=60)
    fill(space, count=60, delivery=Delivery.NONPERSIST)
    arena.open_sessions(10)
    inside, go_on = threading.Event(), threading.Event()

    def hold(unit):
        queue = space.queue("Q")
        for store in (unit, unit.memory(queue.space_id)):
            assert store.states.standing(queue.id, queue.id, FIRST_CHOICE, 1)
        inside.set()
        assert go_on.wait(90)
        raise ZeroDivisionError

    def one_by_one():
        return drain(space, **how)

    def several():
        found = []
        while messages := space.dequeue_many("Q", 3, **how):
            found += [message.text for message in messages]
        return found

    def in_transactions():
        found = []
        while True:
            with space.transaction():
                message = space.dequeue("Q", **how)
                if message is None:
                    return found
                found.append(message.text)

    holder = Work(lambda: arena.volume.write(hold, Purpose.MESSAGES))
    assert inside.wait(90)
    found = Work(*[one_by_one, several, in_transactions] * 3).results()
    go_on.set()
    assert isinstance(holder.results()[0], ZeroDivisionError)
    assert Counter(text for texts in found for text in texts) == Counter([*map(str, range(1, 60))] * 2)
    assert drain(space) == ["0", "0"]
    arena.check_counters()


def holding_back(arena, space, limit):
    """Take at most so many messages of the queue Q on a session of our own, which commits when it is told to."""
    inside, go_on = threading.Event(), threading.Event()

    def hold(unit):
        opened = attachment_of(space).opened
        (claim,) = claims_for(opened, opened.definitions(unit), Wanted("Q", FIRST, limit))
        assert isinstance(unit.claim(claim), Claimed)
        inside.set()
        assert go_on.wait(90)

    holder = Work(lambda: arena.volume.write(hold, Purpose.MESSAGES))
    assert inside.wait(90)
    return holder, go_on


def test_a_claim_of_one_group_keeps_nobody_from_the_messages_of_others(arena):
    space = arena.space()
    make_queue(space, grouping=True)
    for at in range(6):
        space.enqueue("Q", str(at))
    arena.open_sessions(2)
    holder, go_on = holding_back(arena, space, 1000)
    assert space.purge("Q") == 5
    go_on.set()
    holder.results()
    assert drain(space) == []
    arena.check_counters()


def test_a_claim_of_one_group_looks_again_where_the_first_message_is_given_up_meanwhile(arena, monkeypatch):
    space = arena.space()
    make_queue(space, grouping=True)
    space.enqueue_many("Q", ["given up", "with it"])
    arena.open_sessions(2)
    choose, is_first = SharedStates.choose, iter([True])

    def chosen(*look, **how):
        found = choose(*look, **how)
        if next(is_first, False):
            assert space.purge("Q") == 2
            space.enqueue_many("Q", ["come", "with it"])
        return found

    monkeypatch.setattr(SharedStates, "choose", chosen)
    assert [message.text for message in space.dequeue_many("Q", 5)] == ["come", "with it"]
    assert next(is_first, False) is False
    arena.check_counters()


def test_a_claim_of_messages_on_disk_keeps_nobody_from_those_in_memory(arena):
    space = arena.space(memory=1_000_000)
    make_queue(space)
    fill(space, count=6)
    fill(space, count=6, delivery=Delivery.NONPERSIST)
    arena.open_sessions(2)
    holder, go_on = holding_back(arena, space, 6)
    assert [message.text for message in space.dequeue_many("Q", 20)] == [str(at) for at in range(6)]
    go_on.set()
    holder.results()
    assert drain(space) == []
    arena.check_counters()


def test_thirty_two_consumers_take_each_message_once_and_all_get_their_share(arena):
    space = arena.space(messages=5_000, pages=10_000)
    make_queue(space)
    fill(space, count=960)
    arena.open_sessions(32)
    found = Work(*[lambda: [space.dequeue("Q") for _ in range(30)]] * 32).results()
    assert Counter(message and message.text for taken in found for message in taken) == Counter(map(str, range(960)))
    assert space.dequeue("Q") is None
    arena.check_counters()


CONSUMER = """
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
found = [[] for _ in range(4)]
gate = threading.Barrier(5)

def consume(at):
    gate.wait()
    while messages := space.dequeue_many("Q", 1 + at, **[{}, {"corrid": "c"}, {"condition": "priority > 1"}, {}][at]):
        found[at] += [message.text for message in messages]

threads = [threading.Thread(target=consume, args=(at,)) for at in range(4)]
for thread in threads:
    thread.start()
say("ready")
heard()
gate.wait()
for thread in threads:
    thread.join()
for mine in found:
    say(" ".join(mine))
device.close()
"""


def test_eight_processes_of_four_threads_take_each_message_once(arena, start):
    space = arena.space(messages=5_000, pages=10_000, processes=20, memory=4_000_000)
    make_queue(space)
    fill(space, count=600)
    fill(space, count=200, delivery=Delivery.NONPERSIST)
    children = [start(CONSUMER, arena.url) for _ in range(8)]
    for child in children:
        child.expect("ready")
    for child in children:
        child.say()
    found = Counter(text for child in children for _ in range(4) for text in child.line().split())
    assert found == Counter(map(str, range(600))) + Counter(map(str, range(200)))
    for child in children:
        child.finish()
    arena.check_counters()
    assert arena.sql("SELECT max(slot) <= 40, count(*) <= 2 * 41 FROM qm.counter") == [(True, True)]


def test_groups_stay_whole_while_others_take_of_the_same_queue(arena):
    space = arena.space(transactions=50)
    make_queue(space, grouping=True, retries=100)
    for group in range(24):
        # Of half of the groups a message expires in the middle of it all.
        lifetime = 5_000_000 if group % 2 else None
        space.enqueue_many("Q", [f"{group}-{at}" for at in range(5)], EnqueueControl(lifetime=lifetime))
    arena.open_sessions(12)

    def consume(last):
        found = []
        while True:
            with space.transaction() as transaction:
                messages = space.dequeue_many("Q", 9)
                if not messages:
                    return found
                if messages[0].retries < last:
                    transaction.rollback()
                else:
                    found.append([message.text for message in messages])
            if len(found) == 1:
                arena.clock.advance(6)

    found = [texts for each in Work(*[lambda at=at: consume(at % 3) for at in range(12)]).results() for texts in each]
    groups = [{text.split("-")[0] for text in texts} for texts in found]
    assert all(len(group) == 1 for group in groups)
    assert all(len(texts) == 5 for texts in found)
    whole = [group.pop() for group in groups]
    assert len(set(whole)) == len(whole)
    assert {str(group) for group in range(0, 24, 2)} <= set(whole)
    usage = space.usage("Q")
    assert usage.messages == 0
    assert usage.expired == 5 * (24 - len(whole))
    arena.check_counters()


@pytest.mark.parametrize("keep_expired", [False, True])
def test_a_group_of_which_one_is_being_taken_does_not_expire_meanwhile(arena, monkeypatch, keep_expired):
    space = arena.space(error_queue="ERRORS")
    make_queue(space, "ERRORS")
    make_queue(space, grouping=True, keep_expired=keep_expired)
    space.enqueue_many("Q", list("abc"), EnqueueControl(lifetime=5_000_000))
    arena.open_sessions(4)
    look, chosen, go_on = claiming.others_of_groups, threading.Event(), threading.Event()

    def looking(*arguments):
        # The first is taken, and the others of its group are looked for after this.
        chosen.set()
        assert go_on.wait(60)
        return look(*arguments)

    def take():
        with space.transaction():
            return [space.dequeue("Q").text for _ in "abc"]

    monkeypatch.setattr(claiming, "others_of_groups", looking)
    taker = Work(take)
    assert chosen.wait(60)
    arena.clock.advance(6)
    other = Work(lambda: space.usage("Q").expired)
    waits = "SELECT FROM pg_locks WHERE NOT granted"
    eventually(lambda: not other.is_running() or arena.sql(waits), "the other waits, or is done")
    go_on.set()
    assert taker.results() == [["a", "b", "c"]]
    assert other.results() == [0]
    arena.check_counters()


def test_what_is_due_and_what_expires_is_released_once_by_all_at_the_same_time(arena):
    space = arena.space(messages=5_000, pages=10_000, error_queue="ERRORS", memory=4_000_000)
    make_queue(space, "Q")
    make_queue(space, "KEPT", keep_expired=True)
    make_queue(space, "ERRORS")
    for delivery in (Delivery.PERSIST, Delivery.NONPERSIST):
        for at in range(4):
            fill(space, "Q", 75, delay=1_000_000 + at, delivery=delivery)
            fill(space, "Q", 75, lifetime=1_000_000 + at, delivery=delivery)
            fill(space, "Q", 25, delay=2_000_000 + at, lifetime=1_000_000 + at, delivery=delivery)
        fill(space, "KEPT", 100, lifetime=1_000_000, delivery=delivery)
    arena.open_sessions(16)
    arena.clock.advance(5)
    found = Work(*[lambda: drain(space), lambda: drain(space, "KEPT")] * 8).results()
    assert Counter(text for texts in found for text in texts) == Counter([*map(str, range(75))] * 8)
    assert space.usage("Q").expired == 2 * 4 * 100
    assert space.usage("Q").messages == space.usage("KEPT").messages == 0
    assert space.usage("ERRORS").ready == 200
    arena.check_counters()
    assert arena.sql("SELECT count(*) FROM qm.expiring") == [(0,)]


@pytest.mark.parametrize("end", ["tells more", "is given up"])
def test_what_a_forwarder_tells_while_it_tells_more_or_is_given_up_is_kept_once_or_gone(arena, end):
    space = arena.space()
    make_queue(space)
    owner, queue = attachment_of(space).owner, space.queue("Q")
    inside, go_on = threading.Event(), threading.Event()

    def tell(unit):
        assert unit.owners.forwardings.report(owner.id, {queue.id: Forwarding(queue="Q", calls=1)}, whole=True)
        inside.set()
        assert go_on.wait(90)

    def act(unit):
        if end == "tells more":
            return unit.owners.forwardings.report(owner.id, {queue.id: Forwarding(queue="Q", calls=2)}, whole=False)
        return unit.owners.remove(owner.id)

    def other():
        assert inside.wait(90)
        return arena.volume.write(act, Purpose.MESSAGES)

    def let_go():
        eventually(lambda: arena.sql("SELECT FROM pg_locks WHERE NOT granted"), "the other waits")
        go_on.set()

    results = Work(lambda: arena.volume.write(tell, Purpose.MESSAGES), other, let_go).results()
    assert results == [None, True if end == "tells more" else [], None]
    assert [each.calls for _, each in space.forwardings()] == ([2] if end == "tells more" else [])
    assert arena.sql("SELECT count(*) FROM qm.forwarding") == [(1 if end == "tells more" else 0,)]
