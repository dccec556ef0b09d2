"""The commit of a transaction over several resources: its branches prepare, one decides, and the others follow.

The participant that decides is not prepared. Its commit contains the decision, so that the coordinator needs no log of
its own, and a transaction over n volumes takes n syncs, of which those of the prepares run beside each other. What its
process leaves undone, recovery does (`qmadmin/recovery.py`): the branches that are prepared know whom to ask.
"""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from qmadmin.over_volumes import are_apart
from qmadmin.participating import (
    Deciding,
    DecidingDatabase,
    DecidingQueueSpace,
    Part,
    PreparedDatabase,
    PreparedQueueSpace,
    Subordinate,
    chosen,
)
from qmcore.acts import commit, preparing
from qmcore.acts.deciding import Answer, Decider
from qmcore.acts.returning import Cause, Ending
from qmcore.errors import (
    HeuristicError,
    OperatingSystemError,
    OutcomeUnknownError,
    QueueError,
    SystemFailureError,
)

if TYPE_CHECKING:
    from qmadmin.application_databases import Databases
    from qmadmin.attachment import Attachment
    from qmadmin.side_threads import Act, SideThreads
    from qmcore.application_database import ApplicationDatabase
    from qmcore.port import Volume

logger = logging.getLogger("qmadmin.transacting")

_PATIENCE_SECONDS: Final = 10.0
"""How long the outcome of a deciding commit is looked up, where the decider does not tell."""
_PAUSE_SECONDS: Final = 0.1


class Stage(enum.Enum):
    """How far a commit is: what may be done about it when something fails."""

    OPEN = "nothing is decided, and all of it can be rolled back"
    SENT = "the deciding commit was sent, and only the decider knows whether it was done"
    DECIDED = "it is committed, whatever happens now"


class Coordinator:
    """The commit of one transaction; `parts` are its branches, each with the attachment that it belongs to.

    Volumes are waited for beside each other in the `threads`.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        threads: SideThreads,
        decider: Attachment | None = None,
        databases: Databases | None = None,
    ) -> None:
        self._threads = threads
        self._parts = parts
        self._databases = databases
        self.stage = Stage.OPEN
        self.gtrid = b""
        self.left: list[Subordinate] = []
        """Participants that are to be committed and could not be reached; recovery does it."""
        self._followed: list[bytes] = []
        """The branch qualifiers of those that have followed for good."""
        self._logged: list[Subordinate] = []
        self._heuristic: HeuristicError | None = None
        """What an administrator has done to one of them."""
        working = [part for part in parts if preparing.changes(part[1])]
        changed = self._changed = [] if databases is None else databases.changed()
        self._idle = [part for part in parts if part not in working]
        self._decider: Part | None = None
        """The branch whose commit decides, or is the only one."""
        self._deciding: ApplicationDatabase | None = None
        """The database of which that holds."""
        joined = None if databases is None else databases.joined_with(parts)
        plan = None if databases is None else databases.planned(changed)
        self._gtrid_before = b"" if plan is None else plan.gtrid
        if joined is not None:
            self._changed, self._deciding = [joined], joined
        elif databases is not None and changed and (len(changed) == 1 and not working):
            self._deciding = changed[0]
        elif plan is not None and plan.database is not None:
            self._deciding = plan.database
            if plan.database not in changed:
                # It has only to decide.
                self._changed = changed = [*changed, plan.database]
        elif plan is not None and plan.part is not None:
            self._decider = next((part for part in parts if part[1] is plan.part[1]), plan.part)
        elif databases is not None and (first := databases.decider_of(changed)) is not None:
            self._deciding = first
        elif databases is not None and changed and not working:
            self._decider = chosen([databases.spare_part()], None)
        elif changed or are_apart(working):
            self._decider = chosen(working, decider)
        elif parts:
            self._decider = (working or parts)[0]
        with_it = self._decider if joined is None else parts[0]
        path = self._path = None if with_it is None else with_it[0].volume.path
        self._beside = [part for part in parts if part is not self._decider and part[0].volume.path == path]
        self._prepares: list[Subordinate] = [
            PreparedQueueSpace(part) for part in working if part[0].volume.path != path
        ]
        if databases is not None:
            self._prepares += [PreparedDatabase(each, databases) for each in changed if each is not self._deciding]

    def commit(self) -> None:
        """Commit all branches, or none.

        Where it raises, the stage says what has become of it: OPEN, all branches are to be rolled back; DECIDED, they
        are committed; SENT, nobody knows until the decider can be asked.
        """
        for attachment, branch in self._idle:
            if attachment.volume.path != self._path:
                # It has only locked messages, or nothing at all, and lets go of them.
                attachment.owed.add(branch, Ending(Cause.UNTRIED))()
        if self._databases is not None:
            self._databases.end_idle(self._changed)
        if not self._prepares:
            self._commit_alone()
        else:
            self._commit_in_two_phases()
        if self._heuristic is not None:
            raise self._heuristic

    def _commit_alone(self) -> None:
        """Commit what takes part alone, as ever."""
        parts, database = [*([] if self._decider is None else [self._decider]), *self._beside], self._deciding
        if parts:
            # With a database they are in that, and its commit is theirs.
            on = None if database is None else database.joinable
            commit.commit(parts[0][0].volume, [branch for _, branch in parts], on=on)
        if database is not None and self._databases is not None:
            _commit_database(database, self._databases)
        self.stage = Stage.DECIDED

    def _commit_in_two_phases(self) -> None:
        deciding = self._deciding_one()
        self.gtrid = deciding.gtrid
        asked = deciding.begin()
        self._prepare_all(deciding, asked)
        self._decide(deciding, asked)
        self._complete_all()
        deciding.note(self._followed)

    def _deciding_one(self) -> Deciding:
        if self._decider is not None:
            return DecidingQueueSpace(self._decider, self._beside)
        databases, database = self._databases, self._deciding
        assert databases is not None and database is not None  # noqa: S101, PT018 - one of both decides
        era, known = databases.eras[database.name], databases.known(database)
        noting = databases.noting_failure
        return DecidingDatabase(database, known, era, databases.started_us, noting, self._gtrid_before)

    @property
    def is_complete(self) -> bool:
        """Whether all branches are committed."""
        return self.stage is Stage.DECIDED and not self.left and self._heuristic is None

    @property
    def undecided(self) -> Sequence[Part]:
        """The branches that a rollback may end: where the deciding commit was sent, what that commits or not."""
        if self.stage is Stage.OPEN:
            # One that only decides may have been begun for that alone.
            spare = [] if self._decider is None or self._decider in self._parts else [self._decider]
            return [*self._parts, *spare]
        is_sent = self.stage is Stage.SENT and self._decider is not None
        return [self._decider, *self._beside] if is_sent else []  # type: ignore[list-item]

    def complete(self, seconds: float) -> bool:
        """Commit the branches that could not be reached, within the seconds; return whether all are committed.

        Raises HeuristicError where an administrator has ended one of them otherwise.
        """
        end = time.monotonic() + seconds
        while any(not each.is_lost for each in self.left) and time.monotonic() < end:
            time.sleep(_PAUSE_SECONDS)
            self._complete_all()
        if self._heuristic is not None:
            raise self._heuristic
        return not self.left

    # ---- steps -------------------------------------------------------------------------------------------------------

    def _prepare_all(self, deciding: Deciding, asked: Decider) -> None:
        """Prepare the subordinates, those of several volumes beside each other."""
        by_volume: dict[Volume | None, list[Act]] = {}
        for each in self._prepares:
            by_volume.setdefault(each.volume, []).append(partial(each.prepare, deciding.gtrid, asked))
        # What waits for nothing but the disk in the end is done by this thread: Python does one thing at a time, and
        # several threads would stand in each other's way. The connection of an application is used in this thread.
        here = [volume for volume in by_volume if volume is None or volume.syncs_apart or len(by_volume) == 1]
        beside = [partial(_do, acts) for volume, acts in by_volume.items() if volume not in here]
        acts = [act for volume in here for act in by_volume[volume]]
        self._threads.do(beside, acts, [volume.sync for volume in here if volume is not None])
        self.left = list(self._prepares)

    def _decide(self, deciding: Deciding, asked: Decider) -> None:
        try:
            self.stage = Stage.SENT
            deciding.decide(asked, [each.told for each in self.left])
        except BaseException as error:
            is_refused = isinstance(error, QueueError) and not isinstance(error, _PROVE_NOTHING)
            if is_refused or not deciding.is_sent:
                self.stage = Stage.OPEN
                raise
            if not self._is_decided(deciding, asked, error):
                raise
            if not isinstance(error, QueueError):
                # An interrupt, say: what is decided is done all the same.
                self._complete_all()
                raise
        self.stage = Stage.DECIDED

    def _is_decided(self, deciding: Deciding, asked: Decider, error: BaseException) -> bool:
        """Return whether the commit was done whose answer is missing: what is still on its way is refused from now on.

        Raises OutcomeUnknownError where the decider cannot be asked for too long.
        """
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                answer = deciding.ask(asked)
            except QueueError as refusal:
                if time.monotonic() < end and not deciding.is_lost(refusal):
                    time.sleep(_PAUSE_SECONDS)
                    continue
                logger.error("the outcome of transaction %s is unknown: %s", deciding.gtrid.hex(), refusal)  # noqa: TRY400
                answer = Answer.UNKNOWN
            if answer is Answer.COMMITTED:
                self.stage = Stage.DECIDED
                return True
            if answer is Answer.ROLLED_BACK:
                self.stage = Stage.OPEN
                return False
            gtrid = f"{deciding.gtrid.hex()}-{asked.era:x}-{asked.decisions:x}"
            raise OutcomeUnknownError(
                f"it is unknown whether transaction {gtrid} is committed: {deciding.place}, which decides it, cannot be"
                " asked",
                hint="Ask later with qmadmin.outcome(); its other branches wait for the answer, and end by themselves.",
                gtrid=gtrid,
            ) from error

    def _complete_all(self) -> None:
        """Commit what is prepared; one that cannot be reached is left to recovery."""
        left = []
        for each in self.left:
            try:
                if each.complete():
                    self._followed.append(each.told.branch)
            except HeuristicError as error:
                self._heuristic = error
            except QueueError as refusal:
                left.append(each)
                if each not in self._logged:
                    self._logged.append(each)
                    logger.warning(
                        "transaction %s is committed, and its branch in %s has to follow: %s",
                        self.gtrid.hex(),
                        each.place,
                        refusal,
                    )
        self.left = left


_PROVE_NOTHING: Final = (OutcomeUnknownError, SystemFailureError, OperatingSystemError)
"""Errors behind which the commit may have been done."""


def _commit_database(database: ApplicationDatabase, databases: Databases) -> None:
    """Commit a database that takes part alone, or with queue spaces in it, and no record tells afterwards of that."""
    try:
        with databases.noting_failure():
            database.commit()
    except QueueError as error:
        if not error.unreachable:
            raise
        # It is the store of the messages that was lost, as with any commit, and not the application that has failed.
        databases.failure = None
        raise OutcomeUnknownError(
            f"the connection to database {database.name!r} was lost while the transaction was being committed; whether"
            " it was done is unknown",
            hint="Check before you repeat it: it may have been done.",
            path=database.name,
        ) from error


def _do(acts: Sequence[Act]) -> None:
    for act in acts:
        act()
