"""The options of handlers and of their running, as Python code gives them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from qmadmin.consumers import BATCH_MAX, WORKERS_MAX, Order, Policy, RunPolicy
from qmadmin.settings import SECONDS_MAX
from qmcore import names
from qmcore.checks import check_int, flag_of, number_of
from qmcore.errors import InvalidArgumentError
from qmcore.queue import RetryPolicy, kept_for_retries

if TYPE_CHECKING:
    from typing import Literal

    from qmcore.backoff import Growth


class HandlerOptions(TypedDict, total=False):
    """How the messages of a queue are handled.

    `workers`: how many calls run at a time, 1 to 1,000; by default 1. `timeout`: how many seconds a call may take (or
    a timedelta); by default as long as it likes. `batch`: how many messages a worker takes and commits together, 1 to
    1,000; by default 1. `order`: what happens to the messages behind one that failed: "skip" (the default), they are
    handled while it waits for its next try; "strict", they wait for it. `transactional`: whether calls of queue spaces
    in the handler belong to its transaction; by default True. `replies`: whether what the handler returns is queued for
    the client, and failures are tried again; by default True. `pace`: the least seconds between the starts of two
    calls.

    `retries`, `retry_delay`, `retry_growth`, `retry_factor`, `retry_maximum`, `retry_jitter`: how a message whose call
    failed is tried again, each in place of the attribute of its queue; `QueueDefinition` says what they mean.
    """

    workers: int
    timeout: float | timedelta | None
    batch: int
    order: Literal["skip", "strict"]
    transactional: bool
    replies: bool
    pace: float | timedelta
    retries: int
    retry_delay: int | timedelta
    retry_growth: Growth | Literal["none", "linear", "exponential"]
    retry_factor: float
    retry_maximum: int | timedelta
    retry_jitter: float


class RunOptions(TypedDict, total=False):
    """How an application runs, and when it ends by itself.

    `until_empty`: it ends when no queue has a message that can be dequeued. `once`: it ends when one message of each
    queue that has any was handled. `grace`: how many seconds a stop waits for running calls; by default 30.
    `total_workers`: how many calls run at a time over all queues; by default as many as the handlers have.
    """

    until_empty: bool
    once: bool
    grace: float | timedelta
    total_workers: int


def policy_of(queue: str, options: Mapping[str, Any]) -> Policy:
    """Return how the messages of a queue are handled; InvalidArgumentError names an option that is not one."""
    names.queue_name(queue)
    what = f"handler of queue {queue!r}"
    _refuse_unknown(what, options, HandlerOptions)
    timeout = options.get("timeout")
    workers = check_int(options.get("workers", 1), f"workers of the {what}", 1, WORKERS_MAX)
    order = options.get("order", "skip")
    if order not in ("skip", "strict"):
        raise InvalidArgumentError(f"the order of the {what} must be skip or strict, got {order!r}")
    if order == "strict" and workers > 1:
        raise InvalidArgumentError(f"the {what} has a strict order and {workers} workers, and needs one worker for it")
    if order == "skip" and workers > 1:
        order = "parallel"
    return Policy(
        seconds=math.inf if timeout is None else _span(timeout, f"timeout of the {what}"),
        workers=workers,
        batch=check_int(options.get("batch", 1), f"batch of the {what}", 1, BATCH_MAX),
        order=Order(order),
        transactional=_flag(options.get("transactional", True), f"option transactional of the {what}"),
        answers=_flag(options.get("replies", True), f"option replies of the {what}"),
        pace=_span(options.get("pace", 0), f"pace of the {what}"),
        retry_policy=RetryPolicy(**kept_for_retries(options, f"the {what}")),
    )


def run_policy_of(options: Mapping[str, Any]) -> RunPolicy:
    """Return how an application runs; InvalidArgumentError names an option that is not one."""
    _refuse_unknown("a run", options, RunOptions)
    total = options.get("total_workers", math.inf)
    return RunPolicy(
        grace_seconds=_span(options.get("grace", 30.0), "grace"),
        total_workers=total if total == math.inf else check_int(total, "number of total_workers", 1, WORKERS_MAX),
        until_empty=_flag(options.get("until_empty", False), "option until_empty"),
        once=_flag(options.get("once", False), "option once"),
    )


def _refuse_unknown(what: str, options: Mapping[str, Any], known: type) -> None:
    for name in options:
        if name not in known.__annotations__:
            raise InvalidArgumentError(
                f"{what} has no option {name!r}", hint=f"The options are {', '.join(known.__annotations__)}."
            )


def _span(value: object, what: str) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else number_of(value)
    if seconds is None or flag_of(value) is not None or not 0 <= seconds <= SECONDS_MAX:
        raise InvalidArgumentError(f"the {what} must be seconds from 0 to {SECONDS_MAX}, got {value!r}")
    return float(seconds)


def _flag(value: object, what: str) -> bool:
    flag = flag_of(value)
    if flag is None:
        raise InvalidArgumentError(f"the {what} must be True or False, got {value!r}")
    return flag
