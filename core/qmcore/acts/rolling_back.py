"""The act of rolling back: all of a transaction, some of the messages that it dequeued, or what it has enqueued."""

from __future__ import annotations

from collections.abc import Sequence

from qmcore.acts import returning
from qmcore.acts.enqueue import Outgoing, enqueue_in
from qmcore.acts.expiry import with_room
from qmcore.acts.returning import Ending
from qmcore.acts.stores import stores
from qmcore.acts.transaction_part import NO_USE, Branch, Mark, count_pending, given_up
from qmcore.numbers import number
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.queue import Delivery
from qmcore.records import Use


def roll_back(volume: Volume, branch: Branch, now: int, ending: Ending) -> None:
    """Give back what the transaction holds and forget what it enqueued.

    A transaction that was given up meanwhile has been rolled back already.
    """
    if branch.may_hold:
        # What was promised must not come back.
        purpose = Purpose.TIDY if branch.promised is None else Purpose.PROMISE
        volume.write(lambda unit: undo(unit, branch, now, ending), purpose)


def undo(unit: Unit, branch: Branch, now: int, ending: Ending) -> None:
    """Do the same in a database transaction that is open."""
    if branch.promised is not None:
        unit.transactions.reopen(branch.opened.space.id, branch.promised, branch.id)
    if unit.transactions.end(branch.id, branch.owner.id):
        returning.give_back(unit, branch.opened, branch.id, branch.stands_in, now, ending)


def forget_since(branch: Branch, mark: Mark) -> bool:
    """Forget what was enqueued since; False where that cannot be, because it stands in the store by now."""
    if branch.spilled != mark.spilled or len(branch.pending) < mark.pending:
        return False
    branch.pending = branch.pending[: mark.pending]
    count_pending(branch)
    return True


def give_back(volume: Volume, branch: Branch, msgids: Sequence[str], now: int, ending: Ending) -> None:
    """Return some of the messages that the transaction has dequeued to where they belong; it goes on without them.

    Raises AbortedError where it was given up meanwhile.
    """

    def returned(unit: Unit) -> list[tuple[Delivery, Use]]:
        if not unit.transactions.is_active(branch.id, branch.owner.id):
            raise given_up(branch)
        space = branch.opened.definitions(unit).space
        ids = [number(space.id, sequence) for msgid in msgids for sequence in space.sequences_of(msgid)]
        found = returning.give_back_some(unit, branch.opened, branch.id, branch.queue_ids, ids, now, ending)
        return [
            (Delivery.PERSIST if store is unit else Delivery.NONPERSIST, Use(1, holding.pages, holding.size))
            for store, holding in found
        ]

    for delivery, use in volume.write(returned, Purpose.HOLDING):
        less = Use(-use.messages, -use.pages, -use.size)
        branch.holds[delivery] = branch.holds.get(delivery, NO_USE).plus(less)


def concerns(volume: Volume, branch: Branch, msgid: str) -> bool:
    """Return whether a message with this identifier stands in a queue that the transaction has taken messages of."""

    def found(unit: Unit) -> bool:
        known = branch.opened.definitions(unit)
        space, queues = known.space, [known.by_id[each] for each in branch.queue_ids if each in known.by_id]
        ids = [number(space.id, sequence) for sequence in space.sequences_of(msgid)]
        return any(
            store.messages.among(queue.messages_of, ids) for store in stores(unit, space.id) if ids for queue in queues
        )

    return branch.recorded and volume.read(found)


def answer_failure(volume: Volume, branch: Branch, answers: Sequence[Outgoing], now: int, ending: Ending) -> None:
    """Roll back as the ending says, and tell of it: both at once and for good, or neither.

    What was enqueued before is forgotten; the answers are enqueued now. Raises AbortedError where the transaction was
    given up meanwhile, and as an enqueue does; the transaction goes on then.
    """

    def undone(unit: Unit) -> None:
        if not unit.transactions.end(branch.id, branch.owner.id):
            raise given_up(branch)
        returning.give_back(unit, branch.opened, branch.id, branch.stands_in, now, ending)
        if answers:
            enqueue_in(unit, branch.opened, answers)

    with_room(volume, [branch.opened], now, lambda: volume.write(undone, Purpose.MESSAGES))
