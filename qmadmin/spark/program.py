"""The program qmspark: its commands, and its exit status."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Sequence

import click

from qmadmin.audit import recorded_as
from qmadmin.console.process import Exit, flush_quietly, prepare_process, say
from qmadmin.console.render import OutputLostError
from qmadmin.options import Documented
from qmadmin.spark import commands
from qmadmin.spark.call import UnusableError, listen
from qmadmin.version import __version__

logger = logging.getLogger("qmadmin.spark")

_PROGRAM = "qmspark"


class _InOrder(Documented, click.Group):
    """Commands in the order in which they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        del ctx
        return list(self.commands)


@click.group(
    cls=_InOrder, subcommand_metavar="COMMAND [OPTIONS] [ARGUMENTS]", options_metavar="", no_args_is_help=False
)
@click.version_option(__version__, message="%(prog)s %(version)s", help="Print the version.")
@click.help_option("-h", "--help", help="Print a summary of the commands, or after a command of its options.")
def qmspark() -> None:
    """Move whole queue spaces between devices, and query them.

    An archive is a directory that holds queue spaces as they were at one moment, in a form that does not depend on a
    machine or a database. The work is done by processes on this machine, or on Spark with --master. The manual page
    qmspark(1) describes the commands.
    """


for _command in (commands.export, commands.load, commands.verify, commands.show, commands.query):
    qmspark.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status. The console command `qmspark` calls this."""
    prepare_process()
    listen()
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        with recorded_as(shlex.join([_PROGRAM, *words])):
            return Exit(qmspark.main(words, prog_name=_PROGRAM, standalone_mode=False) or Exit.OK)
    except UnusableError as error:
        return _refuse(str(error), error.hint)
    except click.ClickException as error:
        where = getattr(error, "ctx", None)
        return _refuse(error.format_message().rstrip("."), f"Try {where.command_path} --help." if where else "")
    except (KeyboardInterrupt, click.Abort):
        return Exit.INTERRUPTED
    except OutputLostError as error:
        if not error.quiet:
            say(f"ERROR: {error}")
        return Exit.FAILED
    except Exception as error:
        logger.exception("qmspark failed")
        say(f"ERROR: qmspark failed: {type(error).__name__}: {error}", "The log says more.")
        return Exit.FAILED
    finally:
        flush_quietly()


def _refuse(sentence: str, more: str) -> int:
    say(f"ERROR: {sentence}", more)
    return Exit.UNUSABLE


if __name__ == "__main__":
    sys.exit(main())
