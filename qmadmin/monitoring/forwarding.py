"""How the messages of queues are forwarded, for people and for programs."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from qmadmin.console import duration
from qmadmin.console.results import Column, Datum, Field, Line, Moment, Table, Value, hidden, table_of
from qmcore import times

if TYPE_CHECKING:
    from qmcore.attached import AttachedProcess
    from qmcore.records import Forwarding

Told: TypeAlias = "tuple[AttachedProcess, Forwarding]"
"""A process that forwards a queue, and its statistics."""


def _figure(key: str, title: str, shown: Callable[[Any], Value] = lambda value: value, of: str = "") -> Column:
    return Column(key, title, right=True, of=lambda told: shown(getattr(told[1], of or key)))


def _seldom(count: int) -> int | None:
    """Return None for zero, so that a narrow terminal can omit the column."""
    return count or None


def _span(micros: int | None) -> str | None:
    return None if micros is None else duration(micros)


COLUMNS = (
    Column("queue", "Queue", of=lambda told: told[1].queue),
    Column("pid", "Process", right=True, of=lambda told: told[0].pid),
    _figure("calls", "Calls"),
    _figure("successes", "Done"),
    _figure("failures", "Failed"),
    _figure("retries", "Retried", _seldom),
    _figure("refused", "Refused", _seldom),
    _figure("dropped_replies", "Dropped", _seldom),
    Column("in_flight", "Runs", right=True, of=lambda told: f"{told[1].in_flight}/{told[1].workers}"),
    _figure("rate", "/min"),
    *(_figure(percentile, percentile, _span, f"{percentile}_us") for percentile in ("p50", "p95", "p99")),
)

KEYS = {
    "process": "Its name: `tmqforward`, or the name that an application gives",
    "pid": "Its process id",
    "host": "Its machine",
    "since": "When it attached to the queue space",
    "alive": "Whether it is alive; false if it has died and was not removed yet",
    "calls": "Calls of the service that were started; like all counts, since the process started",
    "successes": "Calls that succeeded: their message is gone and their reply is queued",
    "failures": "Calls that failed",
    "retries": "Failed calls whose message is tried again",
    "refused": "Calls that do not count as a try, because the service could not work at all",
    "dropped_replies": "Replies that were dropped because their queue did not exist",
    "in_flight": "Calls that are running",
    "workers": "Calls that may run at the same time",
    "rate": "Messages that were forwarded in the last minute",
    "p50_us": "Microseconds that half of the calls of the last five minutes took at most, to two digits; null if none",
    "p95_us": "The same for 95 percent of them",
    "p99_us": "The same for 99 percent of them",
    "last_error": "Why a call last failed or was refused; null if none was",
    "last_error_at": "When that was",
    "paused_until": "Until when the queue is paused; null if it is served",
    "trouble": "Why the queue is paused",
    "told": "When all of this was recorded",
}
"""The data for programs about a process that forwards a queue, by key."""


def by_queue(told: Iterable[Told]) -> dict[str, list[Told]]:
    """Return the statistics, in their order, by the name of the queue."""
    found: dict[str, list[Told]] = {}
    for each in told:
        found.setdefault(each[1].queue, []).append(each)
    return found


def data(told: Iterable[Told]) -> Datum:
    """Return the data of a queue for programs: an object for each process that forwards it."""
    return tuple(_object(process, figures) for process, figures in told)


def fields(told: Sequence[Told]) -> Iterator[Field]:
    """Yield the properties of a queue about the processes that forward it."""
    yield hidden(forwarders=data(told))
    if not told:
        yield _shown("Forwarded by", "no process")
    for process, figures in told:
        yield _shown("Forwarded by", _who(process))
        yield _shown("Calls", _calls(figures))
        yield _shown("Rate", _rate(figures))
        if figures.dropped_replies:
            yield _shown("Dropped replies", figures.dropped_replies)
        if figures.last_error_us is not None:
            yield _shown("Last error", f"{times.show(figures.last_error_us)}: {figures.last_error}")
        if figures.paused_until_us is not None:
            yield _shown("Paused until", f"{times.show(figures.paused_until_us)}: {figures.trouble}")


def table(told: Iterable[Told]) -> Table:
    """Return a table with a row for each queue and process."""
    return table_of(told, COLUMNS)


def sentences(told: Sequence[Told]) -> Iterator[Line]:
    """Yield sentences about what does not fit into the table: the processes, paused queues, and last errors."""
    processes = {(process.pid, process.host): process for process, _ in told}
    yield from (Line(_who(process)) for process in processes.values())
    for (process, figures), paused in itertools.product(told, (True, False)):
        where = f"{figures.queue} ({process.pid})"
        if paused and figures.paused_until_us is not None:
            yield Line(f"{where}: paused until {times.show(figures.paused_until_us)}: {figures.trouble}")
        is_told = figures.paused_until_us is not None and figures.last_error == figures.trouble
        if not paused and figures.last_error_us is not None and not is_told:
            yield Line(f"{where}: last error at {times.show(figures.last_error_us)}: {figures.last_error}")


def _object(process: AttachedProcess, figures: Forwarding) -> dict[str, Value]:
    values = dataclasses.asdict(process) | dataclasses.asdict(figures)
    shown = values | {
        "process": process.role,
        "since": Moment(process.since_us),
        "last_error": figures.last_error or None,
        "last_error_at": _moment(figures.last_error_us),
        "paused_until": _moment(figures.paused_until_us),
        "trouble": figures.trouble or None,
        "told": Moment(figures.changed_us),
    }
    return {key: shown[key] for key in KEYS}


def _who(process: AttachedProcess) -> str:
    return f"{process} since {times.show(process.since_us)}" + ("" if process.alive else ", which is dead")


def _calls(figures: Forwarding) -> str:
    tried_again = f" ({figures.retries} tried again)" if figures.retries else ""
    refused = f", {figures.refused} refused" if figures.refused else ""
    return (
        f"{figures.calls}: {figures.successes} done, {figures.failures} failed{tried_again}{refused};"
        f" {figures.in_flight} of {figures.workers} running"
    )


def _rate(figures: Forwarding) -> str:
    spans = [
        f"{percent} % within {duration(micros)}"
        for percent, micros in ((50, figures.p50_us), (95, figures.p95_us), (99, figures.p99_us))
        if micros is not None
    ]
    return "; ".join([f"{figures.rate} a minute", ", ".join(spans)][: 1 + bool(spans)])


def _shown(label: str, value: Value) -> Field:
    return Field(label, value, {})


def _moment(micros: int | None) -> Moment | None:
    return None if micros is None else Moment(micros)
