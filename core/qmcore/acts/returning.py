"""How a transaction that ends without a commit gives its messages back.

A rollback counts as a try. A message that is out of tries goes to the error queue and remembers where it came from;
without an error queue it is discarded. A process that died, or left with a transaction open, counts as a try too, so
that a message that kills its consumer reaches the error queue; but it never discards. The restart of a machine does
not count. Whoever rolls back may say more of a message: that it is out of tries now, when it may be tried again, that
it is put aside, or that it is done with all the same.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterable, Sequence

from qmcore.acts.disposing import back, dispose, name_of, to_error_queue
from qmcore.acts.expiry import expired_of, is_over, tell_expired
from qmcore.acts.stores import stores
from qmcore.damage import is_damage
from qmcore.definitions import Definitions, OpenSpace
from qmcore.errors import (
    AbortedError,
    NoSpaceError,
    OperatingSystemError,
    OutcomeUnknownError,
    QueueError,
    SystemFailureError,
)
from qmcore.message import PARKED_UNTIL, Reason
from qmcore.names import storable
from qmcore.port import Unit
from qmcore.queue import AS_ITS_QUEUE_SAYS, Queue, RetryPolicy
from qmcore.records import Holding, Routing
from qmcore.store import Store
from qmcore.transitions import Disposition, Park, Removal, Remove
from qmcore.values import dataclass

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


@dataclass(frozen=True, slots=True)
class Verdict:
    """What whoever rolls back says of a message that was dequeued.

    `final`: it is out of tries now. `retry_after`: the microseconds for which it is kept back, instead of the retry
    delay of its queue, and also where the end is no try. `consumed`: it is done with and goes, unless it is out of
    tries and there is an error queue. `parks`: it is put aside until somebody makes it available again, which is no
    try, whatever the end is for others. `retry_policy`: what holds in place of the retries and delays of its queue.
    """

    final: bool = False
    retry_after: int | None = None
    consumed: bool = False
    parks: bool = False
    retry_policy: RetryPolicy = AS_ITS_QUEUE_SAYS


PLAIN = Verdict()


def cause_of(error: BaseException) -> Cause:
    """Return why a transaction is rolled back after an error: that counts as a try, unless nobody could have tried.

    That there is no room for its replies is not the fault of a request either, nor a full disk or a server's crash.
    """
    return Cause.UNTRIED if isinstance(error, NoSpaceError | AbortedError) or is_of_the_store(error) else Cause.ROLLBACK


def is_of_the_store(error: BaseException | None) -> bool:
    """Return whether it is the store, its disk, or the way to it, that failed."""
    return isinstance(error, OutcomeUnknownError | OperatingSystemError | SystemFailureError) or (
        isinstance(error, QueueError) and error.unreachable
    )


@dataclass(frozen=True, slots=True)
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

    def verdict_on(self, known: Definitions, holding: Holding) -> Verdict:
        """Return what is said of a message."""
        return self.verdict if self.on is None or self.on == name_of(known, holding) else PLAIN

    def counts(self, known: Definitions, holding: Holding) -> bool:
        """Return whether the end counts as a try of a message."""
        if not self.cause.counts or self.verdict_on(known, holding).parks:
            return False
        return self.tries_others or self.on == name_of(known, holding)


def give_back(
    unit: Unit, opened: OpenSpace, transaction_id: int, queue_ids: Iterable[int], now: int, ending: Ending
) -> None:
    """Return what a transaction held of these queues to where it belongs now, and delete what it would have brought."""
    known = opened.definitions(unit)
    queue_ids = list(queue_ids)
    for store in stores(unit, known.space.id):
        for queue_id in queue_ids:
            queue = known.by_id.get(queue_id)
            if queue is None:
                # It was destroyed after an administrator had given up what the transaction held of it.
                continue
            drop_spilled(opened, store, queue, transaction_id)
            tried, locked = store.holdings.held(transaction_id, queue_id)
            untils = [_until(known, queue, each, now, ending) for each in tried]
            # The rest of a group waits as long as those of it that are kept back.
            waits = (
                max((each for each in untils if each is not None), default=None) if queue.definition.grouping else None
            )
            dispositions = [
                expired_of(unit, opened, store, queue, each, now) if is_over(each, now) else back(each, until_us=waits)
                for each in locked
            ]
            dispositions += [
                _given_back(unit, opened, store, queue, each, now, ending, until)
                for each, until in zip(tried, untils, strict=True)
            ]
            dispose(unit, opened, queue, store, dispositions, transaction_id)
            tell_expired(unit, opened, queue, dispositions)


def give_back_some(
    unit: Unit,
    opened: OpenSpace,
    transaction_id: int,
    queue_ids: Iterable[int],
    message_ids: Sequence[int],
    now: int,
    ending: Ending,
) -> list[tuple[Store, Holding]]:
    """Return some of the messages that a transaction has dequeued, which goes on; return where they were."""
    known = opened.definitions(unit)
    returned: list[tuple[Store, Holding]] = []
    for store in stores(unit, known.space.id):
        for queue in [known.by_id[queue_id] for queue_id in queue_ids if queue_id in known.by_id]:
            its = store.holdings.dequeued(transaction_id, queue.id, message_ids)
            given_back = [
                _given_back(unit, opened, store, queue, each, now, ending, _until(known, queue, each, now, ending))
                for each in its
            ]
            dispose(unit, opened, queue, store, given_back, transaction_id)
            tell_expired(unit, opened, queue, given_back)
            returned += [(store, each) for each in its]
    return returned


def drop_spilled(opened: OpenSpace, store: Store, queue: Queue, transaction_id: int) -> None:
    """Delete what a transaction has spilled for a queue, and give back the room that was kept for it."""
    use = store.holdings.discard_spilled(transaction_id, queue.id)
    if use.messages:
        store.counters.charge(opened.space.id, messages=-use.messages, pages=-use.pages, size=-use.size)


def _given_back(
    unit: Unit,
    opened: OpenSpace,
    store: Store,
    queue: Queue,
    holding: Holding,
    now: int,
    ending: Ending,
    until: int | None,
) -> Disposition:
    """Return what becomes of a message that was dequeued; `until` is when it is available again if it returns."""
    known, has_expired = opened.definitions(unit), is_over(holding, now)
    verdict = ending.verdict_on(known, holding)
    if not has_expired and not ending.counts(known, holding):
        return Park(holding, storable(ending.words)) if verdict.parks else back(holding, until_us=until)
    is_out_of_tries = verdict.final or holding.place.retries >= verdict.retry_policy.over(queue.definition).retries
    if not (has_expired or is_out_of_tries or verdict.consumed):
        return _tried(holding, until)
    try:
        routing = store.messages.routing(holding.place.message_id)
    except SystemFailureError as error:
        if not is_damage(error):
            raise
        # It is told of again by whoever comes upon it in its queue.
        _tell(unit, f"{error.message}; it is back in queue {queue.name!r} of queue space {opened.space.name!r}")
        return back(holding)
    if has_expired:
        return expired_of(unit, opened, store, queue, holding, now)
    if not is_out_of_tries:
        return Remove(holding, Removal.DEQUEUED)
    return _spent(unit, opened, queue, holding, routing, now, ending, until)


def _spent(
    unit: Unit,
    opened: OpenSpace,
    queue: Queue,
    holding: Holding,
    routing: Routing,
    now: int,
    ending: Ending,
    until: int | None,
) -> Disposition:
    """Return what becomes of a message that is out of tries: it goes to its error queue, if there is one.

    The place of a consumer that has unsubscribed goes alone.
    """
    if queue.going:
        # There is no queue any more that it could be moved back to.
        return Remove(holding, Removal.DISCARDED)
    known = opened.definitions(unit)
    verdict, named = ending.verdict_on(known, holding), routing.error_queue_from(queue.name)
    target, absent = known.error_queue_for(queue, named), known.error_queues_passed_over(queue, named)
    what = f"message {name_of(known, holding)} of queue {queue.name!r} in queue space {opened.space.name!r}"
    why = (
        "has failed for good"
        if verdict.final
        else f"is out of retries ({verdict.retry_policy.over(queue.definition).retries})"
    )
    if target == queue:
        return _tried(holding, until)
    if target is not None:
        _tell(unit, f"{what} {why} and went to {target.name!r}{'; ' if absent else ''}{absent}")
        its = known, queue, target, holding, routing
        return to_error_queue(*its, reason=Reason.RETRIES, now=now, error=ending.words)
    if verdict.consumed:
        return Remove(holding, Removal.DEQUEUED)
    if not ending.cause.discards:
        _tell(unit, f"{what} {why}, and stays because {ending.cause.value}")
        return _tried(holding, until)
    _tell(unit, f"{what} {why} and was discarded: {absent or 'there is no error queue'}")
    return Remove(holding, Removal.DISCARDED)


def _tried(holding: Holding, until: int | None) -> Disposition:
    """Return that a message stands where it stood, tried once more."""
    return back(holding, holding.place.retries + 1, until)


def _until(known: Definitions, queue: Queue, holding: Holding, now: int, ending: Ending) -> int | None:
    """Return until when a message that was dequeued is kept back; a delay is drawn, so this is asked once for each."""
    verdict = ending.verdict_on(known, holding)
    if verdict.parks:
        return PARKED_UNTIL
    delay = verdict.retry_after
    if delay is None:
        tries = holding.place.retries + 1
        backoff = verdict.retry_policy.over(queue.definition).backoff
        delay = backoff.after(tries) if ending.counts(known, holding) else 0
    return now + delay if delay else None


def _tell(unit: Unit, event: str) -> None:
    unit.afterwards(lambda: logger.warning("%s", event))
