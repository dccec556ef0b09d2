"""The engine beside a plain-list model: whatever is done in whatever order, both say the same, and the books balance.

Several consumers, each with a transaction of its own, enqueue, dequeue, commit, roll back and run out of time, while
the clock jumps. The model is a list of messages; its order is a sort.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from qmcore.errors import AbortedError, NoSpaceError, Resource
from qmcore.message import STORED, State
from tests.fix_store import MovableClock, Store, make_queue

LIMIT = 12
RETRIES = {"FIFO": 2, "PRIO": 1, "ERRORS": 0}
RETRY_DELAY = {"FIFO": 0, "PRIO": 5, "ERRORS": 0}
ACTORS = range(3)


PLACES = """
    SELECT message_id, retries FROM ready UNION ALL
    SELECT message_id, retries FROM due UNION ALL
    SELECT message_id, retries FROM held ORDER BY 1
"""
MESSAGES = "SELECT id, priority FROM message ORDER BY id"
SUMS = "SELECT count(*), coalesce(sum(pages), 0), coalesce(sum(size), 0) FROM message"
COUNTED = "SELECT messages, pages, size FROM counter WHERE queue_id = 0"
LEFT_OVER = "SELECT message_id FROM expiring WHERE message_id NOT IN (SELECT id FROM message)"


@dataclasses.dataclass
class Expected:
    """A message as the model has it."""

    msgid: str
    queue: str
    priority: int
    corrid: str | None
    available: int | None
    expires: int | None
    place: int
    retries: int = 0
    holder: int | None = None

    @property
    def rank(self) -> tuple[int, int]:
        return (-self.priority if self.queue == "PRIO" else 0, self.place)


@dataclasses.dataclass
class Asked:
    """An enqueue that a transaction has asked for."""

    msgid: str
    queue: str
    priority: int
    corrid: str | None
    delay: int | None
    lifetime: int | None


class Books(RuleBasedStateMachine):
    """One queue space, three consumers, and the model."""

    kind = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.clock = MovableClock()
        self.directory = contextlib.ExitStack()
        path = ":memory:"
        if self.kind == "file":
            shm = Path("/dev/shm")  # a disk that needs no time to sync, where there is one
            where = shm if shm.is_dir() else None
            path = str(Path(self.directory.enter_context(tempfile.TemporaryDirectory(dir=where))) / "QUE")
        self.store = Store(self.kind, path, self.clock)
        self.handles = [self.store.space(error_queue="ERRORS", messages=LIMIT)]
        if self.kind == "file":
            self.handles.append(self.store.another().open_space("SPACE"))
        for name, retries in RETRIES.items():
            order = "priority" if name == "PRIO" else "fifo"
            make_queue(self.handles[0], name, order=order, retries=retries, retry_delay=RETRY_DELAY[name])
        self.there: list[Expected] = []
        self.places = itertools.count()
        self.transactions: dict[int, tuple[object, int | None, list[Asked]]] = {}
        self.counts: Counter[tuple[str, str]] = Counter()
        self.names = itertools.count()

    def teardown(self) -> None:
        self.store.close()
        self.directory.close()

    # ---- what the model does -----------------------------------------------------------------------------------------

    def now(self) -> int:
        return self.clock.now()

    def handle(self, actor: int):
        return self.handles[actor % len(self.handles)]

    def expire(self) -> None:
        """Remove what has expired and is not held, as everybody may do at any time."""
        for message in list(self.there):
            if message.holder is None and message.expires is not None and message.expires <= self.now():
                self.there.remove(message)
                self.counts[message.queue, "expired"] += 1

    def arrive(self, asked: Asked) -> None:
        now = self.now()
        self.there.append(
            Expected(
                asked.msgid,
                asked.queue,
                asked.priority,
                asked.corrid,
                None if asked.delay is None else now + asked.delay * 1_000_000,
                None if asked.lifetime is None else now + asked.lifetime * 1_000_000,
                next(self.places),
            )
        )
        self.counts[asked.queue, "enqueued"] += 1

    def ready(self, queue: str) -> list[Expected]:
        self.expire()
        found = [
            message
            for message in self.there
            if message.queue == queue
            and message.holder is None
            and (message.available is None or message.available <= self.now())
        ]
        return sorted(found, key=lambda message: message.rank)

    def give_back(self, actor: int, *, counts: bool = True) -> None:
        _, _, _ = self.transactions.pop(actor)
        held = [message for message in self.there if message.holder == actor]
        for message in sorted(held, key=lambda message: message.rank):
            message.holder = None
            if message.expires is not None and message.expires <= self.now():
                self.there.remove(message)
                self.counts[message.queue, "expired"] += 1
            elif counts:
                self.count_try(message)

    def count_try(self, message: Expected) -> None:
        message.retries += 1
        if message.retries <= RETRIES[message.queue] or message.queue == "ERRORS":
            if RETRY_DELAY[message.queue]:
                message.available = self.now() + RETRY_DELAY[message.queue] * 1_000_000
            return
        self.counts[message.queue, "moved"] += 1
        self.counts["ERRORS", "enqueued"] += 1
        # Its new id and place are the engine's to give; the origin says which one it was.
        message.queue, message.expires, message.available, message.retries = "ERRORS", None, None, 0
        message.msgid = f"was {message.msgid}"

    def overdue(self, actor: int) -> bool:
        deadline = self.transactions[actor][1]
        return deadline is not None and deadline <= self.now()

    # ---- rules -------------------------------------------------------------------------------------------------------

    actors = st.sampled_from(ACTORS)
    queues = st.sampled_from(["FIFO", "PRIO"])
    all_queues = st.sampled_from(list(RETRIES))
    priorities = st.sampled_from([1, 50, 100])
    corrids = st.none() | st.sampled_from(["a", "b"])
    spans = st.sampled_from([None, None, None, 0, 1, 5, 20])

    @initialize()
    def begin_with_some_messages(self) -> None:
        for queue in ("FIFO", "PRIO"):
            for priority in (50, 100):
                self.enqueue(0, queue, priority, None, None, None)

    @rule(actor=actors, queue=queues, controls=st.lists(st.tuples(priorities, corrids, spans, spans), max_size=4))
    def enqueue_some(self, actor, queue, controls) -> None:
        for control in controls:
            self.enqueue(actor, queue, *control)

    def enqueue(self, actor, queue, priority, corrid, delay, lifetime) -> None:
        space = self.handle(actor)
        self.expire()
        options = {"priority": priority, "corrid": corrid, "delay": delay, "expires_in": lifetime}
        if len(self.there) >= LIMIT:
            with pytest.raises(NoSpaceError) as refusal:
                space.enqueue(queue, b"", **options)
            assert refusal.value.resource is Resource.MESSAGES
            return
        msgid = space.enqueue(queue, b"x" * (next(self.names) % 5_000), **options)
        self.arrive(Asked(msgid, queue, priority, corrid, delay, lifetime))

    @rule(actor=actors, queue=all_queues)
    def dequeue(self, actor, queue) -> None:
        message = self.handle(actor).dequeue(queue)
        expected = self.first(queue, message)
        if expected is not None:
            self.there.remove(expected)
            self.counts[queue, "dequeued"] += 1

    @rule(actor=actors, queue=queues, corrid=st.sampled_from(["a", "b"]))
    def dequeue_by_correlation(self, actor, queue, corrid) -> None:
        message = self.handle(actor).dequeue(queue, corrid=corrid)
        matching = [expected for expected in self.ready(queue) if expected.corrid == corrid]
        assert (message and message.msgid) == (matching[0].msgid if matching else None)
        if matching:
            self.there.remove(matching[0])
            self.counts[queue, "dequeued"] += 1

    @precondition(lambda self: self.there)
    @rule(actor=actors, data=st.data())
    def dequeue_by_id(self, actor, data) -> None:
        wanted = data.draw(st.sampled_from([each for each in self.there if each.queue != "ERRORS"] or [None]))
        if wanted is None:
            return
        message = self.handle(actor).dequeue(wanted.queue, msgid=wanted.msgid)
        assert (message is not None) == (wanted in self.ready(wanted.queue))
        if message is not None:
            self.there.remove(wanted)
            self.counts[wanted.queue, "dequeued"] += 1

    @precondition(lambda self: len(self.transactions) < len(ACTORS))
    @rule(data=st.data(), timeout=st.none() | st.integers(1, 30), queue=all_queues)
    def begin(self, data, timeout, queue) -> None:
        """Begin a transaction with a dequeue, as most do."""
        actor = data.draw(st.sampled_from(sorted(set(ACTORS) - set(self.transactions))))
        self.advance(0.000_001)  # so that no two transactions are equally old
        transaction = self.handle(actor).transaction(timeout)
        deadline = None if timeout is None else self.now() + timeout * 1_000_000
        self.transactions[actor] = transaction, deadline, []
        self.hold_first(actor, queue)

    @precondition(lambda self: 0 not in self.transactions)
    @rule(queue=all_queues, count=st.integers(1, 3), times=st.integers(1, 3), seconds=st.sampled_from([0, 5]))
    def try_and_fail(self, queue, count, times, seconds) -> None:
        """Take some messages and give them back, more than once."""
        for _ in range(times):
            self.advance(seconds + 0.000_001)
            self.transactions[0] = self.handle(0).transaction(), None, []
            for _ in range(count):
                self.hold_first(0, queue)
            self.transactions[0][0].rollback("failed")
            self.give_back(0)

    @contextlib.contextmanager
    def inside(self, actor):
        transaction = self.transactions[actor][0]
        transaction.join_context()
        try:
            yield transaction
        finally:
            transaction.leave_context()

    @precondition(lambda self: self.transactions)
    @rule(data=st.data(), queue=all_queues)
    def dequeue_inside(self, data, queue) -> None:
        self.hold_first(data.draw(st.sampled_from(sorted(self.transactions))), queue)

    def hold_first(self, actor, queue) -> None:
        with self.inside(actor):
            message = self.handle(actor).dequeue(queue)
        expected = self.first(queue, message)
        if expected is not None:
            expected.holder = actor

    @precondition(lambda self: self.transactions)
    @rule(data=st.data(), queue=queues, priority=priorities, corrid=corrids, delay=spans, lifetime=spans)
    def enqueue_inside(self, data, queue, priority, corrid, delay, lifetime) -> None:
        actor = data.draw(st.sampled_from(sorted(self.transactions)))
        asked = self.transactions[actor][2]
        mine = sum(message.holder == actor for message in self.there)
        self.expire()
        options = {"priority": priority, "corrid": corrid, "delay": delay, "expires_in": lifetime}
        with self.inside(actor):
            if len(self.there) - mine + len(asked) >= LIMIT:
                with pytest.raises(NoSpaceError):
                    self.handle(actor).enqueue(queue, b"", **options)
                return
            msgid = self.handle(actor).enqueue(queue, b"y" * 100, **options)
        asked.append(Asked(msgid, queue, priority, corrid, delay, lifetime))

    @precondition(lambda self: self.transactions)
    @rule(data=st.data())
    def commit(self, data) -> None:
        actor = data.draw(st.sampled_from(sorted(self.transactions)))
        transaction, _, asked = self.transactions[actor]
        self.expire()
        mine = [message for message in self.there if message.holder == actor]
        if asked and len(self.there) - len(mine) + len(asked) > LIMIT:
            with pytest.raises(NoSpaceError):
                transaction.commit()
            self.give_back(actor, counts=False)
            return
        transaction.commit()
        del self.transactions[actor]
        for message in mine:
            self.there.remove(message)
            self.counts[message.queue, "dequeued"] += 1
        for queue in dict.fromkeys(each.queue for each in asked):
            for each in asked:
                if each.queue == queue:
                    self.arrive(each)

    @precondition(lambda self: self.transactions)
    @rule(data=st.data(), counts=st.booleans())
    def roll_back(self, data, counts) -> None:
        actor = data.draw(st.sampled_from(sorted(self.transactions)))
        self.transactions[actor][0].rollback("not now", counts=counts)
        self.give_back(actor, counts=counts)

    @rule(seconds=st.sampled_from([1, 4, 5, 10, 40]), looker=actors)
    def time_goes_on(self, seconds, looker) -> None:
        self.advance(seconds, looker)

    def advance(self, seconds, looker=0) -> None:
        """Let the clock jump, and somebody look: transactions whose time is over are rolled back, oldest first."""
        self.clock.advance(seconds)
        self.handle(looker).usage("FIFO")
        for actor in sorted(self.transactions, key=lambda each: self.transactions[each][0]._started_us):
            if self.overdue(actor):
                transaction = self.transactions[actor][0]
                self.give_back(actor)
                with pytest.raises(AbortedError):
                    transaction.commit()

    def first(self, queue, message) -> Expected | None:
        """Compare a message with the first that the model has, and return that one."""
        ready = self.ready(queue)
        if message is None:
            assert ready == []
            return None
        if queue == "ERRORS":
            # Those that one rollback moves may come in any order.
            ready = [each for each in ready if each.msgid in {message.msgid, f"was {message.origin.msgid}"}]
            ready[0].msgid = message.msgid
        expected = ready[0]
        assert (message.msgid, message.retries, message.priority) == (
            expected.msgid,
            expected.retries,
            expected.priority,
        )
        return expected

    # ---- what holds at all times -------------------------------------------------------------------------------------

    @invariant()
    def both_say_the_same_and_the_books_balance(self) -> None:
        self.expire()
        usages = {queue: self.handles[0].usage(queue) for queue in RETRIES}
        for queue, usage in usages.items():
            mine = [message for message in self.there if message.queue == queue]
            states = Counter(self.state(message) for message in mine)
            assert usage.messages == len(mine)
            assert (usage.ready, usage.delayed, usage.held) == tuple(states[state] for state in STORED)
            for what in ("enqueued", "dequeued", "expired", "moved", "discarded"):
                assert getattr(usage, what) == self.counts[queue, what], (queue, what)
            gone = usage.dequeued + usage.expired + usage.discarded + usage.moved
            assert usage.messages == usage.enqueued - gone
        whole = self.store.device.space_usage("SPACE")
        assert whole.messages == sum(usage.messages for usage in usages.values())
        assert whole.pages == sum(usage.pages for usage in usages.values())
        assert whole.transactions == len({message.holder for message in self.there} - {None})

    @invariant()
    def every_message_stands_in_one_place(self) -> None:
        def read(unit):
            return [unit._cursor.execute(query).fetchall() for query in (PLACES, MESSAGES, SUMS, COUNTED, LEFT_OVER)]

        volume = self.store.device.volume_of(self.store.path)
        places, messages, sums, counted, left_over = volume.read(read)
        assert [place[0] for place in places] == [message[0] for message in messages]
        assert sums == counted
        assert left_over == []
        tries = Counter((retries, priority) for (_, retries), (_, priority) in zip(places, messages, strict=True))
        assert tries == Counter((message.retries, message.priority) for message in self.there)

    def state(self, message: Expected) -> State:
        if message.holder is not None:
            return State.HELD
        late = message.available is not None and message.available > self.now()
        return State.DELAYED if late else State.READY


class BooksOnFile(Books):
    """The same with two handles of one file."""

    kind = "file"


Books.TestCase.settings = settings(max_examples=50, stateful_step_count=60)
BooksOnFile.TestCase.settings = settings(max_examples=15, stateful_step_count=60)
TestBooksInMemory = Books.TestCase
TestBooksOnFile = BooksOnFile.TestCase
