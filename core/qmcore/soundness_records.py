"""What a doctor asks of a store: whether it is sound, and what is damaged. A part of the port (`qmcore.port`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from qmcore.queue import Queue
from qmcore.records import Use
from qmcore.space import Space

if TYPE_CHECKING:
    from qmcore.findings import Fault


class Soundness(Protocol):
    """Whether what is stored fits together."""

    def faults(
        self,
        space: Space,
        queues: Sequence[Queue],
        page_size: int,
        step: Callable[[], None],
        hidden: Sequence[tuple[int, Queue]] = (),
    ) -> list[Fault]:
        """Return what is wrong with the messages of a queue space; `step` is called every now and then.

        `hidden` are the queues that only imports know, as `ImportRecords.hidden_queues` gives them. They are charged
        from the beginning on for all that they will hold.
        """

    def last_number(self, space: Space) -> int:
        """Return the highest sequence number of the messages that are stored; 0 where there is none."""

    def latest(self, space: Space) -> int:
        """Return about the latest time that is stored of a queue space."""

    def strays(self) -> int:
        """Return how many messages belong to no queue space that there is."""


class DamageRecords(Protocol):
    """Messages whose record is gone or cannot be read. It is asked in a unit that is alone."""

    def found(self, space: Space, queue: Queue) -> list[int]:
        """Return the messages of a queue that are damaged, and that no transaction holds."""

    def expunge(self, queue: Queue, message_ids: Sequence[int]) -> None:
        """Remove messages and their places, whatever is left of them. Nothing is counted."""

    def uncounted(self, space: Space, queue: Queue) -> Use:
        """Return by how much a queue has more than is counted of it; less than nothing where it has less."""
