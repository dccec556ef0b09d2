"""A queue: what an administrator defines about it, and what it holds."""

from __future__ import annotations

import copy
import dataclasses
import enum
import sys
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from operator import attrgetter
from typing import Any, Final

from qmcore import names
from qmcore.attributes import (
    Attribute,
    Decimal,
    Flag,
    Limits,
    Plain,
    Seconds,
    Text,
    Whole,
    Written,
    attribute,
    attributes_of,
    declared,
    keep,
    plain,
)
from qmcore.backoff import FACTOR_DEFAULT, FACTOR_MAX, Backoff, Growth
from qmcore.errors import InvalidArgumentError
from qmcore.limits import Threshold
from qmcore.order import OutOfOrder, QueueOrder
from qmcore.times import MICROS
from qmcore.values import dataclass

RETRIES_MAX = 2**31 - 1
DELAY_MAX = 2**31 - 1
EXPIRATION_MAX = 2**31 - 1
RETENTION_MAX = 2**31 - 1
FOREVER = -1
"""The retention that never ends."""


class Delivery(enum.Enum):
    """Where messages are kept: on disk, or in memory that is lost on restart.

    A sender may also ask for DEFAULT, to say explicitly that the queue decides; no stored message has this value.
    """

    PERSIST = "persist"
    NONPERSIST = "nonpersist"
    DEFAULT = "default"

    # An Enum's own is a function in Python, and each message is counted by where it is kept.
    __hash__ = object.__hash__


KEPT = (Delivery.PERSIST, Delivery.NONPERSIST)
"""Where messages can be kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDefinition:
    """The attributes of a queue, as qcreate sets them.

    `retries` is how often a message that is rolled back returns (0: never), `retry_delay` the seconds for which
    it is then unavailable. From the second try on the delay grows as `retry_growth` says: by `retry_delay` each time
    (LINEAR), or by the factor `retry_factor` (EXPONENTIAL), to `retry_maximum` seconds at most (0: without limit).
    `retry_jitter` is the fraction, 0 to 1, by which it is shortened at random.

    With `multiple_consumers` each message is for all that subscribe to the queue (`QueueSpace.subscribe`), and each
    takes it for itself.

    `default_delay` is the seconds for which a message is unavailable at first whose sender asks for no time,
    `expiration` the seconds after which a message without an expiry of its own expires (None: never). `error_queue` is
    used in place of the queue space's, and with `keep_expired` expired messages go to it too. `grouping` keeps the
    messages of one transaction together: one consumer at a time gets them. `retention` is how many seconds consumed
    messages are retained, FOREVER or 0. Seconds may be given as timedeltas.
    """

    name: str = field(metadata=declared(Text("queue name", names.queue_name), "The name of the queue.", fixed=True))
    order: QueueOrder = attribute(
        QueueOrder(),
        Written("order{}", QueueOrder, QueueOrder.parse),
        "The order in which messages are dequeued, which cannot be changed later.",
        fixed=True,
    )
    out_of_order: OutOfOrder = attribute(
        OutOfOrder.NONE,
        Written("out_of_order{}", OutOfOrder, OutOfOrder.parse),
        "Which exceptions to the order an enqueue may ask for.",
    )
    retries: int = attribute(
        0, Whole("number of retries{}", 0, RETRIES_MAX), "How often a message that is rolled back returns to the queue."
    )
    retry_delay: int = attribute(
        0, Seconds("retry delay{} in seconds", DELAY_MAX), "How long a message is unavailable after a rollback."
    )
    threshold: Threshold = attribute(Threshold.none(), Limits("threshold{}"), "persistent messages")
    memory_threshold: Threshold = attribute(
        Threshold.none(), Limits("memory_threshold{}", "memory_"), "non-persistent messages"
    )
    delivery: Delivery = attribute(
        Delivery.PERSIST,
        Written("delivery{}", Delivery, Delivery, attrgetter("value"), tuple(kept.value for kept in KEPT)),
        "Where messages are kept if the sender does not say.",
    )
    expiration: int | None = attribute(
        None,
        Seconds("default expiration{} in seconds", EXPIRATION_MAX, endless=None),
        "When messages expire if the sender does not say.",
    )
    error_queue: str = attribute(
        "",
        Text("error queue name{}", names.queue_name, optional=True),
        "The error queue of its messages, in place of that of the queue space.",
    )
    keep_expired: bool = attribute(False, Flag("keep_expired{}"), "Whether messages that expire go to the error queue.")
    grouping: bool = attribute(
        False,
        Flag("grouping{}"),
        "Whether the messages of one transaction stay together, so that one consumer at a time gets them. This cannot"
        " be changed later.",
        fixed=True,
    )
    retention: int = attribute(
        0,
        Seconds("retention{} in seconds", RETENTION_MAX, endless=FOREVER),
        "How long messages are retained after they were consumed.",
    )
    retry_growth: Growth = attribute(
        Growth.NONE,
        Written("retry growth{}", Growth, Growth, attrgetter("value"), tuple(growth.value for growth in Growth)),
        "How the retry delay grows with each try: not at all, by itself, or by a factor.",
        since=3,
    )
    retry_factor: float = attribute(
        FACTOR_DEFAULT,
        Decimal("retry factor{}", 1, FACTOR_MAX),
        "By what the retry delay is multiplied with each try, if its growth is exponential.",
        since=3,
    )
    retry_maximum: int = attribute(
        0,
        Seconds("maximum retry delay{} in seconds", DELAY_MAX),
        "The longest retry delay, however it grows; 0 is without limit.",
        since=3,
    )
    retry_jitter: float = attribute(
        0.0,
        Decimal("retry jitter{}", 0, 1),
        "The fraction, 0 to 1, by which a retry delay is shortened at most, at random.",
        since=3,
    )
    default_delay: int = attribute(
        0,
        Seconds("default delay{} in seconds", DELAY_MAX),
        "How long a message is unavailable at first if its sender asks for no time.",
        since=3,
    )
    multiple_consumers: bool = attribute(
        False,
        Flag("multiple_consumers{}"),
        "Whether each message goes to all that subscribe to the queue, and not to one consumer. This cannot be changed"
        " later.",
        fixed=True,
        since=4,
    )

    def __post_init__(self) -> None:
        keep(self, f"queue {self.name!r}")
        if self.multiple_consumers:
            self._refuse_for_several()
        if self.delivery not in KEPT:
            raise InvalidArgumentError(f"queue {self.name!r} needs a delivery of its own: persist or nonpersist")
        if self.grouping and self.delivery is Delivery.NONPERSIST:
            raise InvalidArgumentError(f"queue {self.name!r} cannot group non-persistent messages")

    def _refuse_for_several(self) -> None:
        """Refuse what a queue for several consumers cannot have."""
        has = {
            "group messages": self.grouping,
            "keep messages in memory": self.delivery is Delivery.NONPERSIST,
            "retain messages": bool(self.retention),
            "have a capacity command": bool(self.commands),
        }
        for what, given in has.items():
            if given:
                raise InvalidArgumentError(
                    f"queue {self.name!r} is for several consumers, and cannot {what}",
                    hint="Make it a queue for one consumer, or leave that out.",
                    queue=self.name,
                )

    @property
    def backoff(self) -> Backoff:
        """How long a message that was rolled back is unavailable."""
        return Backoff(
            self.retry_delay * MICROS,
            self.retry_growth,
            self.retry_factor,
            self.retry_maximum * MICROS,
            self.retry_jitter,
        )

    @property
    def commands(self) -> list[str]:
        """The capacity commands, each once."""
        return sorted({self.threshold.command, self.memory_threshold.command} - {""})


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How a message that failed is tried again, in place of what its queue says.

    The fields are attributes of `QueueDefinition`, with the same ranges and units; what is None is as the queue has it.
    """

    retries: int | None = None
    retry_delay: int | None = None
    retry_growth: Growth | None = None
    retry_factor: float | None = None
    retry_maximum: int | None = None
    retry_jitter: float | None = None

    def __post_init__(self) -> None:
        for name, value in kept_for_retries(self.given(), "a retry policy").items():
            object.__setattr__(self, name, value)

    def given(self) -> dict[str, Any]:
        """Return what it says, by the names of the attributes."""
        return {name: value for name in RETRY_ATTRIBUTES if (value := getattr(self, name)) is not None}

    def over(self, definition: QueueDefinition) -> QueueDefinition:
        """Return a definition of a queue with what the policy says in place of its own."""
        said = self.given()
        return dataclasses.replace(definition, **said) if said else definition


RETRY_ATTRIBUTES: Final = tuple(field.name for field in dataclasses.fields(RetryPolicy))
"""The attributes of a queue that say how messages are tried again."""


def kept_for_retries(values: Mapping[str, Any], of: str) -> dict[str, Any]:
    """Return what values, by names, say of retries, as it is stored; InvalidArgumentError names the object `of`."""
    return {name: ATTRIBUTES[name].kind.kept(values[name], of) for name in RETRY_ATTRIBUTES if name in values}


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as it is stored: its number in the volume, its definition, and which directions are started.

    To a store a consumer of a queue for several is what a queue is: messages stand in its order until it takes them.
    Its number is one of a queue's, its name has that of the queue before a colon, and it is defined as that is.
    `parent_id` is the number of the queue whose messages they are; 0 for a queue. It has subscribed
    `since_us`; `going`: it has unsubscribed. It wants what its `rule` is true of and of which the topic fits one of
    `topics`; where either is empty it asks for nothing.
    """

    id: int
    space_id: int
    definition: QueueDefinition
    enqueue_enabled: bool = attribute(True, Flag("enqueue_enabled{}"), "Whether messages can be enqueued.")
    dequeue_enabled: bool = attribute(True, Flag("dequeue_enabled{}"), "Whether messages can be dequeued.")
    parent_id: int = 0
    since_us: int = 0
    going: bool = False
    rule: str = ""
    topics: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self.definition.name

    @property
    def messages_of(self) -> int:
        """The number of the queue whose messages stand there."""
        return self.parent_id or self.id

    @property
    def attributes(self) -> dict[str, Plain]:
        """All its attributes in their plain form, by name."""
        return plain(self.definition) | plain(self)

    def consumer(self, record: ConsumerRecord) -> Queue:
        """Return a consumer of this queue, as it is defined now."""
        definition = copy.copy(self.definition)
        # A name of a queue and one of a subscription: the limits of each hold where it is given.
        object.__setattr__(definition, "name", record.full_name)
        object.__setattr__(definition, "multiple_consumers", False)
        return dataclasses.replace(
            self,
            id=record.id,
            definition=definition,
            parent_id=self.id,
            since_us=record.since_us,
            going=record.going,
            rule=record.rule,
            topics=record.topics,
        )


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """A consumer of a queue for several as it is stored: its number, that of the queue, since when it gets messages.

    `full_name` is the name of the queue, a colon, and its own. `going`: it has unsubscribed, and what it had is on the
    way out. `rule` and `topics` are as in `Queue`.
    """

    id: int
    queue_id: int
    full_name: str
    since_us: int
    going: bool = False
    rule: str = ""
    topics: tuple[str, ...] = ()


AS_ITS_QUEUE_SAYS: Final = RetryPolicy()

ATTRIBUTES: Final = attributes_of(QueueDefinition) | attributes_of(Queue)
"""The attributes of a queue by their names, as every face knows them."""


def _figure(about: str, unit: str = "") -> dict[str, Attribute]:
    return declared(Whole("", 0, sys.maxsize, unit), about)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueUsage:
    """What a queue holds now, and its counters since it was created.

    `messages` counts all: `ready`, `delayed` (not yet available), `parked` (put aside without a time, and not among
    the delayed ones) and `held` (by a transaction). `size` is the total
    length of the bodies in bytes, `pages` the pages of the device, including those of retained messages.
    `nonpersistent` is how many of the messages are kept in memory, in `memory_pages` pages of it. `first_us` is when
    the first message in order was enqueued; `oldest_us` when the oldest ready one was, None also if the order depends
    on times and does not show it. The counters include non-persistent messages since their memory was created.
    """

    messages: int = field(metadata=_figure("Messages that it holds."))
    ready: int = field(metadata=_figure("Messages that can be dequeued."))
    delayed: int = field(metadata=_figure("Messages that are not available yet."))
    parked: int = field(default=0, metadata=_figure("Messages that are put aside without a time."))
    held: int = field(metadata=_figure("Messages that transactions hold."))
    pages: int = field(metadata=_figure("Pages that its messages take.", "pages"))
    size: int = field(metadata=_figure("Length of the bodies of its messages.", "bytes"))
    enqueued: int = field(metadata=_figure("Messages that were ever enqueued."))
    dequeued: int = field(metadata=_figure("Messages that were dequeued."))
    expired: int = field(metadata=_figure("Messages that expired."))
    discarded: int = field(metadata=_figure("Messages that were discarded."))
    moved: int = field(metadata=_figure("Messages that were moved elsewhere."))
    nonpersistent: int = field(default=0, metadata=_figure("Messages that are kept in memory."))
    memory_pages: int = field(default=0, metadata=_figure("Pages of memory that those messages take.", "pages"))
    first_us: int | None = None
    oldest_us: int | None = None


FIGURES: Final = attributes_of(QueueUsage)
"""What is counted of a queue, by name, as every face knows it."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A consumer that has subscribed to a queue for several: what is enqueued there since then is for it, too.

    Messages are taken by its `name` (`dequeue(queue, consumer=name)`), or with `queue:name` for the queue. With a
    `rule` it gets those of which that is true, with `topics` those whose topic fits one of these patterns.
    """

    queue: str
    name: str
    since: datetime
    rule: str | None = None
    topics: tuple[str, ...] = ()
