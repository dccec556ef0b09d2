"""For whom messages are that a transaction has left to the store: settled as they are left, and again at its end.

They take their places at the commit, and by the rules of that moment. So where subscriptions have changed since they
were left, who they are for is settled once more before the commit, or before the branch is prepared: what is prepared
is for those that it was for then, as long as they have a subscription.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from qmcore.acts.routes import Arriving, for_message, with_recipients
from qmcore.acts.transaction_part import Branch
from qmcore.definitions import Definitions
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.queue import Queue

_STEP: Final = 500


class UnsettledError(Exception):
    """Subscriptions of a queue have changed since messages of the transaction for it were left to the store."""

    def __init__(self, branch: Branch, queue_id: int) -> None:
        super().__init__(queue_id)
        self.branch = branch
        self.queue_id = queue_id


def settle_again(volume: Volume, found: UnsettledError, on: object = None) -> None:
    """Settle for whom messages are by the subscriptions as they are now, so that the end can be tried again."""
    work = partial(_settle_again, branch=found.branch, queue_id=found.queue_id)
    if on is not None:
        volume.write_on(on, work)
    else:
        volume.write(work, Purpose.HOLDING)


def note_settled(known: Definitions, branch: Branch, queue_id: int) -> None:
    """Note by which subscriptions of a queue it is settled for whom messages are that are left to the store now."""
    terms = known.terms_of(queue_id)
    # What was left before, by others, or by a process that we do not know, has to be settled again.
    is_first = queue_id not in branch.spilled_to
    branch.settled[queue_id] = terms if is_first or branch.settled.get(queue_id) == terms else None


def refuse_unsettled(known: Definitions, branch: Branch, queue: Queue) -> None:
    """Raise UnsettledError where subscriptions have changed since the transaction left messages for a queue."""
    if queue.definition.multiple_consumers and branch.settled.get(queue.id) != known.terms_of(queue.id):
        raise UnsettledError(branch, queue.id)


def _settle_again(unit: Unit, branch: Branch, queue_id: int) -> None:
    known = branch.opened.definitions(unit)
    queue, after, is_more = known.by_id[queue_id], -1, True
    route = with_recipients(known, queue)
    while is_more:
        step = unit.holdings.brought(branch.id, queue_id, after, _STEP)
        for number in step:
            if queue_id in known.ruled:
                message, body = unit.listing.described(known.space, queue.name, number)
                consumers = for_message(known, route, Arriving.stored(message, body)).consumers
            else:
                consumers = route.consumers
            unit.holdings.bring_to(branch.id, queue_id, number, consumers)
        is_more = len(step) == _STEP
        after = step[-1] if step else after
    unit.afterwards(partial(branch.settled.__setitem__, queue_id, known.terms_of(queue_id)))
