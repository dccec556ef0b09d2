"""The calls of ATMI; programs import `qmadmin.atmi`, which describes what applies to all of them."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from qmadmin.atmi.context import TP_CMT_COMPLETE, TP_CMT_LOGGED, Context, SignalWatch
from qmadmin.atmi.control import TPQCTL, TPQMSGID, TPTRANID, dequeue_control, enqueue_control, fill
from qmadmin.atmi.errno import (
    TPEBLOCK,
    TPEINVAL,
    TPEOTYPE,
    TPEPROTO,
    TPETIME,
    TPGOTSIG,
    TPException,
    Value,
    failure,
)
from qmcore import names
from qmcore.checks import buffer_of, index_of
from qmcore.errors import BadResourceError, InvalidArgumentError, NoMessageError, QueueError
from qmcore.message import PRIORITY_DEFAULT, PRIORITY_RANGE, Message

if TYPE_CHECKING:
    from datetime import timedelta

    from typing_extensions import Buffer

TPNOBLOCK: Final = Value(
    0x001,
    both="Fails with TPEBLOCK if another writer blocks the file for longer than a write takes, a tenth of a second.",
)
TPSIGRSTRT: Final = Value(
    0x002,
    enqueue="A signal does not end a wait with TPNOTIME for another writer. Without the flag the call fails with"
    " TPGOTSIG after a signal that the program handles.",
    dequeue="A signal does not end the wait. Without the flag a wait for a message, or with TPNOTIME for another"
    " writer, fails with TPGOTSIG after a signal that the program handles. Only the main thread gets signals; a handler"
    " that raises an exception, as that of Ctrl-C does, ends the call with that exception.",
)
TPNOTRAN: Final = Value(
    0x008,
    both="The call does not belong to the transaction of this thread; it still ends when the time of that"
    " transaction is over.",
    keyword="transactional",
)
TPNOTIME: Final = Value(
    0x020,
    enqueue="The call waits without limit for another writer that blocks the file. Without the flag it fails with"
    " TPETIME after 30 seconds.",
    dequeue="The call waits without limit for another writer that blocks the file. Without the flag it fails with"
    " TPETIME after 30 seconds. It does not prolong TPQWAIT.",
)
TPNOCHANGE: Final = Value(
    0x100, dequeue="Fails with TPEOTYPE if the message is not of the type `kind`; the message then stays in the queue."
)

TPABSOLUTE: Final = Value(0x040)
TPTXCOMMITDLOG: Final = Value(0x004)

__all__ = [
    "TPABSOLUTE", "TPNOBLOCK", "TPNOCHANGE", "TPNOTIME", "TPNOTRAN", "TPSIGRSTRT", "TPTXCOMMITDLOG", "TP_CMT_COMPLETE",
    "TP_CMT_LOGGED", "tpabort", "tpbegin", "tpcommit", "tpdequeue", "tpenqueue", "tpgetlev", "tpinit", "tpresume",
    "tpscmt", "tpsprio", "tpsuspend", "tpterm",
]  # fmt: skip

_ENQUEUE_FLAGS = TPNOTRAN | TPNOBLOCK | TPNOTIME | TPSIGRSTRT
_DEQUEUE_FLAGS = _ENQUEUE_FLAGS | TPNOCHANGE
_NO_BLOCK_SECONDS = 0.1
_LOOK_SECONDS = 0.2
"""The interval in seconds at which a wait for a writer checks for signals and for the end of the transaction."""

_context = Context()


def tpinit(
    device: str | os.PathLike[str] | None = None,
    *,
    timeout: float | timedelta | None = None,
    cltid: str | None = None,
    appkey: int | None = None,
) -> None:
    """Join: open the device, by default that of QMCONFIG. Other calls do this by themselves.

    `timeout` is how many seconds (or a timedelta) TPQWAIT waits outside a transaction, by default 30, with math.inf for
    ever; it corresponds to -t of TMQUEUE. `cltid` (at most 127 bytes) and `appkey` (64 bits) identify this client; its
    messages carry them. Joining again is not an error and changes what is given; with another device it fails with
    TPEPROTO. Fails with TPENOENT if the device does not exist, TPEOS if it cannot be opened, TPERELEASE if another
    release wrote it, TPEINVAL for a bad argument.
    """
    _context.join(device)
    if timeout is not None:
        _context.set_timeout(timeout)
    _context.set_client(cltid, appkey)


def tpterm() -> None:
    """Leave: close the queue spaces and the device. Fails with TPEPROTO in a transaction of this thread.

    Transactions of other threads roll back, and their waiting calls fail with QMENOTOPEN.
    """
    if _context.transaction is not None:
        raise TPException(TPEPROTO, "tpterm() was called inside a transaction")
    _context.leave()


def tpbegin(timeout: float | timedelta = 0, flags: int = 0) -> None:
    """Begin a transaction of this thread; after `timeout`, seconds or a timedelta, it can only be aborted; 0: never."""
    _call_flags(flags, 0)
    if _context.transaction is not None:
        raise TPException(TPEPROTO, "a transaction is open already in this thread")
    _context.begin(timeout)


def tpcommit(flags: int = 0) -> None:
    """Commit the transaction of this thread, which has none afterwards in any case.

    Where it has parts on several volumes, it is committed as soon as that is decided on one of them, and on the disk.
    The others are told then; the call tries again what cannot be reached, until the time of the transaction is over,
    or, if it has no limit, the `timeout` of tpinit(). With TPTXCOMMITDLOG in `flags`, or after tpscmt(TP_CMT_LOGGED),
    it tries each once only. What was not told follows by itself.

    Fails with TPEABORT if it was rolled back instead: its time was over, an earlier call had failed, or what it
    enqueued has no room or no queue any more. With TPEHAZARD if the disk or the connection failed during the commit,
    so that the outcome is unknown; or if it is committed, but a part of it could not be told in time, and nobody knows
    whether an administrator has ended that otherwise. With TPEHEURISTIC if an administrator has rolled a part of it
    back, while the rest is committed.
    """
    flags = _call_flags(flags, TPTXCOMMITDLOG)
    waits = not flags & TPTXCOMMITDLOG and _context.commit_control == TP_CMT_COMPLETE
    _context.end("tpcommit").commit(_context.timeout if waits else None)


def tpabort(flags: int = 0) -> None:
    """Roll back the transaction of this thread."""
    _call_flags(flags, 0)
    _context.end("tpabort").roll_back()


def tpsuspend(flags: int = 0) -> TPTRANID:
    """Suspend the transaction of this thread, which has none afterwards, and return by what tpresume() goes on with it.

    All resources of the transaction stay with it, and its timeout goes on. It is rolled back when this process dies or
    calls tpterm() before it is resumed. One that has done nothing yet can be resumed in this process only.

    Fails with TPEPROTO outside of a transaction; with TPEABORT if the transaction was rolled back instead, because its
    time was over or an earlier call had failed: the thread is in no transaction then. With TPESYSTEM or TPEOS, as when
    there is no room for what it enqueues, the thread stays in it.
    """
    _call_flags(flags, 0)
    return TPTRANID(_context.suspend())


def tpresume(tranid: TPTRANID | str | bytes, flags: int = 0) -> None:
    """Go on in this thread with a transaction that tpsuspend() has suspended, here or in another process.

    `tranid` is what tpsuspend() has returned, or its text or bytes. The device is the one that is joined; the queue
    spaces of the transaction are opened.

    Fails with TPEPROTO in a transaction; with TPEMATCH if the transaction was resumed already; with TPEINVAL if there
    is no such transaction, or no longer: it has ended, by its timeout too, or is not one of this device.
    """
    _call_flags(flags, 0)
    given = bytes(tranid) if isinstance(tranid, bytes | bytearray | memoryview) else tranid
    _context.resume(given.decode("ascii", "replace") if isinstance(given, bytes) else given)


def tpscmt(flags: int) -> int:
    """Set when tpcommit() returns in this thread, and return what was set before; at first it is TP_CMT_COMPLETE.

    TP_CMT_COMPLETE: when all volumes have committed their parts. TP_CMT_LOGGED: when it is decided and on the disk that
    they commit, though one may not be reached then; that an administrator ends its part otherwise may not be told. On
    one volume both are the same. The setting counts at the commit, also for a transaction that is open already.

    Fails with TPEINVAL if `flags` is neither.
    """
    control = _whole(flags, "flags")
    if control not in (TP_CMT_LOGGED, TP_CMT_COMPLETE):
        raise TPException(TPEINVAL, f"the flags must be TP_CMT_LOGGED or TP_CMT_COMPLETE, got {control:#x}")
    before, _context.commit_control = _context.commit_control, control
    return before


def tpgetlev() -> int:
    """Return 1 if this thread is in a transaction, otherwise 0."""
    return 0 if _context.transaction is None else 1


def tpsprio(prio: int, flags: int = 0) -> None:
    """Set the priority of the next message that this thread enqueues, unless its TPQCTL sets one.

    Without TPABSOLUTE in `flags`, `prio` is added to the default priority, 50, and the sum is limited to 1 to 100. With
    it, `prio` is the priority; outside that range the call fails with TPEINVAL.
    """
    flags, prio = _call_flags(flags, TPABSOLUTE), _whole(prio, "priority")
    least, most = PRIORITY_RANGE
    if not flags & TPABSOLUTE:
        prio = min(max(PRIORITY_DEFAULT + prio, least), most)
    elif not least <= prio <= most:
        raise TPException(TPEINVAL, f"the priority must be {least} to {most}, got {prio}")
    _context.set_priority(prio)


def tpenqueue(
    qspace: str, qname: str, ctl: TPQCTL | None, data: Buffer | str | None, flags: int = 0, *, kind: str | None = None
) -> None:
    """Put a message on queue `qname` of queue space `qspace`.

    `data` is a buffer of type STRING if it is a str, and of type CARRAY if it is bytes or any other buffer of Python,
    unless `kind` names another type, with a subtype after a colon if any, as in `VIEW:order`; None means a message
    without data. With TPQMSGID in `ctl.flags` its identifier is returned in `ctl.msgid`. A call that fails has enqueued
    nothing, unless it fails with TPETIME, which can mean that the outcome is unknown, and leaves `ctl` as it was except
    for the diagnostic.
    """
    asked = _control(ctl)
    with _diagnosed(qspace, asked):
        flags = _call_flags(flags, _ENQUEUE_FLAGS)
        _check_queue(qname)
        body, usual = _buffer(data)
        priority = _context.priority
        control = enqueue_control(
            asked, _kind(kind, usual), client=_context.client, appkey=_context.appkey, priority=priority
        )
        _await_writer(qspace, flags)
        msgid = _context.space(qspace).put(qname, body, control, transactional=not flags & TPNOTRAN)
    if priority is not None:
        _context.set_priority(None)
    asked.diagnostic = 0
    if asked.flags & TPQMSGID:
        asked.msgid = msgid.encode()


def tpdequeue(qspace: str, qname: str, ctl: TPQCTL | None, flags: int = 0, *, kind: str | None = None) -> bytes | None:
    """Take a message off queue `qname` of queue space `qspace` and return its data, None for a message without data.

    TPQGETBYMSGID and TPQGETBYCORRID in `ctl.flags` select a message, TPQWAIT waits for one, TPQPEEK, which requires
    TPNOTRAN, leaves it in the queue. The flags TPQPRIORITY, TPQMSGID, TPQCORRID, TPQREPLYQ, TPQFAILUREQ, TPQDELIVERYQOS
    and TPQREPLYQOS ask for the values that its sender gave; those for values that were not given are off afterwards,
    and flags that only apply to an enqueue are always off. `ctl.urcode`, `ctl.appkey` and `ctl.cltid` are always set.

    `kind` is used with TPNOCHANGE: the type that is expected, such as `STRING`, with a subtype after a colon if any.
    """
    asked = _control(ctl)
    with _diagnosed(qspace, asked):
        flags = _call_flags(flags, _DEQUEUE_FLAGS)
        _check_queue(qname)
        if flags & TPNOCHANGE and not isinstance(kind, str):
            raise TPException(TPEINVAL, f"TPNOCHANGE takes the type that is expected as `kind`, got {kind!r}")
        message = _Dequeue(qspace, qname, asked, flags, kind or "").run()
    fill(asked, message)
    return message.body


class _Dequeue:
    """One call of tpdequeue."""

    def __init__(self, qspace: str, qname: str, ctl: TPQCTL, flags: int, kind: str) -> None:
        self._control = dequeue_control(ctl)
        if self._control.peeks and not flags & TPNOTRAN:
            raise InvalidArgumentError("TPQPEEK requires TPNOTRAN", hint="A peek does not belong to a transaction.")
        _await_writer(qspace, flags)
        self._space = _context.space(qspace)
        self._qname = qname
        self._flags = flags
        self._kind = kind
        self._seconds, self._ends_with_transaction = self._wait_limit()

    def run(self) -> Message:
        """Return the message, or raise why there is none."""
        # A call that does not wait need not watch signals, which costs more than reading the queue.
        with _watched(self._flags if self._control.waits else TPSIGRSTRT, self._space.wake) as stop:
            message = self._find(stop)
            if message is not None:
                return message
            if not self._control.waits:
                raise NoMessageError(f"queue {self._qname!r} has no message that can be dequeued", queue=self._qname)
            if stop():
                raise TPException(TPGOTSIG, f"a signal arrived before a message on queue {self._qname!r}")
        if self._ends_with_transaction and _context.transaction is not None:
            _context.transaction.timed_out = True
        raise TPException(TPETIME, f"no message arrived on queue {self._qname!r} in time")

    def _wait_limit(self) -> tuple[float, bool]:
        """Return how long to wait, and whether that is the remaining time of the transaction."""
        if not self._control.waits:
            return 0.0, False
        present = _context.transaction
        left = math.inf if present is None else present.transaction.remaining()
        if present is not None and not self._flags & TPNOTRAN:
            return left, True
        return min(_context.timeout, left), left <= _context.timeout

    def _find(self, stop: Callable[[], bool]) -> Message | None:
        msgid, corrid = self._control.msgid, self._control.corrid
        if self._control.peeks:
            message = self._space.peek(self._qname, msgid=msgid, corrid=corrid, wait=self._seconds, stop=stop)
            if message is not None and self._flags & TPNOCHANGE:
                self._check_kind(message)
            return message
        transactional = not self._flags & TPNOTRAN
        if self._flags & TPNOCHANGE:
            return self._find_of_kind(stop, transactional=transactional)
        return self._space.dequeue(
            self._qname, msgid=msgid, corrid=corrid, wait=self._seconds, stop=stop, transactional=transactional
        )

    def _find_of_kind(self, stop: Callable[[], bool], *, transactional: bool) -> Message | None:
        """Lock the message before it is taken, so that one of another type is not touched."""
        present = _context.transaction
        if transactional and present is not None:
            try:
                return self._lock_and_take(stop)
            except TPException as error:
                present.transaction.note(error)
                raise
        own = _context.own_transaction(self._space)
        own.join_context()
        try:
            message = self._lock_and_take(stop)
            own.commit()
        finally:
            own.leave_context()
            if own.active:
                own.rollback()
        return message

    def _lock_and_take(self, stop: Callable[[], bool]) -> Message | None:
        found = self._space.lock(
            self._qname, msgid=self._control.msgid, corrid=self._control.corrid, wait=self._seconds, stop=stop
        )
        if found is None:
            return None
        self._check_kind(found)
        return self._space.dequeue(self._qname, msgid=found.msgid)

    def _check_kind(self, message: Message) -> None:
        found = f"{message.type}:{message.subtype}" if message.subtype else message.type
        if found != self._kind:
            raise TPException(TPEOTYPE, f"the message is of type {found}, and not {self._kind}")


@contextlib.contextmanager
def _diagnosed(qspace: str, ctl: TPQCTL) -> Iterator[None]:
    """Convert a diagnostic of the queue manager into a TPException."""
    try:
        yield
    except QueueError as error:
        if isinstance(error, BadResourceError):
            _context.forget(qspace)
        present = _context.transaction
        raise failure(error, ctl, time_is_over=present is not None and present.is_over) from error
    except TPException:
        ctl.diagnostic = 0
        raise


@contextlib.contextmanager
def _watched(flags: int, wake: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether a signal has to end the call; `wake` is called by the signal."""
    if flags & TPSIGRSTRT:
        yield lambda: False
        return
    with SignalWatch(wake) as watch:
        yield lambda: watch.seen


def _await_writer(qspace: str, flags: int) -> None:
    """Wait for another writer that blocks the file, unless the flags forbid it."""
    if flags & TPNOBLOCK:
        if not _context.comes_free(qspace, _NO_BLOCK_SECONDS):
            raise TPException(TPEBLOCK, f"queue space {qspace!r} is blocked by another writer")
    elif flags & TPNOTIME:
        with _watched(flags, lambda: None) as stop:
            while not _context.comes_free(qspace, _LOOK_SECONDS):
                if stop():
                    raise TPException(TPGOTSIG, f"a signal arrived while another writer blocked queue space {qspace!r}")


def _call_flags(given: object, allowed: int) -> int:
    """Return the flags of a call, given as any type of whole number."""
    flags = given if type(given) is int else _whole(given, "flags")
    if flags & ~allowed:
        raise TPException(TPEINVAL, f"the flags {flags & ~allowed:#x} are not allowed for this call")
    return flags


def _whole(given: object, what: str) -> int:
    number = None if isinstance(given, bool) else index_of(given)
    if number is None:
        raise TPException(TPEINVAL, f"the {what} must be a whole number, got {given!r}")
    return number


def _check_queue(qname: object) -> None:
    if not isinstance(qname, str):
        raise TPException(TPEINVAL, f"the queue must be named by a str, got {qname!r}")


def _control(ctl: object) -> TPQCTL:
    if ctl is None:
        return TPQCTL()
    if not isinstance(ctl, TPQCTL):
        raise TPException(TPEINVAL, f"the control structure must be a TPQCTL, got {ctl!r}")
    return ctl


def _kind(kind: object, usual: str) -> str:
    if kind is None:
        return usual
    if not isinstance(kind, str) or not kind.partition(":")[0]:
        raise TPException(TPEINVAL, f"the kind must be a type, or TYPE:SUBTYPE, got {kind!r}")
    return kind


def _buffer(data: object) -> tuple[bytes | None, str]:
    """Return the content of a buffer and its type."""
    if data is None or isinstance(data, bytes):
        return data, "CARRAY"
    if not isinstance(data, str):
        found = buffer_of(data)
        if found is None:
            raise TPException(
                TPEINVAL, f"the data must be bytes, another buffer, str or None, got {type(data).__name__}"
            )
        return bytes(found), "CARRAY"
    try:
        return names.encoded(data, "data"), "STRING"
    except InvalidArgumentError as error:
        raise TPException(TPEINVAL, str(error)) from error
