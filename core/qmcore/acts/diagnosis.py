"""What a doctor asks of the definitions and the use of a device: rules that need no look at the store's insides."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

from qmcore.attached import AttachedProcess
from qmcore.device import DeviceEntry, Extent
from qmcore.findings import Finding, Severity
from qmcore.imports import ImportJob, Stage
from qmcore.limits import CapacityLimit, Unit
from qmcore.message import HEADER_PAGES_BYTES
from qmcore.queue import Queue, QueueUsage
from qmcore.records import Forwarding
from qmcore.space import Space, SpaceUsage
from qmcore.times import MICROS, show

HOUR, DAY = 3_600, 86_400
NEAR = 90
"""Percent of a limit from which on it is near."""

_CLOCK_SLACK = MICROS
_GIVE_UP = "with qmspark import --abandon, or --abandon-all where the archive is gone"
_UNFINISHED = {
    Stage.LOADING: (
        "is not complete, and nobody sees its queues",
        f"Run the same qimport or qmspark import again, which resumes it, or give it up {_GIVE_UP}.",
    ),
    Stage.MERGING: (
        "is not finished: not all of its messages are in their queues, or what it replaced still takes room",
        "Run the same qimport or qmspark import again, which resumes it.",
    ),
    Stage.ABANDONED: (
        "was given up, and what it had loaded still takes room",
        f"Give it up again {_GIVE_UP}.",
    ),
}


def extents(
    entries: Sequence[DeviceEntry], found: Sequence[Extent], spaces: Mapping[str, Space], unread: Set[str]
) -> Iterator[Finding]:
    """Say what is wrong with the table of contents.

    `spaces` are those that are recorded where they should be; of those `unread` nobody knows.
    """
    by_index = {entry.index: entry for entry in entries}
    for name in sorted({extent.space for extent in found} - unread):
        own = [extent for extent in found if extent.space == name]
        pages = sum(extent.pages for extent in own)
        if name not in spaces:
            yield _found(
                Severity.ERROR,
                "space-missing",
                f"queue space {name}",
                "it is in the table of contents but not in its file: its creation was cut short",
                "Create it again as it was to be, or remove it with qspacedestroy.",
            )
        elif pages > spaces[name].definition.pages:
            yield _found(
                Severity.WARNING,
                "extents",
                f"queue space {name}",
                f"it has {spaces[name].definition.pages} pages, and the table of contents gives it {pages}: an"
                " extension was cut short",
                "Give it more pages with qaddext, which counts those too.",
            )
        elif pages < spaces[name].definition.pages:
            yield _found(
                Severity.ERROR,
                "extents",
                f"queue space {name}",
                f"it has {spaces[name].definition.pages} pages, and the table of contents gives it {pages}",
                "Restore the device from a backup.",
            )
    for extent in found:
        entry = by_index.get(extent.entry)
        if entry is None or extent.first < entry.offset or extent.first + extent.pages > entry.end:
            yield _found(
                Severity.ERROR,
                "extents",
                f"extent {extent.space}.{extent.number}",
                f"its pages {extent.first} to {extent.first + extent.pages - 1} are not in entry {extent.entry} of the"
                " device list",
                "Restore the device from a backup.",
            )
    for one, other in _neighbours(found):
        if one.first + one.pages > other.first:
            yield _found(
                Severity.ERROR,
                "extents",
                f"extent {other.space}.{other.number}",
                f"it has pages that extent {one.space}.{one.number} has too",
                "Restore the device from a backup.",
            )


def left(target: str, space: Space, messages: int, *, is_taken: bool) -> Finding:
    """Say that a volume has a queue space that the table of contents does not have there.

    `is_taken`: it has another one of that name elsewhere.
    """
    removes = "creating one of that name removes it"
    if messages:
        removes = f"qspacecreate -r {space.name} takes it back, qspacedestroy -f {space.name} removes it for good"
    holds = f"holds {messages} message{'s' * (messages != 1)} in" if messages else "has"
    return _found(
        Severity.ERROR if messages else Severity.WARNING,
        "space-left",
        target,
        f"it {holds} a queue space {space.name!r} that is not in the table of contents",
        "A destruction that was cut short, or done while this was missing, has left it; "
        + (f"once the other queue space of that name is destroyed, {removes}." if is_taken else f"{removes}."),
    )


def error_queues(space: Space, queues: Sequence[Queue]) -> Iterator[Finding]:
    """Say where messages that nobody can work on would be lost."""
    present = {queue.name for queue in queues}
    named = space.definition.error_queue
    if named and named not in present:
        yield _found(
            Severity.ERROR,
            "error-queue-missing",
            f"queue space {space.name}",
            f"its error queue {named!r} does not exist: messages that are out of retries are discarded",
            f"Create it with qcreate {named}.",
        )
    is_error_queue = {named, *(queue.definition.error_queue for queue in queues)}
    for queue in queues:
        own = queue.definition.error_queue
        if own and own not in present:
            yield _found(
                Severity.WARNING if named in present else Severity.ERROR,
                "error-queue-missing",
                _name(space, queue),
                f"its error queue {own!r} does not exist: "
                + (f"{named!r} is used instead" if named in present else "messages out of retries are discarded"),
                f"Create it with qcreate {own}.",
            )
        elif not {own, named} & present and queue.name not in is_error_queue and not queue.definition.retries:
            yield _found(
                Severity.WARNING,
                "no-error-queue",
                _name(space, queue),
                "it has no retries and no error queue: a message whose transaction rolls back is discarded",
                "Give it retries with qchange, or create an error queue and name it with qspacechange.",
            )


def thresholds(space: Space, queue: Queue, page_size: int) -> Iterator[Finding]:
    """Say which capacity commands of a queue can never run."""
    definition = space.definition
    memory_pages = definition.memory // page_size
    for what, threshold, pages in (
        ("high limit", queue.definition.threshold, definition.capacity),
        ("high limit for non-persistent messages", queue.definition.memory_threshold, memory_pages),
    ):
        if not threshold.command:
            continue
        most = _most(threshold.high, definition.messages, pages, page_size)
        if pages == 0:
            yield _found(
                Severity.WARNING,
                "threshold-never",
                _name(space, queue),
                f"its {what} can never be reached: the queue space has no memory for non-persistent messages",
                "Give the queue space memory with qspacechange -n.",
            )
        elif threshold.high.value > most:
            yield _found(
                Severity.WARNING,
                "threshold-never",
                _name(space, queue),
                f"its {what} of {threshold.high} can never be reached: the queue space holds at most"
                f" {CapacityLimit(most, threshold.high.unit)}",
                "Lower it with qchange.",
            )


def commands_off(space: Space, queues: Sequence[Queue]) -> Iterator[Finding]:
    """Say which queues have commands that do not run, because the device says so."""
    having = [queue.name for queue in queues if queue.definition.commands]
    if having:
        yield _found(
            Severity.WARNING,
            "commands-off",
            f"queue space {space.name}",
            f"capacity commands are switched off on this device, and {_listed(having)} have some",
            "Switch them on with qcommands, if they are wanted.",
        )


def commands_refused(space: Space, queues: Sequence[Queue], refusal: Callable[[str], str]) -> Iterator[Finding]:
    """Say which queues have commands that do not run as this user, because they may be another user's."""
    refused: dict[str, list[str]] = {}
    for queue in queues:
        for why in filter(None, {refusal(command) for command in queue.definition.commands}):
            refused.setdefault(why, []).append(queue.name)
    for why, names in refused.items():
        yield _found(
            Severity.WARNING,
            "commands-refused",
            f"queue space {space.name}",
            f"the capacity commands of {_listed(names)} do not run as this user, as they may be another user's: {why}",
            "Look at them with qinfo, and name the device or the commands in [capacity] of qmadmin.toml.",
        )


def stopped(space: Space, queue: Queue) -> Iterator[Finding]:
    """Say that a queue is stopped."""
    off = [
        word
        for word, enabled in (("enqueuing", queue.enqueue_enabled), ("dequeuing", queue.dequeue_enabled))
        if not enabled
    ]
    if off:
        yield _found(
            Severity.WARNING,
            "queue-stopped",
            _name(space, queue),
            f"{' and '.join(off)} {'is' if len(off) == 1 else 'are'} stopped",
            "Start it with qstart when it is to be used again.",
        )


def waiting(space: Space, queue: Queue, usage: QueueUsage, now: int) -> Iterator[Finding]:
    """Say that the oldest message of a queue, or the first where the oldest is not known, waits for long."""
    which, since = ("first", usage.first_us) if usage.oldest_us is None else ("oldest", usage.oldest_us)
    if since is not None and now - since > DAY * MICROS:
        days = (now - since) // (DAY * MICROS)
        yield _found(
            Severity.WARNING,
            "message-waits",
            _name(space, queue),
            f"its {which} message has waited for {days} {'day' if days == 1 else 'days'}, since {show(since)}",
            "Check that its consumers are running; list the messages with qlist.",
        )


def limits(space: Space, usage: SpaceUsage, page_size: int) -> Iterator[Finding]:
    """Say which limits of a queue space are reached, or near."""
    definition = space.definition
    for what, used, limit, remedy in (
        ("pages", usage.pages, definition.capacity, "Dequeue messages, or add pages with qaddext."),
        ("messages", usage.messages, definition.messages, "Dequeue messages, or raise the limit with qspacechange."),
        ("queues", usage.queues, definition.queues, "Destroy a queue that is not needed."),
        ("transactions", usage.transactions, definition.transactions, "List them with qprinttrans."),
        ("attached processes", usage.processes, definition.processes, "Raise the limit with qspacechange."),
        ("actions", usage.actions, definition.actions, "Raise the limit with qspacechange -A."),
        ("bytes of memory", usage.memory, definition.memory, "Dequeue messages, or raise it with qspacechange -n."),
    ):
        if not limit or used * 100 < limit * NEAR:
            continue
        full = used >= limit or (what == "bytes of memory" and used + page_size > limit)
        yield _found(
            Severity.ERROR if full else Severity.WARNING,
            "limit-near",
            f"queue space {space.name}",
            f"{used} of {limit} {what} are in use ({used * 100 // limit} %)",
            remedy,
        )


def schedules(space: Space, queues: Sequence[Queue], targets: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    """Say which schedules, each named with the queue of its messages, have a queue that does not exist."""
    present = {queue.name for queue in queues}
    for name, queue in targets:
        if queue not in present:
            yield _found(
                Severity.WARNING,
                "schedule-queue-missing",
                f"schedule {space.name}/{name}",
                f"its queue {queue!r} does not exist: no message of it can be enqueued",
                f"Create the queue with qcreate {queue}, name another one with qschedulechange -q, or delete the"
                " schedule with qscheduledelete.",
            )


def processes(space: Space, attached: Iterable[AttachedProcess]) -> Iterator[Finding]:
    """Say who died and was not looked after."""
    for process in attached:
        if not process.alive:
            yield _found(
                Severity.WARNING,
                "owner-dead",
                f"queue space {space.name}",
                f"{process}, attached since {show(process.since_us)}, is dead",
                "Open the queue space: that cleans up after it.",
            )


def forwarders(space: Space, told: Iterable[tuple[AttachedProcess, Forwarding]]) -> Iterator[Finding]:
    """Say which queues their forwarders cannot serve."""
    for process, figures in told:
        if figures.trouble and process.alive:
            yield _found(
                Severity.WARNING,
                "forwarding-paused",
                f"queue {space.name}/{figures.queue}",
                f"{process} does not serve it now: {figures.trouble}",
                "See the log of the forwarder; it tries again by itself.",
            )


def imports(space: Space, jobs: Iterable[ImportJob], now: int) -> Iterator[Finding]:
    """Say which imports are not at their end: their room is taken, and there may be messages that nobody sees."""
    for job in jobs:
        if job.state is not Stage.DONE:
            queues, (is_so, remedy) = [planned.name for planned in job.plan.queues], _UNFINISHED[job.state]
            yield _found(
                Severity.WARNING if now - job.started_us > HOUR * MICROS else Severity.INFO,
                "import-unfinished",
                f"queue space {space.name}",
                f"an import of archive {job.archive}, begun {show(job.started_us)}, {is_so}"
                + (f" ({_listed(queues)})" if queues else ""),
                remedy,
            )


def clock(space: Space, latest: int, now: int) -> Iterator[Finding]:
    """Say that the clock is behind what was stored."""
    if latest > now + _CLOCK_SLACK:
        yield _found(
            Severity.WARNING,
            "clock-behind",
            f"queue space {space.name}",
            f"the clock says {show(now)}, and {show(latest)} was stored in it already",
            "Set the clock right: until then delays last longer, and newer messages may come first.",
        )


def sequence(space: Space, highest: int, given: int) -> Iterator[Finding]:
    """Say that message identifiers would be given twice."""
    if highest > given:
        yield _found(
            Severity.ERROR,
            "store-fault",
            f"queue space {space.name}",
            f"message number {highest} is stored, and only {given} were assigned: identifiers will be used twice",
            "Restore the device from a backup.",
        )


def identifiers(space: Space, given: int) -> Iterator[Finding]:
    """Say which messages have identifiers of other queue spaces that should not."""
    target = f"queue space {space.name}"
    pieces = sorted(space.adopted, key=lambda piece: piece.first + piece.shift)
    for one, other in itertools.pairwise(pieces):
        if one.last + one.shift >= other.first + other.shift:
            yield _found(
                Severity.ERROR,
                "store-fault",
                target,
                f"message number {other.first + other.shift} has two identifiers, of {one.incarnation} and"
                f" {other.incarnation}",
                "Restore the device from a backup.",
            )
    for piece in pieces:
        if piece.last + piece.shift > given:
            yield _found(
                Severity.ERROR,
                "store-fault",
                target,
                f"message number {piece.last + piece.shift} has an identifier of {piece.incarnation}, and only {given}"
                " were given: new messages will have it too",
                "Restore the device from a backup.",
            )


def _most(high: CapacityLimit, messages: int, pages: int, page_size: int) -> int:
    match high.unit:
        case Unit.MESSAGES:
            return messages
        case Unit.BLOCKS:
            return pages
        case Unit.BYTES:
            return max(pages * page_size - HEADER_PAGES_BYTES, 0)
        case Unit.PERCENT:
            return 100


def _neighbours(found: Sequence[Extent]) -> Iterator[tuple[Extent, Extent]]:
    ordered = sorted(found, key=lambda extent: (extent.entry, extent.first))
    for one, other in itertools.pairwise(ordered):
        if one.entry == other.entry:
            yield one, other


def _found(severity: Severity, check: str, target: str, sentence: str, advice: str) -> Finding:
    return Finding(severity=severity, check=check, target=target, sentence=sentence, advice=advice)


def _name(space: Space, queue: Queue) -> str:
    return f"queue {space.name}/{queue.name}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
