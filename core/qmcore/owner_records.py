"""Those who are attached to queue spaces, what they wait for, and what they tell of their work.

It is a part of the port (`qmcore.port`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from qmcore.records import Forwarding, Owner


class OwnerRecords(Protocol):
    """Those who are attached: each is the owner of transactions, waits and claims."""

    def add(self, owner: Owner) -> None:
        """Record who is attached."""

    def is_attached(self, owner_id: int) -> bool:
        """Return whether the owner was not given up."""

    def of_space(self, space_id: int) -> list[Owner]:
        """Return who is attached to the queue space, longest first."""

    def remove(self, owner_id: int) -> list[str] | None:
        """Forget who was attached, what it told, and for what it waited; return the addresses of its wake-ups.

        None where it is forgotten already: it has left, or others have found it dead.
        """


class WaitRecords(Protocol):
    """Waits for messages of queues."""

    def add(self, queue_id: int, address: str, owner_id: int) -> None:
        """Record that a message of the queue is waited for, and the address of the wake-up."""

    def remove(self, queue_id: int, address: str) -> None:
        """Forget that a message of the queue is waited for."""

    def of_space(self, space_id: int) -> dict[int, int]:
        """Return who waits for messages of the queue space, and how many waits each has."""

    def pass_on(self, space_id: int, queue_id: int) -> None:
        """Have another of those told who wait in turn for a queue of that space, where it has a message for them.

        Whoever has waited in turn does this when it waits no longer: it may have been woken for what it leaves.
        """

    def notify(self, queue_id: int) -> None:
        """Have all told, once the unit is committed, who wait for the queue."""


class ForwardingRecords(Protocol):
    """What forwarders tell of their work on queues. It goes with its owner, and with its queue."""

    def report(self, owner_id: int, figures: Mapping[int, Forwarding], *, whole: bool) -> bool:
        """Record what an owner tells of its queues, by their numbers; False means that the owner was given up.

        `whole`: what it has told of other queues is forgotten.
        """

    def of_space(self, space_id: int) -> list[tuple[int, Forwarding]]:
        """Return what owners tell of the queues of a queue space, by the names of the queues, each with the owner."""
