"""The decision on queue spaces in a transaction of the package `transaction`, which a session of SQLAlchemy takes.

It is a row in the database of the session, written when all queue spaces have voted, so that the commit of the session
is the decision, and recovery finds it there. zope.sqlalchemy commits in the vote of the session, behind all others.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from qmadmin.application_databases import refuse_unable, refuse_without_table
from qmadmin.opening import database_of
from qmadmin.over_volumes import in_memory
from qmadmin.participating import DecidingDatabase, ask
from qmadmin.recovering_databases import DatabaseRecovery
from qmadmin.recovery import recovery_of
from qmadmin.volume_makers import MEMORY
from qmcore.acts.deciding import Answer
from qmcore.errors import ProtocolError, QueueError, may_pass

if TYPE_CHECKING:
    from qmadmin.application_databases import KnownDatabase
    from qmadmin.attachment import Attachment
    from qmadmin.device import Device
    from qmcore.acts.deciding import Decider
    from qmcore.application_database import ApplicationDatabase
    from qmcore.two_phase import Era, Told
    from qmstorage.participating_session import ParticipatingSession

logger = logging.getLogger("qmadmin.transacting")

_WHY: Final = "its session is to decide"


class SessionDecision:
    """The decision of one transaction, as a data manager that votes between queue spaces and the session."""

    gtrid: bytes
    asked: Decider
    """What branches keep of the decider."""
    told: dict[bytes, Told]
    """The branches that have voted, by their qualifiers."""

    def __init__(self, session: ParticipatingSession, device: Device, transaction_manager: Any) -> None:
        """Take the session in the transaction that it has open, or begins now."""
        self.transaction_manager = transaction_manager
        self._its = session
        self.session = session.session
        self.told = {}
        self.followed: list[bytes] = []
        """The qualifiers of branches that are committed for good."""
        self._database = database_of(self.session)
        self._database.open(belongs=True)
        refuse_unable(self._database, _WHY)
        self._recovery = recovery_of(device)
        self._deciding: DecidingDatabase | None = None
        self._is_written = False
        self._outcome: bool | None = None
        self.is_over = False
        """Whether the transaction has ended, or has gone back to before."""

    def __repr__(self) -> str:
        return f"<decision of {self.session!r} on database {self._database.name!r}>"

    def admit(self, attachment: Attachment) -> None:
        """Have the session decide on a branch in a queue space, too; refuse it where it cannot."""
        path = attachment.volume.path
        if path == MEMORY:
            raise in_memory()
        known = self._recovery.databases.get(self._database.name)
        # Other threads may find out any time that it was set back.
        era = None if known is None else known.era
        if known is None or era is None or _is_behind(known, era) or path not in known.volumes:
            known, era = self._asked_beside(attachment)
        if known.volumes[path]:
            raise ProtocolError(
                f"queue space {attachment.opened.space.name!r} is in database {self._database.name!r}, whose session is"
                " to decide: both are one database transaction, in which nobody votes",
                hint="Leave out join(), give the calls connection=session, and call zope.sqlalchemy.mark_changed.",
            )
        if self._deciding is None:
            self._deciding = DecidingDatabase(self._database, known, era, known.clock.now())
            self.gtrid, self.asked = self._deciding.gtrid, self._deciding.begin()

    # ---- a data manager of the package -------------------------------------------------------------------------------

    def sortKey(self) -> str:  # noqa: N802 - the package's name
        """Return what it is sorted by: behind queue spaces, and before zope.sqlalchemy's "~sqlalchemy"."""
        return f"~qmadmin:{self._database.name}"

    def should_retry(self, error: BaseException) -> bool:
        """Return whether the transaction may succeed if it is tried again soon."""
        return isinstance(error, QueueError) and may_pass(error)

    def tpc_begin(self, _its: object) -> None:
        """Begin to commit; nothing is to be done yet."""

    def commit(self, _its: object) -> None:
        """Send what was changed: nothing before the vote."""

    def tpc_vote(self, _its: object) -> None:
        """Write the decision into the session, where any queue space has changed anything."""
        if not self.told:
            return
        deciding = self._deciding
        assert deciding is not None  # noqa: S101 - a branch was admitted
        self._its.listen()
        self._is_written = True
        deciding.write(self.asked, list(self.told.values()))

    def tpc_finish(self, _its: object) -> None:
        """Note that it was decided, and have recovery look, now that the session has ended."""
        self._end()

    def tpc_abort(self, its: object) -> None:
        """Roll back what is not decided."""
        self.abort(its)

    def abort(self, _its: object) -> None:
        """Roll back what is not decided."""
        self.decided()
        self._end()

    def savepoint(self) -> SessionDecision:
        """Return where it is now: there is nothing to undo before the vote."""
        return self

    def rollback(self) -> None:
        """Undo nothing."""

    # ---- what was decided --------------------------------------------------------------------------------------------

    def check_decided(self) -> None:
        """Refuse an end where all have voted and the session has not committed."""
        if self._its.is_sent:
            if self._outcome is None:
                self._database.sync_committed()
            self._outcome = True
        elif self._is_written and not self.is_over:
            raise ProtocolError(
                "the session has not committed with the transaction, and decides nothing: what other data managers have"
                " committed stays, and the queue spaces roll back",
                hint="Register it with zope.sqlalchemy for the same transaction manager, and give it an engine.",
            )

    def decided(self) -> bool | None:
        """Return whether the session has committed; None where nobody knows. What is not decided never will be."""
        if self._outcome is None and not self.is_over:
            self._outcome = self._found_out()
        return self._outcome

    def _found_out(self) -> bool | None:
        if not self._is_written:
            return False
        self._its.roll_back()
        if not self._its.is_sent:
            return False
        known = self._recovery.databases[self._database.name]
        try:
            with self._beside() as database:
                answer = ask(database, known, {self.gtrid: self.asked})[self.gtrid]
        except QueueError as error:
            logger.warning(
                "it is unknown whether transaction %s is committed, and its branches wait for qmadmin.recover: %s",
                self.gtrid.hex(),
                error,
            )
            return None
        return {Answer.COMMITTED: True, Answer.ROLLED_BACK: False}.get(answer)

    def _end(self) -> None:
        """Have what was decided forgotten, once all branches have followed, and end what others have left."""
        if self.is_over or self._deciding is None:
            return
        self.is_over = True
        if self._outcome:
            self._deciding.count(self.asked)
            self._deciding.note(self.followed)
        known = self._recovery.databases[self._database.name]
        if not self.session.in_transaction() and known.is_round_due():
            with contextlib.suppress(QueueError), self._beside() as database:
                self._recover(database, known)

    # ---- beside the session ------------------------------------------------------------------------------------------

    def _asked_beside(self, attachment: Attachment) -> tuple[KnownDatabase, Era]:
        """Ask the database what has to be known of it before a branch begins."""
        try:
            with self._beside(is_open=True) as database:
                known = self._recovery.known(database)
                refuse_without_table(database, known, _WHY)
                era = known.current_era(database)
                known.volumes[attachment.volume.path] = database.is_of(attachment.volume)
                if known.is_round_due():
                    self._recover(database, known)
        except QueueError as error:
            if not self._its.was_open or error.unreachable or isinstance(error, ProtocolError):
                raise
            raise ProtocolError(
                f"database {self._database.name!r} cannot be asked beside the session: {error}",
                hint="Join before the session has written anything.",
            ) from error
        return known, era

    def _recover(self, database: ApplicationDatabase, known: KnownDatabase) -> None:
        try:
            DatabaseRecovery(database, {database.name: known}, [database]).run_beside_work()
        except QueueError as error:
            logger.info("recovery with database %r goes on later: %s", database.name, error)

    @contextlib.contextmanager
    def _beside(self, *, is_open: bool = False) -> Iterator[ApplicationDatabase]:
        """Give the database on another connection than that of the session."""
        with self._its.beside(is_open=is_open) as connection:
            database = database_of(connection)
            database.open()
            try:
                yield database
            finally:
                database.roll_back()


def _is_behind(known: KnownDatabase, era: Era) -> bool:
    """Return whether a database has to be asked before it can decide."""
    return known.is_outdated or known.clock.now() >= era.until_us or not known.facts.table
