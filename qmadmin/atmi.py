"""The queue calls of ATMI, for code that thinks in Tuxedo: tpinit, tpbegin, tpenqueue, tpdequeue and their kin.

Names, flags, values and error numbers are those of tpenqueue(3c) and tpdequeue(3c). What C returns through pointers
comes back as values and in the TPQCTL; where C returns -1, TPException is raised. The queue space argument is the
queue space's own name: there is no server between the caller and the queue.

    from qmadmin.atmi import *

    tpinit("QUE")
    ctl = TPQCTL(flags=TPQCORRID | TPQREPLYQ, corrid=b"order-17", replyqueue="RPLYQ")
    tpenqueue("QSPACE", "STRING", ctl, b"this is a q example")
    ctl = TPQCTL(flags=TPQGETBYCORRID | TPQWAIT, corrid=b"order-17")
    reply = tpdequeue("QSPACE", "RPLYQ", ctl)
    tpterm()

Queue spaces are opened when they are first named, and every thread has its own transaction.
"""

from __future__ import annotations

import math
import os
import threading
from typing import Final

from qmadmin.device import Device
from qmadmin.opening import open_device
from qmadmin.space import QueueSpace
from qmadmin.tpqctl import (
    TMCORRIDLEN,
    TMMSGIDLEN,
    TMQNAMELEN,
    TPNOFLAGS,
    TPQBEFOREMSGID,
    TPQCORRID,
    TPQCTL,
    TPQDELIVERYQOS,
    TPQEXPTIME_ABS,
    TPQEXPTIME_NONE,
    TPQEXPTIME_REL,
    TPQFAILUREQ,
    TPQGETBYCORRID,
    TPQGETBYCORRIDOLD,
    TPQGETBYMSGID,
    TPQGETBYMSGIDOLD,
    TPQMSGID,
    TPQPEEK,
    TPQPRIORITY,
    TPQQOSDEFAULTPERSIST,
    TPQQOSNONPERSISTENT,
    TPQQOSPERSISTENT,
    TPQREPLYQ,
    TPQREPLYQOS,
    TPQTIME_ABS,
    TPQTIME_REL,
    TPQTOP,
    TPQWAIT,
    check_flags,
    enqueue_control,
    fill,
    text_of,
)
from qmadmin.transaction import Transaction
from qmcore import names
from qmcore.errors import (
    AbortedError,
    BadResourceError,
    InvalidArgumentError,
    NoMessageError,
    OperatingSystemError,
    ProtocolError,
    QueueError,
)
from qmcore.message import Message

TPNOBLOCK: Final = 0x01
TPSIGRSTRT: Final = 0x02
TPNOTRAN: Final = 0x08
TPNOTIME: Final = 0x20

TPEABORT: Final = 1
TPEINVAL: Final = 4
TPENOENT: Final = 6
TPEOS: Final = 7
TPEPROTO: Final = 9
TPESYSTEM: Final = 12
TPETIME: Final = 13
TPEDIAGNOSTIC: Final = 24

ERROR_NAMES: Final = {
    TPEABORT: "TPEABORT",
    TPEINVAL: "TPEINVAL",
    TPENOENT: "TPENOENT",
    TPEOS: "TPEOS",
    TPEPROTO: "TPEPROTO",
    TPESYSTEM: "TPESYSTEM",
    TPETIME: "TPETIME",
    TPEDIAGNOSTIC: "TPEDIAGNOSTIC",
}
"""The names of the values of tperrno that these calls set."""

__all__ = [
    "ERROR_NAMES",
    "TMCORRIDLEN",
    "TMMSGIDLEN",
    "TMQNAMELEN",
    "TPEABORT",
    "TPEDIAGNOSTIC",
    "TPEINVAL",
    "TPENOENT",
    "TPEOS",
    "TPEPROTO",
    "TPESYSTEM",
    "TPETIME",
    "TPNOBLOCK",
    "TPNOFLAGS",
    "TPNOTIME",
    "TPNOTRAN",
    "TPQBEFOREMSGID",
    "TPQCORRID",
    "TPQCTL",
    "TPQDELIVERYQOS",
    "TPQEXPTIME_ABS",
    "TPQEXPTIME_NONE",
    "TPQEXPTIME_REL",
    "TPQFAILUREQ",
    "TPQGETBYCORRID",
    "TPQGETBYCORRIDOLD",
    "TPQGETBYMSGID",
    "TPQGETBYMSGIDOLD",
    "TPQMSGID",
    "TPQPEEK",
    "TPQPRIORITY",
    "TPQQOSDEFAULTPERSIST",
    "TPQQOSNONPERSISTENT",
    "TPQQOSPERSISTENT",
    "TPQREPLYQ",
    "TPQREPLYQOS",
    "TPQTIME_ABS",
    "TPQTIME_REL",
    "TPQTOP",
    "TPQWAIT",
    "TPSIGRSTRT",
    "TPException",
    "tpabort",
    "tpbegin",
    "tpcommit",
    "tpdequeue",
    "tpenqueue",
    "tpgetlev",
    "tpinit",
    "tpterm",
]

_CALL_FLAGS = TPNOBLOCK | TPSIGRSTRT | TPNOTRAN | TPNOTIME
_OPERATION_SECONDS = 30.0
"""How long TPQWAIT waits outside of a transaction, as TMQUEUE's default is."""


class TPException(Exception):
    """A call failed: `tperrno` is one of the TPE values, `diagnostic` the QME number where that is TPEDIAGNOSTIC."""

    def __init__(self, tperrno: int, message: str, diagnostic: int = 0) -> None:
        super().__init__(tperrno, message, diagnostic)
        self.tperrno = tperrno
        self.message = message
        self.diagnostic = diagnostic

    def __str__(self) -> str:
        return f"{ERROR_NAMES[self.tperrno]}: {self.message}"

    @property
    def name(self) -> str:
        """The name of the tperrno value."""
        return ERROR_NAMES[self.tperrno]


class _Program:
    """What a process has joined: its device, its open queue spaces, and the transaction of each thread.

    ATMI's calls name no handle, so that this has to be found by them: it is the one changing thing in the module.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._device: Device | None = None
        self._spaces: dict[str, QueueSpace] = {}
        self._local = threading.local()
        self.timeout = _OPERATION_SECONDS

    @property
    def transaction(self) -> Transaction | None:
        """The transaction of this thread."""
        found: Transaction | None = getattr(self._local, "transaction", None)
        return found

    @transaction.setter
    def transaction(self, transaction: Transaction | None) -> None:
        self._local.transaction = transaction

    def join(self, device: str | os.PathLike[str] | None, timeout: float) -> None:
        """Open the device; joining again is no error."""
        with self._lock:
            if self._device is None:
                path = device or os.environ.get("QMCONFIG")
                if not path:
                    raise TPException(TPEINVAL, "no device is named, and QMCONFIG is not set")
                self._device = open_device(path)
                self.timeout = timeout

    def leave(self) -> None:
        """Close everything."""
        with self._lock:
            device, self._device = self._device, None
            self._spaces.clear()
            if device is not None:
                device.close()

    def device(self) -> Device:
        """Return the device, joined if that was not done."""
        self.join(None, self.timeout)
        assert self._device is not None  # noqa: S101 - joined above
        return self._device

    def space(self, name: str) -> QueueSpace:
        """Return an open queue space."""
        with self._lock:
            if name not in self._spaces:
                self._spaces[name] = self.device().open_space(name)
            return self._spaces[name]


_program = _Program()


def tpinit(device: str | os.PathLike[str] | None = None, *, timeout: float = _OPERATION_SECONDS) -> None:
    """Join: open the device, that of QMCONFIG if none is named. Other calls do it by themselves.

    `timeout` is how many seconds TPQWAIT waits outside of a transaction.
    """
    try:
        _program.join(device, timeout)
    except QueueError as error:
        raise _failure(error, None) from error


def tpterm() -> None:
    """Leave: close the queue spaces and the device. Refused with TPEPROTO inside a transaction."""
    if _program.transaction is not None:
        raise TPException(TPEPROTO, "tpterm() was called inside a transaction")
    _program.leave()


def tpbegin(timeout: float = 0, flags: int = 0) -> None:
    """Begin a transaction of this thread; after `timeout` seconds it can only be aborted, 0 is no limit."""
    _check_call_flags(flags, 0)
    if _program.transaction is not None:
        raise TPException(TPEPROTO, "a transaction is open already in this thread")
    try:
        transaction = Transaction(_program.device(), timeout or None)
    except QueueError as error:
        raise _failure(error, None) from error
    transaction.join_context()
    _program.transaction = transaction


def tpcommit(flags: int = 0) -> None:
    """Commit the transaction of this thread; TPEABORT where it was rolled back instead."""
    _check_call_flags(flags, 0)
    transaction = _end_transaction("tpcommit")
    try:
        transaction.commit()
    except QueueError as error:
        raise TPException(TPEABORT, f"the transaction was rolled back: {error}", error.number) from error


def tpabort(flags: int = 0) -> None:
    """Roll back the transaction of this thread."""
    _check_call_flags(flags, 0)
    transaction = _end_transaction("tpabort")
    if transaction.active:
        transaction.rollback()


def tpgetlev() -> int:
    """Return 1 if this thread is in a transaction, else 0."""
    return 0 if _program.transaction is None else 1


def tpenqueue(
    qspace: str, qname: str, ctl: TPQCTL | None, data: bytes | bytearray | str | None, flags: int = 0
) -> None:
    """Put a message on queue `qname` of queue space `qspace`.

    With TPQMSGID in `ctl.flags` its identifier is returned in `ctl.msgid`. TPNOTRAN in `flags` keeps it out of the
    transaction of this thread.
    """
    _check_call_flags(flags, _CALL_FLAGS)
    asked = ctl or TPQCTL()
    try:
        control = enqueue_control(asked, "STRING" if isinstance(data, str) else "CARRAY")
        body = names.encoded(data, "data") if isinstance(data, str) else None if data is None else bytes(data)
        msgid = _program.space(qspace).put(qname, body, control, transactional=not flags & TPNOTRAN)
    except QueueError as error:
        raise _failure(error, asked) from error
    asked.diagnostic = 0
    if asked.flags & TPQMSGID:
        asked.msgid = msgid.encode()


def tpdequeue(qspace: str, qname: str, ctl: TPQCTL | None, flags: int = 0) -> bytes | None:
    """Take a message off queue `qname` of queue space `qspace` and return its data; None is a message without data.

    TPQGETBYMSGID and TPQGETBYCORRID in `ctl.flags` ask for a certain message, TPQWAIT waits for one. The flags
    TPQPRIORITY, TPQMSGID, TPQCORRID, TPQREPLYQ, TPQFAILUREQ, TPQDELIVERYQOS and TPQREPLYQOS ask for what came with
    it; those that it had not are off afterwards. `ctl.urcode`, `ctl.appkey` and `ctl.cltid` are always set.
    """
    _check_call_flags(flags, _CALL_FLAGS)
    asked = ctl or TPQCTL()
    try:
        message = _dequeue(qspace, qname, asked, flags)
        if message is None:
            if asked.flags & TPQWAIT:
                raise TPException(TPETIME, f"no message came to queue {qname!r} in time")
            raise NoMessageError(f"queue {qname!r} has no message that can be dequeued", queue=qname)
    except QueueError as error:
        raise _failure(error, asked) from error
    fill(asked, message)
    return message.body


def _dequeue(qspace: str, qname: str, ctl: TPQCTL, flags: int) -> Message | None:
    check_flags(ctl.flags)
    by_msgid, by_corrid = ctl.flags & TPQGETBYMSGIDOLD, ctl.flags & TPQGETBYCORRIDOLD
    if by_msgid and by_corrid:
        raise InvalidArgumentError("TPQGETBYMSGID and TPQGETBYCORRID exclude each other")
    wait = 0.0
    if ctl.flags & TPQWAIT:
        unlimited = flags & TPNOTIME or (_program.transaction is not None and not flags & TPNOTRAN)
        wait = math.inf if unlimited else _program.timeout
    msgid = text_of(ctl.msgid) if by_msgid else None
    corrid = ctl.corrid if by_corrid else None
    space = _program.space(qspace)
    if not ctl.flags & TPQPEEK:
        return space.dequeue(qname, msgid=msgid, corrid=corrid, wait=wait, transactional=not flags & TPNOTRAN)
    if not flags & TPNOTRAN:
        raise InvalidArgumentError("TPQPEEK demands TPNOTRAN", hint="A message that is looked at is nobody's.")
    return space.peek(qname, msgid=msgid, corrid=corrid, wait=wait)


def _end_transaction(call: str) -> Transaction:
    transaction = _program.transaction
    if transaction is None:
        raise TPException(TPEPROTO, f"{call}() was called outside of a transaction")
    transaction.leave_context()
    _program.transaction = None
    return transaction


def _failure(error: QueueError, ctl: TPQCTL | None) -> TPException:
    """Return the exception for a diagnostic, which is noted in the control structure too."""
    if isinstance(error, BadResourceError):
        return TPException(TPENOENT, str(error))
    if isinstance(error, ProtocolError) and ctl is None:
        return TPException(TPEPROTO, str(error))
    if isinstance(error, AbortedError) and _program.transaction is not None:
        return TPException(TPETIME, str(error), error.number)
    if ctl is None:
        return TPException(TPEOS if isinstance(error, OperatingSystemError) else TPESYSTEM, str(error))
    ctl.diagnostic = error.number
    return TPException(TPEDIAGNOSTIC, f"{error.name}: {error}", error.number)


def _check_call_flags(flags: int, allowed: int) -> None:
    if flags & ~allowed:
        raise TPException(TPEINVAL, f"the flags {flags & ~allowed:#x} are not allowed for this call")
