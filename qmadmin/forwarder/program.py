"""The program tmqforward: its options, what is checked before it starts, and its exit status."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import TYPE_CHECKING

import click

from qmadmin import ulog
from qmadmin.configuration import Configuration, ConfigurationError, ForwarderSettings, LogSettings, ShellSettings
from qmadmin.forwarder import settings as choices
from qmadmin.forwarder.errors import StartError, UsageError
from qmadmin.forwarder.settings import Settings
from qmadmin.options import Argument, Option
from qmadmin.shell.formats import Format
from qmadmin.shell.status import Exit
from qmadmin.version import __version__
from qmcore.redacted import redacted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qmadmin.shell.results import Notice

logger = logging.getLogger("qmadmin.forwarder")

USAGE = "Usage: tmqforward [DEVICE] QSPACE -q QUEUE[,QUEUE...] [-t TRANTIME] [-i IDLETIME] [-e] [-s FILE]"
_PROGRAM = "tmqforward"


@click.command(options_metavar="-q QUEUE[,QUEUE...] [OPTIONS]")
@click.option(
    "-q",
    "queues",
    cls=Option,
    metavar="QUEUE[,QUEUE...]",
    multiple=True,
    help="The queues, named like their services.",
    more="Required. May be given several times; a queue that is named twice is served once.",
)
@click.option(
    "-t",
    "trantime",
    cls=Option,
    metavar="TRANTIME",
    setting=ForwarderSettings.trantime,
    help="Seconds that a request may take; 0 is no limit.",
    more="They limit the transaction around the call. A call that is still running then is ended, and has failed.",
)
@click.option(
    "-i",
    "idletime",
    cls=Option,
    metavar="IDLETIME",
    setting=ForwarderSettings.idletime,
    help="Most seconds of sleep while there is nothing to do.",
    more="A message that comes ends the sleep. With 0 there is none, and the queues are looked at all the time.",
)
@click.option(
    "-e",
    "until_empty",
    cls=Option,
    is_flag=True,
    help="End when the queues are empty.",
    more="Delayed messages, and those that other processes hold, do not count.",
)
@click.option(
    "-s",
    "services",
    cls=Option,
    metavar="FILE",
    setting=ForwarderSettings.services,
    help="The file that describes the services.",
)
@click.option(
    "--log-format",
    "log_format",
    cls=Option,
    type=click.Choice(LogSettings.format.choices),
    metavar="|".join(LogSettings.format.choices),
    setting=LogSettings.format,
    help=LogSettings.format.help,
)
@click.option(
    "--status",
    cls=Option,
    is_flag=True,
    help="Show who forwards the queues, and how that goes; forward nothing.",
    more="Without -q, of all queues that somebody forwards. A device that may only be read will do.",
)
@click.option(
    "--format",
    "form",
    cls=Option,
    metavar="FORMAT",
    type=click.Choice(("auto", *(form.value for form in Format))),
    help="With --status, write table, plain, json or csv.",
    more="Without it a table at a terminal, and plain otherwise.",
)
@click.version_option(__version__, message="%(prog)s %(version)s", help="Print the version.")
@click.help_option("-h", "--help", help="Print a summary of the options.")
@click.argument(
    "arguments",
    cls=Argument,
    metavar="[DEVICE] QSPACE",
    nargs=-1,
    meanings={
        "DEVICE": "The device that holds the queue space.",
        "QSPACE": "The queue space.",
    },
    settings={"DEVICE": ShellSettings.device},
)
def tmqforward(
    queues: tuple[str, ...],
    trantime: str | None,
    idletime: str | None,
    until_empty: bool,
    services: str | None,
    log_format: str | None,
    status: bool,
    form: str | None,
    arguments: tuple[str, ...],
) -> int:
    """Call services with the messages of queues, and queue the replies.

    Each message is taken off its queue, the service that is named like the queue is called with it, and the reply
    goes to the reply queue that the message names: all in one transaction, which is rolled back when the service
    fails. DEVICE holds the queue space QSPACE; without it the environment variable QMCONFIG names the device.
    The manual page tmqforward(8) describes the file of the services, and qmadmin.toml(5) where defaults are set.
    """
    configuration = Configuration.load(os.environ)
    device, space = choices.place(arguments, configuration.qmadmin.device)
    if status:
        return _show_status(device, space, choices.queue_names(queues) if queues else (), form or "auto", configuration)
    if form:
        raise UsageError("--format is for --status")
    from qmadmin.forwarder.daemon import Daemon
    from qmadmin.forwarder.stop import Stop

    usual = configuration.tmqforward
    names = choices.queue_names(queues)
    ulog.install(_PROGRAM, os.environ, log=configuration.log, form=log_format or "", errors=sys.stderr)
    settings = Settings(
        device=device,
        space=space,
        queues=names,
        services=services or usual.services,
        trantime=choices.transaction_time(trantime, usual.trantime, _warn),
        idletime=choices.idle_time(idletime, usual.idletime, _warn),
        until_empty=until_empty,
    )
    stop = Stop()
    stop.listen()
    try:
        Daemon(settings, stop, os.environ).run()
    except StartError as error:
        logger.error("%s", error)  # noqa: TRY400 - whose fault it is stands in the sentence
        raise
    except Exception:
        logger.exception("the forwarder failed")
        raise
    return stop.status


def _show_status(device: str, space: str, queues: Sequence[str], form: str, configuration: Configuration) -> Exit:
    from qmadmin.forwarder import status

    found = status.Status.read(device, space, queues)
    return status.show(found, form, sys.stdout, sys.stderr, os.environ, configuration.qmadmin)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status. The console command `tmqforward` calls this."""
    try:
        return _call(arguments)
    except StartError as error:
        return _refuse(str(error), USAGE if isinstance(error, UsageError) else error.hint)
    except ConfigurationError as error:
        return _refuse(str(error), "")
    except (KeyboardInterrupt, click.Abort):
        return Exit.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the traceback is in the log
        _say(f"ERROR: the forwarder failed: {type(error).__name__}: {error}")
        return Exit.FAILED


def _call(arguments: Sequence[str] | None) -> int:
    try:
        return tmqforward.main(arguments, prog_name=_PROGRAM, standalone_mode=False) or Exit.OK
    except click.NoSuchOption as error:
        raise UsageError(f"Invalid option - {error.option_name}") from None
    except click.ClickException as error:
        raise UsageError(error.format_message().rstrip(".")) from None


def _warn(notice: Notice) -> None:
    """Warn on the terminal and in the log."""
    _say(f"{notice.severity.value}: {notice.text}")
    logger.warning("%s", notice.text, extra={"catalogue": notice.number})


def _refuse(sentence: str, more: str) -> int:
    _say(f"ERROR: {sentence}", more)
    return Exit.UNUSABLE


def _say(*lines: str) -> None:
    """Write to stderr; where it cannot be written the log and the exit status have to do."""
    with contextlib.suppress(OSError):
        click.echo(redacted("\n".join(line for line in lines if line)), err=True)


if __name__ == "__main__":
    sys.exit(main())
