"""The diagnostics: one class for each QME code of tpenqueue(3c) and tpdequeue(3c).

A constructor takes facts and builds the sentence from them; callers test classes and attributes, never text.
`message` is one line and says what is wrong with which object; `hint` says what to do about it.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar, Self


class QueueError(Exception):
    """The queue manager refused or failed an operation."""

    name: ClassVar[str] = ""
    number: ClassVar[int] = 0
    by_name: ClassVar[dict[str, type[QueueError]]] = {}

    def __init_subclass__(cls, *, name: str, number: int) -> None:
        super().__init_subclass__()
        if name in QueueError.by_name:
            raise TypeError(f"diagnostic {name} is declared twice")
        cls.name, cls.number = name, number
        QueueError.by_name[name] = cls

    def __init__(self, message: str, *, hint: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts = facts

    @classmethod
    def _restore(cls, message: str, hint: str, facts: dict[str, Any]) -> Self:
        error = cls.__new__(cls)
        QueueError.__init__(error, message, hint=hint, **facts)
        return error

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._restore, (self.message, self.hint, self.facts)  # noqa: SLF001 - its own class


class InvalidArgumentError(QueueError, name="QMEINVAL", number=-1):
    """A value, a flag or a combination of them is not allowed."""


class BadResourceError(QueueError, name="QMEBADRMID", number=-2):
    """The device or the queue space that was named does not exist, or is not one of ours."""


class NotOpenError(QueueError, name="QMENOTOPEN", number=-3):
    """The device or the queue space is not open: it was closed, or belongs to the parent process of a fork."""


class TransactionStartError(QueueError, name="QMETRAN", number=-4):
    """A transaction could not be started for the operation."""


class BadMessageIdError(QueueError, name="QMEBADMSGID", number=-5):
    """The message identifier is malformed, or no message of the queue has it."""


class SystemFailureError(QueueError, name="QMESYSTEM", number=-6):
    """The queue manager itself failed; the log has the details."""


class OperatingSystemError(QueueError, name="QMEOS", number=-7):
    """The operating system refused: no room on the disk, no permission, an unreadable file."""


class AbortedError(QueueError, name="QMEABORTED", number=-8):
    """The operation or the transaction was rolled back and nothing of it remains."""


class ProtocolError(QueueError, name="QMEPROTO", number=-9):
    """The call is not allowed in this state, such as a second transaction inside an open one."""


class BadQueueError(QueueError, name="QMEBADQUEUE", number=-10):
    """No queue of that name exists in the queue space."""


class NoMessageError(QueueError, name="QMENOMSG", number=-11):
    """No message was available for dequeuing."""


class InUseError(QueueError, name="QMEINUSE", number=-12):
    """The object is in use: processes are attached, messages are stored, or a transaction holds a message."""


class Resource(enum.Enum):
    """What can run out; `NoSpaceError.resource` says which."""

    PAGES = "pages"
    MEMORY = "bytes of memory for non-persistent messages"
    TRANSACTIONS = "concurrent transactions"
    MESSAGES = "messages"
    ACTIONS = "concurrent actions"
    PROCESSES = "attached processes"
    QUEUES = "queues"
    DEVICE_ENTRIES = "entries of the universal device list"
    EXTENTS = "entries of the table of contents"


class NoSpaceError(QueueError, name="QMENOSPACE", number=-13):
    """A configured resource is exhausted; `resource` says which, `used` and `limit` how far."""

    def __init__(
        self, owner: str, resource: Resource, *, used: int, limit: int, wanted: int = 1, hint: str = ""
    ) -> None:
        super().__init__(
            f"{owner} has {used} of {limit} {resource.value} in use and cannot take {wanted} more",
            hint=hint or _ROOM[resource],
            owner=owner,
            resource=resource,
            used=used,
            limit=limit,
            wanted=wanted,
        )

    @property
    def resource(self) -> Resource:
        """What ran out."""
        resource: Resource = self.facts["resource"]
        return resource

    @property
    def used(self) -> int:
        """How much of it was in use."""
        return int(self.facts["used"])

    @property
    def limit(self) -> int:
        """How much of it there is."""
        return int(self.facts["limit"])

    @property
    def wanted(self) -> int:
        """How much more of it was asked for."""
        return int(self.facts["wanted"])


class ReleaseError(QueueError, name="QMERELEASE", number=-14):
    """The device was written by a newer release, or this release lacks the feature."""


class InvalidHandleError(QueueError, name="QMEINVHANDLE", number=-15):
    """The handle was made by another device or queue space."""


class ShareError(QueueError, name="QMESHARE", number=-16):
    """Another application has the queue or the device for itself."""


_ROOM = {
    Resource.PAGES: "Dequeue messages, or give the queue space more pages with qaddext.",
    Resource.MEMORY: "Dequeue messages, or give the queue space more memory with qspacechange -n.",
    Resource.TRANSACTIONS: "End a transaction, or allow the queue space more transactions with qspacechange.",
    Resource.MESSAGES: "Dequeue messages, or allow the queue space more messages with qspacechange.",
    Resource.ACTIONS: "Wait for fewer messages at a time, or raise the actions with qspacechange -A.",
    Resource.PROCESSES: "Close the queue space in another process, or allow it more with qspacechange.",
    Resource.QUEUES: "Destroy a queue, or create the queue space with more queues.",
    Resource.DEVICE_ENTRIES: "Remove an entry with dsdl, or make an entry of more pages.",
    Resource.EXTENTS: "Destroy a queue space, or use fewer and larger extents.",
}
