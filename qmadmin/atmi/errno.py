"""Failures of ATMI's calls: the values of tperrno and of TPQCTL's diagnostic, and TPException, which carries them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from qmcore import errors
from qmcore.errors import (
    AbortedError,
    BadResourceError,
    HeuristicError,
    InvalidArgumentError,
    NotSuspendedError,
    OperatingSystemError,
    OutcomeUnknownError,
    ProtocolError,
    QueueError,
    ReleaseError,
)

if TYPE_CHECKING:
    from qmadmin.atmi.control import TPQCTL


class Value(int):
    """A number of the header file.

    `enqueue` is what it means to tpenqueue(), `dequeue` what it means to tpdequeue(), `both` what it means to either;
    empty if it has no meaning. `keyword` is the argument of `QueueSpace.enqueue` or `QueueSpace.dequeue` that does the
    same. The manual pages are made of these.
    """

    enqueue: str
    dequeue: str
    keyword: str

    def __new__(cls, number: int, *, enqueue: str = "", dequeue: str = "", both: str = "", keyword: str = "") -> Self:
        """Create one; it equals its number in all respects."""
        made = super().__new__(cls, number)
        made.enqueue, made.dequeue, made.keyword = enqueue or both, dequeue or both, keyword
        return made


TPEABORT: Final = 1
TPEBADDESC: Final = 2
TPEBLOCK: Final = Value(3, both="TPNOBLOCK was given, and another writer blocks the file.")
TPEINVAL: Final = Value(
    4,
    enqueue="An argument is of a wrong type, or a flag is not one of this call. A mistake in TPQCTL is QMEINVAL.",
    dequeue="An argument is of a wrong type, a flag is not one of this call, or TPNOCHANGE was given without `kind`. A"
    " mistake in TPQCTL is QMEINVAL.",
)
TPELIMIT: Final = 5
TPENOENT: Final = Value(6, both="There is no queue space `qspace`, or no device.")
TPEOS: Final = Value(7, both="The call was to open the device, and the operating system refused.")
TPEPERM: Final = 8
TPEPROTO: Final = Value(9, both="The transaction of this thread ended when another thread called tpterm().")
TPESVCERR: Final = 10
TPESVCFAIL: Final = 11
TPESYSTEM: Final = Value(12, both="The call was to open the device, and that failed.")
TPETIME: Final = Value(
    13,
    enqueue="Another writer blocked the file for 30 seconds; the connection, the disk or another process failed at a"
    " moment that leaves it unknown whether the message is on the queue; or the time of the transaction is over."
    " In the last case the transaction can only be aborted, and further calls in it fail with TPETIME too.",
    dequeue="No message came in the time that TPQWAIT waits; another writer blocked the file for 30 seconds; the"
    " connection, the disk or another process failed at a moment that leaves it unknown whether the message was"
    " taken; or the time of the transaction is over. In the last case, and if TPQWAIT waited in the transaction,"
    " the transaction can only be aborted, and further calls in it fail with TPETIME too.",
)
TPETRAN: Final = 14
TPGOTSIG: Final = Value(15, both="A signal ended the wait; TPSIGRSTRT was not given.")
TPERMERR: Final = 16
TPEITYPE: Final = 17
TPEOTYPE: Final = Value(
    18,
    dequeue="TPNOCHANGE was given, and the message is not of the type `kind`. A transaction can then only be aborted.",
)
TPERELEASE: Final = Value(19, both="The call was to open the device, and this release cannot use it.")
TPEHAZARD: Final = 20
TPEHEURISTIC: Final = 21
TPEEVENT: Final = 22
TPEMATCH: Final = 23
TPEDIAGNOSTIC: Final = Value(24, both="The queue manager refused or failed; `diagnostic` says why.")
TPEMIB: Final = 25

QMEINVAL: Final = Value(
    errors.InvalidArgumentError.number,
    enqueue="A field of TPQCTL is out of its range, its flags exclude each other or are not for this call, the body is"
    " too long, or the queue does not allow TPQTOP or TPQBEFOREMSGID.",
    dequeue="A field of TPQCTL is out of its range, its flags exclude each other, or TPQPEEK was given without"
    " TPNOTRAN.",
)
QMEBADRMID: Final = errors.BadResourceError.number
QMENOTOPEN: Final = Value(
    errors.NotOpenError.number, both="The queue space was closed by another thread, with tpterm()."
)
QMETRAN: Final = errors.TransactionStartError.number
QMEBADMSGID: Final = Value(
    errors.BadMessageIdError.number,
    enqueue="`msgid` is not an identifier, or TPQBEFOREMSGID names a message that is gone.",
    dequeue="`msgid` is not an identifier. The identifier of a message that is gone leads to QMENOMSG.",
)
QMESYSTEM: Final = Value(
    errors.SystemFailureError.number,
    enqueue="The store failed. The transaction can only be aborted.",
    dequeue="The store failed, and the transaction can only be aborted; or TPQWAIT found no free action, and nothing"
    " has changed.",
)
QMEOS: Final = Value(
    errors.OperatingSystemError.number,
    both="The operating system refused, as on a full disk. The transaction can only be aborted.",
)
QMEABORTED: Final = Value(
    errors.AbortedError.number,
    both="The transaction was rolled back by others, or after an earlier failure; it can only be aborted.",
)
QMENOTA: Final = QMEABORTED
QMEPROTO: Final = errors.ProtocolError.number
QMEBADQUEUE: Final = Value(
    errors.BadQueueError.number,
    enqueue="There is no such queue, or it is stopped for enqueuing.",
    dequeue="There is no such queue, or it is stopped for dequeuing.",
)
QMENOMSG: Final = Value(
    errors.NoMessageError.number, dequeue="There is no message that can be dequeued, and TPQWAIT was not given."
)
QMEINUSE: Final = errors.InUseError.number
QMENOSPACE: Final = Value(
    errors.NoSpaceError.number,
    enqueue="A limit of the queue space is reached: pages, messages, memory, transactions, processes.",
    dequeue="The queue space has reached its limit of transactions or processes.",
)
QMERELEASE: Final = Value(errors.ReleaseError.number, both="The queue space is on a file that this release cannot use.")
QMEINVHANDLE: Final = errors.InvalidHandleError.number
QMESHARE: Final = errors.ShareError.number

ERROR_NAMES: Final[dict[int, str]] = {
    value: name
    for name, value in sorted(globals().items())
    if name.startswith(("TPE", "TPGOTSIG")) and isinstance(value, int)
}
"""The names of the values of tperrno."""

__all__ = [
    "ERROR_NAMES", "QMEABORTED", "QMEBADMSGID", "QMEBADQUEUE", "QMEBADRMID", "QMEINUSE", "QMEINVAL", "QMEINVHANDLE",
    "QMENOMSG", "QMENOSPACE", "QMENOTA", "QMENOTOPEN", "QMEOS", "QMEPROTO", "QMERELEASE", "QMESHARE", "QMESYSTEM",
    "QMETRAN", "TPEABORT", "TPEBADDESC", "TPEBLOCK", "TPEDIAGNOSTIC", "TPEEVENT", "TPEHAZARD", "TPEHEURISTIC",
    "TPEINVAL", "TPEITYPE", "TPELIMIT", "TPEMATCH", "TPEMIB", "TPENOENT", "TPEOS", "TPEOTYPE", "TPEPERM", "TPEPROTO",
    "TPERELEASE", "TPERMERR", "TPESVCERR", "TPESVCFAIL", "TPESYSTEM", "TPETIME", "TPETRAN", "TPGOTSIG", "TPException",
]  # fmt: skip


class TPException(Exception):
    """A call failed: `tperrno` is one of the TPE values, `diagnostic` the QME number if that is TPEDIAGNOSTIC."""

    def __init__(self, tperrno: int, message: str, diagnostic: int = 0) -> None:
        super().__init__(tperrno, message, diagnostic)
        self.tperrno = tperrno
        self.message = message
        self.diagnostic = diagnostic

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"

    @property
    def name(self) -> str:
        """The name of the tperrno value."""
        return ERROR_NAMES[self.tperrno]


def failure(error: QueueError, ctl: TPQCTL, *, time_is_over: bool) -> TPException:
    """Return the exception of a queue call for a diagnostic, which is also set in its control structure.

    `time_is_over`: the timeout of the transaction of the call has passed.
    """
    ctl.diagnostic = 0
    if isinstance(error, BadResourceError):
        return TPException(TPENOENT, str(error))
    if (isinstance(error, AbortedError) and time_is_over) or error.blocked or isinstance(error, OutcomeUnknownError):
        return TPException(TPETIME, str(error))
    ctl.diagnostic = error.number
    return TPException(TPEDIAGNOSTIC, f"{error.name}: {error}", error.number)


def failure_to_join(error: QueueError) -> TPException:
    """Return the exception of a call without a control structure."""
    for kind, tperrno in _WITHOUT_CONTROL.items():
        if isinstance(error, kind):
            return TPException(tperrno, str(error))
    return TPException(TPESYSTEM, str(error))


def failure_to_suspend(error: QueueError) -> TPException:
    """Return the exception of tpsuspend; after TPEABORT nothing of the transaction remains."""
    return TPException(TPEABORT, str(error)) if isinstance(error, AbortedError) else failure_to_join(error)


def failure_to_resume(error: QueueError) -> TPException:
    """Return the exception of tpresume."""
    if isinstance(error, NotSuspendedError) and error.resumed:
        return TPException(TPEMATCH, str(error))
    # A coordinator's branch is not to be resumed so.
    return TPException(TPEINVAL, str(error)) if isinstance(error, ProtocolError) else failure_to_join(error)


def failure_to_commit(error: QueueError) -> TPException:
    """Return the exception of tpcommit: nothing of the transaction remains, part of it, or the outcome is unknown."""
    if isinstance(error, HeuristicError):
        return TPException(TPEHEURISTIC, f"the transaction was committed, but not all of it: {error}")
    if isinstance(error, OutcomeUnknownError):
        return TPException(TPEHAZARD, f"whether the transaction was committed is unknown: {error}")
    return TPException(TPEABORT, f"the transaction was rolled back: {error}")


_WITHOUT_CONTROL: Final[dict[type[QueueError], int]] = {
    BadResourceError: TPENOENT,
    InvalidArgumentError: TPEINVAL,
    OperatingSystemError: TPEOS,
    ReleaseError: TPERELEASE,
}
