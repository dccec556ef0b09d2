"""The diagnostics: one class for each QME code of tpenqueue(3c) and tpdequeue(3c), and those that Tuxedo lacks.

A constructor takes facts and builds the sentence from them; callers test classes and attributes, never text. What code
decides by is an attribute; `facts` are what else is known, for whoever shows or logs it.
`message` is one line and says what is wrong with which object; `hint` says what to do about it.

The docstring of a class is what its diagnostic means; `causes` and `remedy` are what causes it and what to do in
general. The manual pages are generated from them.
"""

from __future__ import annotations

import copy
import enum
from typing import Any, ClassVar, Self, TypeVar

from qmcore.redacted import redacted


class Alternative(enum.Enum):
    """What may be asked for in place of what is refused; each face has its own word for it."""

    EXISTING = "what becomes of queues that exist already, or another name"
    AGAIN = "to import again what was imported before"
    ABANDON = "to give up an import that has begun"
    RESUME = "to begin again in an archive that is not finished"
    KEY = "the key that an archive was signed with"
    LEAVE_OUT = "to leave out volumes that are missing"


class QueueError(Exception):
    """The queue manager refused or failed an operation."""

    name: ClassVar[str] = ""
    number: ClassVar[int] = 0
    causes: ClassVar[str] = ""
    remedy: ClassVar[str] = ""
    by_name: ClassVar[dict[str, type[QueueError]]] = {}

    def __init_subclass__(cls, *, name: str = "", number: int = 0) -> None:
        """Declare a diagnostic, or without a name a special case of one."""
        super().__init_subclass__()
        if not name:
            return
        if name in QueueError.by_name:
            raise TypeError(f"diagnostic {name} is declared twice")
        cls.name, cls.number = name, number
        QueueError.by_name[name] = cls

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        blocked: bool = False,
        unreachable: bool = False,
        alternative: Alternative | None = None,
        **facts: Any,
    ) -> None:
        """Take what is wrong and what to do about it.

        `blocked`: others are in the way, and for long. `unreachable`: the store, its server or the way to it is away,
        and may come back. `alternative`: what may be asked for instead.
        """
        message = redacted(message)
        super().__init__(message)
        self.message = message
        self.hint = redacted(hint)
        self.blocked = blocked
        self.unreachable = unreachable
        self.alternative = alternative
        self.facts = facts

    @classmethod
    def _restore(cls, message: str, known: dict[str, Any]) -> Self:
        error = cls.__new__(cls, message)
        error.__dict__.update(known)
        return error

    def __reduce__(self) -> tuple[Any, ...]:
        known = {name: value for name, value in vars(self).items() if name != "__notes__"}
        return type(self)._restore, (self.message, known)  # noqa: SLF001 - its own class


E = TypeVar("E", bound=QueueError)


def may_pass(error: QueueError) -> bool:
    """Return whether what was refused may be done soon: the store is away, or others are in the way for long."""
    return error.blocked or error.unreachable


def in_other_words(error: E, *, message: str | None = None, hint: str | None = None) -> E:
    """Return the same error with another message or another hint."""
    told = copy.copy(error)
    if message is not None:
        told.message = redacted(message)
        told.args = (told.message,)
    if hint is not None:
        told.hint = redacted(hint)
    return told


class InvalidArgumentError(QueueError, name="QMEINVAL", number=-1):
    """A value, a flag or a combination of them is not allowed."""

    causes = (
        "An argument has the wrong type or is out of its range; flags or arguments exclude each other; a condition, a "
        "time, a limit or a body cannot be read; a body cannot be encoded; something of that name exists already; or "
        "the queue does not grant what is asked for, such as a message on top."
    )
    remedy = "Change the call as the message says. The same call fails each time."

    def __init__(self, message: str, **known: Any) -> None:
        super().__init__(message, **known)
        self.catalogue: int | None = self.facts.get("catalogue")
        """The number of the sentence in Tuxedo's catalogue, where it is one of its own."""


class UnknownXidError(InvalidArgumentError):
    """No transaction of the queue space has the identifier, or has it any more."""


class NotSuspendedError(InvalidArgumentError):
    """No suspended transaction has the token, or has it any more: it was resumed, or has ended."""

    def __init__(self, message: str, *, resumed: bool = False, **known: Any) -> None:
        """Take also whether the transaction is there, and was resumed before."""
        super().__init__(message, **known)
        self.resumed = resumed


class BodyError(InvalidArgumentError, ValueError):
    """The body of a message cannot be read as what was asked for; reading it again fails again."""

    def __init__(self, message: str, **known: Any) -> None:
        super().__init__(message, **known)
        self.msgid: str = self.facts.get("msgid", "")
        """The identifier of the message."""


class BadResourceError(QueueError, name="QMEBADRMID", number=-2):
    """The device or the queue space that was named does not exist, or is not one of qmadmin."""

    causes = (
        "The path is wrong or is a directory; the file is not a device, is on a network file system, is a mount"
        " point, or is a hard link; or the queue space was not created or was destroyed."
    )
    remedy = (
        "Check QMCONFIG and the argument. lidl lists the devices, qspacelist the queue spaces; crdl and qspacecreate"
        " create them."
    )

    def __init__(self, message: str, **known: Any) -> None:
        super().__init__(message, **known)
        self.space: str = self.facts.get("space", "")
        """The name of the queue space, where it is one that is not there."""


class NotADeviceError(BadResourceError):
    """What is there is something else than a device."""


class NotOpenError(QueueError, name="QMENOTOPEN", number=-3):
    """The device or the queue space is not open: it was closed, or belongs to the parent process of a fork."""

    causes = (
        "The device or the queue space is used after it was closed, perhaps by another thread; a file of the device"
        " was removed, moved or replaced while it was open; or a forked child uses a device in memory."
    )
    remedy = "Open it again. A call that was waiting when it was closed has done nothing."


class TransactionStartError(QueueError, name="QMETRAN", number=-4):
    """A transaction for the operation could not be started."""

    causes = (
        "In a call on the application's own connection, its transaction had read before others wrote, and so can no"
        " longer write. Calls without a connection never fail with it."
    )
    remedy = "Roll back the transaction of the application, and do its work again."


class BadMessageIdError(QueueError, name="QMEBADMSGID", number=-5):
    """The message identifier is malformed, or no message of the queue has it."""

    causes = "The text is not a message identifier, or the message before which another one was to be enqueued is gone."
    remedy = (
        "Use identifiers as they were returned; a message that is moved gets a new one. If the other message is gone,"
        " enqueue in the order of the queue."
    )


class SystemFailureError(QueueError, name="QMESYSTEM", number=-6):
    """The queue manager itself failed; the log has the details."""

    causes = (
        "The file, or a message in it, is damaged or could not be written to the disk; another program kept the file"
        " locked for 30 seconds; or as many calls wait for messages as the queue space has actions for."
    )
    remedy = (
        "As the message says: give the queue space more actions, continue or end a stopped process that holds the"
        " file, remove damaged messages with qpurge -d, or restore a damaged file from a backup."
    )

    def __init__(self, message: str, *, is_damage: bool = False, is_recorded: bool = True, **known: Any) -> None:
        """Take also whether it is one message that is damaged, and whether there is a record of that."""
        super().__init__(message, **known)
        self.is_damage = is_damage
        self.is_recorded = is_recorded


class OperatingSystemError(QueueError, name="QMEOS", number=-7):
    """The operating system refused: no room on the disk, no permission, an unreadable file."""

    causes = (
        "The disk or the memory for non-persistent messages is full, the user may only read the device, or a file"
        " that belongs to it cannot be opened."
    )
    remedy = (
        "Make room or grant permission, then repeat the operation. It was undone; nothing that was accepted before is"
        " lost."
    )


class AbortedError(QueueError, name="QMEABORTED", number=-8):
    """The operation or the transaction was rolled back and nothing of it remains."""

    causes = (
        "The timeout of the transaction was over, an earlier call in it failed in a way that ends it, or others took"
        " its process for dead."
    )
    remedy = (
        "Roll it back and begin again; the messages that it had dequeued are in their queues. If this happens often,"
        " give the transaction more time or less work."
    )

    def __init__(self, message: str, *, of_the_store: bool = False, **known: Any) -> None:
        """Take also whether it is the store that failed, or the way to it, and not what was done in the transaction."""
        super().__init__(message, **known)
        self.of_the_store = of_the_store


class ProtocolError(QueueError, name="QMEPROTO", number=-9):
    """The call is not allowed in this state, such as a second transaction inside an open one."""

    causes = (
        "A transaction is begun inside another one, a message is locked outside a transaction, a transaction is used"
        " after its end, or a call belongs to two transactions at once."
    )
    remedy = "Change the program: the order of its calls is wrong."


class HeuristicError(ProtocolError):
    """An administrator has ended a prepared transaction otherwise than its coordinator decides now.

    This is raised until the record of that is forgotten.
    """

    def __init__(self, message: str, *, committed: bool, **known: Any) -> None:
        """Take also whether it was committed, or else rolled back."""
        super().__init__(message, **known)
        self.committed = committed


class BadQueueError(QueueError, name="QMEBADQUEUE", number=-10):
    """No queue of that name exists in the queue space."""

    causes = (
        "The name is misspelt, the queue was not created or was destroyed, or it is stopped for enqueuing or dequeuing."
    )
    remedy = "qinfo lists the queues. Create the queue with qcreate, or start it with qstart."

    def __init__(self, message: str, **known: Any) -> None:
        super().__init__(message, **known)
        self.queue: str = self.facts.get("queue", "")
        """The name of the queue."""
        self.stopped: str = self.facts.get("stopped", "")
        """What the queue is stopped for, `enqueuing` or `dequeuing`; "" where it is not there."""


class NoMessageError(QueueError, name="QMENOMSG", number=-11):
    """No message was available for dequeuing."""

    causes = "The queue is empty, or all of its messages are delayed, held by transactions, or not selected."
    remedy = "This is not a failure. Try again later, or wait for a message. In Python dequeue returns None instead."


class InUseError(QueueError, name="QMEINUSE", number=-12):
    """The object is in use: processes are attached, messages are stored, or a transaction holds a message."""

    causes = (
        "An object that is to be destroyed or changed is in use; the message says by whom. Or a program has the"
        " device open under another name, or its write-ahead log was removed while it was in use."
    )
    remedy = (
        "Make the processes close the queue space, dequeue or purge the messages, end the transactions; or force the"
        " command, if it allows that."
    )

    def __init__(self, message: str, **known: Any) -> None:
        super().__init__(message, **known)
        self.messages: int = self.facts.get("messages", 0)
        """How many messages are stored in the object, where that is why; else 0."""
        self.xid: str = self.facts.get("xid", "")
        """The text of the identifier of the prepared transaction that needs it, where that is why; else empty."""


class OutcomeUnknownError(QueueError, name="QMEUNKNOWN", number=-101):
    """It is unknown whether the operation was done: the connection, the disk or a process failed during it."""

    # The number is our own, and far from those of Tuxedo.

    causes = (
        "The connection to the server was lost, or the server went down, while a commit was under way; the disk"
        " reported that a commit could not be written; or another process that was to do the operation in its own"
        " commit stalled for 30 seconds."
    )
    remedy = (
        "Check by its identifier or correlation identifier whether the message is there before sending it again."
        " After a disk failure the device has to be opened again."
    )

    def __init__(self, message: str, *, hint: str = "", **facts: Any) -> None:
        super().__init__(message, hint=hint or "Check before you repeat it: it may have been done.", **facts)
        self.path: str = self.facts.get("path", "")


class Resource(enum.Enum):
    """The resources that can run out; `NoSpaceError.resource` says which one did."""

    PAGES = "pages"
    MEMORY = "bytes of memory for non-persistent messages"
    TRANSACTIONS = "concurrent transactions"
    MESSAGES = "messages"
    ACTIONS = "concurrent actions"
    PROCESSES = "attached processes"
    QUEUES = "queues"
    SUBSCRIPTIONS = "subscriptions"
    DEVICE_ENTRIES = "entries of the universal device list"
    EXTENTS = "entries of the table of contents"

    @property
    def remedy(self) -> str:
        """What helps when there is no more of it."""
        return _ROOM[self]


class NoSpaceError(QueueError, name="QMENOSPACE", number=-13):
    """A configured resource is exhausted; `resource` says which, `used` and `limit` how much of it is in use."""

    causes = "A limit of the queue space or the device is reached; the list below shows which limits there are."
    remedy = "Free some of the resource, or raise the limit. The hint says how."

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
        "The device has another schema version than this release, the release does not know the feature, or SQLite is"
        " too old."
    )
    remedy = "Upgrade an older device with qmadmin --upgrade, or use the release that wrote a newer one."


class InvalidHandleError(QueueError, name="QMEINVHANDLE", number=-15):
    """The handle belongs to another device or queue space."""

    causes = "No call fails with it in this release; the number is kept for programs that know it."
    remedy = "Use a handle only with the object that returned it."


class ShareError(QueueError, name="QMESHARE", number=-16):
    """Another application has exclusive use of the queue or the device."""

    causes = "No call fails with it in this release; the number is kept for programs that know it."
    remedy = "Wait until the other application has finished."


class NoRecipientsError(QueueError, name="QMENORECIPIENT", number=-102):
    """Nobody would get the message: its queue is for several consumers, and no subscription is for it."""

    causes = (
        "The queue is for several consumers, and none of them has subscribed; or the message is none that the rules and"
        " topics of their subscriptions are for."
    )
    remedy = "Subscribe a consumer with qsubscribe before messages are enqueued, or change a subscription: qsubchange."


_ROOM = {
    Resource.PAGES: "Dequeue messages, or give the queue space more pages with qaddext.",
    Resource.MEMORY: "Dequeue messages, or give the queue space more memory with qspacechange -n.",
    Resource.TRANSACTIONS: "End a transaction, or allow the queue space more transactions with qspacechange.",
    Resource.MESSAGES: "Dequeue messages, or allow the queue space more messages with qspacechange.",
    Resource.ACTIONS: "Wait for fewer messages at a time, or raise the actions with qspacechange -A.",
    Resource.PROCESSES: "Close the queue space in another process, or allow it more processes with qspacechange.",
    Resource.QUEUES: "Destroy a queue, or allow the queue space more queues with qspacechange -q.",
    Resource.SUBSCRIPTIONS: "End a subscription with qunsubscribe, or let consumers share one.",
    Resource.DEVICE_ENTRIES: "Remove an entry with dsdl, or create larger entries.",
    Resource.EXTENTS: "Destroy a queue space, or use fewer and larger extents.",
}
