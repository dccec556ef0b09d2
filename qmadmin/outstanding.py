"""The transactions of a queue space, as administrators see and end them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmadmin.handle import SpaceHandle
from qmcore.acts import outstanding

if TYPE_CHECKING:
    from qmcore.attached import TransactionInfo


class Outstanding(SpaceHandle):
    """Looking at transactions, and ending those of other processes."""

    def transactions(self) -> list[TransactionInfo]:
        """Return the transactions that others know of, the longest first.

        That is from the first dequeue of a transaction on, or its first enqueue that its process does not keep.
        """
        attachment = self._attachment
        return outstanding.transactions(attachment.volume, attachment.opened, self._device.clock)

    def abort_transaction(self, transaction: str) -> None:
        """Roll back a transaction by its id, although it is active.

        What it dequeued comes back, which counts as a try; a message that is out of tries goes to the error queue, and
        stays where there is none. The owner is refused with AbortedError when it next dequeues or commits. Raises
        InvalidArgumentError where there is no such transaction, or no longer.
        """
        attachment, now = self._attachment, self._device.clock.now()
        attachment.volume.write(lambda unit: outstanding.abort(unit, attachment.opened, transaction, now))

    def commit_transaction(self, transaction: str) -> None:
        """Refuse: only a prepared transaction can be committed by others, and this release prepares none.

        Raises ProtocolError, or InvalidArgumentError where there is no such transaction.
        """
        attachment = self._attachment
        attachment.volume.read(lambda unit: outstanding.commit(unit, attachment.opened, transaction))
