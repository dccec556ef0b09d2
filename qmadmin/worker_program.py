"""The program `qmadmin run`: it imports an application, and calls its handlers with the messages of their queues."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import operator
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from qmadmin.app import App
from qmadmin.console.process import Exit, flush_quietly, prepare_process, refuse, say
from qmadmin.consumers.consumer import Stop
from qmadmin.consumers.function_handler import described
from qmadmin.options import Argument, Documented, Span, metrics_option, option, with_options
from qmadmin.settings import ForwarderSettings
from qmcore.errors import QueueError
from qmcore.redacted import redacted

if TYPE_CHECKING:
    from types import ModuleType

WORD: Final = "run"
"""The first argument of qmadmin that means this program; a device of that name is ./run."""

USAGE: Final = "Usage: qmadmin run MODULE:APP [OPTIONS]"

logger = logging.getLogger("qmadmin.consumers")

_LOOK_SECONDS: Final = 0.5
"""How long between two looks at the files of the program, with --reload."""


class StartError(Exception):
    """The application cannot be run; the text is one sentence, and `hint` says what to do."""

    def __init__(self, sentence: str, hint: str = "") -> None:
        super().__init__(sentence)
        self.hint = hint


run_options = with_options(
    option(
        "-e, --until-empty",
        help="End when no queue has a message that can be dequeued.",
        more="Otherwise it waits for messages until a signal ends it.",
    ),
    option("--once", help="End when one message of each queue that has any was handled."),
    option(
        "--grace SECONDS",
        type=Span(0),
        default=30,
        help="How long a stop waits for running calls.",
        more="A second signal ends them at once; their messages go back to their queues. The default is 30.",
    ),
    option(
        "-i, --idle SECONDS",
        type=Span(0),
        default=30,
        help="How many seconds to sleep at most while there is nothing to do.",
        more="An arriving message ends the sleep. With 0 the queues are polled without a pause. The default is 30.",
    ),
    option(
        "-w, --total-workers NUMBER",
        type=click.IntRange(0, ForwarderSettings.total_workers.high),
        default=0,
        help="How many calls run at a time over all queues; 0 means as many as the handlers have workers.",
        more="If it is at least the number of queues, one worker is reserved for each queue that has none running.",
    ),
    metrics_option(),
    option(
        "--reload",
        help="Start again whenever a file of the program changes; for development.",
        more="The Python files in and below the current directory are looked at twice a second, but for hidden"
        " directories, virtual environments, `node_modules` and `__pycache__`.",
    ),
    option("-v, --verbose", help="Log each call too."),
    click.help_option("-h", "--help", help="Print a summary of the options."),
)
"""The options of programs that run an application; `run` takes them."""


@click.command(cls=Documented, options_metavar="[OPTIONS]")
@run_options
@click.argument(
    "target",
    cls=Argument,
    metavar="MODULE:APP",
    meanings={
        "MODULE:APP": "The application: a module, which is looked for in the current directory first, and the"
        " name of the `qmadmin.App` in it. Without a name it is `app`."
    },
)
def qmadmin_run(target: str, **options: Any) -> int:
    """Call the handlers of an application in Python with the messages of their queues.

    The application says which device and queue space it uses, and by which options each queue is handled. SIGTERM,
    SIGINT and SIGHUP end the program after the running calls. It logs to the standard error.
    """
    command = [sys.executable, "-m", "qmadmin.program", *sys.argv[1:]]
    return run(functools.partial(find_app, target), target, command, **options)


def run(
    find: Callable[[], App],
    name: str,
    command: Sequence[str],
    *,
    reload: bool,
    verbose: bool,
    metrics: str | None,
    **options: Any,
) -> int:
    """Run the application that `find` returns, and return the exit status; StartError says why it cannot be run.

    `command` is the line of the process, by which it is started again. The options are those of `run_options`.
    """
    if reload:
        return _run_and_reload([word for word in command if word != "--reload"])
    _log(verbose=verbose)
    application = find()

    def tell() -> None:
        logger.info("%s calls the handlers of %s", name, ", ".join(map(repr, application.handlers)))

    # Whoever waits for this line may send a signal then, which is listened to before the hooks are called.
    application.on_start(tell)
    try:
        with contextlib.closing(application):
            return application.run(metrics=metrics or None, **options)
    except QueueError as error:
        raise StartError(error.message, error.hint) from error


def find_app(target: str) -> App:
    """Import the application that `module:name` names; StartError says what is wrong with it."""
    module_name, _, path = target.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module = imported(
        module_name, f"It is looked for in {here!r} and where Python looks. A device of the name {WORD!r} is ./{WORD}."
    )
    try:
        found = operator.attrgetter(path or "app")(module)
    except AttributeError:
        raise StartError(f"module {module_name!r} has no {path or 'app'!r}", USAGE) from None
    if not isinstance(found, App):
        raise StartError(f"{target!r} is a {type(found).__name__}, not a qmadmin.App")
    return found


def imported(module_name: str, hint: str = "") -> ModuleType:
    """Import a module of the application; StartError says why that fails, and `hint` what to do."""
    try:
        return importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if not isinstance(error, ImportError):
            logger.exception("module %r cannot be imported", module_name)
        raise StartError(f"module {module_name!r} cannot be imported: {described(error)}", hint) from error


def _log(*, verbose: bool) -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if verbose:
        logging.getLogger("qmadmin").setLevel(logging.DEBUG)


# ---- reload ----------------------------------------------------------------------------------------------------------


def _run_and_reload(command: Sequence[str]) -> int:
    """Run the program in a child, and start it again when a file has changed; end with the child at a signal."""
    stop = Stop(reloads=False)
    stop.listen()
    while True:
        files = program_files(".")
        # In a group of its own: Ctrl-C would reach it too, and be the first of two signals, which end it at once.
        child = subprocess.Popen(command, process_group=0)
        while not stop.asked and program_files(".") == files:
            stop.sleep(_LOOK_SECONDS)
        status = _end(child, stop)
        if stop.asked:
            return status
        say(f"{click.get_current_context().command_path}: a file has changed; starting again")


def _end(child: subprocess.Popen[bytes], stop: Stop) -> int:
    """Stop the child, at once when a second signal comes here; return the exit status of both."""
    child.send_signal(signal.SIGTERM)
    is_told = False
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = child.wait(_LOOK_SECONDS)
            return stop.status or (128 - status if status < 0 else status)
        if stop.at_once and not is_told:
            child.send_signal(stop.status - 128)
            is_told = True


def program_files(directory: str) -> dict[str, int]:
    """Return when each Python file of a program was changed, in nanoseconds: those in and below its directory.

    Hidden directories, virtual environments and what other tools fill are left out: they hold many thousands of files,
    and none of the program's.
    """
    found = {}
    for place, directories, files in os.walk(directory):
        directories[:] = [name for name in directories if not _is_passed_over(Path(place, name))]
        for path in (Path(place, name) for name in files if name.endswith(".py")):
            with contextlib.suppress(OSError):
                found[str(path)] = path.stat().st_mtime_ns
    return found


def _is_passed_over(directory: Path) -> bool:
    """Return whether a directory is hidden, another tool's, or a virtual environment."""
    is_of_tools = directory.name.startswith(".") or directory.name in ("__pycache__", "node_modules")
    return is_of_tools or (directory / "pyvenv.cfg").exists()


def main(
    arguments: Sequence[str], program: click.Command = qmadmin_run, name: str = f"qmadmin {WORD}", usage: str = USAGE
) -> int:
    """Run the program with the arguments that follow its name, and return its exit status."""
    prepare_process()
    try:
        return program.main(list(arguments), prog_name=name, standalone_mode=False) or Exit.OK
    except StartError as error:
        return refuse(redacted(str(error)), error.hint)
    except click.ClickException as error:
        return refuse(error.format_message().rstrip("."), usage)
    except (KeyboardInterrupt, click.Abort):
        return Exit.INTERRUPTED
    finally:
        flush_quietly()
