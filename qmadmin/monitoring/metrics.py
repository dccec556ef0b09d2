"""The figures of queue spaces and their queues as metrics, by the conventions of Prometheus.

A `Family` declares a metric once: its name, kind, unit, labels and meaning; `prometheus.py` and `instruments.py` give
them to Prometheus and OpenTelemetry. `look` reads the figures of all queues of a queue space at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

from qmadmin.monitoring.flow import ready_since
from qmcore.errors import QueueError
from qmcore.queue import FIGURES, Queue, QueueUsage
from qmcore.records import Outcome
from qmcore.times import MICROS
from qmcore.values import dataclass

if TYPE_CHECKING:
    from qmadmin.space import QueueSpace
    from qmcore.attached import TransactionInfo
    from qmcore.space import SpaceDefinition, SpaceUsage

logger = logging.getLogger("qmadmin.monitoring")

T = TypeVar("T")

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: its name with the unit at its end, what kind it is, its meaning, its unit if it has one, its labels.

    The name of a counter is without `_total`, which its samples have.
    """

    name: str
    kind: Kind
    about: str
    unit: str = ""
    labels: tuple[str, ...] = ("device", "space", "queue")

    @property
    def shown(self) -> str:
        """The name under which it is found; that of a histogram is followed by _bucket, _sum or _count."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


Named: TypeAlias = tuple[str, str]
"""A queue space: what its device is called, without a password, and its own name, which several devices may have."""

Families: TypeAlias = Mapping[Family, Callable[[T], float]]
"""Families, and how the value of each is read from what is looked at."""


# ---- what is looked at -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """A queue, what it holds, when that was (microseconds since 1970), and the bytes of a page."""

    queue: Queue
    usage: QueueUsage
    now_us: int
    page_size: int

    @property
    def oldest_age(self) -> float:
        """The seconds since the oldest ready message was enqueued; 0 without one."""
        since = ready_since(self.usage)
        return 0 if since is None else max(0, self.now_us - since) / MICROS


@dataclass(frozen=True, slots=True)
class SpaceFigures:
    """A queue space, its use, its transactions, and its queues by name, at about the same time."""

    definition: SpaceDefinition
    usage: SpaceUsage
    transactions: tuple[TransactionInfo, ...]
    now_us: int
    page_size: int
    queues: tuple[QueueFigures, ...]

    @property
    def transaction_age(self) -> float:
        """The seconds since its oldest transaction began that has not ended; 0 without one."""
        return self._age(info.since_us for info in self.transactions if not info.state.is_heuristic)

    @property
    def in_doubt_age(self) -> float:
        """The seconds since the first of its transactions in doubt was prepared; 0 without one."""
        return self._age(info.prepared_us or info.since_us for info in self.in_doubt)

    @property
    def in_doubt(self) -> list[TransactionInfo]:
        """Its prepared transactions, which wait for their coordinators."""
        return [info for info in self.transactions if info.state is Outcome.PREPARED]

    @property
    def heuristic(self) -> list[TransactionInfo]:
        """Those that administrators have ended in place of their coordinators, and nobody has forgotten."""
        return [info for info in self.transactions if info.state.is_heuristic]

    def _age(self, moments: Iterable[int]) -> float:
        since = min(moments, default=None)
        return 0 if since is None else max(0, self.now_us - since) / MICROS

    def error_queues(self) -> Iterator[QueueFigures]:
        """Yield the queues that are the error queue of the queue space or of another queue."""
        names = {self.definition.error_queue, *(each.queue.definition.error_queue for each in self.queues)}
        return (each for each in self.queues if each.queue.name in names)


def look(space: QueueSpace) -> SpaceFigures:
    """Return the figures of an open queue space: all of its queues and their consumers are looked at together."""
    device = space.device
    page_size, found = device.info.page_size, space.usages(consumers=True)
    now = device.clock.now()
    return SpaceFigures(
        space.definition,
        device.space_usage(space.name),
        tuple(space.transactions()),
        now,
        page_size,
        tuple(QueueFigures(queue, usage, now, page_size) for queue, usage in found),
    )


def look_if_open(space: QueueSpace | None) -> SpaceFigures | None:
    """Return the figures of a queue space that a program serves; None if it is not open, or cannot be read now."""
    if space is None:
        return None
    try:
        return look(space)
    except QueueError:
        logger.debug("the figures of queue space %r cannot be read", space.name, exc_info=True)
        return None


# ---- what is told of it ----------------------------------------------------------------------------------------------


def _of_queue(name: str, kind: Kind, about: str, unit: str = "messages") -> Family:
    return Family("_".join(filter(None, ("qmadmin_queue", name, unit))), kind, about, unit)


def _counted(name: str, kind: Kind) -> tuple[Family, Callable[[QueueFigures], float]]:
    return _of_queue(name, kind, FIGURES[name].about), lambda queue: getattr(queue.usage, name)


QUEUES: Final[Families[QueueFigures]] = dict(
    (
        *(_counted(name, "gauge") for name in ("ready", "delayed", "parked", "held", "nonpersistent")),
        *(_counted(name, "counter") for name in ("enqueued", "dequeued", "expired", "discarded", "moved")),
        (
            _of_queue(
                "oldest_ready_age",
                "gauge",
                "How long ago the oldest ready message was enqueued, or the next one if the order of the queue does not"
                " show the oldest; 0 without a ready message.",
                "seconds",
            ),
            lambda queue: queue.oldest_age,
        ),
        (_of_queue("body", "gauge", FIGURES["size"].about, "bytes"), lambda queue: queue.usage.size),
        (
            _of_queue("disk", "gauge", "Space that its messages take, retained ones included.", "bytes"),
            lambda queue: queue.usage.pages * queue.page_size,
        ),
        (
            _of_queue("memory", "gauge", "Memory that its non-persistent messages take.", "bytes"),
            lambda queue: queue.usage.memory_pages * queue.page_size,
        ),
        (
            _of_queue("enqueuing_enabled", "gauge", "1 if it is started for enqueuing, 0 if it is stopped.", ""),
            lambda queue: queue.queue.enqueue_enabled,
        ),
        (
            _of_queue("dequeuing_enabled", "gauge", "1 if it is started for dequeuing, 0 if it is stopped.", ""),
            lambda queue: queue.queue.dequeue_enabled,
        ),
    )
)
"""Of each queue."""

ERROR_QUEUES: Final[Families[QueueFigures]] = {
    Family(
        "qmadmin_error_queue_messages",
        "gauge",
        "Messages on a queue that is the error queue of the queue space or of another queue.",
        "messages",
    ): lambda queue: queue.usage.messages
}
"""Of each error queue."""


def _of_space(name: str, about: str, unit: str = "") -> Family:
    return Family("_".join(filter(None, ("qmadmin_space", name, unit))), "gauge", about, unit, ("device", "space"))


SPACES: Final[Families[SpaceFigures]] = {
    _of_space("used", "Queues that there are.", "queues"): lambda it: it.usage.queues,
    _of_space("limit", "Queues that there may be.", "queues"): lambda it: it.definition.queues,
    _of_space("used", "Transactions that others can see.", "transactions"): lambda it: it.usage.transactions,
    _of_space("limit", "Transactions that there may be.", "transactions"): lambda it: it.definition.transactions,
    _of_space("used", "Processes that are attached.", "processes"): lambda it: it.usage.processes,
    _of_space("limit", "Processes that may be attached.", "processes"): lambda it: it.definition.processes,
    _of_space("used", "Messages of all queues.", "messages"): lambda it: it.usage.messages,
    _of_space("limit", "Messages that there may be.", "messages"): lambda it: it.definition.messages,
    _of_space("used", "Blocking dequeues beyond one for each process.", "actions"): lambda it: it.usage.actions,
    _of_space("limit", "Blocking dequeues that there may be.", "actions"): lambda it: it.definition.actions,
    _of_space("used_disk", "Space that messages take.", "bytes"): lambda it: it.usage.pages * it.page_size,
    _of_space("limit_disk", "Space for messages.", "bytes"): lambda it: it.definition.capacity * it.page_size,
    _of_space("used_memory", "Memory that non-persistent messages take.", "bytes"): lambda it: it.usage.memory,
    _of_space("limit_memory", "Memory for non-persistent messages.", "bytes"): lambda it: it.definition.memory,
    _of_space(
        "oldest_transaction_age",
        "How long ago the oldest transaction began that others can see; 0 without one.",
        "seconds",
    ): lambda it: it.transaction_age,
    _of_space(
        "in_doubt",
        "Prepared transactions, which wait for the decision of their coordinators.",
        "transactions",
    ): lambda it: len(it.in_doubt),
    _of_space(
        "oldest_in_doubt_age",
        "How long ago the first of the transactions in doubt was prepared; 0 without one.",
        "seconds",
    ): lambda it: it.in_doubt_age,
    _of_space(
        "heuristic",
        "Transactions that administrators have ended without that decision, and nobody has forgotten.",
        "transactions",
    ): lambda it: len(it.heuristic),
}
"""Of each queue space."""

UP: Final = _of_space("up", "1 if the figures of the queue space could be read, 0 if not; then there are no others.")

FAMILIES: Final = (*QUEUES, *ERROR_QUEUES, *SPACES, UP)
"""Everything that is told of queue spaces and their queues."""
