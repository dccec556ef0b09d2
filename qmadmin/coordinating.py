"""The commit of a transaction over several volumes: its branches prepare, one decides, and the others follow.

The branch that decides is not prepared. Its commit contains the decision, so that the coordinator needs no log of its
own, and a transaction over n volumes takes n syncs, of which those of the prepares run beside each other. What its
process leaves undone, recovery does (`qmadmin/recovery.py`): the branches that are prepared know whom to ask.
"""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from qmadmin.over_volumes import are_apart
from qmcore.acts import commit, deciding, preparing, recovering
from qmcore.acts.deciding import Answer, Question
from qmcore.acts.returning import Cause, Ending
from qmcore.acts.transaction_part import Branch
from qmcore.errors import (
    HeuristicError,
    OperatingSystemError,
    OutcomeUnknownError,
    ProtocolError,
    QueueError,
    SystemFailureError,
)
from qmcore.purpose import Purpose
from qmcore.two_phase import OUR_FORMAT, Told
from qmcore.xid import Xid

if TYPE_CHECKING:
    from qmadmin.attachment import Attachment
    from qmadmin.side_threads import Act, SideThreads
    from qmcore.port import Volume

logger = logging.getLogger("qmadmin.transacting")

Part: TypeAlias = "tuple[Attachment, Branch]"

_PATIENCE_SECONDS: Final = 10.0
"""How long the outcome of a deciding commit is looked up, where the store does not tell."""
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

    def __init__(self, parts: Sequence[Part], threads: SideThreads, decider: Attachment | None = None) -> None:
        self._threads = threads
        self._parts = parts
        self.stage = Stage.OPEN
        self.left: list[tuple[Attachment, Xid]] = []
        """Branches that are to be committed and could not be reached; recovery does it."""
        self._logged: list[tuple[Attachment, Xid]] = []
        self._heuristic: HeuristicError | None = None
        """What an administrator has done to one of them."""
        working = [part for part in parts if preparing.changes(part[1])]
        self._idle = [part for part in parts if part not in working]
        self._decider = _chosen(working, decider) if are_apart(working) else (working or parts)[0]
        path = self._decider[0].volume.path
        self._beside = [part for part in parts if part is not self._decider and part[0].volume.path == path]
        self._others = [part for part in working if part[0].volume.path != path]
        self.gtrid = deciding.gtrid_of(self._decider[1].opened.space, self._decider[1].id)

    def commit(self) -> None:
        """Commit all branches, or none.

        Where it raises, the stage says what has become of it: OPEN, all branches are to be rolled back; DECIDED, they
        are committed; SENT, nobody knows until the decider can be asked.
        """
        for attachment, branch in self._idle:
            if attachment.volume.path != self._decider[0].volume.path:
                # It has only locked messages, or nothing at all, and lets go of them.
                attachment.owed.add(branch, Ending(Cause.UNTRIED))()
        branches = [self._decider[1], *(branch for _, branch in self._beside)]
        if not self._others:
            commit.commit(self._decider[0].volume, branches)
            self.stage = Stage.DECIDED
            return
        told = self._prepare_all()
        self._decide(branches, told)
        self._complete_all()
        opened = self._decider[1].opened
        opened.known_outcomes.append(self.gtrid)
        # The next housekeeping has the others told in a way that lasts.
        opened.has_distributed = True
        if self._heuristic is not None:
            raise self._heuristic

    @property
    def is_complete(self) -> bool:
        """Whether all branches are committed."""
        return self.stage is Stage.DECIDED and not self.left and self._heuristic is None

    @property
    def undecided(self) -> Sequence[Part]:
        """The branches that a rollback may end: where the deciding commit was sent, what that commits or not."""
        if self.stage is Stage.OPEN:
            return self._parts
        return [self._decider, *self._beside] if self.stage is Stage.SENT else []

    def complete(self, seconds: float) -> bool:
        """Commit the branches that could not be reached, within the seconds; return whether all are committed.

        Raises HeuristicError where an administrator has ended one of them otherwise.
        """
        end = time.monotonic() + seconds
        while self.left and time.monotonic() < end:
            time.sleep(_PAUSE_SECONDS)
            self._complete_all()
        if self._heuristic is not None:
            raise self._heuristic
        return not self.left

    # ---- steps -------------------------------------------------------------------------------------------------------

    def _prepare_all(self) -> list[Told]:
        """Record the decider's branch, and prepare the others beside each other; return who is to be told."""
        attachment, branch = self._decider
        if not branch.recorded:
            preparing.begin(attachment.volume, branch, Xid(OUR_FORMAT, self.gtrid))
        self._asked = deciding.decider_of(attachment.volume, branch.opened, attachment.place)
        by_volume: dict[Volume, list[Act]] = {}
        prepared: list[tuple[Attachment, Xid]] = []
        decider = self._asked.text
        for other, its in self._others:
            volume, xid = other.volume, self._xid_of(other, its)
            act = partial(preparing.prepare, volume, its, xid, decider, purpose=Purpose.PREPARING)
            by_volume.setdefault(volume, []).append(act)
            prepared.append((other, xid))
        # What waits for nothing but the disk in the end is done by this thread: Python does one thing at a time, and
        # several threads would stand in each other's way.
        here = [volume for volume in by_volume if volume.syncs_apart or len(by_volume) == 1]
        beside = [partial(_do, acts) for volume, acts in by_volume.items() if volume not in here]
        self._threads.do(beside, [act for volume in here for act in by_volume[volume]], [each.sync for each in here])
        self.left = prepared
        return [Told(xid.bqual, other.place.text) for other, xid in self.left]

    def _decide(self, branches: Sequence[Branch], told: Sequence[Told]) -> None:
        volume = self._decider[0].volume
        self.stage = Stage.SENT
        try:
            deciding.decide(volume, branches, self.gtrid, self._asked, self._decider[1].started_us, told)
        except BaseException as error:
            if isinstance(error, QueueError) and not isinstance(error, _PROVE_NOTHING):
                self.stage = Stage.OPEN
                raise
            if not self._is_decided(error):
                raise
            if not isinstance(error, QueueError):
                # An interrupt, say: what is decided is done all the same.
                self._complete_all()
                raise
        self.stage = Stage.DECIDED

    def _is_decided(self, error: BaseException) -> bool:
        """Return whether the commit was done whose answer is missing: what is still on its way is refused from now on.

        Raises OutcomeUnknownError where the decider cannot be asked for too long.
        """
        attachment, branch = self._decider
        question, end = Question(self.gtrid, self._asked), time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                answer = deciding.ask(
                    attachment.volume, branch.opened, [question], Ending(Cause.UNTRIED), ends_living=True
                )[self.gtrid]
            except QueueError as refusal:
                if time.monotonic() < end:
                    time.sleep(_PAUSE_SECONDS)
                    continue
                logger.error("the outcome of transaction %s is unknown: %s", self.gtrid.hex(), refusal)  # noqa: TRY400
                answer = Answer.UNKNOWN
            if answer is Answer.COMMITTED:
                self.stage = Stage.DECIDED
                return True
            if answer is Answer.ROLLED_BACK:
                self.stage = Stage.OPEN
                return False
            gtrid = f"{self.gtrid.hex()}-{self._asked.era:x}-{self._asked.decisions:x}"
            raise OutcomeUnknownError(
                f"it is unknown whether transaction {gtrid} is committed: {attachment.place}, which decides it, cannot"
                " be asked",
                hint="Ask later with qmadmin.outcome(); its other branches wait for the answer, and end by themselves.",
                gtrid=gtrid,
            ) from error

    def _complete_all(self) -> None:
        """Commit the branches that are prepared; one that cannot be reached is left to recovery."""
        left = []
        for attachment, xid in self.left:
            try:
                recovering.complete(attachment.volume, attachment.opened, xid)
            except HeuristicError as error:
                self._heuristic = error
            except QueueError as refusal:
                left.append((attachment, xid))
                if (attachment, xid) not in self._logged:
                    self._logged.append((attachment, xid))
                    logger.warning(
                        "transaction %s is committed, and its branch in %s has to follow: %s",
                        self.gtrid.hex(),
                        attachment.place,
                        refusal,
                    )
        self.left = left

    def _xid_of(self, attachment: Attachment, branch: Branch) -> Xid:
        return Xid(OUR_FORMAT, self.gtrid, recovering.qualifier_of(attachment.volume, branch.opened.space))


_PROVE_NOTHING: Final = (OutcomeUnknownError, SystemFailureError, OperatingSystemError)
"""Errors behind which the commit may have been done."""


def _do(acts: Sequence[Act]) -> None:
    for act in acts:
        act()


def _chosen(parts: Sequence[Part], wanted: Attachment | None) -> Part:
    """Return the branch that decides: the one that is wanted, else one for which nothing has to be written before."""
    able = [part for part in parts if part[0].is_durable]
    if not able:
        names = " and ".join(repr(attachment.opened.space.name) for attachment, _ in parts)
        raise ProtocolError(
            f"no queue space of {names} can decide on a transaction over all of them, because their devices are"
            " relaxed: their commits need not be on the disk",
            hint="Let a queue space of a device with full durability take part.",
        )
    first = next((part for part in able if part[1].recorded), able[0])
    return first if wanted is None else next((part for part in able if part[0].place == wanted.place), first)
