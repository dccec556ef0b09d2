"""Queue spaces and queues that are defined by keywords, with the defaults of the library.

Those of `SpaceDefinition` and `QueueDefinition` are Tuxedo's, where a message that fails once and has no error queue is
lost. Here failures are tried again with growing delays, and in the end the message is kept in an error queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

from qmcore.attributes import given
from qmcore.errors import InvalidArgumentError
from qmcore.queue import QueueDefinition
from qmcore.space import IPC_KEY_RANGE, SpaceDefinition

if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Literal

    from qmcore.backoff import Growth
    from qmcore.limits import Threshold
    from qmcore.order import OutOfOrder, QueueOrder
    from qmcore.queue import Delivery

DEVICE_PAGES: Final = 2**28
"""The size of a device that is made where it is opened, in pages: 1 TiB. No disk is taken before messages need it."""

SPACE_PAGES: Final = 2**22
"""The size of a queue space by keywords, in pages, if the device has so many left: 16 GiB."""

_LEAST_PAGES: Final = 8
"""What is asked for at least, so that a device without free pages says how many it has."""

QUEUE: Final[Mapping[str, Any]] = {
    "retries": 5,
    "retry_delay": 10,
    "retry_growth": "exponential",
    "retry_factor": 3,
    "retry_maximum": 3600,
    "retry_jitter": 0.1,
}
"""The attributes of a queue by keywords: tried again after 10 and 30 seconds, 1.5, 4.5 and 13.5 minutes."""

SPACE: Final[Mapping[str, Any]] = {
    "queues": 1_000,
    "transactions": 1_000,
    "processes": 1_000,
    "messages": 1_000_000,
    "error_queue": "errors",
}
"""The attributes of a queue space by keywords, but for its key and its pages."""


_NOUNS: Final[Mapping[type, str]] = {QueueDefinition: "queue", SpaceDefinition: "queue space"}

D = TypeVar("D", QueueDefinition, SpaceDefinition)


class QueueAttributes(TypedDict, total=False):
    """The attributes of a queue as keywords; `QueueDefinition` says what they mean. Seconds may be timedeltas."""

    order: QueueOrder | str
    out_of_order: OutOfOrder | str
    retries: int
    retry_delay: int | timedelta
    threshold: Threshold
    high: str
    low: str
    command: str
    memory_threshold: Threshold
    memory_high: str
    memory_low: str
    memory_command: str
    delivery: Delivery | Literal["persist", "nonpersist"]
    expiration: int | timedelta | None
    error_queue: str
    keep_expired: bool
    grouping: bool
    retention: int | timedelta
    retry_growth: Growth | Literal["none", "linear", "exponential"]
    retry_factor: float
    retry_maximum: int | timedelta
    retry_jitter: float
    default_delay: int | timedelta
    multiple_consumers: bool


class SpaceAttributes(TypedDict, total=False):
    """The attributes of a queue space as keywords; `SpaceDefinition` says what they mean."""

    ipc_key: int
    pages: int
    queues: int
    transactions: int
    processes: int
    messages: int
    error_queue: str
    blocking: int
    actions: int
    memory: int
    overflow: int
    handles: int
    cursors: int
    owners: int
    temporary_queues: int
    filter_memory: int


def queue_definition(named: QueueDefinition | str, attributes: Mapping[str, Any]) -> QueueDefinition:
    """Return the definition of a queue that is to be created, which may be given by its name and keywords."""
    if isinstance(named, QueueDefinition):
        refuse_keywords(f"queue {named.name!r}", attributes)
        return named
    return given(QueueDefinition, {**QUEUE, **attributes, "name": _name(named, QueueDefinition)}, f"queue {named!r}")


def changed(present: D, wanted: D | str, attributes: Mapping[str, Any]) -> D:
    """Return what the definition of a queue, or of a queue space, changes to: a definition, or keywords."""
    what = f"{_NOUNS[type(present)]} {present.name!r}"
    if isinstance(wanted, str):
        return given(type(present), attributes, what, present)
    refuse_keywords(what, attributes)
    return wanted


def space_definition(
    name: object, attributes: Mapping[str, Any], free_pages: int, keys: Iterable[int]
) -> SpaceDefinition:
    """Return the definition of a queue space by its name and keywords.

    `free_pages` is how many pages it can have, `keys` are the IPC keys that other queue spaces of the device have.
    """
    first, last = IPC_KEY_RANGE
    taken = {*keys}
    chosen: dict[str, Any] = {
        "ipc_key": next((key for key in range(first, last + 1) if key not in taken), first),
        "pages": max(_LEAST_PAGES, min(SPACE_PAGES, free_pages)),
    }
    values = {**chosen, **SPACE, **attributes, "name": _name(name, SpaceDefinition)}
    if "pages" not in attributes:
        # A small device has one page for each queue, and the rest holds messages.
        values["queues"] = attributes.get("queues", min(values["queues"], max(1, values["pages"] // 4)))
    return given(SpaceDefinition, values, f"queue space {name!r}")


def _name(named: object, definition: type) -> str:
    if not isinstance(named, str):
        raise InvalidArgumentError(
            f"a name or a {definition.__name__} was expected, got {named!r}",
            hint="Attributes are given as keywords after the name.",
        )
    return named


def refuse_keywords(what: str, attributes: Mapping[str, Any]) -> None:
    """Refuse keywords beside a definition, which has all attributes."""
    if attributes:
        raise InvalidArgumentError(
            f"{what} is given by its definition, and {', '.join(sorted(attributes))} besides",
            hint="Put them into the definition, or give the name in place of it.",
        )
