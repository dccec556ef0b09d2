"""Transactions of applications that calls have joined: what is to be done once one is committed, and whose it is."""

from __future__ import annotations

import dataclasses
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from qmcore.callers import caller
from qmcore.errors import QueueError
from qmstorage.notifications import Notifications

if TYPE_CHECKING:
    from qmstorage.joined import Joined

_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.01, 1.0
"""Seconds between two checks whether a transaction of the application has ended, at first and at last."""


@dataclasses.dataclass
class Pending:
    """What is to be done once a transaction is committed, whose number is known on some stores."""

    notifications: Notifications = dataclasses.field(default_factory=Notifications)
    actions: list[Callable[[], None]] = dataclasses.field(default_factory=list)
    number: str = ""
    is_committing: bool = False
    """Whether its commit is under way, and not only awaited."""

    def __bool__(self) -> bool:
        return bool(self.notifications.turns or self.actions)


class AwaitedCommit(Protocol):
    """What is to be called after a commit."""

    @property
    def is_to_come(self) -> bool:
        """Whether it has not been committed yet."""


class ApplicationTransaction:
    """The transaction on one connection of an application, and after its end the next one on that."""

    def __init__(self, transactions: ApplicationTransactions) -> None:
        self._transactions = transactions
        self._pending = Pending()
        self.is_told_of_the_end = False
        self.caller: object = None
        """The thread or the task that has worked in a transaction which, as far as is known, is still open."""
        self.driver: Callable[[], Any] | None = None
        """Returns the driver's connection that it is on, or nothing once there is none; unknown for a bare sqlite3."""
        self.awaited: weakref.ref[AwaitedCommit] | None = None
        """What a library keeps until the end of the transaction."""
        self.checked: weakref.ref[Any] | None = None
        """The driver's connection of which it is known where it leads to: a library may take another one."""
        self.has_begun = False
        """Whether we made the driver begin the transaction."""

    def note(self, notifications: Notifications, actions: list[Callable[[], None]], number: str = "") -> None:
        """Remember what a unit has to have done once it is committed."""
        self._pending.notifications.add(notifications)
        self._pending.actions += actions
        self._pending.number = number or self._pending.number

    def add(self, action: Callable[[], None]) -> None:
        """Remember what else is to be done then."""
        self._pending.actions.append(action)

    def commits(self, driver: object, roll_back: Callable[[], None]) -> None:
        """Take notice that it is about to be committed: what is to be done waits until it is."""
        is_joined, pending = self.caller is not None, self.forget()
        if is_joined:
            self._transactions.refuse_commit(driver, roll_back)
        if pending:
            pending.is_committing = True
            self._transactions.wait_and_finish(pending)

    def committed(self) -> None:
        """Do what is to be done now that it is committed."""
        if pending := self.forget():
            self._transactions.finish_if_possible(pending)

    def watch(self) -> None:
        """Wait for an end that nobody tells of, if there is a capacity command to start; waiters look by themselves."""
        pending, self._pending = self._pending, Pending(number=self._pending.number)
        if pending.actions:
            # Whether it was committed is seen when it is over: the claim of the command is there or not.
            pending.notifications = Notifications()
            self._transactions.wait_and_finish(pending)

    def forget(self) -> Pending:
        """Forget the transaction, which has ended; return what was to be done."""
        pending, self._pending = self._pending, Pending()
        self.caller, self.awaited, self.has_begun = None, None, False
        return pending

    @property
    def tells_of_its_end(self) -> bool:
        """Whether a library has not told of the end, and would have."""
        awaited = None if self.awaited is None else self.awaited()
        return self.is_told_of_the_end or (awaited is not None and awaited.is_to_come)


class ApplicationTransactions(ABC):
    """The transactions of applications that work with a volume; how they end is the affair of each store."""

    def __init__(self) -> None:
        self._by_handle: weakref.WeakKeyDictionary[object, ApplicationTransaction] = weakref.WeakKeyDictionary()
        self._changing = threading.Lock()
        # A connection of sqlite3 cannot be referred to, and to hold it would keep its transaction open.
        self._here = threading.local()

    def of(self, joined: Joined) -> ApplicationTransaction:
        """Return the transaction of a connection. Whoever has worked in it notes the caller."""
        if joined.handle is None:
            found: ApplicationTransaction | None = getattr(self._here, "transaction", None)
            if found is None:
                found = self._here.transaction = ApplicationTransaction(self)
        else:
            with self._changing:
                found = self._by_handle.get(joined.handle)
                if found is None:
                    found = self._by_handle[joined.handle] = ApplicationTransaction(self)
                    found.is_told_of_the_end = joined.is_told_of_the_end
                    found.driver = joined.reference()
                    joined.listen(found)
        return found

    def is_joined_here(self) -> bool:
        """Return whether this thread, or the task that it works for, has worked in a transaction that is still open."""
        here = caller()
        with self._changing:
            its = [one for one in self._by_handle.values() if one.caller == here]
        found = getattr(self._here, "transaction", None)
        if found is not None and found.caller is not None:
            its.append(found)
        for transaction in its:
            if self.is_open(transaction):
                return True
            transaction.forget()
        return False

    def wait_and_finish(self, pending: Pending) -> None:
        """Do what is to be done once the transaction is over."""
        threading.Thread(target=self._follow, args=(pending,), name="qmadmin-follow", daemon=True).start()

    def _follow(self, pending: Pending) -> None:
        pause = _PAUSE_SECONDS
        try:
            while self.is_in_progress(pending):
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        except QueueError:
            # Housekeeping starts what was claimed, once this process has left the queue space.
            return
        self.finish_if_possible(pending)

    def finish_if_possible(self, pending: Pending) -> None:
        """Do what is to be done."""
        try:
            self.finish(pending)
            for action in pending.actions:
                action()
        except QueueError:
            # Waiters check by themselves within a second, and housekeeping starts what was claimed.
            return

    # ---- of each store -----------------------------------------------------------------------------------------------

    def refuse_commit(  # noqa: B027 - not every store would undo one
        self, driver: object, roll_back: Callable[[], None]
    ) -> None:
        """Roll back, and raise, where the commit on a driver's connection would undo what it was to commit."""

    def finish(self, pending: Pending) -> None:  # noqa: B027 - a store may tell them with the commit itself
        """Tell the waiters."""

    @abstractmethod
    def is_open(self, transaction: ApplicationTransaction) -> bool:
        """Return whether a transaction of this thread is still open, as its driver says: whoever has ended it."""

    @abstractmethod
    def is_in_progress(self, pending: Pending) -> bool:
        """Return whether the transaction has not ended yet."""
