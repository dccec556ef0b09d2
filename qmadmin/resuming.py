"""Resuming a suspended transaction of a queue space."""

from __future__ import annotations

from qmadmin.attachment import SpaceHandle
from qmadmin.transacting import Transaction, refuse_nesting
from qmcore.suspension import Token


class Resuming(SpaceHandle):
    """The part of a queue space that resumes transactions."""

    def resume(self, token: str) -> Transaction:
        """Return the transaction that was suspended with the token, to be used as `with space.resume(token) as tx:`.

        It belongs to this thread and process from now on, and ends as any other: when it is forgotten, too. A token is
        used once, by whoever comes first; where it is unknown whether it was used (OutcomeUnknownError), the
        transaction is rolled back.

        Raises NotSuspendedError if the transaction was resumed before (`resumed`), or has ended: its timeout passed,
        its process died or closed the queue space, or an administrator aborted it. InvalidArgumentError for what is not
        a token, or one of another queue space; ProtocolError inside another transaction, and for a branch that
        `tpc_begin` has begun, which `tpc_resume` resumes.
        """
        wanted = Token.of(token)
        attachment = self._ready()
        refuse_nesting(self._device, self.name)
        transaction = Transaction(self._device, None, self.name)
        transaction.take_over([attachment], wanted)
        return transaction
