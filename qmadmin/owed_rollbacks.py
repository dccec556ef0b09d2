"""Rollbacks that are still to be done: an interrupt has come in between, or the store has refused them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from qmcore.acts import rolling_back
from qmcore.acts.waiting import may_pass
from qmcore.errors import OperatingSystemError, OutcomeUnknownError, QueueError

if TYPE_CHECKING:
    from qmcore.acts.returning import Ending
    from qmcore.acts.transaction_part import Branch
    from qmcore.definitions import OpenSpace
    from qmcore.port import Unit, Volume
    from qmcore.times import Clock

logger = logging.getLogger("qmadmin.transacting")


class OwedRollbacks:
    """What this process has to roll back in a queue space. It stands here before it is begun, and until it is done."""

    def __init__(self, volume: Volume, opened: OpenSpace, clock: Clock) -> None:
        self._volume = volume
        self._opened = opened
        self._clock = clock
        self.left: dict[int, tuple[Branch, Ending]] = {}
        """Those that are not done, by the number of the transaction."""
        self._at_work: set[int] = set()
        """Those of them that a thread is rolling back."""
        self._told: set[int] = set()
        """Those of them of which the log says why they are put off."""

    def add(self, branch: Branch, ending: Ending) -> None:
        """Note what is to be rolled back; whoever notes it first says how it ends."""
        self.left.setdefault(branch.id, (branch, ending))

    def roll_back(self, branch: Branch, ending: Ending) -> None:
        """Roll back what was noted. Where the store refuses, as on a full disk, it stays noted, and the log says so."""
        try:
            self._roll_back(branch, ending)
        except QueueError as refusal:
            self._tell_once(branch, refusal)

    def roll_back_all(self) -> None:
        """Roll back all that was noted, as far as the store lets us; whoever comes by has nothing to do with it."""
        for branch, ending in self.left.copy().values():
            try:
                self._roll_back(branch, ending)
            except Exception as error:  # noqa: BLE001 - whoever comes by has nothing to do with it
                self._tell_once(branch, error)

    def finish(self, queue: str) -> None:
        """Roll back what has messages of a queue before one is taken from it, because those come first.

        Raises the refusal where the disk is full, the store away, or others are in the way: nothing may be taken then.
        """
        for branch, ending in self._having(queue):
            try:
                self._roll_back(branch, ending)
            except QueueError as refusal:
                self._tell_once(branch, refusal)
                if isinstance(refusal, OperatingSystemError | OutcomeUnknownError) or may_pass(refusal):
                    raise

    def finish_on(self, unit: Unit, queue: str) -> None:
        """Do the same in a transaction of the application. It may not commit, so that all stays noted."""
        for branch, ending in self._having(queue):
            rolling_back.undo(unit, branch, self._clock.now(), ending)

    def _having(self, queue: str) -> list[tuple[Branch, Ending]]:
        """Return what nobody is rolling back and has messages of the queue, as far as it is known which."""
        known = self._opened.known
        found = None if known is None else known.queues.get(queue)
        return [
            (branch, ending)
            for branch, ending in self.left.copy().values()
            if branch.id not in self._at_work and (found is None or found.id in branch.queue_ids)
        ]

    def _roll_back(self, branch: Branch, ending: Ending) -> None:
        try:
            self._at_work.add(branch.id)
            rolling_back.roll_back(self._volume, branch, self._clock.now(), ending)
        finally:
            self._at_work.discard(branch.id)
        self.left.pop(branch.id, None)
        self._told.discard(branch.id)

    def _tell_once(self, branch: Branch, error: Exception) -> None:
        """Log why a rollback is put off, and not again at each try."""
        if branch.id in self._told:
            return
        self._told.add(branch.id)
        unexpected = None if isinstance(error, QueueError) else error
        logger.error(
            "a rollback on queue space %r is postponed: %s", self._opened.space.name, error, exc_info=unexpected
        )
