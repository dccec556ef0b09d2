"""The act of importing an archive into a queue space, so that nobody sees a part of it.

`begin` records the import, hides the queues that it fills, reserves their room and a block of sequence numbers. `load`
stores one batch in one short transaction, and again does nothing. `publish` reveals the queues in one tiny transaction.
`merge` then moves messages into queues that were there before, and `abandon` gives an import up.

Whatever is cut short is found again by `begin` with the same plan, and goes on where it was. All of these can be done
twice without harm, so that `Volume.write` may be told `repeatable=always`.
"""

from __future__ import annotations

from collections.abc import Sequence

from qmcore.acts.merging import abandon, merge
from qmcore.carried import Row
from qmcore.definitions import OpenSpace
from qmcore.imports import ImportJob, ImportPlan, Mode, PlannedQueue, Source, Stage, TimePolicy, Times
from qmcore.message import State
from qmcore.port import Unit

__all__ = [
    "ImportJob",
    "ImportPlan",
    "Mode",
    "PlannedQueue",
    "Source",
    "Stage",
    "TimePolicy",
    "Times",
    "abandon",
    "begin",
    "imports",
    "load",
    "loaded_batches",
    "merge",
    "publish",
]


def begin(unit: Unit, opened: OpenSpace, plan: ImportPlan, now: int) -> ImportJob:
    """Record an import and keep its room; the unit is alone on the volume.

    One of an identical plan that has begun and is not done is returned as it is: it goes on. Where non-persistent
    messages that it had loaded are lost, as by a restart, their batches count as not loaded.

    Raises InvalidArgumentError where a queue exists already that is to be created, where messages are to be appended to
    a queue of another order or grouping, or where queues of the archive were imported before and the plan is not
    `again`; InUseError where another import is under way that fills one of the queues, or takes the same ones of the
    archive, or was given up and is still there, and where a transaction holds a message of a queue that is to be
    replaced; BadQueueError where messages are to be appended to a queue that is not there; NoSpaceError where the queue
    space has no room for all of it, which is charged from now on.
    """
    raise NotImplementedError


def load(
    unit: Unit,
    job: ImportJob,
    batch: tuple[str, int],
    groups: Sequence[tuple[Source, State, bool, Sequence[Row]]],
) -> bool:
    """Store a batch of messages in the hidden queues; False: it is there already, and nothing was done.

    `batch` names it: the file of the archive, and the number of its first row in it, from 0. Each of the groups are
    messages of one queue in one state, held ones are taken for ready; then whether they are non-persistent; then the
    rows as they are in the archive, whose numbers, order keys, times and pages become those of the queue space. A time
    that has passed is no reason not to load a message.

    The unit may be concurrent, and need not be durable: what is lost is loaded again. Raises AbortedError where the
    import was published or given up meanwhile.
    """
    raise NotImplementedError


def loaded_batches(unit: Unit, job: ImportJob) -> frozenset[tuple[str, int]]:
    """Return the batches that need not be loaded again."""
    raise NotImplementedError


def publish(unit: Unit, opened: OpenSpace, job: ImportJob, now: int) -> ImportJob:
    """Let everybody see what was loaded; the unit is alone on the volume and durable. Again does nothing.

    Those who wait for the queues are told. Where queues were appended to or replaced, the import is MERGING then, else
    DONE.

    Raises ProtocolError where not all that was planned is loaded; InUseError where a queue was created meanwhile that
    stands in the way, or a transaction holds a message of one that is to be replaced; AbortedError where the import was
    given up.
    """
    raise NotImplementedError


def imports(unit: Unit, space_id: int) -> list[ImportJob]:
    """Return the imports of a queue space, the oldest first, also those that are done."""
    raise NotImplementedError
