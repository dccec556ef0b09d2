"""What forwarders tell of their work on the queues of a queue space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qmadmin.handle import SpaceHandle
from qmcore.acts import forwarding
from qmcore.errors import AbortedError
from qmcore.records import Forwarding

if TYPE_CHECKING:
    from qmcore.attached import AttachedProcess


class Forwardings(SpaceHandle):
    """Telling how the messages of queues are forwarded, and looking at it."""

    def report_forwarding(self, told: Sequence[Forwarding], *, whole: bool = False) -> None:
        """Record which queues this process forwards and how that goes; this replaces earlier records of these queues.

        `whole`: the process forwards no other queues, and its records of others are removed. A queue that does not
        exist is skipped. Others see the records until the process leaves the queue space or dies. If others have taken
        it for dead, it is attached again.
        """
        attachment = self._attachment
        try:
            self._report(told, whole=whole)
        except AbortedError as error:
            attachment.renew(error)
            self._report(told, whole=whole)

    def _report(self, told: Sequence[Forwarding], *, whole: bool) -> None:
        attachment = self._attachment
        owner = attachment.owner
        attachment.volume.write(
            lambda unit: forwarding.report(unit, attachment.opened, owner, told, whole=whole),
            durable=False,
            concurrent=True,
        )

    def forwardings(self) -> list[tuple[AttachedProcess, Forwarding]]:
        """Return the processes that forward queues, and their figures, by the names of the queues.

        A dead process that was not removed yet is among them; it is not `alive`.
        """
        attachment = self._attachment
        return forwarding.forwardings(attachment.volume, attachment.opened.space.id)
