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
        """Tell others what this process forwards, and how that goes; it replaces what was told of these queues before.

        `whole`: it forwards no other queues, or no longer, and what it has told of others is taken back. A queue that
        is not there is passed over. Others see what is told until the process leaves the queue space, or dies. Where
        others have taken it for dead, it is attached again, and seen as who it is now.
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
        """Return who forwards which queues, and what it has told of each, by the names of the queues.

        A process that died and was not looked after yet is among them; it is not `alive`.
        """
        attachment = self._attachment
        return forwarding.forwardings(attachment.volume, attachment.opened.space.id)
