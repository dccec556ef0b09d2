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
from qmcore.message import State
from tests.fix_store import MovableClock, Store, make_queue

LIMIT = 12
RETRIES = {"FIFO": 2, "PRIO": 1, "ERRORS": 0}
RETRY_DELAY = {"FIFO": 0, "PRIO": 5, "ERRORS": 0}
ACTORS = range(3)


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
    priorities = st.sampled_from([1, 50, 100])
    corrids = st.none() | st.sampled_from(["a", "b"])
    spans = st.none() | st.integers(0, 20)

    @initialize()
    def begin_with_some_messages(self) -> None:
        for queue in ("FIFO", "PRIO"):
            for priority in (50, 100):
                self.enqueue(0, queue, priority, None, None, None)

    @rule(actor=actors, queue=queues, priority=priorities, corrid=corrids, delay=spans, lifetime=spans)
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

    @rule(actor=actors, queue=st.sampled_from(["FIFO", "PRIO", "ERRORS"]))
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

    @rule(actor=actors, timeout=st.none() | st.integers(1, 30))
    def begin(self, actor, timeout) -> None:
        if actor not in self.transactions:
            self.clock.advance(0.000_001)  # so that no two transactions are equally old
            transaction = self.handle(actor).transaction(timeout)
            deadline = None if timeout is None else self.now() + timeout * 1_000_000
            self.transactions[actor] = transaction, deadline, []

    @contextlib.contextmanager
    def inside(self, actor):
        transaction = self.transactions[actor][0]
        transaction.join_context()
        try:
            yield transaction
        finally:
            transaction.leave_context()

    @precondition(lambda self: self.transactions)
    @rule(data=st.data(), queue=st.sampled_from(["FIFO", "PRIO", "ERRORS"]))
    def dequeue_inside(self, data, queue) -> None:
        actor = data.draw(st.sampled_from(sorted(self.transactions)))
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

    @rule(seconds=st.integers(0, 40), looker=actors)
    def time_goes_on(self, seconds, looker) -> None:
        """The clock jumps, and somebody looks: transactions whose time is over are rolled back, oldest first."""
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
    def both_say_the_same(self) -> None:
        self.expire()
        space = self.handles[0]
        for queue in RETRIES:
            usage = space.usage(queue)
            mine = [message for message in self.there if message.queue == queue]
            states = Counter(self.state(message) for message in mine)
            assert usage.messages == len(mine)
            assert (usage.ready, usage.delayed, usage.held) == tuple(states[state] for state in State)
            for what in ("enqueued", "dequeued", "expired", "moved", "discarded"):
                assert getattr(usage, what) == self.counts[queue, what], (queue, what)
            listed = Counter((info.state, info.retries, info.priority) for info in space.messages(queue))
            assert listed == Counter((self.state(each), each.retries, each.priority) for each in mine)

    @invariant()
    def the_books_balance(self) -> None:
        space = self.handles[0]
        usages = [space.usage(queue) for queue in RETRIES]
        for usage in usages:
            gone = usage.dequeued + usage.expired + usage.discarded + usage.moved
            assert usage.messages == usage.enqueued - gone
            assert usage.messages == usage.ready + usage.delayed + usage.held
        whole = self.store.device.space_usage("SPACE")
        assert whole.messages == sum(usage.messages for usage in usages)
        assert whole.pages == sum(usage.pages for usage in usages)
        holding = {message.holder for message in self.there} - {None}
        assert whole.transactions == len(holding)

    @invariant()
    def every_message_stands_in_one_place(self) -> None:
        volume = self.store.device.volume_of(self.store.path)

        def rows(unit):
            def number(query: str) -> list[tuple]:
                return unit._cursor.execute(query).fetchall()

            places = number(
                "SELECT message_id FROM ready UNION ALL SELECT message_id FROM due"
                " UNION ALL SELECT message_id FROM held"
            )
            messages = number("SELECT id FROM message")
            sums = number("SELECT count(*), coalesce(sum(pages), 0), coalesce(sum(size), 0) FROM message")
            counted = number("SELECT messages, pages, size FROM counter WHERE queue_id = 0")
            lasting = number("SELECT message_id FROM expiring EXCEPT SELECT id FROM message")
            return places, messages, sums, counted, lasting

        places, messages, sums, counted, lasting = volume.read(rows)
        assert sorted(places) == sorted(messages)
        assert sums == counted
        assert lasting == []

    def state(self, message: Expected) -> State:
        if message.holder is not None:
            return State.HELD
        late = message.available is not None and message.available > self.now()
        return State.DELAYED if late else State.READY


class BooksOnFile(Books):
    """The same with two handles of one file."""

    kind = "file"


Books.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
BooksOnFile.TestCase.settings = settings(max_examples=15, stateful_step_count=40)
TestBooksInMemory = Books.TestCase
TestBooksOnFile = BooksOnFile.TestCase
