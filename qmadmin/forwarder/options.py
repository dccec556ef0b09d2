"""The options of tmqforward, each declared once, and the settings that they give."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click

from qmadmin.console.formats import Format
from qmadmin.console.results import Entry, Notice, Severity
from qmadmin.consumers import Policy, RunPolicy
from qmadmin.forwarder import StartError, UsageError
from qmadmin.forwarder.descriptions import Description
from qmadmin.monitoring.metrics_server import Address
from qmadmin.options import Declared, Span, metrics_option, option
from qmadmin.settings import SECONDS_MAX, ForwarderSettings, LogSettings
from qmcore import names, times
from qmcore.errors import InvalidArgumentError
from qmcore.values import dataclass

T = TypeVar("T")


def settings_of(given: Mapping[str, Any], device: str, space: str, usual: ForwarderSettings, warn: Warn) -> Settings:
    """Return the settings of the forwarder: the given options, by names of parameters, or else the usual settings."""
    delay, is_outside = span_of("-f", given["pace"], None, warn), given["non_transactional"]
    return Settings(
        device=device,
        space=space,
        queues=queue_names(given["queues"]),
        services=given["services"] or usual.services,
        trantime=span_of("-t", given["trantime"], usual.trantime, warn),
        idletime=span_of("-i", given["idletime"], usual.idletime, warn),
        grace=usual.grace if given["grace"] is None else given["grace"],
        workers=worker_count(given["workers"], usual.workers, forgets=delay is not None),
        total_workers=usual.total_workers if given["total_workers"] is None else given["total_workers"],
        order=given["order"] or usual.order.replace("auto", ""),
        batch=given["batch"] or usual.batch,
        until_empty=given["until_empty"],
        metrics=metrics_address(given["metrics"], usual.metrics),
        once=given["once"],
        gives_up=given["gives_up"],
        transactional=not is_outside,
        pace=delay,
        blocktime=block_time(given["blocktime"], warn, has_meaning=is_outside or delay is not None),
    )


OPTIONS: Final[tuple[Declared, ...]] = (
    option(
        "-q QUEUE[,QUEUE...]",
        "queues",
        multiple=True,
        help="The queues to forward [default: those of all services in the file].",
        more="May be given several times; a queue that is named twice is served once.",
    ),
    option(
        "-t TRANTIME",
        "trantime",
        setting=ForwarderSettings.trantime,
        help="Seconds that a request may take; 0 means no limit.",
        more="This is the timeout of the transaction around the call. A call that is still running then is ended, and"
        " has failed.",
    ),
    option(
        "-i IDLETIME",
        "idletime",
        setting=ForwarderSettings.idletime,
        help="How many seconds to sleep at most while there is nothing to do.",
        more="An arriving message ends the sleep. With 0 the queues are polled without a pause.",
    ),
    option(
        "-e",
        "until_empty",
        help="End when the queues are empty.",
        more="Delayed messages, and those that other processes hold, do not count.",
    ),
    option(
        "-d",
        "gives_up",
        help="Do not retry a request whose failed service returns a reply.",
        more="When a service fails and returns a reply, the request is deleted, and the reply goes to the failure queue"
        " that the request names, with its user return code. If the request has used up its retries, it also goes to"
        " the error queue.",
    ),
    option(
        "-n",
        "non_transactional",
        help="Call services outside the transaction.",
        more="A message that a service enqueues is then enqueued at once, and stays if the call fails. Dequeuing the"
        " request and enqueuing the reply are still one transaction.",
    ),
    option(
        "-f DELAY",
        "pace",
        help="Fire and forget: send no replies and do not retry; the delay is the seconds between two calls.",
        more="A message whose call fails goes to the error queue, or is discarded if there is none. The calls of a"
        " queue begin at least DELAY seconds apart; 0 means no delay. The default number of workers is then 32.",
    ),
    option(
        "-b TIMEOUT", "blocktime", help="With -n or -f: seconds that a call may take, in place of -t; 0 means no limit."
    ),
    option(
        "-w, --workers NUMBER",
        type=click.IntRange(1, 1000),
        setting=ForwarderSettings.workers,
        help="How many calls of a service run at a time, unless the services file says otherwise.",
    ),
    option(
        "--total-workers NUMBER",
        type=click.IntRange(0, 10_000),
        setting=ForwarderSettings.total_workers,
        help="How many calls of all services run at a time; 0 means no limit.",
        more="If it is at least the number of queues, one worker is reserved for each queue that has none running, so"
        " that a slow service does not delay the others. When all are busy, the message with the highest priority is"
        " next.",
    ),
    option(
        "--order strict|skip|parallel",
        setting=ForwarderSettings.order,
        help="What happens to the messages behind one whose service failed, unless the services file says otherwise.",
        more="`strict`: they wait until it has succeeded or left the queue. `skip`: they go first while it waits for"
        " its retry. `parallel`: as many calls run at a time as there are workers. `auto`, which is only possible in"
        " the settings, means `parallel` with several workers and `skip` with one.",
    ),
    option(
        "--batch NUMBER",
        type=click.IntRange(1, 1000),
        setting=ForwarderSettings.batch,
        help="How many messages a worker takes and commits together, unless the services file says otherwise.",
        more="Larger batches cost less for each message. If the daemon is killed, the service is called again for all"
        " messages that were not committed.",
    ),
    option(
        "--grace SECONDS",
        type=Span(0, SECONDS_MAX),
        setting=ForwarderSettings.grace,
        help="How many seconds a stop waits for running calls.",
    ),
    option(
        "--once",
        help="Forward one message of each queue that has any, and end.",
        more="The exit status is 1 if a call failed.",
    ),
    option(
        "--check",
        help="Report what is wrong with the services, and forward nothing.",
        more="The device, the queues, the services file and each service are checked.",
    ),
    option("-s FILE", "services", setting=ForwarderSettings.services, help="The file that describes the services."),
    option(f"--log-format {'|'.join(LogSettings.format.choices)}", setting=LogSettings.format),
    option(f"--log-level {'|'.join(ForwarderSettings.log_level.choices)}", setting=ForwarderSettings.log_level),
    option("-v, --verbose", help="Log each call, as --log-level debug does."),
    metrics_option(ForwarderSettings.metrics),
    option(
        "--status",
        help="Show the processes that forward the queues, with statistics; forward nothing.",
        more="Without -q, for all queues that are forwarded. Permission to read the device is enough.",
    ),
    option(
        "--format FORMAT",
        "form",
        type=click.Choice(("auto", *(form.value for form in Format))),
        help="With --status, write table, plain, json or csv.",
        more="Without it a table at a terminal, and plain otherwise.",
    ),
)


TRANTIME_MAX: Final = SECONDS_MAX

FORGETTING_WORKERS: Final = 32
"""Concurrent calls of a service with -f, unless a number is given."""

_NOT_NUMERIC: Final = "{option} option ignored as argument must be numeric"
_TOO_LARGE: Final = "{option} option ignored as argument is too large (must be below {limit})"
_NUMBERS: Final = {("-t", _NOT_NUMERIC): 1602, ("-t", _TOO_LARGE): 1603, ("-i", _NOT_NUMERIC): 1604}

CATALOGUE = tuple(
    Entry(number, Severity.WARN, form.replace("{option}", option)) for (option, form), number in _NUMBERS.items()
)
"""The sentences of Tuxedo's message catalogue that concern the forwarder, by number."""

Warn = Callable[[Notice], None]
"""Takes a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the forwarder serves, and how. Times are seconds; a transaction time of 0 means no limit.

    `queues` is empty if all services of the file are served. `workers`, `order` and `batch` apply unless the services
    file says otherwise; `total_workers` 0 means no limit. `pace` is the delay of -f, None without it, and `blocktime`
    the value of -b.
    """

    device: str
    space: str
    queues: tuple[str, ...]
    services: str
    trantime: int
    idletime: int
    grace: int = 30
    workers: int = 1
    total_workers: int = 0
    order: str = ""
    batch: int = 1
    until_empty: bool = False
    once: bool = False
    gives_up: bool = False
    transactional: bool = True
    pace: int | None = None
    blocktime: int | None = None
    metrics: Address | None = None

    @property
    def call_seconds(self) -> float:
        """How many seconds a call may take."""
        if self.blocktime is not None:
            return self.blocktime or math.inf
        return self.trantime or math.inf

    @property
    def options(self) -> str:
        """The settings as Tuxedo's options would be written, and whether each queue is polled once."""
        flags = {"-e": self.until_empty, "-d": self.gives_up, "-n": not self.transactional, "--once": self.once}
        numbers = {"-t": self.trantime, "-i": self.idletime, "-f": self.pace, "-b": self.blocktime}
        said = [f"{option} {number}" for option, number in numbers.items() if number is not None]
        return " ".join((*said, *(option for option, given in flags.items() if given)))

    @property
    def run_policy(self) -> RunPolicy:
        """How the forwarder runs, and when it ends."""
        return RunPolicy(
            idle_seconds=self.idletime,
            grace_seconds=self.grace,
            total_workers=self.total_workers or math.inf,
            until_empty=self.until_empty,
            once=self.once,
        )

    def policy(self, description: Description | None) -> Policy:
        """Return the policy of a queue whose service has this description; None if it has none.

        Raises StartError if the two contradict each other.
        """
        said = description or Description(name="")
        usual = Policy(
            seconds=self.call_seconds,
            workers=self.workers,
            batch=self.batch,
            transactional=self.transactional,
            answers=self.pace is None,
            pace=self.pace or 0,
            gives_up=self.gives_up,
        )
        try:
            return said.policy(usual, self.order)
        except ValueError:
            raise StartError(
                f"service {said.name!r} has {said.workers or self.workers} workers, and a strict order requires one",
                "Use one worker, or another order.",
            ) from None


def place(arguments: Sequence[str], usual_device: str) -> tuple[str, str]:
    """Return device and queue space from the arguments; with one argument, the device is the usual one."""
    if len(arguments) > 2:
        raise UsageError(f"Invalid argument {arguments[2]}")
    if len(arguments) == 2:
        return arguments[0], arguments[1]
    if not arguments:
        raise UsageError("no queue space is named")
    if not usual_device:
        raise UsageError(f"QMCONFIG not set, and no device is named before queue space {arguments[0]!r}")
    return usual_device, arguments[0]


def queue_names(options: Sequence[str]) -> tuple[str, ...]:
    """Return the names in the values of -q, each once, in their order."""
    listed = [name for option in options for name in option.split(",")]
    try:
        return tuple(dict.fromkeys(names.queue_name(name.strip()) for name in listed))
    except InvalidArgumentError as error:
        raise UsageError(f"-q {','.join(options)!r}: {error.message}") from None


def metrics_address(text: str | None, usual: str) -> Address | None:
    """Return the address of --metrics, or else that of the settings; None if it is empty."""
    chosen = usual if text is None else text
    try:
        return Address.parse(chosen) if chosen else None
    except InvalidArgumentError as error:
        raise UsageError(error.message) from None


def span_of(option: str, text: str | None, usual: T, warn: Warn) -> int | T:
    """Return the seconds that an option gives, or the usual ones; one without meaning is warned about and ignored."""
    if text is None:
        return usual
    text = times.in_seconds(text)
    # Very many digits would take long to parse, and Python refuses them.
    if text.isascii() and text.isdigit() and len(text) < 4000:
        if int(text) <= TRANTIME_MAX:
            return int(text)
        form = _TOO_LARGE
    else:
        form = _NOT_NUMERIC
    fault = form.format(option=option, limit=TRANTIME_MAX + 1)
    warn(Notice(Severity.WARN, fault, number=_NUMBERS.get((option, form))))
    return usual


def block_time(text: str | None, warn: Warn, *, has_meaning: bool) -> int | None:
    """Return the seconds that -b gives, which applies with -n or -f only."""
    value = span_of("-b", text, None, warn)
    if value is not None and not has_meaning:
        warn(Notice.warning("-b option ignored as neither -n nor -f is given"))
        return None
    return value


def worker_count(asked: int | None, usual: int, *, forgets: bool) -> int:
    """Return how many calls of a service run at a time; without replies the default is larger."""
    if asked is not None:
        return asked
    return max(usual, FORGETTING_WORKERS) if forgets else usual
