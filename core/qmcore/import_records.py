"""What the engine asks of a volume about imports: their records, and their hidden queues.

It is a part of the port (`qmcore.port`).
"""

from __future__ import annotations

from typing import Protocol

from qmcore.queue import Queue
from qmcore.records import ImportRecord, Use


class ImportRecords(Protocol):
    """Imports, what of them is loaded, and the queues that they hide."""

    def add(self, record: ImportRecord) -> None:
        """Record the start of an import."""

    def of_space(self, space_id: int) -> list[ImportRecord]:
        """Return the imports of a queue space, the oldest first."""

    def find(self, import_id: int) -> ImportRecord | None:
        """Return what is recorded of an import."""

    def set_stage(self, import_id: int, stage: str, ended_us: int | None = None) -> None:
        """Record how far an import is, and when it ended."""

    def remove(self, import_id: int) -> None:
        """Forget an import and its batches."""

    def add_batch(self, import_id: int, part: str, first_row: int, use: Use) -> bool:
        """Record that a batch is loaded; False where it was before. Waits for one that is being recorded."""

    def batches(self, import_id: int) -> list[tuple[str, int, Use | None]]:
        """Return the batches that are loaded; None for one that has to be loaded again."""

    def forget_batches(self, import_id: int) -> None:
        """Forget which batches were loaded."""

    def reload_batches(self, import_id: int, prefix: str) -> None:
        """Record that the batches of parts whose names begin with `prefix` have to be loaded again."""

    def reserve_block(self, space_id: int, least: int, count: int) -> int:
        """Reserve `count` consecutive sequence numbers, from `least` or later; return the first. The unit is alone."""

    def add_queue(self, queue: Queue, created_us: int, import_id: int) -> Queue:
        """Record a hidden queue of an import, its counters at zero."""

    def hidden_queues(self, space_id: int) -> list[tuple[int, Queue]]:
        """Return the hidden queues of a queue space, each with its import; less than 0 where the import replaced it."""

    def promised_queues(self, space_id: int) -> int:
        """Return how many queues imports will add whose names are not in use."""

    def reveal(self, queue: Queue) -> None:
        """Make a hidden queue visible, and change the generation."""

    def conceal(self, queue: Queue, import_id: int) -> None:
        """Hide a queue that an import has replaced, and change the generation."""
