"""The options of tmqforward, each declared once, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from qmadmin.console.formats import Format
from qmadmin.forwarder import settings as choices
from qmadmin.forwarder.settings import Settings, Warn
from qmadmin.options import Option, Span
from qmadmin.settings import SECONDS_MAX, ForwarderSettings, LogSettings

Command = TypeVar("Command", bound=Callable[..., Any])


def settings_of(given: Mapping[str, Any], device: str, space: str, usual: ForwarderSettings, warn: Warn) -> Settings:
    """Return what the forwarder is to do: what was given, by the names of parameters, and else the usual settings."""
    delay, is_outside = choices.other_time("-f", given["pace"], warn), given["non_transactional"]
    return Settings(
        device=device,
        space=space,
        queues=choices.queue_names(given["queues"]),
        services=given["services"] or usual.services,
        trantime=choices.transaction_time(given["trantime"], usual.trantime, warn),
        idletime=choices.idle_time(given["idletime"], usual.idletime, warn),
        grace=usual.grace if given["grace"] is None else given["grace"],
        workers=choices.worker_count(given["workers"], usual.workers, forgets=delay is not None),
        total_workers=usual.total_workers if given["total_workers"] is None else given["total_workers"],
        order=given["order"] or usual.order.replace("auto", ""),
        batch=given["batch"] or usual.batch,
        until_empty=given["until_empty"],
        metrics=choices.metrics_address(given["metrics"], usual.metrics),
        once=given["once"],
        gives_up=given["gives_up"],
        transactional=not is_outside,
        pace=delay,
        blocktime=choices.block_time(given["blocktime"], warn, has_meaning=is_outside or delay is not None),
    )


_OPTIONS: Final = (
    click.option(
        "-q",
        "queues",
        cls=Option,
        metavar="QUEUE[,QUEUE...]",
        multiple=True,
        help="The queues to forward [default: those of all services in the file].",
        more="May be given several times; a queue that is named twice is served once.",
    ),
    click.option(
        "-t",
        "trantime",
        cls=Option,
        metavar="TRANTIME",
        setting=ForwarderSettings.trantime,
        help="Seconds that a request may take; 0 means no limit.",
        more="This is the timeout of the transaction around the call. A call that is still running then is ended, and"
        " has failed.",
    ),
    click.option(
        "-i",
        "idletime",
        cls=Option,
        metavar="IDLETIME",
        setting=ForwarderSettings.idletime,
        help="How many seconds to sleep at most while there is nothing to do.",
        more="An arriving message ends the sleep. With 0 the queues are polled without a pause.",
    ),
    click.option(
        "-e",
        "until_empty",
        cls=Option,
        is_flag=True,
        help="End when the queues are empty.",
        more="Delayed messages, and those that other processes hold, do not count.",
    ),
    click.option(
        "-d",
        "gives_up",
        cls=Option,
        is_flag=True,
        help="Do not retry a request whose failed service returns a reply.",
        more="When a service fails and returns a reply, the request is deleted, and the reply goes to the failure queue"
        " that the request names, with its user return code. If the request has used up its retries, it also goes to"
        " the error queue.",
    ),
    click.option(
        "-n",
        "non_transactional",
        cls=Option,
        is_flag=True,
        help="Call services outside the transaction.",
        more="A message that a service enqueues is then enqueued at once, and stays if the call fails. Dequeuing the"
        " request and enqueuing the reply are still one transaction.",
    ),
    click.option(
        "-f",
        "pace",
        cls=Option,
        metavar="DELAY",
        help="Fire and forget: send no replies and do not retry; the delay is the seconds between two calls.",
        more="A message whose call fails goes to the error queue, or is discarded if there is none. The calls of a"
        " queue begin at least DELAY seconds apart; 0 means no delay. The default number of workers is then 32.",
    ),
    click.option(
        "-b",
        "blocktime",
        cls=Option,
        metavar="TIMEOUT",
        help="With -n or -f: seconds that a call may take, in place of -t; 0 means no limit.",
    ),
    click.option(
        "-w",
        "--workers",
        cls=Option,
        metavar="NUMBER",
        type=click.IntRange(1, 1000),
        setting=ForwarderSettings.workers,
        help="Calls of a service at a time, unless the services file says otherwise.",
    ),
    click.option(
        "--total-workers",
        cls=Option,
        metavar="NUMBER",
        type=click.IntRange(0, 10_000),
        setting=ForwarderSettings.total_workers,
        help="Calls of all services at a time; 0 means no limit.",
        more="If it is at least the number of queues, one worker is reserved for each queue that has none running, so"
        " that a slow service does not delay the others. When all are busy, the message with the highest priority is"
        " next.",
    ),
    click.option(
        "--order",
        cls=Option,
        type=click.Choice(["strict", "skip", "parallel"]),
        metavar="strict|skip|parallel",
        setting=ForwarderSettings.order,
        help="How messages follow one whose service failed, unless the services file says otherwise.",
        more="`strict`: they wait until it has succeeded or left the queue. `skip`: they go first while it waits for"
        " its retry. `parallel`: as many calls run at a time as there are workers. `auto`, which is only possible in"
        " the settings, means `parallel` with several workers and `skip` with one.",
    ),
    click.option(
        "--batch",
        cls=Option,
        metavar="NUMBER",
        type=click.IntRange(1, 1000),
        setting=ForwarderSettings.batch,
        help="Messages that a worker takes and commits together, unless the services file says otherwise.",
        more="Larger batches cost less for each message. If the daemon is killed, the service is called again for all"
        " messages that were not committed.",
    ),
    click.option(
        "--grace",
        cls=Option,
        metavar="SECONDS",
        type=Span(0, SECONDS_MAX),
        setting=ForwarderSettings.grace,
        help="How many seconds a stop waits for running calls.",
    ),
    click.option(
        "--once",
        cls=Option,
        is_flag=True,
        help="Forward one message of each queue that has any, and end.",
        more="The exit status is 1 if a call failed.",
    ),
    click.option(
        "--check",
        cls=Option,
        is_flag=True,
        help="Report what is wrong with the services, and forward nothing.",
        more="The device, the queues, the services file and each service are checked.",
    ),
    click.option(
        "-s",
        "services",
        cls=Option,
        metavar="FILE",
        setting=ForwarderSettings.services,
        help="The file that describes the services.",
    ),
    click.option(
        "--log-format",
        "log_format",
        cls=Option,
        type=click.Choice(LogSettings.format.choices),
        metavar="|".join(LogSettings.format.choices),
        setting=LogSettings.format,
        help=LogSettings.format.help,
    ),
    click.option(
        "--log-level",
        "log_level",
        cls=Option,
        type=click.Choice(ForwarderSettings.log_level.choices),
        metavar="|".join(ForwarderSettings.log_level.choices),
        setting=ForwarderSettings.log_level,
        help=ForwarderSettings.log_level.help,
    ),
    click.option(
        "-v",
        "--verbose",
        cls=Option,
        is_flag=True,
        help="Log each call, as --log-level debug does.",
    ),
    click.option(
        "--metrics",
        cls=Option,
        metavar="[HOST:]PORT",
        setting=ForwarderSettings.metrics,
        help="Serve figures for Prometheus over HTTP.",
        more="Without a host, only programs on this machine can reach them. It requires the package prometheus-client.",
    ),
    click.option(
        "--status",
        cls=Option,
        is_flag=True,
        help="Show the processes that forward the queues, and how that goes; forward nothing.",
        more="Without -q, for all queues that are forwarded. Permission to read the device is enough.",
    ),
    click.option(
        "--format",
        "form",
        cls=Option,
        metavar="FORMAT",
        type=click.Choice(("auto", *(form.value for form in Format))),
        help="With --status, write table, plain, json or csv.",
        more="Without it a table at a terminal, and plain otherwise.",
    ),
)


def with_options(command: Command) -> Command:
    """Declare the options for a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
