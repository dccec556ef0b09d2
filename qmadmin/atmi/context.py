"""The context of ATMI's calls, which have no handles: the device, queue spaces, and transactions in use."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Self

from qmadmin.atmi.control import LONG_RANGE, TPTRANID
from qmadmin.atmi.errno import (
    TPEABORT,
    TPEHAZARD,
    TPEINVAL,
    TPENOENT,
    TPEPROTO,
    TPETIME,
    TPException,
    failure_to_commit,
    failure_to_join,
    failure_to_resume,
    failure_to_suspend,
)
from qmadmin.device import Device
from qmadmin.opening import open_device
from qmadmin.space import QueueSpace
from qmadmin.transacting import Transaction
from qmadmin.volume_makers import path_of
from qmcore import names
from qmcore.checks import check_int, flag_of, number_of
from qmcore.errors import AbortedError, InvalidArgumentError, NotSuspendedError, QueueError
from qmcore.suspension import Token

ALIASES: Final = "QMALIASES"
"""The environment variable with other names of queue spaces, as in `TMQUEUE=QSPACE,BILLS=QSPACE2`."""
TP_CMT_LOGGED: Final = 0x01
TP_CMT_COMPLETE: Final = 0x02
OPERATION_SECONDS: Final = 30.0
"""How many seconds TPQWAIT waits outside a transaction by default, as with TMQUEUE."""


@dataclasses.dataclass(slots=True)
class OpenTransaction:
    """The transaction of a thread. `timed_out`: a wait has ended because the time of the transaction was over."""

    device: Device
    transaction: Transaction
    timed_out: bool = False

    @property
    def is_over(self) -> bool:
        """Whether its timeout has passed, so that it can only be aborted."""
        return self.timed_out or self.transaction.remaining() <= 0

    def commit(self, patience: float | None) -> None:
        """Commit it; with `patience` wait until that is complete, for so many seconds where it has no limit itself.

        Raises TPException where it is not committed, or not all of it.
        """
        try:
            if self.timed_out and self.transaction.active:
                self.transaction.rollback("its time was over")
                raise TPException(TPEABORT, "the transaction was rolled back: its time was over")
            self.transaction.commit()
            if patience is None:
                return
            left = self.transaction.remaining()
            is_complete = self.transaction.wait_until_complete(patience if left == math.inf else left)
        except QueueError as error:
            raise failure_to_commit(error) from error
        if not is_complete:
            raise TPException(
                TPEHAZARD,
                "the transaction is committed, but a queue space that has a part in it could not be told in time; it"
                " follows by itself, unless an administrator has ended that part otherwise",
            )

    def roll_back(self, reason: str = "") -> None:
        """Roll it back, unless that is done."""
        if self.transaction.active:
            self.transaction.rollback(reason)


class Context:
    """The context of a process: its device, its open queue spaces, its identity, and the transaction of each thread.

    A forked process stays joined, and is in no transaction: that is its parent's.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._device: Device | None = None
        self._named = ""
        self._spaces: dict[str, QueueSpace] = {}
        self._aliases: dict[str, str] = {}
        self._kept: dict[Token, OpenTransaction] = {}
        """Suspended transactions that have done nothing yet."""
        self._resumed_in: dict[str, QueueSpace] = {}
        """Queue spaces that are open because a transaction was resumed in them."""
        self._local = threading.local()
        self.timeout = OPERATION_SECONDS
        self.client = ""
        self.appkey = 0
        os.register_at_fork(after_in_child=self._begin_in_child)

    @property
    def transaction(self) -> OpenTransaction | None:
        """The transaction of this thread."""
        found: OpenTransaction | None = getattr(self._local, "transaction", None)
        return found

    def join(self, device: str | os.PathLike[str] | None) -> None:
        """Open the device, by default that of QMCONFIG; joining the same one again is not an error."""
        named = _path_of(device)
        with self._lock:
            if self._device is None:
                path = named or os.environ.get("QMCONFIG")
                if not path:
                    raise TPException(TPEINVAL, "no device is named, and QMCONFIG is not set")
                self._aliases = _aliases(os.environ.get(ALIASES, ""))
                try:
                    self._device = open_device(path)
                except QueueError as error:
                    raise failure_to_join(error) from error
                self._named = _called(path)
            elif named and _called(named) != self._named:
                raise TPException(TPEPROTO, f"device {self._named!r} is joined already; call tpterm() first")

    def set_timeout(self, timeout: object) -> None:
        """Set how many seconds TPQWAIT waits outside a transaction."""
        seconds = _seconds(timeout)
        if not seconds >= 0:
            raise TPException(TPEINVAL, f"the timeout must be a number of seconds, 0 or more, got {timeout!r}")
        self.timeout = float(seconds)

    def set_client(self, client: str | None, appkey: int | None) -> None:
        """Set the identity of the client, which the messages of this process carry."""
        try:
            if client is not None:
                self.client = names.queue_name(client, "client identifier") if client != "" else ""
            if appkey is not None:
                self.appkey = check_int(appkey, "application key", *LONG_RANGE)
        except InvalidArgumentError as error:
            raise failure_to_join(error) from error

    def leave(self) -> None:
        """Close everything, and forget the identity of the client."""
        with self._lock:
            device, self._device = self._device, None
            for kept in (self._spaces, self._kept, self._resumed_in):
                kept.clear()
            self.timeout, self.client, self.appkey = OPERATION_SECONDS, "", 0
            self.set_priority(None)
            self.commit_control = TP_CMT_COMPLETE
            if device is not None:
                device.close()

    def begin(self, timeout: object) -> None:
        """Begin a transaction of this thread; 0 seconds means no limit."""
        seconds = _seconds(timeout)
        device = self._joined()
        try:
            transaction = Transaction(device, seconds or None)
        except QueueError as error:
            raise failure_to_join(error) from error
        transaction.join_context()
        self._local.transaction = OpenTransaction(device, transaction)

    def suspend(self) -> str:
        """Suspend the transaction of this thread, and return its token; the thread has none from then on."""
        present = self._present("tpsuspend")
        if present.is_over:
            self.end("tpsuspend").roll_back("its time was over")
            raise TPException(TPEABORT, "the transaction was rolled back: its time was over")
        if present.transaction.is_untouched:
            return self._keep(self.end("tpsuspend"))
        try:
            token = present.transaction.suspend()
        except QueueError as error:
            if isinstance(error, AbortedError):
                self.end("tpsuspend").roll_back()
            raise failure_to_suspend(error) from error
        self._local.transaction = None
        return token

    def resume(self, token: object) -> None:
        """Go on with a suspended transaction in this thread."""
        if self.transaction is not None:
            raise TPException(TPEPROTO, "tpresume() was called inside a transaction")
        try:
            wanted = Token.of(str(token) if isinstance(token, TPTRANID) else token)
            found = self._taken_over(wanted) if wanted.parts else self._given_back(wanted)
        except QueueError as error:
            raise failure_to_resume(error) from error
        found.transaction.join_context()
        self._local.transaction = found

    def end(self, call: str) -> OpenTransaction:
        """Return the transaction of this thread, which has none from now on."""
        found = self._present(call)
        found.transaction.leave_context()
        self._local.transaction = None
        return found

    def space(self, name: str) -> QueueSpace:
        """Return an open queue space for a call of this thread.

        Raises TPException if it does not exist, or if the transaction of this thread can only be aborted; QueueError if
        it cannot be opened for another reason.
        """
        self._check_call(name)
        with self._lock:
            if name not in self._spaces:
                with _tpenoent():
                    device = self._joined()
                    self._spaces[name] = device.open_space(self._aliases.get(name, name))
            return self._spaces[name]

    def comes_free(self, name: str, seconds: float) -> bool:
        """Return whether the queue space could be written within the seconds; raises as `space` does."""
        self._check_call(name)
        with _tpenoent():
            device = self._joined()
            return device.comes_free(self._aliases.get(name, name), seconds)

    def forget(self, name: str) -> None:
        """Open a queue space again at its next use: the one that was open is gone."""
        with self._lock:
            self._spaces.pop(name, None)

    def set_priority(self, priority: int | None) -> None:
        """Set the priority of the next message that this thread enqueues; None is that of any other."""
        self._local.priority = priority

    @property
    def commit_control(self) -> int:
        """When tpcommit() returns in this thread, as set by tpscmt()."""
        found: int = getattr(self._local, "commit_control", TP_CMT_COMPLETE)
        return found

    @commit_control.setter
    def commit_control(self, control: int) -> None:
        self._local.commit_control = control

    @property
    def priority(self) -> int | None:
        """The priority of the next message that this thread enqueues, as set by tpsprio()."""
        found: int | None = getattr(self._local, "priority", None)
        return found

    def own_transaction(self, space: QueueSpace) -> Transaction:
        """Return a transaction on a queue space that is independent of the one of this thread."""
        return Transaction(self._joined(), None, space.name)

    def _present(self, call: str) -> OpenTransaction:
        found = self.transaction
        if found is None:
            raise TPException(TPEPROTO, f"{call}() was called outside a transaction")
        return found

    def _keep(self, untouched: OpenTransaction) -> str:
        """Keep a suspended transaction that no queue space knows yet."""
        token = Token.new(())
        with self._lock:
            self._kept[token] = untouched
        return str(token)

    def _given_back(self, token: Token) -> OpenTransaction:
        with self._lock:
            found = self._kept.pop(token, None)
        if found is None:
            raise NotSuspendedError(
                "the suspended transaction had done nothing yet, and was resumed already, or is another process's",
                hint="One that has used a queue space can be resumed in another process.",
            )
        if found.is_over:
            raise NotSuspendedError("the suspended transaction is over: its timeout passed")
        found.transaction.thread = threading.get_ident()
        return found

    def _taken_over(self, token: Token) -> OpenTransaction:
        """Return the transaction that queue spaces know, which is this thread's from now on."""
        device = self._joined()
        present = {space.incarnation: space.name for space in device.spaces()}
        lacking = [incarnation for incarnation, _ in token.parts if incarnation not in present]
        if lacking:
            raise NotSuspendedError(
                f"the suspended transaction has messages in a queue space that device {device.path!r} does not have",
                hint="Join the device, with tpinit(), on which it was suspended.",
            )
        named = [present[incarnation] for incarnation, _ in token.parts]
        with self._lock:
            for name in named:
                if name not in self._resumed_in:
                    self._resumed_in[name] = device.open_space(name)
        transaction = Transaction(device, None)
        transaction.take_over([device.attachment(name, "application") for name in named], token)
        return OpenTransaction(device, transaction)

    def _joined(self) -> Device:
        self.join(None)
        assert self._device is not None  # noqa: S101 - joined above
        return self._device

    def _check_call(self, name: object) -> None:
        if not isinstance(name, str) or not name:
            raise TPException(TPEINVAL, f"the queue space must be named by a str, got {name!r}")
        present = self.transaction
        if present is None:
            return
        if present.device is not self._device:
            raise TPException(TPEPROTO, "the transaction of this thread ended when another one called tpterm()")
        if present.is_over:
            raise TPException(TPETIME, "the time of the transaction is over; it can only be aborted")

    def _begin_in_child(self) -> None:
        self._lock = threading.RLock()
        self._kept.clear()
        if self.transaction is not None:
            self.end("fork")


@contextlib.contextmanager
def _tpenoent() -> Iterator[None]:
    """Refuse a name that no queue space can have as one that does not exist."""
    try:
        yield
    except InvalidArgumentError as error:
        raise TPException(TPENOENT, str(error)) from error


def _aliases(text: str) -> dict[str, str]:
    """Return the queue spaces by their aliases in the environment."""
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        alias, sign, name = (word.strip() for word in part.partition("="))
        if not (alias and sign and name):
            raise TPException(TPEINVAL, f"{ALIASES} must be of the form ALIAS=QSPACE[,ALIAS=QSPACE...], got {text!r}")
        if found.setdefault(alias, name) != name:
            raise TPException(
                TPEINVAL, f"{ALIASES} names two queue spaces for {alias!r}: {found[alias]!r} and {name!r}"
            )
    return found


def _called(device: str) -> str:
    """Return the name of a device, given in any form."""
    try:
        return path_of(device)
    except QueueError as error:
        raise failure_to_join(error) from error


def _path_of(device: object) -> str:
    if device is None:
        return ""
    try:
        path = os.fspath(device)  # type: ignore[call-overload]
    except TypeError:
        path = None
    if not isinstance(path, str) or not path:
        raise TPException(TPEINVAL, f"the device must be named by a path, got {device!r}")
    return path


def _seconds(timeout: object) -> float:
    """Return the seconds of a timeout, which may be a number of any type or a timedelta."""
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else number_of(timeout)
    if seconds is None or flag_of(timeout) is not None:
        raise TPException(TPEINVAL, f"the timeout must be a number of seconds, or a timedelta, got {timeout!r}")
    return seconds


if TYPE_CHECKING:
    Handler = Callable[[int, FrameType | None], Any]


class SignalWatch:
    """Notices the signals that this program handles: `seen` is true from the first on, and `wake` is called.

    The handlers run as they would without it, and their exceptions are passed on. Only the main thread gets signals; in
    others `seen` stays false. A signal that is ignored, or has no handler, interrupts nothing.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.seen = False
        self._wake = wake
        self._handlers: dict[int, Handler] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            try:
                self._watch()
            except BaseException:
                self._give_back()
                raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._give_back()

    def _watch(self) -> None:
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
                signal.signal(number, self._handle)

    def _give_back(self) -> None:
        for number, handler in self._handlers.items():
            # A handler may have replaced itself.
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.seen = True
        self._handlers[number](number, frame)
        with contextlib.suppress(QueueError):
            self._wake()
