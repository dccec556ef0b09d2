"""The transactions of a queue space, as administrators see and end them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmadmin.audit import destructive, tell
from qmadmin.console.plurals import counted
from qmadmin.handle import SpaceHandle
from qmcore.acts import outstanding

if TYPE_CHECKING:
    from qmcore.attached import TransactionInfo


class Outstanding(SpaceHandle):
    """Looking at transactions, and ending those of other processes."""

    def transactions(self) -> list[TransactionInfo]:
        """Return the transactions that other processes can see, the oldest first.

        A transaction can be seen from its first dequeue on, or from its first enqueue that is stored in the queue
        space.
        """
        attachment = self._attachment
        return outstanding.transactions(attachment.volume, attachment.opened, self._device.clock)

    @destructive("transaction {handle.name}/{transaction}")
    def abort_transaction(self, transaction: str) -> None:
        """Roll back a transaction by its id, even if it is active.

        The messages that it dequeued come back, which counts as a try; a message that has used up its tries goes to the
        error queue, or stays if there is none. The next dequeue or the commit of its owner raises AbortedError. Raises
        InvalidArgumentError if there is no such transaction, or no longer.
        """
        attachment, now = self._attachment, self._device.clock.now()
        messages = sum(
            info.dequeued + info.locked + info.spilled for info in self.transactions() if info.id == transaction
        )
        attachment.volume.write(lambda unit: outstanding.abort(unit, attachment.opened, transaction, now))
        tell(f"rolled back with {counted(messages, 'message')}")

    @destructive("transaction {handle.name}/{transaction}")
    def commit_transaction(self, transaction: str) -> None:
        """Refuse: only a prepared transaction can be committed by others, and this release prepares none.

        Raises ProtocolError, or InvalidArgumentError if there is no such transaction.
        """
        attachment = self._attachment
        attachment.volume.read(lambda unit: outstanding.commit(unit, attachment.opened, transaction))
