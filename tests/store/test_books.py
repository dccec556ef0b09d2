"""The engine beside a plain-list model: whatever is done in whatever order, both say the same, and the books balance.

Several consumers, each with a transaction of its own, do all that can be done with a queue space whose queues are
defined at random, while the clock jumps, processes die, and the device is closed and opened again. What the model does
is in `books_model`, what must hold at all times in `books_checks`, what is drawn in `books_drawing`.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from qmadmin.space import QueueSpace
from qmadmin.transacting import Transaction, current
from qmadmin.two_phase import TwoPhaseTransaction
from qmcore.errors import AbortedError, BadQueueError, InUseError, NoSpaceError
from qmcore.message import EnqueueControl, Message
from qmcore.queue import Delivery, QueueDefinition
from qmcore.times import to_datetime
from qmcore.xid import Xid
from tests.fix_postgres import forget_schema
from tests.fix_store import MovableClock, Store, eventually
from tests.store import books_drawing as draw
from tests.store.books_checks import Books, check_listing, check_same, check_usage
from tests.store.books_child import die_in_a_transaction
from tests.store.books_drawing import Wanted, actors, all_names, jumps, names
from tests.store.books_model import FAILED, GONE, MICROS, UNTRIED, Asked, Expected, Model, Transacting

MESSAGES, PAGES, MEMORY = 14, 600, 40 * 1024


class QueueSpaceMachine(RuleBasedStateMachine):
    """One queue space, three consumers, and the model."""

    kind = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.clock = MovableClock()
        self.stack = contextlib.ExitStack()
        shm = Path("/dev/shm")  # a disk that needs no time to sync, where there is one
        where = shm if shm.is_dir() else None
        self.directory = Path(self.stack.enter_context(tempfile.TemporaryDirectory(dir=where)))
        self.patch = self.stack.enter_context(pytest.MonkeyPatch.context())
        self.patch.setenv("QM_SHM_DIR", str(self.directory))
        self.store = Store(self.kind, self.path(), self.clock)
        self.checks = itertools.count()
        self.open: dict[int, tuple[Transacting, Transaction]] = {}
        self.prepared: dict[Xid, Transacting] = {}
        self.numbers = itertools.count()

    def path(self) -> str:
        """Return where the device goes."""
        return ":memory:"

    def teardown(self) -> None:
        self.open.clear()
        self.store.close()
        self.stack.close()

    @initialize(
        definitions=st.tuples(*map(draw.definitions, draw.NAMES)),
        error_queues=st.tuples(draw.error_queue_definitions, draw.error_queue_definitions),
        error_queue=st.sampled_from(["ERRORS", "ERRORS", ""]),
        memory=st.sampled_from([MEMORY, MEMORY, MEMORY, 0]),
        spill=st.sampled_from([8 * 1024 * 1024, 2_000, 0]),
        first=st.lists(draw.asked(), min_size=2, max_size=5),
    )
    def define(self, definitions, error_queues, error_queue, memory, spill, first) -> None:
        self.patch.setattr("qmcore.acts.enqueue_in_transaction.SPILL_BYTES", spill)
        both = [
            QueueDefinition(name=name, order=order) for name, order in zip(draw.ERROR_QUEUES, error_queues, strict=True)
        ]
        space = self.store.space(
            error_queue=error_queue, messages=MESSAGES, pages=PAGES, memory=memory, queues=len(draw.ALL)
        )
        self.handles = [space]
        if self.kind != "memory":
            self.handles.append(self.store.another().open_space("SPACE"))
        everything = [*definitions, *both]
        for definition in everything:
            space.create_queue(definition)
        capacity = space.definition.capacity
        self.model = Model(
            self.clock,
            everything,
            error_queue=error_queue,
            messages=MESSAGES,
            pages=capacity,
            memory=memory,
            spill=spill,
        )
        self.books = Books(self.store, space)
        for at, drawn in enumerate(first):
            self.enqueue(0, 0, draw.NAMES[at % 3], drawn)

    def handle(self, actor: int) -> QueueSpace:
        return self.handles[actor % len(self.handles)]

    # ---- what every operation does ----------------------------------------------------------------------------------

    def jump(self, seconds: float) -> None:
        """Let the clock jump before an operation, which then finds what has become due."""
        self.clock.advance(seconds)
        if seconds:
            self.model.look()

    def settle(self, purged: str = "") -> None:
        """Take over what the engine decides: the identifiers of messages that were moved."""
        self.model.resolve(self.books.moved(), purged)

    @contextlib.contextmanager
    def inside(self, actor: int) -> Iterator[None]:
        """Let calls belong to the transaction of an actor, if it has one."""
        if actor not in self.open:
            yield
            return
        transaction = self.open[actor][1]
        transaction.join_context()
        try:
            yield
        finally:
            transaction.leave_context()

    def end_late(self) -> None:
        """See that transactions whose time was over are told so when they commit."""
        for actor in [each for each, (mine, _) in self.open.items() if mine not in self.model.transactions]:
            with pytest.raises(AbortedError):
                self.open.pop(actor)[1].commit()

    def mine(self, actor: int, transactional: bool) -> Transacting | None:
        return self.open[actor][0] if transactional and actor in self.open else None

    # ---- enqueuing --------------------------------------------------------------------------------------------------

    def asked(self, queue: str, drawn: dict[str, Any]) -> Asked:
        options = dict(drawn)
        size, place, which = (options.pop(name) for name in ("size", "place", "which"))
        for moment in ("available", "expires"):
            if options[moment] is not None:
                options[moment] = self.clock.now() + options[moment] * MICROS
        options["never"] = options["never"] and options["lifetime"] is None and options["expires"] is None
        before = None
        if place == "before":
            here = [each.msgid for each in self.model.there if each.queue == queue]
            known = here or self.model.gone or [f"{self.books.incarnation}{2**40:016x}"]
            if which > 25:
                known = self.model.gone or known
            before = known[which % len(known)]
        body = None if size is None else bytes([which]) * size
        return Asked(queue, body, **options, top=place == "top", before=before)

    def keywords(self, asked: Asked) -> dict[str, Any]:
        expires_in = math.inf if asked.never else asked.lifetime
        return {
            "priority": asked.priority,
            "corrid": asked.corrid,
            "delay": asked.delay,
            "available_at": None if asked.available is None else to_datetime(asked.available),
            "expires_in": expires_in,
            "expires_at": None if asked.expires is None else to_datetime(asked.expires),
            "error_queue": asked.error_queue,
            "persistent": asked.persistent,
            "headers": asked.headers or None,
            "top": asked.top,
            "before": asked.before,
        }

    def control(self, asked: Asked) -> EnqueueControl:
        return EnqueueControl(
            priority=asked.priority,
            corrid=asked.corrid,
            delay=None if asked.delay is None else asked.delay * MICROS,
            available_us=asked.available,
            lifetime=None if asked.lifetime is None else asked.lifetime * MICROS,
            expires_us=asked.expires,
            never_expires=asked.never,
            error_queue=asked.error_queue,
            delivery={None: None, True: Delivery.PERSIST, False: Delivery.NONPERSIST}[asked.persistent],
            headers=asked.headers or None,
            top=asked.top,
            before=asked.before,
        )

    def put(self, actor: int, jump: int, items: list[Asked], transactional: bool, call: Any) -> None:
        """Enqueue messages, and have the model do the same."""
        transaction = self.mine(actor, transactional)
        self.jump(jump)
        if transaction is not None and transaction not in self.model.transactions:
            with pytest.raises(AbortedError), self.inside(actor):
                call()
            return
        refusal = self.model.refusal_of_all(items, transaction)
        with self.inside(actor):
            if transaction is not None and transaction.vague:
                try:
                    given = call()
                except (NoSpaceError, refusal or NoSpaceError):  # noqa: B030 - a class, or the same once more
                    return
            elif refusal is not None:
                with pytest.raises(refusal):
                    call()
                return
            else:
                given = call()
        for each, msgid in zip(items, given, strict=True):
            each.msgid = msgid
        if transaction is None:
            self.model.arrive(items)
        else:
            self.model.ask(transaction, items)

    @rule(actor=actors, jump=jumps, queue=names, drawn=draw.asked(), transactional=st.booleans())
    def enqueue(self, actor, jump, queue, drawn, transactional=True) -> None:
        asked = self.asked(queue, drawn)
        options = self.keywords(asked)
        space = self.handle(actor)
        self.put(
            actor,
            jump,
            [asked],
            transactional,
            lambda: [space.enqueue(queue, asked.body, **options, transactional=transactional)],
        )

    @rule(
        actor=actors, jump=jumps, queue=names, drawn=draw.asked(), count=st.integers(1, 4), transactional=st.booleans()
    )
    def enqueue_many(self, actor, jump, queue, drawn, count, transactional) -> None:
        items = [self.asked(queue, drawn) for _ in range(count)]
        bodies, control = [each.body for each in items], self.control(items[0])
        space = self.handle(actor)
        self.put(
            actor,
            jump,
            items,
            transactional,
            lambda: space.enqueue_many(queue, bodies, control, transactional=transactional),
        )

    @rule(
        actor=actors,
        jump=jumps,
        drawn=st.lists(st.tuples(names, draw.asked()), min_size=1, max_size=5),
        transactional=st.booleans(),
    )
    def put_many(self, actor, jump, drawn, transactional) -> None:
        items = [self.asked(queue, one) for queue, one in drawn]
        given = [(each.queue, each.body, self.control(each)) for each in items]
        space = self.handle(actor)
        self.put(actor, jump, items, transactional, lambda: space.put_many(given, transactional=transactional))

    # ---- dequeuing --------------------------------------------------------------------------------------------------

    def take(
        self,
        actor: int,
        jump: int,
        queue: str,
        wanted: Wanted,
        verb: str,
        limit: int | None = None,
        *,
        transactional: bool = True,
    ) -> list[Expected]:
        """Take messages, and see that the model gives the same ones."""
        space, transaction = self.handle(actor), self.mine(actor, transactional)
        options: dict[str, Any] = dict(wanted.how)
        if verb in ("dequeue", "remove", "dequeue_many"):
            options["transactional"] = transactional
        if limit is not None:
            options["limit"] = limit
        self.jump(jump)
        with self.inside(actor):
            if transaction is not None and transaction not in self.model.transactions and verb != "peek":
                with pytest.raises(AbortedError):
                    getattr(space, verb)(queue, **options)
                return []
            if (queue, "dequeue") in self.model.stopped:
                with pytest.raises(BadQueueError):
                    getattr(space, verb)(queue, **options)
                return []
            found = getattr(space, verb)(queue, **options)
        self.model.freshen(queue)
        messages: list[Message] = found if isinstance(found, list) else [] if found is None else [found]
        moved = {each.origin.msgid: each.msgid for each in messages if each.origin is not None}
        self.model.resolve(self.books.moved() | moved)
        expected = self.model.chosen(
            queue,
            wanted.fits,
            limit or 1,
            transaction,
            also_locked=verb not in ("lock", "peek"),
            restricted=bool(wanted.how),
        )
        assert [each.msgid for each in messages] == [each.msgid for each in expected]
        for message, one in zip(messages, expected, strict=True):
            check_same(one, message, body=verb != "remove")
        if verb == "peek":
            return expected
        if transaction is not None:
            self.model.hold(transaction, expected, lock=verb == "lock")
        else:
            for one in expected:
                self.model.consume(one)
        return expected

    @rule(
        actor=actors,
        jump=jumps,
        queue=all_names,
        wanted=draw.several,
        verb=st.sampled_from(["dequeue", "dequeue", "remove", "peek"]),
        transactional=st.booleans(),
    )
    def take_one(self, actor, jump, queue, wanted, verb, transactional) -> None:
        self.take(actor, jump, queue, wanted, verb, transactional=transactional)

    @rule(
        actor=actors,
        jump=jumps,
        queue=all_names,
        wanted=draw.several,
        limit=st.integers(1, 5),
        transactional=st.booleans(),
    )
    def take_many(self, actor, jump, queue, wanted, limit, transactional) -> None:
        self.take(actor, jump, queue, wanted, "dequeue_many", limit, transactional=transactional)

    @precondition(lambda self: self.model.there)
    @rule(
        actor=actors,
        jump=jumps,
        which=st.integers(0, 100),
        elsewhere=st.sampled_from([None, None, None, "A", "gone"]),
        verb=st.sampled_from(["dequeue", "remove", "peek", "lock"]),
        transactional=st.booleans(),
    )
    def take_by_id(self, actor, jump, which, elsewhere, verb, transactional) -> None:
        if verb == "lock" and actor not in self.open:
            return
        chosen = self.model.there[which % len(self.model.there)]
        msgid, queue = chosen.msgid, chosen.queue
        if elsewhere == "gone" and self.model.gone:
            msgid = self.model.gone[which % len(self.model.gone)]
        elif elsewhere == "A":
            queue = elsewhere
        self.take(actor, jump, queue, draw.by_id(msgid), verb, transactional=transactional or verb == "lock")

    @precondition(lambda self: self.open)
    @rule(data=st.data(), jump=jumps, queue=all_names, wanted=draw.several)
    def lock(self, data, jump, queue, wanted) -> None:
        actor = data.draw(st.sampled_from(sorted(self.open)))
        self.take(actor, jump, queue, wanted, "lock")

    @rule(actor=actors, jump=jumps, queues=st.lists(all_names, min_size=1, max_size=3))
    def listen(self, actor, jump, queues) -> None:
        self.jump(jump)
        first = None
        for at, queue in enumerate(queues):
            if (queue, "dequeue") in self.model.stopped:
                with pytest.raises(BadQueueError):
                    self.handle(actor).listen(queues)
                # Refused, it has done nothing of what was due in those before; the model has.
                for before in queues[:at]:
                    self.handle(actor).usage(before)
                    self.model.look()
                    self.model.freshen(before)
                self.settle()
                return
            now = self.model.now()
            if any(not each.over(now) for each in self.model.ready(queue)):
                first = queue
                break
            # What has expired there may go to one that comes later.
            self.model.freshen(queue)
        assert self.handle(actor).listen(queues) == first
        if first is not None:
            self.model.freshen(first)
        self.settle()

    @rule(actor=actors, jump=jumps, queue=all_names, condition=draw.restrictions)
    def browse(self, actor, jump, queue, condition) -> None:
        self.jump(jump)
        found = list(self.handle(actor).browse(queue, condition=condition))
        self.model.freshen(queue)
        self.settle()
        fits = draw.CONDITIONS[condition] if condition else draw.FIRST.fits
        expected = [each for each in self.model.ready(queue) if fits(each)]
        assert [message.msgid for message in found] == [each.msgid for each in expected]
        for each, message in zip(expected, found, strict=True):
            check_same(each, message)

    # ---- transactions -----------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.open) < 3)
    @rule(
        data=st.data(),
        timeout=st.none() | st.integers(1, 30),
        queue=all_names,
        count=st.integers(0, 2),
        is_branch=st.booleans(),
    )
    def begin(self, data, timeout, queue, count, is_branch) -> None:
        """Begin a transaction with a dequeue, as most do; it may be a branch of a distributed one."""
        actor = data.draw(st.sampled_from(sorted(set(range(3)) - set(self.open))))
        self.clock.advance(0.000_001)
        space = self.handle(actor)
        if is_branch:
            space.tpc_begin((1, f"{next(self.numbers)}", ""), timeout)
            found = current(space.device, space.name)
            assert found is not None
            transaction = found
            transaction.leave_context()
        else:
            transaction = space.transaction(timeout)
        deadline = None if timeout is None else self.clock.now() + timeout * MICROS
        # A branch is known from its beginning on.
        self.open[actor] = Transacting(deadline, seen=is_branch), transaction
        self.model.transactions.append(self.open[actor][0])
        for _ in range(count):
            self.take(actor, 0, queue, draw.FIRST, "dequeue")

    def branches(self) -> list[int]:
        """Return the actors that have a branch open."""
        return [actor for actor, (_, each) in self.open.items() if isinstance(each, TwoPhaseTransaction)]

    @precondition(lambda self: self.branches())
    @rule(data=st.data(), jump=jumps)
    def prepare(self, data, jump) -> None:
        actor = data.draw(st.sampled_from(sorted(self.branches())))
        mine, transaction = self.open.pop(actor)
        assert isinstance(transaction, TwoPhaseTransaction)
        self.clock.advance(jump)
        transaction.join_context()
        try:
            if self.model.overdue(mine):
                self.model.give_back(mine, FAILED)
                with pytest.raises(AbortedError):
                    self.handle(actor).tpc_prepare()
                return
            expected = self.model.prepare(mine)
            if expected is None:
                with pytest.raises(NoSpaceError):
                    self.handle(actor).tpc_prepare()
                return
            assert self.handle(actor).tpc_prepare() is expected
        finally:
            transaction.leave_context()
        if expected:
            self.prepared[transaction.xid] = mine

    @precondition(lambda self: self.prepared)
    @rule(data=st.data(), jump=jumps, ender=actors, commits=st.booleans())
    def end_prepared(self, data, jump, ender, commits) -> None:
        """End a prepared branch by its identifier, whoever had begun it."""
        xid = data.draw(st.sampled_from(sorted(self.prepared)))
        assert sorted(self.handle(ender).tpc_recover()) == sorted(self.prepared)
        mine = self.prepared.pop(xid)
        self.jump(jump)
        if commits:
            self.handle(ender).tpc_commit(xid)
            assert self.model.commit(mine)
        else:
            self.handle(ender).tpc_rollback(xid)
            self.model.give_back(mine, FAILED)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), jump=jumps)
    def commit(self, data, jump) -> None:
        actor = data.draw(st.sampled_from(sorted(self.open)))
        mine, transaction = self.open.pop(actor)
        self.clock.advance(jump)
        if self.model.overdue(mine):
            self.model.give_back(mine, FAILED)
            with pytest.raises(AbortedError):
                transaction.commit()
        elif self.model.commit(mine):
            transaction.commit()
        else:
            with pytest.raises(NoSpaceError):
                transaction.commit()

    @precondition(lambda self: self.open)
    @rule(data=st.data(), jump=jumps, counts=st.booleans())
    def roll_back(self, data, jump, counts) -> None:
        actor = data.draw(st.sampled_from(sorted(self.open)))
        mine, transaction = self.open.pop(actor)
        self.clock.advance(jump)
        transaction.rollback("not now", counts=counts)
        self.model.give_back(mine, FAILED if counts else UNTRIED)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def forget(self, data) -> None:
        """Drop a transaction without a word, as a thread that dies does."""
        actor = data.draw(st.sampled_from(sorted(self.open)))
        mine, transaction = self.open.pop(actor)
        del transaction
        self.handle(actor).usage("ERRORS")
        self.model.give_back(mine, GONE)
        self.model.freshen("ERRORS")

    @precondition(lambda self: 0 not in self.open)
    @rule(queue=all_names, count=st.integers(1, 3), times=st.integers(1, 3), seconds=st.sampled_from([0, 5]))
    def try_and_fail(self, queue, count, times, seconds) -> None:
        """Take some messages and give them back, more than once."""
        for _ in range(times):
            self.jump(seconds)
            if seconds:
                self.handle(0).usage("ERRORS")
                self.model.freshen("ERRORS")
            mine, transaction = Transacting(None), self.handle(0).transaction()
            self.open[0] = mine, transaction
            self.model.transactions.append(mine)
            for _ in range(count):
                self.take(0, 0, queue, draw.FIRST, "dequeue")
            del self.open[0]
            transaction.rollback("failed")
            self.model.give_back(mine, FAILED)
            self.settle()

    @precondition(lambda self: self.kind != "memory")
    @rule(queues=st.lists(all_names, max_size=3), drawn=st.lists(st.tuples(names, draw.asked()), max_size=2))
    def die(self, queues, drawn) -> None:
        """Let a process die in the midst of a transaction."""
        queues = [queue for queue in queues if (queue, "dequeue") not in self.model.stopped]
        items = [self.asked(queue, one) for queue, one in drawn]
        found, refused = die_in_a_transaction(
            self.store.path,
            str(self.directory),
            self.clock.now(),
            self.model.spill,
            queues,
            [(each.queue, each.body, self.control(each)) for each in items],
        )
        # A server needs a moment to notice.
        attached = self.store.device.attached
        eventually(lambda: not all(each.alive for each in attached("SPACE")), "the end of the process")
        mine = Transacting(None)
        self.model.transactions.append(mine)
        for queue, msgids in zip(queues, found, strict=True):
            self.model.freshen(queue)
            self.settle()
            expected = self.model.chosen(queue, draw.FIRST.fits, 1, mine, also_locked=True)
            assert msgids == [each.msgid for each in expected]
            self.model.hold(mine, expected, lock=False)
        refusal = self.model.refusal_of_all(items, mine) if items else None
        assert refused == (refusal.__name__ if refusal else "")
        self.handle(1).usage("ERRORS")
        self.model.give_back(mine, GONE)
        self.model.freshen("ERRORS")

    # ---- administration ---------------------------------------------------------------------------------------------

    @rule(
        what=st.sampled_from(["purge", "purge_history", "change", "change", "stop", "start", "clear_memory", "reopen"]),
        data=st.data(),
    )
    def administer(self, what, data) -> None:
        """Do what administrators do: seldom, beside all the rest."""
        getattr(self, what)(data.draw)

    def purge(self, drawn) -> None:
        self.jump(drawn(jumps))
        queue, condition = drawn(all_names), drawn(draw.restrictions)
        count = self.handle(1).purge(queue, condition=condition)
        self.model.freshen(queue)
        self.settle(purged=queue)
        assert count == self.model.purge(queue, draw.CONDITIONS[condition] if condition else draw.FIRST.fits)

    def purge_history(self, drawn) -> None:
        queue, ago = drawn(names), drawn(st.sampled_from([None, 0, 5, 20]))
        before = None if ago is None else self.clock.now() - ago * MICROS
        count = self.handle(1).purge_history(queue, before=None if before is None else to_datetime(before))
        assert count == self.model.forget(queue, 2**62 if before is None else before)

    def change(self, drawn) -> None:
        changed = drawn(draw.changes(self.model.queues[drawn(names)]))
        self.handle(1).change_queue(changed)
        self.model.change(changed)
        # What is due in the queue is done by its new definition.
        self.model.look()
        self.model.freshen(changed.name)

    def stop(self, drawn) -> None:
        queue, whats = drawn(all_names), drawn(st.sets(st.sampled_from(["enqueue", "dequeue"])))
        which = {what: what in whats for what in ("enqueue", "dequeue")}
        if "dequeue" in whats and any(each.queue == queue and each.holder is not None for each in self.model.there):
            with pytest.raises(InUseError):
                self.handle(1).stop_queue(queue, **which)
            return
        self.handle(1).stop_queue(queue, **which)
        self.model.stopped |= {(queue, what) for what in whats}

    def start(self, drawn) -> None:
        queue, whats = drawn(all_names), drawn(st.sets(st.sampled_from(["enqueue", "dequeue"]), min_size=1))
        self.handle(1).start_queue(queue, enqueue="enqueue" in whats, dequeue="dequeue" in whats)
        self.model.stopped -= {(queue, what) for what in whats}

    def clear_memory(self, _drawn) -> None:
        self.store.device.clear_memory("SPACE", force=True)
        self.model.clear_memory()

    def reopen(self, drawn) -> None:
        """Leave the queue space with transactions open, and come back."""
        which = drawn(st.integers(0, len(self.handles) - 1))
        left = [actor for actor in self.open if actor % len(self.handles) == which]
        if which:
            self.store.others.pop().close()
            self.handles[which] = self.store.another().open_space("SPACE")
        else:
            self.handles[which].close()
            self.handles[which] = self.store.device.open_space("SPACE")
        self.model.give_back_all([self.open.pop(actor)[0] for actor in left], GONE)

    @rule(seconds=st.sampled_from([1, 4, 5, 10, 40]), looker=actors)
    def time_goes_on(self, seconds, looker) -> None:
        self.jump(seconds)
        self.handle(looker).usage("ERRORS")
        self.model.freshen("ERRORS")

    # ---- what holds at all times ------------------------------------------------------------------------------------

    @invariant()
    def both_say_the_same_and_the_books_balance(self) -> None:
        if not hasattr(self, "model"):
            return
        name = draw.ALL[next(self.checks) % len(draw.ALL)]
        check_usage(self.model, self.store, self.handles[0], name)
        self.settle()
        self.end_late()
        check_listing(self.model, self.handles[0], name)
        self.books.check_order(self.model)
        self.books.check_counters(self.model)
        self.books.check_rows()


class QueueSpaceOnFile(QueueSpaceMachine):
    """The same with two handles of one file, and processes that die."""

    kind = "file"

    def path(self) -> str:
        return str(self.directory / "QUE")


class QueueSpaceOnPostgres(QueueSpaceMachine):
    """The same with two handles of one schema, and processes that die."""

    kind = "postgres"
    device_urls: Iterator[str]

    def path(self) -> str:
        return next(self.device_urls)

    def teardown(self) -> None:
        super().teardown()
        forget_schema(self.store.path)


# Shrinking a failure takes longer than finding it, and a loaded machine four times as long as one at rest.
_PATIENCE = pytest.mark.timeout(600)
_PROFILE = {"stateful_step_count": 40, "deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
QueueSpaceMachine.TestCase.settings = settings(max_examples=20, **_PROFILE)
QueueSpaceOnFile.TestCase.settings = settings(max_examples=8, **_PROFILE)
TestBooksInMemory = _PATIENCE(QueueSpaceMachine.TestCase)
QueueSpaceOnPostgres.TestCase.settings = settings(max_examples=3, **_PROFILE)
TestBooksOnFile = _PATIENCE(QueueSpaceOnFile.TestCase)


@_PATIENCE
class TestBooksOnPostgres(QueueSpaceOnPostgres.TestCase):  # type: ignore[misc, name-defined]
    @pytest.fixture(autouse=True)
    def _each_in_a_schema_of_its_own(self, database_url, monkeypatch):
        monkeypatch.setattr(
            QueueSpaceOnPostgres, "device_urls", (f"{database_url}_{at}" for at in itertools.count()), raising=False
        )
