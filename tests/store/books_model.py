"""What a queue space does, as plain lists: the model that the engine is driven beside.

Nothing here knows how the engine stores anything. A message is in the list or not, its order is a sort, a transaction
is a list of what it asked for and a mark on what it holds. What is due is done when the engine is asked to do it
(`freshen`, `make_room`, `look`), so that both do the same things at the same moments.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable

from qmcore.errors import BadMessageIdError, BadQueueError, InvalidArgumentError, NoSpaceError, QueueError
from qmcore.order import Criterion, OutOfOrder
from qmcore.queue import FOREVER, Delivery, QueueDefinition
from tests.fix_store import MovableClock

MICROS = 1_000_000
PAGE = 4096
SENDER_BYTES = 512
"""What a transaction counts for the control information of a message that it keeps."""


@dataclasses.dataclass(eq=False)
class Asked:
    """An enqueue as a sender asks for it. Spans are seconds, times microseconds."""

    queue: str
    body: bytes | None = b""
    priority: int = 50
    corrid: bytes | None = None
    delay: int | None = None
    available: int | None = None
    lifetime: int | None = None
    expires: int | None = None
    never: bool = False
    error_queue: str | None = None
    persistent: bool | None = None
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    top: bool = False
    before: str | None = None
    # What the queue makes of it:
    msgid: str = ""
    place: tuple[tuple[float, ...], ...] = ()
    spilled: bool = False

    @property
    def size(self) -> int:
        return len(self.body or b"")

    @property
    def pages(self) -> int:
        return -(-(256 + self.size + self.header_bytes) // PAGE)

    @property
    def header_bytes(self) -> int:
        return len(json.dumps(self.headers, separators=(",", ":"))) if self.headers else 0


@dataclasses.dataclass(eq=False)
class Expected:
    """A message that is there. `path` is its place: its own, or that of the one that it stands before and its own."""

    asked: Asked
    msgid: str
    queue: str
    persistent: bool
    enqueued: int
    available: int | None
    expires: int | None
    path: tuple[tuple[float, ...], ...]
    group: str | None = None
    retries: int = 0
    holder: Transacting | None = None
    locked: bool = False
    origin: tuple[str, str, str] | None = None
    error_queue: str | None = None
    moved: int = 0

    @property
    def rank(self) -> tuple[tuple[float, ...], ...]:
        return (*self.path, (math.inf,))

    def over(self, now: int) -> bool:
        return self.expires is not None and self.expires <= now


@dataclasses.dataclass(eq=False)
class Transacting:
    """A transaction: what it has asked for, and whether the others can see that it is open."""

    deadline: int | None
    asked: list[Asked] = dataclasses.field(default_factory=list)
    seen: bool = False
    vague: bool = False
    """Whether what it has room for changed since, by something that it does not know of."""
    prepared: bool = False


@dataclasses.dataclass(frozen=True)
class End:
    """How a transaction ends that does not commit."""

    counts: bool
    discards: bool


FAILED = End(counts=True, discards=True)
UNTRIED = End(counts=False, discards=False)
GONE = End(counts=True, discards=False)

Fits = Callable[[Expected], bool]


class Model:
    """A queue space with its queues."""

    def __init__(
        self,
        clock: MovableClock,
        queues: Iterable[QueueDefinition],
        *,
        error_queue: str,
        messages: int,
        pages: int,
        memory: int,
        spill: int,
    ) -> None:
        self.clock = clock
        self.queues = {definition.name: definition for definition in queues}
        self.error_queue = error_queue
        self.limits = (messages, pages, memory)
        self.spill = spill
        self.there: list[Expected] = []
        self.retained: list[tuple[int, Expected]] = []
        self.stopped: set[tuple[str, str]] = set()
        self.counts: Counter[tuple[str, bool, str]] = Counter()
        self.transactions: list[Transacting] = []
        self.gone: list[str] = []
        self._places = itertools.count()

    def now(self) -> int:
        return self.clock.now()

    # ---- what is there -----------------------------------------------------------------------------------------------

    def ready(self, queue: str) -> list[Expected]:
        now = self.now()
        found = [
            each
            for each in self.there
            if each.queue == queue and each.holder is None and (each.available is None or each.available <= now)
        ]
        return sorted(found, key=lambda each: each.rank)

    def held(self, transaction: Transacting, *, locked: bool) -> list[Expected]:
        return [each for each in self.there if each.holder is transaction and each.locked == locked]

    def level(self) -> tuple[int, int, int]:
        """Return messages, pages on disk, and pages in memory, with those that are kept for transactions."""
        spilled = [each for tx in self.transactions for each in tx.asked if each.spilled]
        uses = [(each.persistent, each.asked.pages) for each in self.there]
        uses += [(bool(each.persistent), each.pages) for each in spilled]
        disk = sum(pages for persistent, pages in uses if persistent)
        return (
            len(uses),
            disk + sum(each.asked.pages for _, each in self.retained),
            sum(pages for persistent, pages in uses if not persistent),
        )

    # ---- what is due -------------------------------------------------------------------------------------------------

    def freshen(self, queue: str) -> int:
        """Remove from a queue what has expired and what was kept long enough."""
        now, batch = self.now(), next(self._places)
        over = [each for each in self.there if each.queue == queue and each.holder is None and each.over(now)]
        for each in over:
            self._expire(each, batch)
        retention = self.queues[queue].retention
        if retention in (0, FOREVER):
            return len(over)
        return len(over) + self.forget(queue, now - retention * MICROS)

    def forget(self, queue: str, before: int) -> int:
        gone = [(at, each) for at, each in self.retained if each.queue == queue and at < before]
        self.retained = [pair for pair in self.retained if pair not in gone]
        return len(gone)

    def make_room(self) -> None:
        for queue in sorted(self.queues):
            self.freshen(queue)

    def overdue(self, transaction: Transacting) -> bool:
        return transaction.deadline is not None and transaction.deadline <= self.now()

    def look(self) -> None:
        """End the transactions whose time is over, and do what is due in all queues."""
        self.give_back_all([each for each in self.transactions if self.overdue(each)], FAILED)
        for queue in self.queues:
            self.freshen(queue)

    # ---- enqueuing ---------------------------------------------------------------------------------------------------

    def refusal(self, asked: Asked) -> type[QueueError] | None:  # noqa: PLR0911 - a list of reasons
        """Return how the queue refuses what is asked for; else note what it makes of it."""
        queue = self.queues[asked.queue]
        if (queue.name, "enqueue") in self.stopped:
            return BadQueueError
        if asked.persistent is None:
            asked.persistent = queue.delivery is Delivery.PERSIST
        if not asked.persistent and not self.limits[2]:
            return NoSpaceError
        if not asked.persistent and queue.grouping:
            return InvalidArgumentError
        if asked.top and OutOfOrder.TOP not in queue.out_of_order:
            return InvalidArgumentError
        if asked.before is None:
            return None
        if OutOfOrder.MSGID not in queue.out_of_order:
            return InvalidArgumentError
        target = [each for each in self.there if each.msgid == asked.before and each.queue == asked.queue]
        if not target:
            return BadMessageIdError
        asked.place = target[0].path
        return None

    def refusal_of_all(self, items: list[Asked], transaction: Transacting | None = None) -> type[QueueError] | None:
        """Return how an enqueue of these is refused, after room was made for it if need be."""
        for attempt in range(2):
            found = self._refusal_at_once(items) if transaction is None else self._refusal_in(transaction, items)
            if found is not NoSpaceError or attempt:
                return found
            self.make_room()
        return None

    def _known_refusal(self, refusals: list[type[QueueError] | None]) -> type[QueueError] | None:
        """Return what of these is known without a look at messages: that of a queue comes before all others."""
        if BadQueueError in refusals:
            return BadQueueError
        return next((refusal for refusal in refusals if refusal not in (None, BadMessageIdError)), None)

    def _refusal_in(self, transaction: Transacting, items: list[Asked]) -> type[QueueError] | None:
        """Return how messages are refused in a transaction, which has them looked at all together."""
        refusals = list(map(self.refusal, items))
        if (found := self._known_refusal(refusals)) is not None:
            return found
        if BadMessageIdError in refusals:
            return BadMessageIdError
        return NoSpaceError if self.overflows(items, transaction) else None

    def _refusal_at_once(self, items: list[Asked]) -> type[QueueError] | None:
        """Return how messages are refused outside of transactions: by what is known of all queues, then by each."""
        refusals = list(map(self.refusal, items))
        if (found := self._known_refusal(refusals)) is not None:
            return found
        so_far: list[Asked] = []
        for queue in dict.fromkeys(each.queue for each in items):
            so_far += [each for each in items if each.queue == queue]
            if any(refusal for refusal, each in zip(refusals, items, strict=True) if each.queue == queue):
                return BadMessageIdError
            if self.overflows(so_far, None):
                return NoSpaceError
        return None

    def overflows(self, items: list[Asked], transaction: Transacting | None) -> bool:
        """Return whether there is no room for these, in a transaction if it committed now."""
        messages, disk, memory = self.level()
        brings = items or (transaction.asked if transaction else [])
        new = list(items)
        if transaction is not None:
            for each in self.held(transaction, locked=False):
                messages -= 1
                if not each.persistent:
                    memory -= each.asked.pages
                elif not self.queues[each.queue].retention:
                    disk -= each.asked.pages
            new += [each for each in transaction.asked if not each.spilled]
        messages += len(new)
        disk += sum(each.pages for each in new if each.persistent)
        memory += sum(each.pages for each in new if not each.persistent)
        most = self.limits
        return (
            (bool(brings) and messages > most[0])
            or (any(each.persistent for each in brings) and disk > most[1])
            or (any(not each.persistent for each in brings) and memory * PAGE > most[2])
        )

    def ask(self, transaction: Transacting, items: list[Asked]) -> None:
        """Note what a transaction enqueues; above a limit its process keeps none of it."""
        transaction.asked += items
        kept = [each for each in transaction.asked if not each.spilled]
        if sum(each.size + each.header_bytes + SENDER_BYTES for each in kept) > self.spill:
            transaction.seen = True
            for each in kept:
                each.spilled = True

    def arrive(self, items: list[Asked]) -> None:
        """Let messages arrive in one queue, or several, in this order."""
        for queue in dict.fromkeys(each.queue for each in items):
            mine = [each for each in items if each.queue == queue]
            grouped = self.queues[queue].grouping and len(mine) > 1
            for each in mine:
                self._arrive(each, mine[0] if grouped else each, mine[0].msgid if grouped else None)

    def _arrive(self, asked: Asked, terms: Asked, group: str | None) -> None:
        now, queue = self.now(), self.queues[asked.queue]
        available = terms.available if terms.delay is None else now + terms.delay * MICROS
        expires = terms.expires if terms.lifetime is None else now + terms.lifetime * MICROS
        if expires is None and not terms.never and queue.expiration is not None:
            expires = now + queue.expiration * MICROS
        number = next(self._places)
        if terms.top:
            path: tuple[tuple[float, ...], ...] = ((0, -number),)
        elif terms.place:
            path = (*terms.place, (number, 0))
        else:
            path = (self._root(queue, terms.priority, available, expires, number),)
        self.there.append(
            Expected(
                asked,
                asked.msgid,
                asked.queue,
                bool(asked.persistent),
                now,
                available,
                expires,
                path,
                group,
                error_queue=asked.error_queue,
            )
        )
        self.counts[asked.queue, bool(asked.persistent), "enqueued"] += 1

    def _root(
        self,
        queue: QueueDefinition,
        priority: int,
        available: int | None,
        expires: int | None,
        number: int,
        sub: int = 0,
    ) -> tuple[float, ...]:
        """Return the place in the order of the queue; what compares less is dequeued before."""
        fields: dict[Criterion, tuple[float, ...]] = {
            Criterion.PRIORITY: (-priority,),
            Criterion.TIME: (self.now() if available is None else available,),
            Criterion.EXPIRATION: (math.inf if expires is None else expires,),
            Criterion.FIFO: (number, sub),
            Criterion.LIFO: (-number, -sub),
        }
        criteria = queue.order.criteria
        if criteria[-1] not in (Criterion.FIFO, Criterion.LIFO):
            criteria = (*criteria, Criterion.FIFO)
        return (1, *(part for criterion in criteria for part in fields[criterion]))

    # ---- dequeuing ---------------------------------------------------------------------------------------------------

    def chosen(
        self,
        queue: str,
        fits: Fits,
        limit: int,
        transaction: Transacting | None = None,
        *,
        also_locked: bool = False,
        restricted: bool = False,
    ) -> list[Expected]:
        """Return the messages that a dequeue gives, in order; `also_locked`: what the transaction has locked counts."""
        groups = self.queues[queue].grouping
        pool = [each for each in self.ready(queue) if fits(each)]
        if also_locked and transaction is not None:
            locked = [each for each in self.held(transaction, locked=True) if each.queue == queue and fits(each)]
            # The rest of a group comes before what has arrived since.
            pool = locked if groups and locked else pool + locked
            pool.sort(key=lambda each: each.rank)
        if groups and limit > 1:
            return self._of_one_group(pool, limit, whole=not restricted)
        return pool[:limit]

    def _of_one_group(self, pool: list[Expected], limit: int, *, whole: bool) -> list[Expected]:
        """Return the first message and others of its group; of those that are chosen, or locked, as they come next."""
        rest = pool[1:]
        if pool and pool[0].holder is not None:
            rest = list(itertools.takewhile(lambda each: each.group == pool[0].group, rest))
        elif not whole:
            rest = rest[: limit - 1]
        same = [each for each in rest if each.group is not None and each.group == pool[0].group]
        return [*pool[:1], *same][:limit]

    def _family(self, first: Expected, holder: Transacting | None) -> list[Expected]:
        """Return a message with those of its group that stand as it does."""
        if first.group is None:
            return [first]
        pool = self.ready(first.queue) if holder is None else self.held(holder, locked=True)
        return [each for each in pool if each is first or (each.group == first.group and each.queue == first.queue)]

    def consume(self, message: Expected) -> None:
        """Let a message leave for good."""
        self.there.remove(message)
        self.gone.append(message.msgid)
        self.counts[message.queue, message.persistent, "dequeued"] += 1
        if message.persistent and self.queues[message.queue].retention:
            self.retained.append((self.now(), message))

    def hold(self, transaction: Transacting, messages: list[Expected], *, lock: bool) -> None:
        """Let a transaction have messages, and lock the rest of their groups."""
        for each in messages:
            rest = [] if each.holder is not None else self._family(each, None)
            for other in rest if self.queues[each.queue].grouping else []:
                other.holder, other.locked = transaction, True
            each.holder, each.locked = transaction, lock
            transaction.seen = True

    # ---- the end of a transaction ------------------------------------------------------------------------------------

    def prepare(self, transaction: Transacting) -> bool | None:
        """Promise its commit; False where it has changed nothing and is over, None where there is no room."""
        if not (transaction.asked or self.held(transaction, locked=False)):
            self.give_back(transaction, UNTRIED)
            return False
        if not self._has_room(transaction):
            return None
        for each in transaction.asked:
            each.spilled = True
        transaction.deadline, transaction.seen, transaction.prepared = None, True, True
        return True

    def commit(self, transaction: Transacting) -> bool:
        """Do what the transaction asked for; False where there is no room, and it was given back."""
        if not (transaction.prepared or self._has_room(transaction)):
            return False
        self.transactions.remove(transaction)
        for each in self.held(transaction, locked=False):
            self.consume(each)
        for each in self.held(transaction, locked=True):
            # What has expired meanwhile goes with all that has, when somebody looks.
            each.holder, each.locked, each.available = None, False, None
        self.arrive(transaction.asked)
        return True

    def _has_room(self, transaction: Transacting) -> bool:
        """Return whether there is room for what it asks for; else it is given back."""
        if not self.overflows([], transaction):
            return True
        self.make_room()
        if not self.overflows([], transaction):
            return True
        self.give_back(transaction, UNTRIED)
        return False

    def give_back(self, transaction: Transacting, end: End, batch: int | None = None) -> None:
        """Return what the transaction held to where it belongs now, and forget what it asked for."""
        self.transactions.remove(transaction)
        batch = next(self._places) if batch is None else batch
        tried = self.held(transaction, locked=False)
        for each in self.held(transaction, locked=True):
            waits = self.queues[each.queue].grouping and end.counts and any(one.queue == each.queue for one in tried)
            self._return(each, UNTRIED, batch, waits=waits)
        for each in tried:
            self._return(each, end, batch, waits=end.counts)

    def give_back_all(self, doomed: list[Transacting], end: End) -> None:
        """End transactions together: what they move to an error queue comes there in any order."""
        batch = next(self._places)
        for each in doomed:
            self.give_back(each, end, batch)

    def _return(self, message: Expected, end: End, batch: int, *, waits: bool) -> None:
        queue = self.queues[message.queue]
        message.holder, message.locked = None, False
        if message.over(self.now()):
            self._expire(message, batch)
            return
        message.retries += end.counts
        if end.counts and message.retries > queue.retries:
            target = self._error_queue_of(message)
            if target is not None and target != queue.name:
                self._move(message, target, "retries", batch)
                return
            if target is None and end.discards:
                self._remove(message, "discarded")
                return
        if waits and queue.retry_delay:
            message.available = self.now() + queue.retry_delay * MICROS
        else:
            # Whatever it waited for before is over.
            message.available = None

    def _expire(self, message: Expected, batch: int) -> None:
        queue = self.queues[message.queue]
        target = self._error_queue_of(message) if queue.keep_expired else None
        if target is not None and target != queue.name:
            self._move(message, target, "expired", batch)
        else:
            self._remove(message, "expired")

    def _remove(self, message: Expected, how: str) -> None:
        self.there.remove(message)
        self.gone.append(message.msgid)
        self.counts[message.queue, message.persistent, how] += 1

    def _error_queue_of(self, message: Expected) -> str | None:
        own = self.queues[message.queue]
        error_queues = {self.error_queue, *(queue.error_queue for queue in self.queues.values())}
        if own.name in error_queues:
            return own.name
        # What has failed, and stands where it named, is not sent there again.
        has_failed = message.origin is not None and message.error_queue == own.name
        wanted = ("" if has_failed else message.error_queue, own.error_queue, self.error_queue)
        return next((name for name in wanted if name and name in self.queues), None)

    def _move(self, message: Expected, target: str, reason: str, batch: int) -> None:
        """Move a message. The identifier that it gets is the engine's to give: `resolve` brings it."""
        self.counts[message.queue, message.persistent, "moved"] += 1
        self.counts[target, message.persistent, "enqueued"] += 1
        self.gone.append(message.msgid)
        message.origin = (message.queue, message.msgid, reason)
        message.msgid = ""
        message.queue, message.expires, message.available, message.retries = target, None, None, 0
        message.group = None
        message.moved = batch
        message.path = (self._root(self.queues[target], message.asked.priority, None, None, batch),)

    def resolve(self, found: dict[str, str], purged: str = "") -> None:
        """Take over the identifiers of what was moved, by those of before; what moved together is ordered by them.

        What came to a queue that was `purged` in the same call may be gone already.
        """
        for each in self.there:
            if not each.msgid and each.origin is not None:
                if each.queue == purged and each.origin[1] not in found:
                    continue
                each.msgid = found[each.origin[1]]
                sub = int(each.msgid[16:], 16)
                path = self._root(self.queues[each.queue], each.asked.priority, None, None, each.moved, sub)
                each.path = (path,)

    # ---- administration ----------------------------------------------------------------------------------------------

    def purge(self, queue: str, fits: Fits) -> int:
        gone = [each for each in self.there if each.queue == queue and each.holder is None and fits(each)]
        for each in gone:
            self._remove(each, "discarded")
        return len(gone)

    def change(self, definition: QueueDefinition) -> None:
        if definition.retention != self.queues[definition.name].retention:
            for transaction in self.transactions:
                transaction.vague = True
        self.queues[definition.name] = definition
        if not definition.retention:
            self.forget(definition.name, self.now() + 1)
        # Whoever changes a queue sees it as it is by then.
        self.freshen(definition.name)

    def clear_memory(self) -> None:
        self.gone += [each.msgid for each in self.there if not each.persistent]
        self.there = [each for each in self.there if each.persistent]
        self.counts = Counter({key: count for key, count in self.counts.items() if key[1]})
        for transaction in self.transactions:
            transaction.vague = True
            transaction.asked = [each for each in transaction.asked if each.persistent or not each.spilled]
