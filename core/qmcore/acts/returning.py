"""How a transaction that ends without a commit gives its messages back.

A rollback counts as a try. A message that is out of tries goes to the error queue and remembers where it came from;
without an error queue it is discarded. A process that died, or left with a transaction open, counts as a try too, so
that a message that kills its consumer reaches the error queue; but it never discards. The restart of a machine does
not count. Whoever rolls back may say more of a message: that it is out of tries now, when it may be tried again, or
that it is done with all the same.
"""

from __future__ import annotations

import dataclasses
import enum
import logging
from collections.abc import Iterable

from qmcore.acts.consuming import consume_now
from qmcore.acts.expiry import expire_one
from qmcore.acts.moving import move, name_of, remove
from qmcore.acts.stores import stores
from qmcore.acts.unlocking import give_back_locked, is_over, put_back, retry_delay
from qmcore.damage import is_damage
from qmcore.definitions import OpenSpace
from qmcore.errors import SystemFailureError
from qmcore.message import Reason
from qmcore.order import rank
from qmcore.port import Unit
from qmcore.queue import Queue
from qmcore.records import Holding, Role
from qmcore.store import Store

logger = logging.getLogger("qmadmin.engine")


class Cause(enum.Enum):
    """Why a transaction ends without a commit."""

    ROLLBACK = "it was rolled back"
    TIMEOUT = "its time was over"
    DEATH = "its process died"
    LEFT = "its process closed the queue space"
    RESTART = "the machine was restarted"
    ABORTED = "an administrator aborted it"
    UNTRIED = "its messages were not tried"

    @property
    def counts(self) -> bool:
        """Whether the end counts as a try of the messages that were held."""
        return self not in (Cause.RESTART, Cause.UNTRIED)

    @property
    def discards(self) -> bool:
        """Whether messages that are out of tries may be discarded, where there is no error queue."""
        return self in (Cause.ROLLBACK, Cause.TIMEOUT)


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What whoever rolls back says of a message that was dequeued.

    `final`: it is out of tries now. `retry_after`: the microseconds for which it is kept back, instead of the retry
    delay of its queue. `consumed`: it is done with and goes, unless it is out of tries and there is an error queue.
    """

    final: bool = False
    retry_after: int | None = None
    consumed: bool = False


PLAIN = Verdict()


@dataclasses.dataclass(frozen=True, slots=True)
class Ending:
    """How a transaction ends without a commit.

    `error` is the last error text of whoever tried, and is kept with a message that goes to the error queue. The
    verdict is on the message with the identifier `on`, or with None on all that were dequeued. `tries_others`: the end
    is as much a try of the other messages.
    """

    cause: Cause
    error: str = ""
    verdict: Verdict = PLAIN
    on: str | None = None
    tries_others: bool = True

    @property
    def words(self) -> str:
        """The last error text; where nobody could leave one behind, how the transaction ended says it."""
        return self.error or ("" if self.cause is Cause.ROLLBACK else self.cause.value)

    def verdict_on(self, msgid: str) -> Verdict:
        """Return what is said of a message."""
        return self.verdict if self.on is None or self.on == msgid else PLAIN

    def counts(self, msgid: str) -> bool:
        """Return whether the end counts as a try of a message."""
        return self.cause.counts and (self.tries_others or self.on == msgid)


def give_back(
    unit: Unit, opened: OpenSpace, transaction_id: int, queue_ids: Iterable[int], now: int, ending: Ending
) -> None:
    """Return what a transaction held of these queues to where it belongs now, and delete what it would have brought."""
    known = opened.definitions(unit)
    for store in stores(unit, known.space.id):
        for queue_id in queue_ids:
            queue = known.by_id.get(queue_id)
            if queue is None:
                # It was destroyed after an administrator had given up what the transaction held of it.
                continue
            drop_spilled(opened, store, queue, transaction_id)
            tried = store.give_back(transaction_id, queue_id, Role.DEQUEUED)
            # The rest of a group waits as long as those of it that were tried.
            waits = queue.definition.grouping and ending.cause.counts
            delay = max((_delay(unit, opened, queue, holding, ending) for holding in tried if waits), default=0)
            give_back_locked(unit, opened, store, queue, transaction_id, now, delay=delay)
            for holding in tried:
                _give_back_one(unit, opened, store, queue, holding, now, ending)


def give_back_some(
    unit: Unit,
    opened: OpenSpace,
    transaction_id: int,
    queue_ids: Iterable[int],
    message_ids: Iterable[int],
    now: int,
    ending: Ending,
) -> list[tuple[Store, Holding]]:
    """Return some of the messages that a transaction has dequeued, which goes on; return where they were."""
    known = opened.definitions(unit)
    returned: list[tuple[Store, Holding]] = []
    for store in stores(unit, known.space.id):
        for queue in [known.by_id[queue_id] for queue_id in queue_ids if queue_id in known.by_id]:
            found = [store.give_back_one(transaction_id, queue.id, message_id) for message_id in message_ids]
            # Those that come before others in the queue come first.
            for holding in sorted((each for each in found if each), key=lambda each: rank(each.place.order_key)):
                _give_back_one(unit, opened, store, queue, holding, now, ending)
                returned.append((store, holding))
    return returned


def drop_spilled(opened: OpenSpace, store: Store, queue: Queue, transaction_id: int) -> None:
    """Delete what a transaction has spilled for a queue, and give back the room that was kept for it."""
    use = store.discard_spilled(transaction_id, queue.id)
    if use.messages:
        store.charge(opened.space.id, messages=-use.messages, pages=-use.pages, size=-use.size)


def _give_back_one(
    unit: Unit, opened: OpenSpace, store: Store, queue: Queue, holding: Holding, now: int, ending: Ending
) -> None:
    try:
        _part_with(unit, opened, store, queue, holding, now, ending)
    except SystemFailureError as error:
        if not is_damage(error):
            raise
        # Nothing was done yet. It is told of again by whoever comes upon it in its queue.
        put_back(store, holding, holding.place.retries, now)
        _tell(unit, f"{error.message}; it is back in queue {queue.name!r} of queue space {opened.space.name!r}")


def _part_with(
    unit: Unit, opened: OpenSpace, store: Store, queue: Queue, holding: Holding, now: int, ending: Ending
) -> None:
    if is_over(holding, now):
        expire_one(unit, opened, store, queue, holding, now)
        return
    place, verdict = holding.place, ending.verdict_on(name_of(unit, opened, holding))
    if not ending.counts(name_of(unit, opened, holding)):
        put_back(store, holding, place.retries, now)
    elif verdict.final or place.retries >= queue.definition.retries:
        _spend(unit, opened, store, queue, holding, now, ending)
    elif verdict.consumed:
        consume_now(unit, opened, store, queue, [place], now, body=False)
    else:
        put_back(store, holding, place.retries + 1, now, delay=_delay(unit, opened, queue, holding, ending))


def _spend(
    unit: Unit, opened: OpenSpace, store: Store, queue: Queue, holding: Holding, now: int, ending: Ending
) -> None:
    """Part with a message that is out of tries: it goes to its error queue, if there is one."""
    verdict = ending.verdict_on(name_of(unit, opened, holding))
    routing = store.routing(holding.place.message_id)
    named = routing.error_queue_from(queue.name)
    target = opened.definitions(unit).error_queue_for(queue, named)
    what = f"message {name_of(unit, opened, holding)} of queue {queue.name!r} in queue space {opened.space.name!r}"
    why = "has failed for good" if verdict.final else f"is out of retries ({queue.definition.retries})"
    absent = opened.definitions(unit).error_queues_passed_over(queue, named)
    if target == queue:
        put_back(store, holding, holding.place.retries + 1, now, delay=_delay(unit, opened, queue, holding, ending))
    elif target is not None:
        move(
            unit,
            opened,
            store,
            queue,
            target,
            holding,
            routing,
            reason=Reason.RETRIES,
            now=now,
            error=ending.words,
        )
        _tell(unit, f"{what} {why} and went to {target.name!r}{'; ' if absent else ''}{absent}")
    elif verdict.consumed:
        consume_now(unit, opened, store, queue, [holding.place], now, body=False)
    elif not ending.cause.discards:
        put_back(store, holding, holding.place.retries + 1, now, delay=_delay(unit, opened, queue, holding, ending))
        _tell(unit, f"{what} {why}, and stays because {ending.cause.value}")
    else:
        remove(unit, opened, store, queue, holding, "discarded")
        _tell(unit, f"{what} {why} and was discarded: {absent or 'there is no error queue'}")


def _delay(unit: Unit, opened: OpenSpace, queue: Queue, holding: Holding, ending: Ending) -> int:
    """Return the microseconds for which a message that was tried is kept back."""
    asked = ending.verdict_on(name_of(unit, opened, holding)).retry_after
    return retry_delay(queue) if asked is None else asked


def _tell(unit: Unit, event: str) -> None:
    unit.afterwards(lambda: logger.warning("%s", event))
