"""Commands that watch the queues of the open queue space: live, and by their counters since a snapshot."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qmadmin.console.process import sleep
from qmadmin.console.results import Column, Line, Moment, Outcome, Rounds, Shown, Table, Value, of_missing, table_of
from qmadmin.shell.declare import Group, Needs, Option, Positional
from qmadmin.shell.kinds import FileName, Number, Seconds, Taken
from qmadmin.shell.notices import UsageError
from qmadmin.shell.redirection import refuse_the_device
from qmcore import times
from qmcore.values import dataclass

if TYPE_CHECKING:
    from qmadmin.monitoring.flow import Counts, Flow, Sample
    from qmadmin.shell.session import Session

_KIND = "qmadmin counters"


@dataclass(frozen=True, slots=True)
class CounterSnapshot:
    """Counters by the names of the queues; `taken_us` is when, in microseconds UTC."""

    device: str
    space: str
    taken_us: int
    counts: Mapping[str, Counts]

    @classmethod
    def of(cls, device: str, space: str, sample: Sample) -> CounterSnapshot:
        """Return the counters in a sample."""
        return cls(os.path.abspath(device) if "://" not in device else device, space, sample.time_us, sample.counts)

    def seconds_since(self, before: CounterSnapshot) -> float:
        """Return how much later this one was taken; not less than 0, even if the clock was set back."""
        return max(0, self.taken_us - before.taken_us) / 1e6

    def of_queue(self, name: str | None) -> Iterator[tuple[str, Counts]]:
        """Yield the counters of one queue, or of all by name."""
        return ((found, self.counts[found]) for found in sorted(self.counts) if name in (None, found))


def write(file: str, snapshot: CounterSnapshot) -> None:
    """Write a snapshot in place of the content of the file; UsageError if that is not possible."""
    content = {"kind": _KIND} | dataclasses.asdict(snapshot)
    # Importing it takes longer than the rest of this module.
    import tempfile

    path = Path(file).resolve()
    if path.exists() and not path.is_file():
        raise UsageError(f"Failed to write the snapshot to {file}: it is not a regular file")
    try:
        # A concurrent reader gets the old one or the new one.
        descriptor, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with open(descriptor, "w", encoding="utf-8") as opened:  # noqa: PTH123 - a descriptor has no path
                json.dump(content, opened, indent=1)
                opened.write("\n")
            Path(made).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(made).unlink()
            raise
    except OSError as error:
        raise UsageError(f"Failed to write the snapshot to {file}: {error.strerror}") from error


def read(file: str) -> CounterSnapshot | None:
    """Return the snapshot in a file; None if there is no such file, UsageError if it is something else."""
    try:
        found = json.loads(Path(file).read_text(encoding="utf-8"))
        if found["kind"] != _KIND:
            raise ValueError(found["kind"])
        return CounterSnapshot(
            _text(found["device"]), _text(found["space"]), int(found["taken_us"]), _counts(found["counts"])
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"Failed to read the snapshot from {file}: {error.strerror}") from error
    except (ValueError, TypeError, LookupError) as error:
        raise UsageError(f"File {file} is not a snapshot that qstat has written") from error


def _counts(found: Any) -> dict[str, Counts]:
    from qmadmin.monitoring.flow import Counts

    return {name: Counts(**{key: int(value) for key, value in counts.items()}) for name, counts in found.items()}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


WATCHING = Group("Watching", needs=Needs.OPEN_SPACE, extension=True)
_SECONDS = 1.0
_FLOWS = ("enqueued", "dequeued", "expired", "discarded", "moved")
_FREQUENT = ("enqueued", "dequeued")


@WATCHING.command(
    "qtop",
    Option(
        "-d seconds",
        "seconds",
        "The seconds between two updates, 0.1 to 3600; the default is 1.",
        Seconds("delay", 0.1, 3600.0),
        _SECONDS,
    ),
    Option(
        "-n rounds",
        "rounds",
        "How many updates are shown; by default no limit at a terminal, and one elsewhere.",
        Number("number of updates", least=1),
    ),
    Positional("queue_name", Taken(), "The queue, or queue:consumer; without it, all."),
    shows_only=True,
    updates_itself=True,
)
def qtop(session: Session, queue_name: str | None, seconds: float, rounds: int | None) -> Outcome:
    """Watch the traffic of the queues of the open queue space.

    For each queue it shows its depth, which is the number of its messages, and how many of them are ready, delayed,
    parked and held; the messages per second that were enqueued and dequeued since the previous update; the age of the
    oldest ready message or, if the order of the queue depends on times and does not show which is the oldest, of the
    first one, marked 1st; how long it will take until the queue is empty, judging by the last ten updates, or that it
    is growing, or that it is stopped for dequeuing; how many messages were moved to an error queue since the queue was
    created, and how many were lost, that is expired or discarded; and a graph of the depth. It begins with what is
    missing, if a file or schema of the device is.

    At a terminal the view is updated until you leave it with q or Ctrl-C. s sorts by the next column, r reverses the
    order; the arrow keys, Page Up and Page Down, Home and End scroll.

    Elsewhere, and in formats for programs, each update is a table, or a document of its own in JSON. Rates and
    trends require two updates. in_rate and out_rate are messages per second, age and drain are seconds; age_of is
    oldest or first.

        qtop -d 5
        qmadmin --format json -c "qopen QSPACE" -c "qtop -n 2 -d 10"
    """
    space = session.opened()
    if queue_name is not None:
        space.queue(queue_name)
    missing = session.device.missing_volumes()
    told = session.not_told(of_missing(missing, lacks=False))
    if session.is_drawn:
        from qmadmin.shell import live_screen

        gone = [name for volume in missing for name in volume.spaces]
        live_screen.watch(session, queue_name, seconds, rounds, gone)
        return told
    return [*told, Rounds(_rounds(session, queue_name, seconds, rounds or 1))]


def sample_of(session: Session, queue_name: str | None) -> Sample:
    """Return a sample of one queue or all queues of the open queue space."""
    found = session.opened().usages(consumers=True)
    if queue_name is not None:
        found = [(queue, usage) for queue, usage in found if queue.name == queue_name]
    from qmadmin.monitoring.flow import Sample

    clock = session.device.clock
    return Sample.of(clock.monotonic(), clock.now(), found)


def _rounds(session: Session, queue_name: str | None, seconds: float, rounds: int) -> Iterator[list[Shown]]:
    from qmadmin.monitoring.flow import Flow

    flow = Flow()
    for number in range(rounds):
        if number:
            sleep(seconds)
        flow.add(sample_of(session, queue_name))
        yield [_table(flow)]


def _table(flow: Flow) -> Table:
    when = Moment(flow.last.time_us) if flow.last else None
    return table_of(flow.queues(), (Column("time", "Time", of=lambda _queue: when), *_QUEUE))


_QUEUE = (
    Column("queue", "Queue", of="name"),
    Column("messages", "Depth", right=True, of="usage.messages"),
    Column("ready", "Ready", right=True, of="usage.ready"),
    Column("delayed", "Delayed", right=True, of="usage.delayed"),
    Column("held", "Held", right=True, of="usage.held"),
    Column("in_rate", "In/s", right=True, of=lambda queue: _short(queue.in_rate)),
    Column("out_rate", "Out/s", right=True, of=lambda queue: _short(queue.out_rate)),
    Column("age", "Age", right=True, of=lambda queue: _short(queue.age)),
    Column("moved", "Moved", right=True, of="usage.moved"),
    Column("lost", "Lost", right=True),
    Column("trend", "Trend"),
    Column("drain", "Drain", right=True, of=lambda queue: _short(queue.drain)),
    Column("age_of", "Age of", of=lambda queue: None if queue.age is None else "first" if queue.of_first else "oldest"),
    Column("parked", "Parked", right=True, of="usage.parked"),
)


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


# ---- counters ----


@WATCHING.command(
    "qstat",
    Option("-r", "relative", "Show what was counted since the snapshot, and the rate per second."),
    Option("-s", "store", "Keep the present counters as the snapshot for -r."),
    Option(
        "-f file",
        "file",
        "Keep the snapshot in this file, so that other sessions can use it; by default it belongs to this session.",
        FileName(),
    ),
    Positional("queue_name", Taken(), "The queue, or queue:consumer; without it, all."),
    shows_only=True,
)
def qstat(session: Session, queue_name: str | None, relative: bool, store: bool, file: str | None) -> Outcome:
    """Show the counters of the queues of the open queue space.

    It shows how many messages were enqueued, were dequeued, expired, were discarded, and were moved to an error queue:
    since the queue was created, or with -r since a snapshot. A snapshot contains the counters of all queues. With -r
    and -s together, the old snapshot is compared before it is replaced. A queue that was created after the snapshot is
    counted from its creation.

        qstat -s
        qstat -r
        qmadmin -c "qopen QSPACE" -c "qstat -r -s -f hourly.json"
    """
    space = session.opened()
    if queue_name is not None:
        space.queue(queue_name)
    if file is not None:
        refuse_the_device(session, file)
    now = CounterSnapshot.of(session.path, space.name, sample_of(session, None))
    shown: list[Shown] = []
    if relative:
        before = _kept(session, file, now)
        text = f"Since {times.show(before.taken_us)}, {now.seconds_since(before):.1f} seconds"
        shown += [Line(text), _differences(now, before, queue_name, detailed=session.detailed)]
    else:
        shown.append(_counters(now, queue_name))
    if store:
        _keep(session, file, now)
        where = f" in {file}" if file else ""
        shown.append(Line(f"Snapshot of {len(now.counts)} queue{'s' * (len(now.counts) != 1)} kept{where}"))
    return shown


def _kept(session: Session, file: str | None, now: CounterSnapshot) -> CounterSnapshot:
    found = session.snapshots.get(now.space) if file is None else read(file)
    if found is None:
        option = f" -f {file}" if file else ""
        raise UsageError(f"There is no snapshot of queue space '{now.space}'", hint=f"Keep one: qstat -s{option}")
    if (found.device, found.space) != (now.device, now.space):
        raise UsageError(f"The snapshot in {file} is of queue space '{found.space}' on {found.device}")
    return found


def _keep(session: Session, file: str | None, now: CounterSnapshot) -> None:
    if file is None:
        session.snapshots[now.space] = now
    else:
        write(file, now)


def _counters(now: CounterSnapshot, queue_name: str | None) -> Table:
    return Table(
        (Column("queue", "Queue"), *(Column(key, key.capitalize(), right=True) for key in _FLOWS)),
        [(name, *(getattr(counts, key) for key in _FLOWS)) for name, counts in now.of_queue(queue_name)],
    )


def _differences(now: CounterSnapshot, before: CounterSnapshot, queue_name: str | None, *, detailed: bool) -> Table:
    """Return the differences of the counters; in detail all rates, else only those of frequent events."""
    seconds = now.seconds_since(before)
    columns = [Column("queue", "Queue")]
    rows: list[list[Value]] = []
    for key in _FLOWS:
        columns.append(Column(key, key.capitalize(), right=True))
        if detailed or key in _FREQUENT:
            columns.append(Column(f"{key}_rate", "/s", right=True))
    for name, counts in now.of_queue(queue_name):
        new = counts.since(before.counts.get(name))
        row: list[Value] = [name]
        for key in _FLOWS:
            number = getattr(new, key)
            row.append(number)
            if detailed or key in _FREQUENT:
                row.append(round(number / seconds, 1) if seconds > 0 else None)
        rows.append(row)
    if detailed:
        columns.append(Column("seconds", "Seconds", right=True))
        rows = [[*row, round(seconds, 1)] for row in rows]
    return Table(tuple(columns), rows)
