"""Commands on the session itself: its modes, help, command files, and commands of the operating system's shell."""

from __future__ import annotations

import io
import re
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qmadmin.console.formats import Format
from qmadmin.console.process import leaving_interrupts_to_child
from qmadmin.console.results import Block, Example, Heading, Labels, Line, Notice, Outcome, Paragraph, Prose, Term
from qmadmin.shell.declare import Command, Group, Needs, Option, Positional
from qmadmin.shell.kinds import Choice, FileName, HelpTopic, Words
from qmadmin.shell.notices import UsageError

if TYPE_CHECKING:
    from qmadmin.shell.catalogue import Catalogue
    from qmadmin.shell.session import Session

_INTERRUPTED = (-signal.SIGINT, 128 + signal.SIGINT)
"""The status of a shell command that an interrupt ended, unlike an editor, which handles it."""


def checked(command: str) -> str:
    """Return a command line for sh; UsageError if it cannot be one."""
    if "\0" in command:
        raise UsageError("A shell command cannot contain the character NUL")
    return command


def cannot_be_run(error: OSError) -> UsageError:
    """Return the error if not even the shell can be started."""
    return UsageError(f"Shell command cannot be run: {error.strerror}")


def ended(session: Session, command: str, status: int, interrupts: Sequence[int]) -> list[Notice]:
    """Return the notices about the end of a shell command; in a script its interrupt also interrupts the script."""
    if interrupts and session.at_terminal:
        session.screen.prompt("\n")
    elif interrupts and status in _INTERRUPTED:
        raise KeyboardInterrupt
    if status == 0:
        return []
    how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
    return [Notice.error(f"Shell command {how}: {command}")]


SESSION = Group("Session")
ON_OFF = Positional(
    "state", Choice("mode", ("off", "on")), "The new state; without it, the mode is toggled.", metavar="{off|on}"
)


@SESSION.command("echo", ON_OFF, short="e")
def echo(session: Session, state: str | None) -> Outcome:
    """Switch echo mode, which is initially off.

    While it is on, each line that is read from a command file or a pipe is printed, with answers after their prompts,
    so that a log reads like a session. At a terminal it has no effect.

        echo on
    """
    session.modes.echo = _switched(session.modes.echo, state)
    return _mode("Echo", on=session.modes.echo)


@SESSION.command("verbose", ON_OFF, short="v")
def verbose(session: Session, state: str | None) -> Outcome:
    """Switch verbose mode, which is initially off.

    While it is on, lidl, qinfo, qlist and qspacelist show more, and qspacecreate shows its progress.

        verbose
    """
    session.modes.verbose = _switched(session.modes.verbose, state)
    return _mode("Verbose", on=session.modes.verbose)


@SESSION.command("paginate", ON_OFF, short="page")
def paginate(session: Session, state: str | None) -> Outcome:
    """Switch paginate mode, which is initially on if input and output are a terminal.

    While it is on, output that is longer than the screen goes through the pager that PAGER names. It can only be on if
    input and output are a terminal that is not dumb.

        paginate off
    """
    wanted = _switched(session.modes.paginate, state)
    session.modes.paginate = wanted and session.can_page
    shown = _mode("Paginate", on=session.modes.paginate)
    if wanted and not session.can_page:
        text = "paginate mode can only be on if input and output are a terminal that is not dumb"
        return [Notice.warning(text), shown]
    return shown


@SESSION.command(
    "format",
    Positional(
        "form",
        Choice("format", tuple(form.value for form in Format)),
        "The new format; without it, the present one is shown.",
        metavar="{table|plain|json|csv}",
    ),
    extension=True,
    shows_only=True,
    lasts=True,
)
def format_(session: Session, form: str | None) -> Outcome:
    """Choose how results are written.

    table is for people and fits the width of the terminal. plain is one line for each row, always with the same
    columns, - for a missing value, and quotes around a value with blanks. json is one document for each command, on one
    line: rows contains the objects, said the sentences, notices the messages that are also on the standard error
    output, and ok says whether the command succeeded. csv is a line of keys and a line for each object, without
    sentences. json and csv always show everything, whether verbose mode is on or off. Initially the format is table at
    a terminal and plain elsewhere.

        qmadmin --format json -c "qopen QSPACE" -c qinfo QUE
    """
    if form is not None:
        session.modes.format = Format(form)
    return Line(f"Format is {session.modes.format.value}", {"format": session.modes.format.value})


def _switched(now: bool, state: str | None) -> bool:
    return not now if state is None else state == "on"


def _mode(name: str, *, on: bool) -> Line:
    return Line(f"{name} mode is now {'on' if on else 'off'}", {"mode": name.lower(), "on": on})


@SESSION.command(
    "help",
    Positional(
        "topic",
        HelpTopic(),
        "A topic, a command or its abbreviation; commands lists the syntax of all commands, all describes every"
        " command.",
        metavar="{topic|command|commands|all}",
    ),
    short="h ?",
    shows_only=True,
)
def help_(session: Session, topic: str | None) -> Outcome:
    """List the commands by topic, or show the syntax of the commands of a topic, or describe one command or all.

    The manual page qmadmin(1) has the same descriptions.

        help qcreate
    """
    if topic is None:
        return topics(session.catalogue)
    if topic == LIST:
        return overview(session.catalogue.groups)
    if topic == ALL:
        return everything(session.catalogue)
    groups = [group for group in session.catalogue.groups if group.topic == topic]
    if groups:
        return overview(groups)
    return about(session.catalogue.named(topic))


@SESSION.command("source", Positional("file", FileName(), "The command file.", "Command file: "), extension=True)
def source(session: Session, file: str) -> Outcome:
    """Run the commands of a file, as qmadmin -f does, and continue.

    An error message names the file and the line. With --stop-on-error an error ends the file, but not a session at a
    terminal; neither does Ctrl-C. A > or | on the line sends the output of all commands of the file elsewhere.

        source nightly.qm
        source nightly.qm > nightly.log
    """
    from qmadmin.shell.lines import Script, refuse_what_is_not_text
    from qmadmin.shell.redirection import refuse_the_device

    refuse_the_device(session, file)
    try:
        text = Path(file).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise UsageError(f"Failed to open command file {file}: {error.strerror}") from None
    refuse_what_is_not_text(text, f"File {file}")
    session.named = Script(io.StringIO(text), file, session)
    return None


@SESSION.command("quit", short="q exit \\q")
def quit_(session: Session) -> Outcome:
    """Leave the program.

    The end of the input, at a terminal Ctrl-D, does the same. The open queue space is closed.

        quit
    """
    session.finished = True
    return None


@SESSION.command(
    "!", Positional("shellcommand", Words(), "The command line, which may use all features of the shell."), raw=True
)
def shell(session: Session, shellcommand: str) -> Outcome:
    """Run a shell command.

    It is run by sh. At a terminal Ctrl-C interrupts only the shell command; in a script it ends the script as well. The
    shell command does not read the command file or pipe on the standard input. An exit status other than 0 counts as an
    error.

        !df -h /var/qm
    """
    if not shellcommand:
        raise UsageError("Must specify shell command")
    session.previous_shell = shellcommand
    return _run(session, shellcommand)


@SESSION.command("!!", raw=True)
def repeat_shell(session: Session) -> Outcome:
    """Run the previous shell command again.

    It is the last one that was given with an exclamation mark in this session.

        !!
    """
    if not session.previous_shell:
        raise UsageError("There is no previous shell command")
    return _run(session, session.previous_shell)


@SESSION.command("#", Positional("text", Words(), "The comment.", metavar=" text"), raw=True)
def comment(session: Session, text: str) -> Outcome:  # noqa: ARG001 - that is the point
    """Do nothing: a comment, which takes the whole line.

    Echo mode prints it, so that a log contains it too.

        # the queues of the night shift
    """
    return None


def _run(session: Session, command: str) -> list[Notice]:
    import subprocess

    # It must not mix with output for programs.
    output = sys.stderr if session.modes.format.is_for_programs else session.output.descriptor()
    session.screen.flush()
    with leaving_interrupts_to_child() as interrupts:
        try:
            done = subprocess.run(  # noqa: S602 - running the administrator's own line by the shell is the command
                checked(command),
                shell=True,
                check=False,
                stdin=None if session.children_read else subprocess.DEVNULL,
                stdout=output,
                env=dict(session.environ),
            )
        except OSError as error:
            raise cannot_be_run(error) from error
    return ended(session, command, done.returncode, interrupts)


NO_BREAK = "\N{NO-BREAK SPACE}"
EXTENSION = "An extension: Tuxedo's qmadmin does not have it."


LIST = "commands"
ALL = "all"


def topics(catalogue: Catalogue) -> Prose:
    """Return the names of all commands by topic, and how to learn more."""
    names = [(group.topic, " ".join(command.name for command in group.commands)) for group in catalogue.groups]
    return Prose(
        (
            Labels(tuple(names)),
            Paragraph(
                f"help TOPIC or COMMAND says more, help {ALL} everything. Tab completes, Ctrl-C ends a prompt; > and |"
                " take output."
            ),
        )
    )


def overview(groups: Iterable[Group]) -> Prose:
    """Return the synopsis and the summary of the commands of some topics."""
    blocks: list[Block] = []
    for group in groups:
        blocks.append(Heading(group.title))
        blocks += [Term(synopsis(command), _with_names(command)) for command in group.commands]
    blocks.append(Paragraph("help COMMAND describes a command."))
    return Prose(tuple(blocks))


def about(command: Command) -> Prose:
    """Return the full help of a command."""
    return Prose((Heading(synopsis(command)), *description(command)))


def synopsis(command: Command) -> str:
    """Return the synopsis of a command, in which no line break separates an option from its value."""
    return re.sub(r"(-\w) (?=\w)", rf"\1{NO_BREAK}", command.synopsis)


def everything(catalogue: Catalogue) -> Prose:
    """Return the full help of all commands."""
    return Prose(tuple(block for command in catalogue.commands for block in about(command).blocks))


def description(command: Command) -> list[Block]:
    """Return the description of a command under its synopsis; help and the man page share it."""
    blocks: list[Block] = [Paragraph(f"{command.summary}.")]
    if command.short:
        word = "Abbreviation" if len(command.short) == 1 else "Abbreviations"
        blocks.append(Paragraph(f"{word}: {', '.join(command.short)}"))
    blocks += prose(command.description)
    blocks += [_option(option) for option in command.options]
    blocks += [_positional(positional) for positional in command.positionals if positional.help]
    remarks = _remarks(command)
    if remarks:
        blocks.append(Paragraph(" ".join(remarks)))
    return blocks


def prose(text: str) -> list[Block]:
    """Return the paragraphs of a docstring; indented ones are examples."""
    blocks: list[Block] = []
    for part in text.split("\n\n"):
        lines = part.splitlines()
        if lines and all(line.startswith("    ") for line in lines):
            blocks.append(Example(tuple(line[4:] for line in lines)))
        elif lines:
            blocks.append(Paragraph(" ".join(lines)))
    return blocks


def _with_names(command: Command) -> str:
    return f"{command.summary} ({', '.join(command.short)})" if command.short else command.summary


def _option(option: Option) -> Term:
    shown = option.shown if option.kind else ", ".join(option.flags)
    return Term(shown, f"{option.help} {EXTENSION}" if option.extension else option.help)


def _positional(positional: Positional) -> Term:
    text = positional.help
    if isinstance(positional.default, str) and positional.default:
        text += f" The default is {positional.default}."
    return Term(positional.shown.strip(), text)


def _remarks(command: Command) -> list[str]:
    remarks = []
    if Needs.CURRENT_QUEUE in command.needs:
        remarks.append("It requires an open queue space and a current queue (qset).")
    elif Needs.OPEN_SPACE in command.needs:
        remarks.append("It requires an open queue space.")
    if command.confirm is not None:
        asking = next((option for option in command.options if option.name == command.confirm.option), None)
        when = "It asks" if asking is None else f"With {asking.flag} it asks"
        remarks.append(f"{when} for confirmation.")
    if command.extension:
        remarks.append(EXTENSION)
    return remarks
