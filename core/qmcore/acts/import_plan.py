"""What is looked at before an import begins: whether it may, and whether there are queues for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from qmcore.acts.enqueue import route_to
from qmcore.acts.import_merge import refuse_several, refuse_unlike
from qmcore.acts.manage_queues import refuse_held
from qmcore.definitions import Definitions
from qmcore.errors import Alternative, InUseError, InvalidArgumentError, NoSpaceError, Resource
from qmcore.imports import ImportJob, ImportPlan, Mode, PlannedQueue, Stage
from qmcore.port import Unit
from qmcore.queue import Queue


def refuse_known(plan: ImportPlan, jobs: Iterable[ImportJob]) -> None:
    """Refuse what is being imported in another way, or was imported before and is not wanted again."""
    sources, targets = {planned.key for planned in plan.queues}, {planned.name for planned in plan.queues}
    for job in jobs:
        same = [each.source for each in job.plan.queues if job.archive == plan.archive and each.key in sources]
        if job.state is Stage.DONE:
            if same and not plan.again:
                replaced = all(planned.mode is Mode.REPLACE for planned in plan.queues)
                raise InvalidArgumentError(
                    f"queue {same[0]!r} of archive {plan.archive} was imported into this queue space before",
                    hint="Say that you want it again, if you do"
                    + (
                        ": it takes the place of the one that is there."
                        if replaced
                        else ": its messages may then be here twice."
                    ),
                    queue=same[0],
                    archive=plan.archive,
                    alternative=Alternative.AGAIN,
                )
            continue
        taken = same or [each.name for each in job.plan.queues if each.name in targets]
        if taken:
            raise InUseError(
                _under_way(job, taken[0], its_own=bool(same)),
                hint="Finish giving it up."
                if job.state is Stage.ABANDONED
                else "Repeat the command with the same arguments to resume it, or give it up.",
                queue=taken[0],
                archive=job.archive,
                import_id=job.id,
                alternative=Alternative.ABANDON,
            )


def refuse_ungranted(known: Definitions, plan: ImportPlan) -> None:
    """Refuse messages for a queue that does not take them; one that is stopped does, as this is an administrator's act.

    A queue that the import creates, or puts in the place of another, is asked as it will be.
    """
    coming = {each.name: queue_of(known, each) for each in plan.queues if each.mode is not Mode.APPEND}
    as_planned = dataclasses.replace(known, queues={**known.queues, **coming})
    for planned in plan.queues:
        if planned.brings_messages:
            route_to(as_planned, planned.name, even_stopped=True)


def queue_of(known: Definitions, planned: PlannedQueue) -> Queue:
    """Return the queue that is created for one of a plan; it has no number yet."""
    return Queue(
        0,
        known.space.id,
        planned.definition,
        enqueue_enabled=planned.enqueue_enabled,
        dequeue_enabled=planned.dequeue_enabled,
    )


def _under_way(job: ImportJob, queue: str, *, its_own: bool) -> str:
    if job.state is Stage.ABANDONED:
        return f"an import of queue {queue!r}, from archive {job.archive}, was given up and is not removed yet"
    if its_own:
        return f"an import of queue {queue!r} from this archive is under way, for which something else was asked"
    return f"another import of queue {queue!r}, from archive {job.archive}, is under way"


def refuse_unfit(unit: Unit, known: Definitions, plan: ImportPlan) -> None:
    """Refuse queues that cannot become what the plan says, and more queues than there may be."""
    new = 0
    for planned in plan.queues:
        existing = known.queues.get(planned.name)
        if existing is None and planned.name in known.takers:
            raise InvalidArgumentError(
                f"{planned.name!r} is a consumer of a queue, so that no queue can have that name",
                hint="Rename it in the import.",
                queue=planned.name,
            )
        if planned.mode is Mode.APPEND:
            refuse_unlike(known.queue(planned.name), planned)
        elif existing is None:
            new += 1
        elif planned.mode is Mode.CREATE:
            raise InvalidArgumentError(
                f"queue {planned.name!r} exists already in queue space {known.space.name!r}",
                hint="Rename it in the import, or skip, replace or append to the existing one.",
                queue=planned.name,
                alternative=Alternative.EXISTING,
            )
        else:
            refuse_several(existing)
            refuse_held(unit, existing)
    limit, used = known.space.definition.queues, len(known.queues) + unit.imports.promised_queues(known.space.id)
    if new and used + new > limit:
        raise NoSpaceError(f"queue space {known.space.name!r}", Resource.QUEUES, used=used, limit=limit, wanted=new)
