"""The diagnostics: one class for each QME code of tpenqueue(3c) and tpdequeue(3c), and those that Tuxedo has not.

A constructor takes facts and builds the sentence from them; callers test classes and attributes, never text.
`message` is one line and says what is wrong with which object; `hint` says what to do about it.

The docstring of a class is what its diagnostic means; `causes` and `remedy` are what brings it about and what to do in
general. The manual pages are made of them.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar, Self

from qmcore.redacted import redacted


class QueueError(Exception):
    """The queue manager refused or failed an operation."""

    name: ClassVar[str] = ""
    number: ClassVar[int] = 0
    causes: ClassVar[str] = ""
    remedy: ClassVar[str] = ""
    by_name: ClassVar[dict[str, type[QueueError]]] = {}

    def __init_subclass__(cls, *, name: str, number: int) -> None:
        super().__init_subclass__()
        if name in QueueError.by_name:
            raise TypeError(f"diagnostic {name} is declared twice")
        cls.name, cls.number = name, number
        QueueError.by_name[name] = cls

    def __init__(self, message: str, *, hint: str = "", **facts: Any) -> None:
        message = redacted(message)
        super().__init__(message)
        self.message = message
        self.hint = redacted(hint)
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

    causes = (
        "An argument has the wrong type or is out of its range; flags or arguments exclude each other; a condition, a "
        "time or a limit cannot be read; something of that name exists already; or the queue does not grant what is "
        "asked for, such as a message on top."
    )
    remedy = "Change the call as the message says. The same call fails each time."


class BadResourceError(QueueError, name="QMEBADRMID", number=-2):
    """The device or the queue space that was named does not exist, or is not one of qmadmin."""

    causes = (
        "The path is wrong or is a directory, the file is something else than a device, it is on a network file "
        "system or mounted by itself, it is a hard link, or the queue space was not created or was destroyed."
    )
    remedy = (
        "Look at QMCONFIG and at the argument. lidl lists the devices, qspacelist the queue spaces; crdl and "
        "qspacecreate make what is missing."
    )


class NotOpenError(QueueError, name="QMENOTOPEN", number=-3):
    """The device or the queue space is not open: it was closed, or belongs to the parent process of a fork."""

    causes = (
        "The device or the queue space is used after its close, which may have been in another thread; a file of the "
        "device was removed, moved or replaced while it was open; or a device in memory is used by a forked child."
    )
    remedy = "Open it again. A call that was waiting when it was closed has done nothing."


class TransactionStartError(QueueError, name="QMETRAN", number=-4):
    """A transaction for the operation could not be started."""

    causes = (
        "A call on the application's own connection: its transaction has read before others wrote, so that it cannot "
        "write any more. Calls without a connection never have it."
    )
    remedy = "Roll the transaction of the application back, and do its work again."


class BadMessageIdError(QueueError, name="QMEBADMSGID", number=-5):
    """The message identifier is malformed, or no message of the queue has it."""

    causes = "The text is not a message identifier, or the message that another one was to be enqueued before is gone."
    remedy = (
        "Take identifiers as they were returned; a message that is moved gets a new one. Without the other message, "
        "enqueue in the order of the queue."
    )


class SystemFailureError(QueueError, name="QMESYSTEM", number=-6):
    """The queue manager itself failed; the log has the details."""

    causes = (
        "The file, or a message in it, is damaged, or it could not be brought to the disk; another program kept it "
        "locked for 30 seconds; or as many wait for messages as the queue space has actions for."
    )
    remedy = (
        "It depends on the message: give the queue space more actions, let a stopped process that holds the file go "
        "on or end it, remove damaged messages with qpurge -d, restore a damaged file from a backup."
    )


class OperatingSystemError(QueueError, name="QMEOS", number=-7):
    """The operating system refused: no room on the disk, no permission, an unreadable file."""

    causes = (
        "The disk or the memory for non-persistent messages is full, the user may only read the device, or a file"
        " next to it cannot be opened."
    )
    remedy = (
        "Make room, or give the permission. The operation was undone, and what was accepted before is not lost; "
        "repeat it afterwards."
    )


class AbortedError(QueueError, name="QMEABORTED", number=-8):
    """The operation or the transaction was rolled back and nothing of it remains."""

    causes = (
        "The timeout of the transaction was over, an earlier call in it failed in a way that ends it, or others gave "
        "its process up for dead."
    )
    remedy = (
        "Roll it back and begin again; what it had dequeued is in its queue. Where it happens often give the "
        "transaction more time, or less work."
    )


class ProtocolError(QueueError, name="QMEPROTO", number=-9):
    """The call is not allowed in this state, such as a second transaction inside an open one."""

    causes = (
        "A transaction is begun inside of another one, a message is locked outside of one, a transaction is used "
        "after its end, or a call belongs to two transactions at once."
    )
    remedy = "Change the program: the order of its calls is wrong."


class BadQueueError(QueueError, name="QMEBADQUEUE", number=-10):
    """No queue of that name exists in the queue space."""

    causes = (
        "The name is misspelt, the queue was not created or was destroyed, or it is stopped for enqueuing or dequeuing."
    )
    remedy = "qinfo lists the queues. Create the queue with qcreate, or have it started again."


class NoMessageError(QueueError, name="QMENOMSG", number=-11):
    """No message was available for dequeuing."""

    causes = "The queue is empty, or all of its messages are delayed, held by transactions, or not what is asked for."
    remedy = "It is not a failure. Ask again later, or wait for a message. In Python dequeue returns None instead."


class InUseError(QueueError, name="QMEINUSE", number=-12):
    """The object is in use: processes are attached, messages are stored, or a transaction holds a message."""

    causes = (
        "Something is to be destroyed or changed that somebody uses; the message tells who. Or a device is to be "
        "opened that a program has open by another name, or whose log was removed under it."
    )
    remedy = (
        "Have the processes close the queue space, dequeue or give up the messages, end the transactions; or force "
        "it, where the command lets you."
    )


class OutcomeUnknownError(QueueError, name="QMEUNKNOWN", number=-101):
    """It is unknown whether the operation was done: the connection, the disk or a process failed during it."""

    # The number is our own, and far from those of Tuxedo.

    causes = (
        "The connection to the server was lost, or the server went down, while a commit was under way; or the disk "
        "reported that a commit could not be brought to it; or another process that had begun to do it in its own "
        "commit stood still for 30 seconds."
    )
    remedy = (
        "Look whether the message is there, by its identifier or its correlation identifier, before it is sent again. "
        "After a failure of the disk the device has to be opened again."
    )

    def __init__(self, message: str, *, hint: str = "", **facts: Any) -> None:
        super().__init__(message, hint=hint or "Check before you repeat it: it may have been done.", **facts)


class Resource(enum.Enum):
    """The resources that can run out; `NoSpaceError.resource` says which one did."""

    PAGES = "pages"
    MEMORY = "bytes of memory for non-persistent messages"
    TRANSACTIONS = "concurrent transactions"
    MESSAGES = "messages"
    ACTIONS = "concurrent actions"
    PROCESSES = "attached processes"
    QUEUES = "queues"
    DEVICE_ENTRIES = "entries of the universal device list"
    EXTENTS = "entries of the table of contents"

    @property
    def remedy(self) -> str:
        """What helps when there is no more of it."""
        return _ROOM[self]


class NoSpaceError(QueueError, name="QMENOSPACE", number=-13):
    """A configured resource is exhausted; `resource` says which, `used` and `limit` how much of it is in use."""

    causes = "A queue space or a device has all in use that it was created with; see below what that can be."
    remedy = "Free some of it, or give the queue space more of it. The hint says how."

    def __init__(
        self,
        owner: str,
        resource: Resource,
        *,
        used: int,
        limit: int,
        wanted: int = 1,
        detail: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(
            f"{owner} has {used} of {limit} {resource.value} in use and cannot take {wanted} more{detail}",
            hint=hint or resource.remedy,
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
    """The device was written by another release, or this release lacks the feature."""

    causes = (
        "The device has another version of its tables than this release, the release does not know what is asked for, "
        "or SQLite is too old."
    )
    remedy = "Use the release that wrote the device, or a newer one."


class InvalidHandleError(QueueError, name="QMEINVHANDLE", number=-15):
    """The handle belongs to another device or queue space."""

    causes = "No call has it in this release; the number is kept for programs that know it."
    remedy = "Use a handle with the object that made it."


class ShareError(QueueError, name="QMESHARE", number=-16):
    """Another application has exclusive use of the queue or the device."""

    causes = "No call has it in this release; the number is kept for programs that know it."
    remedy = "Wait until the other application is done."


_ROOM = {
    Resource.PAGES: "Dequeue messages, or give the queue space more pages with qaddext.",
    Resource.MEMORY: "Dequeue messages, or give the queue space more memory with qspacechange -n.",
    Resource.TRANSACTIONS: "End a transaction, or allow the queue space more transactions with qspacechange.",
    Resource.MESSAGES: "Dequeue messages, or allow the queue space more messages with qspacechange.",
    Resource.ACTIONS: "Wait for fewer messages at a time, or raise the actions with qspacechange -A.",
    Resource.PROCESSES: "Close the queue space in another process, or allow it more with qspacechange.",
    Resource.QUEUES: "Destroy a queue, or allow the queue space more queues with qspacechange -q.",
    Resource.DEVICE_ENTRIES: "Remove an entry with dsdl, or make an entry of more pages.",
    Resource.EXTENTS: "Destroy a queue space, or use fewer and larger extents.",
}
