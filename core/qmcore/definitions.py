"""What an attached process knows of a queue space: its definitions, kept until they change."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from qmcore.device import PAGE_SIZE
from qmcore.errors import (
    BadQueueError,
    BadResourceError,
    InvalidArgumentError,
    OperatingSystemError,
    SystemFailureError,
)
from qmcore.limits import Threshold
from qmcore.port import Unit
from qmcore.queue import ConsumerRecord, Queue
from qmcore.records import Owner
from qmcore.schedule import Following
from qmcore.space import Limited, Space
from qmcore.transitions import Guard, Reached, Route, Source, Terms
from qmcore.two_phase import Era
from qmcore.values import dataclass

if TYPE_CHECKING:
    from qmcore.subscription_rules import Index, Interest


class Changes:
    """How often this process has changed the definitions of any queue space."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.last = 0
        """A number that is another one after each change, and is never that of an earlier moment."""

    def note(self) -> None:
        """Note that definitions were changed, once that is committed."""
        self.last = next(self._numbers)


CHANGES: Final = Changes()


@dataclass(frozen=True, slots=True)
class Definitions:
    """A queue space and its queues at one generation; `versions` of the queues, by their numbers.

    `by_id` also has the consumers of queues for several, and `takers` by name what messages can be taken from: queues
    for one consumer, and consumers. `subscribed` are those that messages come to, by the numbers of their queues;
    `ruled` are the queues of which some want not every message. `interests` are those that were compiled by now, by
    rule and topics.
    """

    generation: int
    space: Space
    queues: Mapping[str, Queue]
    by_id: Mapping[int, Queue]
    versions: Mapping[int, int]
    error_queues: frozenset[str]
    page_size: int
    takers: Mapping[str, Queue] = dataclasses.field(init=False, compare=False, repr=False)
    subscribed: Mapping[int, Sequence[Queue]] = dataclasses.field(init=False, compare=False, repr=False)
    ruled: frozenset[int] = dataclasses.field(init=False, compare=False, repr=False)
    interests: dict[tuple[str, tuple[str, ...]], Interest] = dataclasses.field(
        default_factory=dict, compare=False, repr=False
    )
    indexes: dict[int, Index] = dataclasses.field(default_factory=dict, init=False, compare=False, repr=False)
    """Who wants which message, by the numbers of `ruled` queues, as far as anybody has asked."""
    routes: dict[str, Route] = dataclasses.field(default_factory=dict, init=False, compare=False, repr=False)
    """The routes of queues that accept any message, as far as they are known."""
    usual_terms: dict[tuple[str, str], Terms] = dataclasses.field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    """The terms of messages whose senders ask for nothing, by queue and type, as far as they are known."""
    sources: dict[str, Source] = dataclasses.field(default_factory=dict, init=False, compare=False, repr=False)
    """How messages are taken out of queues that give any, as far as it is known."""

    def __post_init__(self) -> None:
        takers = {name: queue for name, queue in self.queues.items() if not queue.definition.multiple_consumers}
        subscribed: dict[int, list[Queue]] = {}
        ruled = set[int]()
        if len(self.by_id) != len(self.queues) or len(takers) != len(self.queues):
            for queue in self.by_id.values():
                if queue.parent_id and not queue.going:
                    takers[queue.name] = queue
                    subscribed.setdefault(queue.parent_id, []).append(queue)
                    if queue.rule or queue.topics:
                        ruled.add(queue.parent_id)
        object.__setattr__(self, "takers", takers)
        object.__setattr__(self, "subscribed", subscribed)
        object.__setattr__(self, "ruled", frozenset(ruled))

    def thresholds_of(self, queue: Queue) -> Sequence[tuple[bool, Threshold, int]]:
        """Return the capacity limits of a queue, of messages on disk and in memory, and what 100 % are in pages."""
        limits = self.space.definition
        return (
            (False, queue.definition.threshold, limits.capacity),
            (True, queue.definition.memory_threshold, limits.memory // self.page_size),
        )

    def queue(self, name: str) -> Queue:
        """Return the queue of that name, or raise BadQueueError."""
        queue = self.queues.get(name)
        if queue is None:
            raise self._no_such_queue(name)
        return queue

    def _no_such_queue(self, name: str) -> BadQueueError:
        words = f"there is no queue {name!r} in queue space {self.space.name!r}"
        hint = "List the queues with qinfo, or create it with qcreate."
        consumer = self.takers.get(name)
        if consumer is not None:
            parent = self.by_id[consumer.parent_id].name
            words = f"{name!r} is a consumer of queue {parent!r} in queue space {self.space.name!r}, and no queue"
            hint = f"Name the queue, {parent!r}; what is enqueued to it is for each consumer that wants it."
        return BadQueueError(words, hint=hint, queue=name, space=self.space.name)

    def named(self, name: str) -> Queue:
        """Return the queue of that name, or `queue:consumer`; raises as `taker` does where there is none."""
        return self.queues.get(name) or self.taker(name)

    def taker(self, name: str) -> Queue:
        """Return what messages are taken from by that name: a queue for one consumer, or `queue:consumer`.

        Raises InvalidArgumentError for a queue for several without a consumer, BadQueueError where there is no such.
        """
        found = self.takers.get(name)
        if found is not None:
            return found
        queue = self.queues.get(name)
        if queue is not None:
            raise InvalidArgumentError(
                f"queue {name!r} has several consumers, and it is not said for which one",
                hint=f"Name one of its subscriptions: {_these(self.subscriptions_of(queue))}.",
                queue=name,
            )
        parents = [each for each in self.queues.values() if name.startswith(f"{each.name}:")]
        several = [each for each in parents if each.definition.multiple_consumers]
        if several:
            raise self.no_such_subscription(several[0], name.removeprefix(f"{several[0].name}:"))
        if parents:
            raise InvalidArgumentError(
                f"queue {parents[0].name!r} has one consumer, which has no name",
                hint="Name the queue alone.",
                queue=parents[0].name,
            )
        return self.queue(name)

    def terms_of(self, queue_id: int) -> Sequence[tuple[int, str, tuple[str, ...]]]:
        """Return who has subscribed to a queue for several, by number, and what messages each wants."""
        return [(each.id, each.rule, each.topics) for each in self.subscribed.get(queue_id, ())]

    def index_of(self, queue_id: int) -> Index:
        """Return who wants which message of a `ruled` queue. What has changed is compiled when it is first asked."""
        found = self.indexes.get(queue_id)
        if found is None:
            # Only where somebody has a rule is what reads rules loaded.
            from qmcore.subscription_rules import Index

            found = self.indexes[queue_id] = Index(
                (each.id, self._interest_of(each)) for each in self.subscribed[queue_id]
            )
        return found

    def _interest_of(self, consumer: Queue) -> Interest | None:
        terms = consumer.rule, consumer.topics
        if terms == ("", ()):
            return None
        found = self.interests.get(terms)
        if found is None:
            from qmcore.subscription_rules import Interest

            try:
                found = self.interests[terms] = Interest(*terms)
            except InvalidArgumentError as error:
                raise SystemFailureError(
                    f"the rule of subscription {consumer.name!r} cannot be read: {error}",
                    hint="Change it with qsubchange.",
                    queue=consumer.name,
                ) from error
        return found

    def subscriptions_of(self, queue: Queue) -> list[str]:
        """Return the names of the consumers that have subscribed to a queue, in their order."""
        return sorted(each.name.removeprefix(f"{queue.name}:") for each in self.subscribed.get(queue.id, ()))

    def no_such_subscription(self, queue: Queue, name: str) -> BadQueueError:
        """Return the diagnostic for a consumer that has not subscribed to a queue; it names those most like it."""
        names = self.subscriptions_of(queue)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        return BadQueueError(
            f"queue {queue.name!r} has no subscription {name!r}",
            hint=f"{hint}It has {_these(names)}; qsublist lists them.",
            queue=queue.name,
            subscription=name,
        )

    def error_queue_for(self, queue: Queue, named: str | None) -> Queue | None:
        """Return where a message of the queue goes that cannot be processed; None where it has to be discarded.

        The error queue that the message names comes first, then the queue's, then the queue space's; one that does not
        exist, or is for several consumers, is passed over. A message in an error queue stays there.
        """
        if self.is_error_queue(queue):
            return queue
        return next((self.queues[name] for name in self._error_queues_of(queue, named) if self._is_plain(name)), None)

    def error_queues_passed_over(self, queue: Queue, named: str | None) -> str:
        """Return which error queues a message of the queue would go to if they existed, in words; empty without any."""
        if self.is_error_queue(queue):
            return ""
        absent = itertools.takewhile(lambda name: not self._is_plain(name), self._error_queues_of(queue, named))
        names = list(dict.fromkeys(absent))
        quoted = " and ".join(map(repr, names))
        return f"error queue{'s' * (len(names) > 1)} {quoted} do{'es' * (len(names) == 1)} not exist" if names else ""

    def _error_queues_of(self, queue: Queue, named: str | None) -> list[str]:
        """Return the error queues that are named for a message of the queue, in the order in which they are tried."""
        return [name for name in (named, queue.definition.error_queue, self.space.definition.error_queue) if name]

    def _is_plain(self, name: str) -> bool:
        """Return whether there is a queue for one consumer of that name."""
        return name in self.queues and name in self.takers

    def is_error_queue(self, queue: Queue) -> bool:
        """Return whether the queue is the error queue of the queue space, or of one of its queues."""
        return queue.name in self.error_queues


def _these(names: Sequence[str]) -> str:
    """Return names in words, those of many cut short."""
    shown = ", ".join(map(repr, names[:_SHOWN]))
    return (shown + (", ..." if len(names) > _SHOWN else "")) or "none"


_SHOWN = 5

_LEFT_MOST = 64
"""How many runs of unused sequence numbers of transactions are kept."""

_READ_ALONE = 20
"""How many changed queues are read one by one; if more have changed, all are read."""

Starter: TypeAlias = "Callable[[OpenSpace, Reached], None]"
"""Starts a claimed capacity command of a queue space."""


class OpenSpace:
    """A queue space that a process has open. Its definitions are read again when their generation has changed.

    `me` is our owner record, None where the queue space can only be read. `start` starts a capacity command that we
    have claimed. `asker` is the user of the system. `following` knows the rules of schedules; without it no message of
    a schedule is made.
    """

    def __init__(
        self,
        space: Space,
        start: Starter | None = None,
        page_size: int = PAGE_SIZE,
        asker: str = "",
        following: Following | None = None,
    ) -> None:
        self.space = space
        self.asker = asker
        self.page_size = page_size
        self.me: Owner | None = None
        self.left_waits: set[tuple[int, str]] = set()
        """Queue and wake-up address of each wait that has ended while the store could not be told."""
        self.counted_waits = -math.inf, 0
        """When, by the monotonic clock, it was counted how many waits the queue space has, and how many they were."""
        self.start = start or (lambda _opened, _claim: None)
        self.following = following
        self.put_off: set[str] = set()
        """Schedules for which the log says why their message is put off."""
        self.left_numbers: deque[Sequence[int]] = deque(maxlen=_LEFT_MOST)
        """Runs of sequence numbers that were given out and not used, for whoever takes them out."""
        self.known: Definitions | None = None
        """The definitions as they were when they were last asked for; None where they never were."""
        self._guard: Guard | None = None
        self.era: Era | None = None
        """In which this process counts what it decides, where it has decided anything."""
        self.known_outcomes: deque[tuple[bytes, bytes]] = deque()
        """Transactions that callers know by now to be committed (b""), and branches that have followed for good."""
        self.has_distributed = False
        """Whether the last look has found branches or decisions that recovery has to see to."""
        self.highest: dict[str, int] = {}
        """The highest use of limits that is noted, as far as we know: what is not above it need not be noted."""

    @property
    def owner(self) -> Owner:
        """Our owner record; OperatingSystemError where the queue space can only be read."""
        if self.me is None:
            raise OperatingSystemError(
                f"queue space {self.space.name!r} is open for reading only",
                hint="Use the device as a user who may write to it.",
                space=self.space.name,
            )
        return self.me

    def guard(self, known: Definitions) -> Guard:
        """Return who asks, and what must hold when a store acts on these definitions."""
        guard, owner_id = self._guard, None if self.me is None else self.me.id
        if guard is None or guard.generation != known.generation or guard.owner_id != owner_id:
            limits = known.space.definition
            most = limits.messages, limits.capacity, limits.memory // known.page_size
            space = known.space
            guard = Guard(
                space.id, space.incarnation, known.generation, self.asker, owner_id, str(self.me or ""), *most
            )
            self._guard = guard
        return guard

    def know_transactions(self, count: int) -> None:
        """Know that the store has noted so many transactions at one time, where that is more than is known; or 0."""
        if count > self.highest.get("transactions", 0):
            self.highest["transactions"] = count

    def definitions(self, unit: Unit) -> Definitions:
        """Return the definitions as they are now."""
        generation = unit.generation(self.space.id)
        known = self.known
        if known is None or known.generation != generation:
            known = self.known = self._read(unit, generation)
            self.highest = dict(unit.highest.of_space(known.space.id))
        return known

    def note_use(self, unit: Unit, limit: Limited, used: int) -> None:
        """Note how much of a limit is in use, if that is more than is known to be noted."""
        highest = self.highest
        if used <= highest.get(limit, 0):
            return
        unit.highest.raise_to(self.space.id, limit, used)

        def remember() -> None:
            highest[limit] = used

        unit.afterwards(remember)

    def learn(self, unit: Unit, created: Queue) -> None:
        """Learn a queue that the unit has created, once that is committed: nothing else has changed then."""
        known, generation = self.known, unit.generation(self.space.id)
        if known is None or generation is None:
            return
        error_queues = known.error_queues
        if created.definition.error_queue:
            error_queues |= {created.definition.error_queue}
        learnt = dataclasses.replace(
            known,
            generation=generation,
            queues={**known.queues, created.name: created},
            by_id={**known.by_id, created.id: created},
            # Not its version, so that it is read again when something else has changed.
            versions={**known.versions, created.id: -1},
            error_queues=error_queues,
        )

        def remember() -> None:
            self.known = learnt

        unit.afterwards(remember)

    def _read(self, unit: Unit, generation: int | None) -> Definitions:
        space = unit.spaces.find(self.space.name)
        if generation is None or space is None or not space.is_same_as(self.space):
            raise no_such_space(self.space.name)
        if space.incarnation != self.space.incarnation:
            self.space = space
        versions = unit.queues.versions(space.id)
        known = self.known
        changed = versions.items() - known.versions.items() if known else versions.items()
        if known is None or len(changed) > _READ_ALONE or space.definition != known.space.definition:
            return self._all(unit, generation, space, versions)
        queues = dict(known.queues)
        by_id = {queue.id: queue for queue in queues.values()}
        # A number may be reused with another name, after a creation that failed.
        outdated = known.versions.items() - versions.items()
        for number, _ in outdated:
            del queues[by_id.pop(number).name]
        found = [unit.queues.find(number) for number, _ in changed]
        for queue in found:
            by_id[queue.id] = queues[queue.name] = queue
        error_queues = known.error_queues
        if outdated or any(queue.definition.error_queue for queue in found):
            error_queues = _error_queues(space, by_id.values())
        return self._made(unit, generation, space, by_id, versions, error_queues)

    def _all(self, unit: Unit, generation: int, space: Space, versions: Mapping[int, int]) -> Definitions:
        """Return the definitions, reading all of them."""
        by_id = {queue.id: queue for queue in unit.queues.of_space(space.id)}
        return self._made(unit, generation, space, by_id, versions, _error_queues(space, by_id.values()))

    def _made(
        self,
        unit: Unit,
        generation: int,
        space: Space,
        by_id: Mapping[int, Queue],
        versions: Mapping[int, int],
        error_queues: frozenset[str],
    ) -> Definitions:
        """Return the definitions with the consumers of the queues, which are read where there may be any."""
        queues = {queue.name: queue for queue in by_id.values()}
        if any(queue.definition.multiple_consumers for queue in queues.values()):
            found = unit.queues.subscriptions.of_space(space.id)
            by_id = dict(by_id) | {each.id: self._consumer(by_id[each.queue_id], each) for each in found}
        its = generation, space, queues, by_id, versions, error_queues, self.page_size
        return Definitions(*its, interests=self._compiled(by_id.values()))

    def _consumer(self, queue: Queue, record: ConsumerRecord) -> Queue:
        """Return a consumer of a queue, the one that is known where nothing of either has changed."""
        before = self.known.by_id.get(record.id) if self.known else None
        if (
            before is not None
            and self.known is not None
            and before.parent_id
            and self.known.by_id.get(queue.id) is queue
            and (before.name, before.since_us, before.going) == (record.full_name, record.since_us, record.going)
            and (before.rule, before.topics) == (record.rule, record.topics)
        ):
            return before
        return queue.consumer(record)

    def _compiled(self, queues: Iterable[Queue]) -> dict[tuple[str, tuple[str, ...]], Interest]:
        """Return what is compiled already of what consumers want, so that only what has changed is compiled anew."""
        before = self.known.interests if self.known else {}
        return {(each.rule, each.topics): before[its] for each in queues if (its := (each.rule, each.topics)) in before}


def _error_queues(space: Space, queues: Iterable[Queue]) -> frozenset[str]:
    return frozenset((space.definition.error_queue, *(queue.definition.error_queue for queue in queues)))


def no_such_space(name: str) -> BadResourceError:
    """Return the diagnostic for a queue space that does not exist, or no longer."""
    return BadResourceError(
        f"there is no queue space {name!r} on the device",
        hint="List the queue spaces with qspacelist, or create it with qspacecreate.",
        space=name,
    )
