"""The act of dequeuing in a transaction: what is taken is held, and gone when the transaction commits."""

from __future__ import annotations

from qmcore.acts.dequeue import Wanted, claim, messages_of
from qmcore.acts.room import RecentLevel
from qmcore.acts.transaction_part import NO_USE, Branch, left_numbers
from qmcore.definitions import CHANGES
from qmcore.message import Message
from qmcore.message_rows import PAGES, SIZE
from qmcore.port import Volume
from qmcore.queue import Delivery
from qmcore.records import Nothing, Role, Use
from qmcore.transitions import Claimed


def dequeue(volume: Volume, branch: Branch, wanted: Wanted) -> list[Message] | Nothing:
    """Take messages and let the transaction hold them: to consume them, or to lock them only."""
    branch.reserved = branch.reserved or left_numbers(branch, 1)
    moment, behind = volume.clock.monotonic(), CHANGES.last
    with branch.at_risk() as risk:
        claimed = claim(volume, branch.opened, Wanted(*wanted[:4], branch, wanted.role))
        if isinstance(claimed, Nothing):
            risk.nothing_left()
            return claimed
    note(branch, wanted, claimed)
    if claimed.level is not None:
        branch.level = RecentLevel(claimed.level, moment, behind)
    return messages_of(branch.opened, wanted.queue, claimed)


def note(branch: Branch, wanted: Wanted, claimed: Claimed) -> None:
    """Note what the transaction holds since a commit."""
    opened = branch.opened
    branch.recorded = True
    branch.reserved = branch.reserved or claimed.sequences
    branch.locks = branch.locks or claimed.locks
    queue = None if opened.known is None else opened.known.takers.get(wanted.queue)
    branch.may_lock = branch.may_lock or wanted.role is Role.LOCKED or queue is None or queue.definition.grouping
    if claimed.transactions:
        opened.know_transactions(claimed.transactions)
    if wanted.role is not Role.DEQUEUED:
        return
    # What is kept for the record when it is consumed, or for other consumers, gives no room back.
    retains = queue is not None and bool(queue.definition.retention or queue.parent_id)
    for row, _, memory in claimed.taken:
        delivery = Delivery.NONPERSIST if memory else Delivery.PERSIST
        its_pages = 0 if retains and not memory else row[PAGES]
        messages, pages, size = branch.holds.get(delivery, NO_USE)
        branch.holds[delivery] = Use(messages + 1, pages + its_pages, size + row[SIZE])
