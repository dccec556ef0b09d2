"""On which terms the messages of a queue are forwarded: what the options and the services file say, put together."""

from __future__ import annotations

import dataclasses
import enum
import math


class Order(enum.Enum):
    """What becomes of the messages behind one whose service failed."""

    STRICT = "strict"
    """They wait until it is forwarded, or is out of tries."""
    SKIP = "skip"
    """They are forwarded while it waits for its retry."""
    PARALLEL = "parallel"
    """They are forwarded at the same time, as far as there are workers."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On which terms the messages of a queue are forwarded.

    `seconds` is how long a call may take, `workers` how many calls run at a time, and `batch` how many messages a
    worker takes and commits at once. `transactional`: the service works in the transaction (not so with -n).
    `answers` says that there are replies, and tries after a failure (not so with -f), and `pace` how many seconds lie
    between the begin of two calls (-f). `gives_up`: a request whose failure has a reply is not tried again (-d).
    """

    seconds: float = math.inf
    workers: int = 1
    batch: int = 1
    order: Order = Order.SKIP
    transactional: bool = True
    answers: bool = True
    pace: float = 0.0
    gives_up: bool = False
