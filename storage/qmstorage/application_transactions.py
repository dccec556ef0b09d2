"""Transactions of applications that calls have joined: who works in them, whether they are open, and their ends."""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from qmcore.callers import caller
from qmcore.errors import QueueError
from qmstorage.after_commit import CommitFollower, Owed
from qmstorage.notifications import Notifications

if TYPE_CHECKING:
    from qmstorage.joined import Joined


class CommitHook(Protocol):
    """What a library is to call after a commit, and drops with a rollback."""

    @property
    def is_to_come(self) -> bool:
        """Whether it has not been committed yet."""


class ApplicationTransaction:
    """The transaction on one connection of an application, and after its end the next one on that."""

    def __init__(self, transactions: ApplicationTransactions) -> None:
        self._transactions = transactions
        self._owed = Owed()
        self.announces_its_end = False
        """Whether the library tells of each end, a rollback too."""
        self.caller: object = None
        """The thread or the task that has worked in a transaction which, as far as is known, is still open."""
        self.driver: Callable[[], Any] | None = None
        """Returns the driver's connection that it is on, or nothing once there is none; unknown for a bare sqlite3."""
        self.commit_hook: weakref.ref[CommitHook] | None = None
        """What a library keeps until the end of the transaction."""
        self.checked_driver: weakref.ref[Any] | None = None
        """The driver's connection of which it is known where it leads to: a library may take another one."""
        self.driver_begun_by_us = False
        """Whether we made the driver begin the transaction."""

    def owe(self, notifications: Notifications, actions: list[Callable[[], None]], number: str = "") -> None:
        """Remember what a unit has to have done once it is committed."""
        self._owed.notifications.add(notifications)
        self._owed.actions += actions
        self._owed.number = number or self._owed.number

    def owe_action(self, action: Callable[[], None]) -> None:
        """Remember what else is to be done then."""
        self._owed.actions.append(action)

    def before_commit(self, driver: object, roll_back: Callable[[], None]) -> None:
        """Take notice that it is about to be committed: what is owed waits until it is."""
        is_joined, owed = self.caller is not None, self.end()
        if is_joined:
            self._transactions.refuse_commit(driver, roll_back)
        if owed:
            owed.is_committing = True
            self._transactions.follower.follow(owed)

    def after_commit(self) -> None:
        """Do what is owed now that it is committed."""
        if owed := self.end():
            self._transactions.settle(owed)

    def follow_silent_end(self) -> None:
        """Wait for an end that nobody tells of, if there is a capacity command to start; waiters look by themselves."""
        owed, self._owed = self._owed, Owed(number=self._owed.number)
        if owed.actions:
            # Whether it was committed is seen when it is over: the claim of the command is there or not.
            owed.notifications = Notifications()
            self._transactions.follower.follow(owed)

    def end(self) -> Owed:
        """Forget the transaction, which has ended; return what is owed if it was committed."""
        owed, self._owed = self._owed, Owed()
        self.caller, self.commit_hook, self.driver_begun_by_us = None, None, False
        return owed

    @property
    def is_open_to_its_library(self) -> bool:
        """Whether a library has not told of the end, and would have."""
        hook = None if self.commit_hook is None else self.commit_hook()
        return self.announces_its_end or (hook is not None and hook.is_to_come)


class ApplicationTransactions(ABC):
    """The transactions of applications that work with a volume; how they end is the affair of each store."""

    def __init__(self) -> None:
        self.follower = CommitFollower(self.is_in_progress, self.settle)
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
                    found.announces_its_end = joined.announces_ends
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
            transaction.end()
        return False

    def settle(self, owed: Owed) -> None:
        """Do what is owed after a commit."""
        try:
            if owed.notifications.turns:
                self.wake(owed.notifications)
            for action in owed.actions:
                action()
        except QueueError:
            # Waiters check by themselves within a second, and housekeeping starts what was claimed.
            return

    # ---- of each store -----------------------------------------------------------------------------------------------

    def refuse_commit(  # noqa: B027 - not every store would undo one
        self, driver: object, roll_back: Callable[[], None]
    ) -> None:
        """Roll back, and raise, where the commit on a driver's connection would undo what it was to commit."""

    def wake(self, notifications: Notifications) -> None:  # noqa: B027 - a store may do so with the commit itself
        """Wake the waiters."""

    @abstractmethod
    def is_open(self, transaction: ApplicationTransaction) -> bool:
        """Return whether a transaction of this thread is still open, as its driver says: whoever has ended it."""

    @abstractmethod
    def is_in_progress(self, owed: Owed) -> bool:
        """Return whether the transaction has not ended yet."""
