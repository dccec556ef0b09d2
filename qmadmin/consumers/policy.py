"""How a consumer works: its policy for each queue and for a run over all of them, and its wording."""

from __future__ import annotations

import dataclasses
import enum
import logging
import math


class Order(enum.Enum):
    """What happens to the messages behind one whose call failed."""

    STRICT = "strict"
    """They wait until it is processed, or is out of tries."""
    SKIP = "skip"
    """They are processed while it waits for its retry."""
    PARALLEL = "parallel"
    """They are processed at the same time, as far as there are workers."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How the messages of a queue are processed.

    `seconds` is how long a call may take, `workers` how many calls run at a time, and `batch` how many messages a
    worker takes and commits at once. `transactional`: the handler runs in the transaction. `answers`: there are
    replies, and tries after a failure. `pace` is the least seconds between the starts of two calls. `gives_up`: a
    message whose failure has a reply is not tried again. Raises ValueError for a strict order with several workers.
    """

    seconds: float = math.inf
    workers: int = 1
    batch: int = 1
    order: Order = Order.SKIP
    transactional: bool = True
    answers: bool = True
    pace: float = 0.0
    gives_up: bool = False

    def __post_init__(self) -> None:
        if self.order is Order.STRICT and self.workers > 1:
            raise ValueError(f"a strict order requires one worker, got {self.workers}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """How a consumer runs, and when it ends by itself.

    `idle_seconds` is the longest sleep while there are no messages; an arriving message ends it. 0 means none.
    `grace_seconds` is how long a stop waits for running calls, and `total_workers` how many calls run at a time over
    all queues. `until_empty`: it also ends when none of the queues has a message that can be dequeued. `once`: it ends
    when one message of each queue that has any was processed.
    """

    idle_seconds: float = 60.0
    grace_seconds: float = 30.0
    total_workers: float = math.inf
    until_empty: bool = False
    once: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Wording:
    """What a consumer and its handlers are called in messages, and the names of its threads and of its logger."""

    consumer: str = "the consumer"
    handler: str = "handler"
    thread: str = "qmadmin-consumer"
    logger: logging.Logger = dataclasses.field(default_factory=lambda: logging.getLogger("qmadmin.consumers"))
