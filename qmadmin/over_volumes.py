"""The commit of a transaction that has parts on several volumes, or in databases of the application."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from qmcore.acts.returning import Cause, Ending, cause_of
from qmcore.errors import AbortedError, InvalidArgumentError, OutcomeUnknownError

if TYPE_CHECKING:
    from typing import Any

    from qmadmin.application_databases import Databases
    from qmadmin.attachment import Attachment
    from qmadmin.coordinating import Coordinator
    from qmadmin.device import Device
    from qmcore.acts.deciding import Place
    from qmcore.acts.transaction_part import Branch


class OverVolumes:
    """The part of a transaction that commits it where several volumes have a part in it."""

    # What it uses of the transaction.
    _device: Device
    _branches: dict[Place, tuple[Attachment, Branch]]
    _ended: str
    _roll_back: Callable[[Ending], None]
    _put_off: Callable[[Ending], list[Callable[[], None]]]
    remaining: Callable[[], float]
    thread: int
    _pid: int
    _check_usable: Callable[[], None]

    _decider: Attachment | None = None
    """The queue space that is to decide, where the application wants another one than the first."""
    _completes = False
    """Whether the commit waits until all branches are committed, which may be after the decision."""
    _coordinator: Coordinator | None = None
    """What has the branches that are still to be committed."""
    databases: Databases | None = None
    """The databases of the application that take part."""

    @property
    def is_here(self) -> bool:
        """Whether the transaction belongs to this thread."""
        return self.thread == threading.get_ident()

    @property
    def complete(self) -> bool:
        """Whether it is committed on all volumes that have a part in it.

        After a commit over several ones a branch that could not be reached follows later, by itself.
        """
        coordinator = self._coordinator
        return self._ended == "committed" and (coordinator is None or coordinator.is_complete)

    def wait_until_complete(self, seconds: float) -> bool:
        """Commit, after the commit, what could not be reached then, within the seconds; return whether it is complete.

        Raises HeuristicError where an administrator has ended a branch otherwise than it was decided.
        """
        return self.complete or (self._coordinator is not None and self._coordinator.complete(seconds))

    def connection(self, attachment: Attachment) -> Any:
        """Return the connection on which the calls on a queue space are done, which is in its database; else None."""
        if self.databases is None:
            return None
        self._check_usable()
        return self.databases.connection_for(attachment)

    def _commit_over_volumes(self) -> None:
        """Commit where several volumes have a part in it; what happens after the decision changes nothing."""
        from qmadmin.coordinating import Coordinator, Stage

        coordinator = None
        try:
            its = list(self._branches.values()), self._device.side_threads, self._decider, self.databases
            coordinator = Coordinator(*its)
            self._coordinator = coordinator
            coordinator.commit()
            self._ended = "committed"
            if self._completes:
                self.wait_until_complete(self.remaining())
        except BaseException as error:
            if coordinator is None or coordinator.stage is Stage.OPEN:
                self._fail(error)
                if coordinator is not None and coordinator.gtrid and isinstance(error, OutcomeUnknownError):
                    # Whether a branch was prepared is unknown; that nobody has decided to commit it is not.
                    raise _nothing_remains(error) from error
            elif coordinator.stage is Stage.DECIDED:
                self._ended = "committed"
            else:
                self._ended = "left in doubt"
                # As soon as the decider can be reached its branch is ended there, unless it is decided by then.
                self._put_off(Ending(Cause.UNTRIED))
            raise

    def _fail(self, error: BaseException) -> None:
        """Roll back after an error by which the end was refused."""
        if isinstance(error, AbortedError):
            for attachment, _ in self._branches.values():
                attachment.renew(error)
        ending = None if self.databases is None else self.databases.ending_after(error)
        self._roll_back(ending or Ending(cause_of(error), str(error)))

    def _roll_back_databases(self) -> None:
        """Roll back what the databases have open that take part; of what is prepared, unless it may be decided."""
        # The connection of a forked process is that of its parent, which goes on with it.
        if self.databases is not None and self._pid == os.getpid():
            from qmadmin.coordinating import Stage

            is_open = self._coordinator is None or self._coordinator.stage is Stage.OPEN
            self.databases.roll_back(prepared=is_open)

    def _databases_let_go(self, databases: Databases) -> bool:
        """Roll the databases back, in the thread that uses them; return whether queue spaces can be rolled back now.

        Where one has a queue space in it, nobody else can write there before: another thread, which has given the
        transaction up, leaves that to the housekeeping and goes on with what else it looks after.
        """
        if self.is_here:
            self._roll_back_databases()
        return self.is_here or not databases.has_queue_space

    def _undecided(self) -> Collection[tuple[Attachment, Branch]]:
        """Return the branches that a rollback still may end: none that may be committed."""
        if self._coordinator is None:
            return self._branches.values()
        return self._coordinator.undecided


def are_apart(parts: Iterable[tuple[Attachment, Branch]]) -> bool:
    """Return whether the parts of a transaction are on several volumes."""
    return len({attachment.volume.path for attachment, _ in parts}) > 1


def in_memory() -> InvalidArgumentError:
    """Return the diagnostic for a device in memory among several resources."""
    return InvalidArgumentError(
        "a device in memory takes no part in a transaction with other devices or databases, as it is gone with its"
        " process",
        hint="Use a device on a file.",
    )


def taken_twice(what: str) -> InvalidArgumentError:
    """Return the diagnostic for one of several resources that is named twice, or is the same as another one."""
    return InvalidArgumentError(f"{what} takes part in the transaction twice")


def _nothing_remains(error: OutcomeUnknownError) -> AbortedError:
    """Return what a commit raises where a step before the decision failed, whether that was done or not."""
    where = f"on device {error.path!r} " if error.path else ""
    return AbortedError(
        f"the transaction was rolled back, and nothing of it remains: its preparation {where}failed"
        f" ({error.__cause__ or error})",
        hint="Check the disk or the connection, open the device again if it is refused, and repeat the transaction.",
        of_the_store=True,
        **error.facts,
    )
