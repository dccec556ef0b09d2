"""The program tmqforward: its options, what is checked before it starts, and its exit status."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from qmadmin import ulog
from qmadmin.configuration import Configuration, ConfigurationError
from qmadmin.console.process import Exit, prepare_process, refuse, say
from qmadmin.console.results import Notice
from qmadmin.forwarder import StartError, UsageError, options, program_log
from qmadmin.options import Argument, Documented, with_options
from qmadmin.settings import ShellSettings
from qmadmin.version import __version__

logger = logging.getLogger("qmadmin.forwarder")

USAGE = "Usage: tmqforward [DEVICE] QSPACE [-q QUEUE[,QUEUE...]] [-t TRANTIME] [-i IDLETIME] [-e] [-s FILE] [OPTIONS]"

_PROGRAM = "tmqforward"


@click.command(cls=Documented, options_metavar="[-q QUEUE[,QUEUE...]] [OPTIONS]")
@with_options(*options.OPTIONS)
@click.version_option(__version__, message="%(prog)s %(version)s", help="Print the version.")
@click.help_option("-h", "--help", help="Print a summary of the options.")
@click.argument(
    "arguments",
    cls=Argument,
    metavar="[DEVICE] QSPACE",
    nargs=-1,
    meanings={"DEVICE": "The device that holds the queue space.", "QSPACE": "The queue space."},
    settings={"DEVICE": ShellSettings.device},
)
def tmqforward(arguments: tuple[str, ...], **given: Any) -> int:
    """Call services with the messages of queues, and queue the replies.

    Each message is dequeued, the service with the name of the queue is called with it, and the reply is enqueued on
    the reply queue that the message names, all in one transaction, which is rolled back if the service fails.
    DEVICE holds the queue space QSPACE; without it the environment variable QMCONFIG names the device.
    The manual page tmqforward(8) describes the services file, and qmadmin.toml(5) where defaults are set.
    """
    configuration = Configuration.load(os.environ)
    device, space = options.place(arguments, configuration.qmadmin.device)
    names = options.queue_names(given["queues"])
    if given["status"]:
        return _show_status(device, space, names, given["form"] or "auto", configuration)
    if given["form"]:
        raise UsageError("--format is for --status")
    if given["check"]:
        return _check(options.settings_of(given, device, space, configuration.tmqforward, _warn))
    log = program_log.begin(
        os.environ,
        configuration.log,
        form=given["log_format"] or "",
        level="debug" if given["verbose"] else given["log_level"] or configuration.tmqforward.log_level,
        errors=sys.stderr,
        at_terminal=sys.stderr.isatty(),
    )
    settings = options.settings_of(given, device, space, configuration.tmqforward, _warn)
    _tell_of_log(log.path(datetime.now().astimezone()))
    return _forward(settings)


def _tell_of_log(path: str) -> None:
    """Say at a terminal where the full log is."""
    if path != ulog.TO_STDERR and sys.stderr.isatty():
        say(f"{_PROGRAM}: what happens is in {os.path.abspath(path)} too; Ctrl-C stops it")


def _check(settings: options.Settings) -> int:
    """Print what is wrong; return the exit status."""
    from qmadmin.forwarder.services_file import faults

    found = faults(settings, os.environ)
    for fault in found:
        say(f"ERROR: {fault}")
    if not found:
        click.echo(f"{settings.services}: no problems found")
    return Exit.UNUSABLE if found else Exit.OK


def _forward(settings: options.Settings) -> int:
    """Forward to the end; return the exit status."""
    from qmadmin.consumers.consumer import Stop
    from qmadmin.forwarder.daemon import Daemon

    stop = Stop()
    stop.listen()
    daemon = Daemon(settings, stop, os.environ)
    try:
        daemon.run()
    except StartError as error:
        # The sentence says what is at fault.
        logger.error("%s", error, extra={"mistyped": True})  # noqa: TRY400
        raise
    except Exception:
        logger.exception("the forwarder failed")
        raise
    return stop.status or (Exit.FAILED if settings.once and daemon.has_failures else Exit.OK)


def _show_status(device: str, space: str, queues: Sequence[str], form: str, configuration: Configuration) -> Exit:
    from qmadmin.forwarder import status

    found = status.Status.read(device, space, queues)
    return status.show(found, form, sys.stdout, sys.stderr, os.environ, configuration.qmadmin)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status. The console command `tmqforward` calls this."""
    prepare_process()
    try:
        return _call(arguments)
    except StartError as error:
        return refuse(str(error), USAGE if isinstance(error, UsageError) else error.hint)
    except ConfigurationError as error:
        return refuse(str(error), "")
    except (KeyboardInterrupt, click.Abort):
        return Exit.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the traceback is in the log
        say(f"ERROR: the forwarder failed: {type(error).__name__}: {error}")
        return Exit.FAILED


def _call(arguments: Sequence[str] | None) -> int:
    try:
        return tmqforward.main(arguments, prog_name=_PROGRAM, standalone_mode=False) or Exit.OK
    except click.NoSuchOption as error:
        meant = f"; did you mean {' or '.join(error.possibilities)}?" if error.possibilities else ""
        raise UsageError(f"Invalid option - {error.option_name}{meant}") from None
    except click.ClickException as error:
        raise UsageError(error.format_message().rstrip(".")) from None


def _warn(notice: Notice) -> None:
    """Warn on the terminal, and in the log if there is one."""
    terms = program_log.terms_of_this_process()
    if terms is None or not (terms.at_terminal or terms.prefix == ulog.TO_STDERR):
        say(f"{notice.severity.value}: {notice.text}")
    if terms is None:
        return
    logger.warning("%s", notice.text, extra={"catalogue": notice.number})


if __name__ == "__main__":
    sys.exit(main())
