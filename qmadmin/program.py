"""The program qmadmin: its own options, what is checked before the first command, and its exit status."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import gc
import io
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

import click

from qmadmin import ulog
from qmadmin.configuration import Configuration, ConfigurationError
from qmadmin.console.formats import Format
from qmadmin.console.process import Exit, flush_quietly, prepare_process, say
from qmadmin.console.results import Line
from qmadmin.options import Argument, Documented, files, option
from qmadmin.settings import ShellSettings
from qmadmin.shell import notices
from qmadmin.shell.notices import (
    NO_DEVICE,
    OPTIONS,
    USAGE,
    StartError,
    UsageError,
    check_status,
    refuse_together,
    refuse_without,
)
from qmadmin.shell.session import Modes, Session, file_of
from qmadmin.version import __version__
from qmcore.errors import QueueError
from qmcore.values import dataclass

if TYPE_CHECKING:
    from types import FrameType

    from click.shell_completion import CompletionItem

    from qmadmin.console.render import Screen
    from qmadmin.shell.lines import Dialogue

_GARBAGE_AT = 200_000
"""The number of new containers after which the garbage collector runs; a start makes 100,000 that stay."""


def _spaces(ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the queue spaces of the device on the line or in the settings, for completion in a user's shell."""
    from click.shell_completion import CompletionItem

    from qmadmin.opening import open_device

    # An option without its value stops click, which then has the words before it.
    given = [*(ctx.params.get("arguments") or ()), *ctx.args, Configuration.load(os.environ).qmadmin.device]
    try:
        with open_device(given[0]) as device:
            return [CompletionItem(space.name) for space in device.spaces() if space.name.startswith(begun)]
    except QueueError:
        return []


@click.command(cls=Documented, options_metavar=OPTIONS)
@option(
    "-f, --file FILE",
    "command_file",
    shell_complete=files,
    help="Read the commands from FILE.",
    more="A dash means the standard input, which is also the default.",
)
@option(
    "-c, --command COMMAND",
    "commands",
    multiple=True,
    help="Run the command; may be given several times.",
    more="Further lines of it answer its prompts. A prompt without an answer takes its default; if it has none, or"
    " asks for confirmation, that is an error.",
)
@option(
    "-s, --space SPACE",
    shell_complete=_spaces,
    setting=ShellSettings.space,
    help="Open the queue space before the first command, as qopen does.",
    more="A script opens it when a command needs it, so that the script itself may create it. A qopen or qclose in"
    " the script overrides the option.",
)
@option(
    "--format FORMAT",
    "form",
    type=click.Choice([form.value for form in Format]),
    setting=ShellSettings.format,
    help="Write results as table, plain, json or csv.",
    more="See the command format.",
)
@option("--stop-on-error", help="End a script at its first error.")
@option(
    "-y, --yes",
    help="Give -y to every command that asks for confirmation.",
    more="Answers in a script to such questions are skipped.",
)
@option(
    "--upgrade",
    help="Upgrade the device to the schema version of this release.",
    more="Every process has to close it first. The program makes a backup, and asks for confirmation unless -y is"
    " given. All volumes of the device are upgraded together or none is, whatever happens; at the end the program"
    " prints how to go back.",
)
@option("--plan", help="With --upgrade: report what would be done, and do nothing.")
@option(
    "--backup PATH",
    help="With --upgrade: the path of the backup.",
    more="It must not exist. By default its name is that of the device with date and time, next to the device, or for"
    " a device on PostgreSQL, which pg_dump saves, in the current directory.",
)
@option(
    "--backed-up",
    help="With --upgrade: the device was saved in another way.",
    more="No backup is made then. On PostgreSQL this is required if pg_dump is not installed.",
)
@option(
    "--mib CLASS",
    "request",
    help="Carry out one request of the management information base, and print the result as JSON.",
    more="The arguments are get, set or help, and attributes as NAME=VALUE. The classes are T_APPQSPACE, T_APPQ,"
    " T_APPQMSG and T_APPQTRANS; help lists their attributes.",
)
@option(
    "--metrics",
    help="Write the figures of the queue space, or of all, once, as Prometheus reads them from a file.",
    more="It requires the package prometheus-client.",
)
@click.version_option(__version__, message="%(prog)s %(version)s", help="Print the version.")
@click.help_option("-h", "--help", help="Print a summary of the options.")
@click.argument(
    "arguments",
    cls=Argument,
    metavar="[DEVICE]",
    nargs=-1,
    shell_complete=files,
    meanings={
        "DEVICE": "The file or the URL of PostgreSQL that holds the device list, or will hold it. It need not exist"
        " yet; the first crdl creates it."
    },
    settings={"DEVICE": ShellSettings.device},
)
def qmadmin(
    command_file: str | None,
    commands: tuple[str, ...],
    space: str | None,
    form: str | None,
    stop_on_error: bool,
    yes: bool,
    upgrade: bool,
    plan: bool,
    backup: str | None,
    backed_up: bool,
    request: str | None,
    metrics: bool,
    arguments: tuple[str, ...],
) -> Exit:
    """Administer the devices, queue spaces and queues of transactional message queues.

    DEVICE is the file that holds the device list, or will hold it, or a URL of PostgreSQL; without it the environment
    variable QMCONFIG names it. Commands come from the terminal, or line by line from the standard input or FILE. The
    command help lists them, and the manual page qmadmin(1) describes them.
    """
    sources = {"-c": bool(commands), "-f": command_file is not None}
    refuse_together(sources | {"--mib": request is not None, "--upgrade": upgrade, "--metrics": metrics})
    refuse_together({"--backup": backup is not None, "--backed-up": backed_up})
    refuse_without(upgrade, {"--plan": plan, "--backup": backup is not None, "--backed-up": backed_up})
    configuration = _settings()
    requested: list[str] = []
    if request is not None:
        requested = [request, *(word for word in arguments if _is_of_request(word))]
        arguments = tuple(word for word in arguments if not _is_of_request(word))
    if len(arguments) > 1:
        raise StartError(notices.INVALID_ARGUMENT(argument=arguments[1]), _about_second(arguments))
    device = arguments[0] if arguments else configuration.qmadmin.device
    if not device:
        raise StartError(notices.QMCONFIG_NOT_SET(), f"{NO_DEVICE}\n{USAGE}")
    check_status(device, file_of(device))
    if requested:
        return _carry_out(device, requested, configuration)
    if upgrade:
        from qmadmin.upgrade import Choices, run

        return run(device, Choices(plan=plan, yes=yes, backup=backup, backed_up=backed_up), sys.stdout)
    if metrics:
        from qmadmin.shell import figures

        return figures.run(device, configuration.qmadmin.space if space is None else space, sys.stdout)
    script = Given(None if command_file == "-" else command_file, commands)
    usual = configuration.qmadmin
    modes = Modes(echo=usual.echo, verbose=usual.verbose, yes=yes, stop_on_error=stop_on_error)
    return _take_commands(
        device, usual.space if space is None else space, script, modes, form or usual.format, configuration
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status. The console command `qmadmin` calls this."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["run"]:
        from qmadmin import worker_program

        return worker_program.main(given[1:])
    return _administer(arguments)


def _administer(arguments: Sequence[str] | None) -> int:
    """Run the program, whose words are not those of another one."""
    if arguments is None:
        _collect_rarely()
    prepare_process()
    try:
        status = qmadmin.main(arguments, prog_name="qmadmin", standalone_mode=False)
    except StartError as error:
        return _refuse(error)
    except click.NoSuchOption as error:
        return _refuse(StartError(notices.INVALID_OPTION(option=error.option_name), _meant(error) + USAGE))
    except click.ClickException as error:
        return _refuse(StartError(UsageError(error.format_message()).notice))
    except (KeyboardInterrupt, click.Abort):
        return Exit.INTERRUPTED
    except OSError as error:
        say(f"ERROR: cannot write the output: {error.strerror}")
        return Exit.FAILED
    finally:
        flush_quietly()
    return Exit(status or Exit.OK)


def _meant(error: click.NoSuchOption) -> str:
    """Return a line with the options that may have been meant; empty for none."""
    return f"Did you mean {' or '.join(error.possibilities)}?\n" if error.possibilities else ""


def _about_second(arguments: Sequence[str]) -> str:
    """Return what to do about a second argument, which is often a command."""
    import shlex

    first, *command = arguments
    return f"A command is given with -c: qmadmin {shlex.quote(first)} -c {shlex.quote(' '.join(command))}\n{USAGE}"


def _collect_rarely() -> None:
    """Make the garbage collector run rarely, and not at exit: it took a fifth of the time of a command."""
    gc.set_threshold(_GARBAGE_AT)
    atexit.register(gc.freeze)


@dataclass(frozen=True, slots=True)
class Given:
    """The source of the commands: a file, options, or else the standard input."""

    file: str | None
    commands: tuple[str, ...]

    @property
    def on_stdin(self) -> bool:
        """Whether the standard input has the commands."""
        return self.file is None and not self.commands


def _settings() -> Configuration:
    try:
        return Configuration.load(os.environ)
    except ConfigurationError as error:
        raise StartError(UsageError(str(error)).notice, "qmadmin.toml(5) describes the settings.") from None


def _is_of_request(word: str) -> bool:
    """Return whether an argument belongs to a request of the management information base, and is not a device.

    A path or a URL may contain `=` too; the name of an attribute is one word.
    """
    name, separator, _ = word.partition("=")
    if not separator:
        return word in ("get", "set", "help")
    return name.startswith("TA_") or (name.isidentifier() and not Path(word).exists())


def _carry_out(device: str, request: Sequence[str], configuration: Configuration) -> Exit:
    from qmadmin.mib import requests

    ulog.install("qmadmin", os.environ, log=configuration.log, level=logging.WARNING)
    return Exit(requests.run(device, request, sys.stdout))


def _take_commands(
    device: str, space: str, script: Given, modes: Modes, form: str, configuration: Configuration
) -> Exit:
    from qmadmin.console.render import OutputLostError, is_drawn
    from qmadmin.shell.catalogue import Catalogue
    from qmadmin.shell.interpreter import Interpreter
    from qmadmin.shell.lines import CommandArguments, quote
    from qmadmin.shell.notices import fault
    from qmadmin.shell.session import Session

    signal.signal(signal.SIGTERM, _end)
    with contextlib.ExitStack() as opened:
        catalogue = Catalogue()
        if catalogue.has(device) and not Path(device).exists():
            about = f"A command is given with -c: qmadmin -c {device}\nA device of that name is ./{device}.\n{USAGE}"
            raise StartError(notices.INVALID_ARGUMENT(argument=device), about)
        source, name = _source(script.file, opened)
        out = _stream(sys.stdout, "w", opened)
        err = _stream(sys.stderr, "w", opened)
        person = script.on_stdin and source.isatty()
        drawn = person and is_drawn(out, os.environ)
        settings = configuration.qmadmin
        modes.paginate = drawn and settings.paginate
        if form == "auto":
            modes.format = Format.TABLE if person and out.isatty() else Format.PLAIN
        else:
            modes.format = Format(form)
        session = Session(
            device,
            catalogue,
            _screen(out, err, settings, hints=person or (bool(script.commands) and err.isatty()), drawn=drawn),
            os.environ,
            modes=modes,
            settings=settings,
            at_terminal=person,
            shown_at_terminal=person and out.isatty(),
            can_page=drawn,
            children_read=person or not script.on_stdin,
            space=space,
        )
        ulog.install("qmadmin", os.environ, log=configuration.log, level=logging.WARNING, errors=err)
        opened.callback(_close, session)
        if person and out.isatty() and not modes.format.is_for_programs:
            session.screen.show(Line(text) for text in _greeting(session))
        try:
            if script.commands:
                dialogue: Dialogue = CommandArguments(script.commands, session)
            else:
                dialogue = _dialogue(source, name, session, person=person, drawn=drawn)
            interpreter = Interpreter(session, dialogue)
            if person and space:
                interpreter.obey(f"qopen {quote(space)}")
            return interpreter.run()
        except OutputLostError as error:
            if not error.quiet:
                err.write(f"ERROR: {error}\n")
        except Exception as error:  # noqa: BLE001 - the user gets a sentence, the log the traceback
            err.write(f"ERROR: qmadmin has failed: {fault(error, 'the program')}\n")
        return Exit.FAILED


def _greeting(session: Session) -> list[str]:
    """Return the first lines at a terminal; a database is not queried for them."""
    from qmadmin.shell.lines import quote

    told = [f"qmadmin {__version__}", f"QMCONFIG={session.path}"]
    if file_of(session.path) is not None and not session.has_device:
        told.append(
            f"This device does not exist yet. This command creates one of 2000 pages: crdl {quote(session.path)} 0 2000"
        )
    return [*told, "help lists the commands, quit leaves the program."]


def _close(session: Session) -> None:
    """Close the device; an error is only logged, because all commands have been carried out by then."""
    try:
        session.close()
    except Exception:
        logging.getLogger("qmadmin.shell").exception("device %s could not be closed properly", session.path)


def _source(command_file: str | None, opened: contextlib.ExitStack) -> tuple[TextIO, str]:
    """Return the source of the commands, and its name in messages."""
    from qmadmin.shell.lines import refuse_file_that_is_not_text

    if command_file is None:
        return _stream(sys.stdin, "r", opened), "stdin"
    try:
        script = opened.enter_context(Path(command_file).open("rb"))  # noqa: SIM115 - it is one
        refuse_file_that_is_not_text(script, f"File {command_file}")
    except OSError as error:
        refusal = UsageError(f"Failed to open command file {command_file}")
        raise StartError(refusal.notice, f"{error.strerror}.") from None
    except UsageError as refusal:
        raise StartError(dataclasses.replace(refusal.notice, hint=""), refusal.notice.hint) from None
    return io.TextIOWrapper(script, encoding="utf-8", errors="surrogateescape"), command_file


def _stream(stream: TextIO | None, mode: str, opened: contextlib.ExitStack) -> TextIO:
    """Return a standard stream that accepts every byte; for a closed one, a stream that is empty and drops all."""
    if stream is None:
        return opened.enter_context(Path(os.devnull).open("r" if mode == "r" else "w", encoding="utf-8"))
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="surrogateescape" if mode == "r" else "backslashreplace")
    return stream


def _screen(out: TextIO, err: TextIO, settings: ShellSettings, *, hints: bool, drawn: bool) -> Screen:
    if drawn:
        from qmadmin.console.styled import StyledScreen

        return StyledScreen(out, err, os.environ, settings)
    from qmadmin.console.render import PlainScreen

    return PlainScreen(out, err, hints=hints)


def _dialogue(source: TextIO, name: str, session: Session, *, person: bool, drawn: bool) -> Dialogue:
    if drawn:
        from qmadmin.shell.terminal import Terminal

        return Terminal(session)
    from qmadmin.shell.lines import Keyboard, Script

    return Keyboard(source, session) if person else Script(source, name, session)


def _refuse(error: StartError) -> int:
    say(f"{error.notice.severity.value}: {error.notice.text}", error.more)
    return Exit.UNUSABLE


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    """Leave on a termination signal as on any error, so that a terminal is left as it was found.

    An event loop that is stopped during its creation writes a warning when it is collected, which is suppressed.
    """
    sys.unraisablehook = lambda _unraisable: None
    raise SystemExit(Exit.TERMINATED)


if __name__ == "__main__":
    sys.exit(main())
