"""The options of handlers and of their running, as Python code gives them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypedDict

from qmadmin.consumers import Policy, RunPolicy
from qmadmin.consumers.handling import FLAG, Form, Handling, Key, keys_of, optional, seconds, whole_number
from qmadmin.settings import SECONDS_MAX, ForwarderSettings, meant, shown
from qmcore import names
from qmcore.errors import InvalidArgumentError
from qmcore.values import dataclass

if TYPE_CHECKING:
    from typing import Literal

    from qmcore.backoff import Growth


class HandlerOptions(TypedDict, total=False):
    """How the messages of a queue are handled.

    `workers`: how many calls run at a time, 1 to 1,000; by default 1. `timeout`: how many seconds a call may take (or
    a timedelta); by default as long as it likes. `batch`: how many messages a worker takes and commits together, 1 to
    1,000; by default 1. `order`: what happens to the messages behind one that failed: "skip", they are handled while
    it waits for its next try; "strict", they wait for it, and there is one worker; "parallel", the default with several
    workers, which take messages in order and may finish in any. `transactional`: whether calls of queue spaces
    in the handler belong to its transaction; by default True. `replies`: whether what the handler returns is queued for
    the client, and failures are tried again; by default True. `pace`: the least seconds between the starts of two
    calls. `gives_up`: whether a message whose failure has a body for the client is not tried again, but deleted, and
    the body sent to the failure queue that it names; by default False. With `pace` and `gives_up` the batch is 1.

    `retries`, `retry_delay`, `retry_growth`, `retry_factor`, `retry_maximum`, `retry_jitter`: how a message whose call
    failed is tried again, each in place of the attribute of its queue; `QueueDefinition` says what they mean.
    """

    workers: int
    order: Literal["skip", "strict", "parallel"]
    batch: int
    timeout: float | timedelta | str | None
    retries: int
    retry_delay: int | timedelta | str
    retry_growth: Growth | Literal["none", "linear", "exponential"]
    retry_factor: float
    retry_maximum: int | timedelta | str
    retry_jitter: float
    transactional: bool
    replies: bool
    pace: float | timedelta | str
    gives_up: bool


class RunOptions(TypedDict, total=False):
    """How an application runs, and when it ends by itself.

    `until_empty`: it ends when no queue has a message that can be dequeued. `once`: it ends when one message of each
    queue that has any was handled. `grace`: how many seconds a stop waits for running calls; by default 30. `idle`: how
    many seconds it sleeps at most while the queues have no messages, which an arriving message ends; by default 30, and
    0 means not to sleep. `total_workers`: how many calls run at a time over all queues, at most 10,000; by default 0,
    as many as the handlers have workers. `metrics`: where metrics for Prometheus are served meanwhile, as `[host:]port`
    or a port; by default nowhere.
    """

    until_empty: bool
    once: bool
    grace: float | timedelta | str
    idle: float | timedelta | str
    total_workers: int
    metrics: str | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerTerms(Handling):
    """What an application says of a handler: of its queue, and what tmqforward has as options of the program."""

    transactional: bool = optional(
        FLAG, "Whether calls on the queue space in the handler belong to its transaction.", True, default_help="True"
    )
    replies: bool = optional(
        FLAG,
        "Whether what the handler returns is enqueued for the client, and a failed message is tried again.",
        True,
        default_help="True",
    )
    pace: float = optional(
        seconds(SECONDS_MAX, or_none=True),
        "The least seconds between the starts of two calls; the batch is 1 then.",
        0.0,
        default_help="0",
    )
    gives_up: bool = optional(
        FLAG,
        "Whether a message whose failure has a body for the client is not tried again: it is deleted, and the body goes"
        " to the failure queue that the message names. If the message has used up its retries, it also goes to the"
        " error queue. The batch is 1 then.",
        False,
        default_help="False",
    )


_USUAL: Final = {
    "workers": "1",
    "order": "`parallel` with several workers, and `skip` with one",
    "batch": "1",
    "timeout": "None, as long as it likes",
}
"""The defaults of handlers, where those of services are options of tmqforward."""


def handler_keys() -> dict[str, Key]:
    """Return the options of a handler by name."""
    return {
        name: dataclasses.replace(key, default_help=_USUAL.get(name, key.default_help))
        for name, key in keys_of(HandlerTerms).items()
    }


def policy_of(queue: str, options: Mapping[str, Any]) -> Policy:
    """Return how the messages of a queue are handled; InvalidArgumentError names an option that is not one."""
    names.queue_name(queue)
    what = f"handler of queue {queue!r}"
    given = {name: value for name, value in options.items() if (name, value) != ("timeout", None)}
    forms = {name: key.form for name, key in keys_of(HandlerTerms).items()}
    terms = HandlerTerms(**_read(f"the {what}", f" of the {what}", given, forms))
    if conflict := terms.conflict():
        raise InvalidArgumentError(f"the {what} has a conflict: {conflict}", hint="Use one worker, or another order.")
    return terms.policy(
        Policy(transactional=terms.transactional, answers=terms.replies, pace=terms.pace, gives_up=terms.gives_up)
    )


_RUN_FORMS: Final = {
    "until_empty": FLAG,
    "once": FLAG,
    "grace": seconds(SECONDS_MAX, or_none=True),
    "idle": seconds(SECONDS_MAX, or_none=True),
    "total_workers": whole_number(ForwarderSettings.total_workers.low, ForwarderSettings.total_workers.high),
    "metrics": Form("[HOST:]PORT or None", lambda value: value is None or isinstance(value, str | int)),
}


def run_policy_of(options: Mapping[str, Any]) -> RunPolicy:
    """Return how an application runs; InvalidArgumentError names an option that is not one."""
    said = _read("a run", "", options, _RUN_FORMS)
    return RunPolicy(
        idle_seconds=said.get("idle", ForwarderSettings.idletime.default),
        grace_seconds=said.get("grace", ForwarderSettings.grace.default),
        total_workers=said.get("total_workers") or math.inf,
        until_empty=said.get("until_empty", False),
        once=said.get("once", False),
    )


def _read(what: str, of: str, options: Mapping[str, Any], forms: Mapping[str, Form]) -> dict[str, Any]:
    """Return options as their forms read them; refuse one that is not known or not allowed."""
    found = {}
    for name, given in options.items():
        if name not in forms:
            raise InvalidArgumentError(
                f"{what} has no option {name!r}{meant(name, forms)}", hint=f"The options are {', '.join(forms)}."
            )
        found[name] = value = forms[name].read(given)
        if not forms[name].allows(value):
            raise InvalidArgumentError(f"the {name}{of} must be {forms[name].allowed}, got {shown(given)}")
    return found
