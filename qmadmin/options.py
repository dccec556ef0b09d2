"""Options and arguments of the programs, declared once for --help and for the manual."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from qmadmin.settings import Setting

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


Declared = Callable[[Any], Any]
"""Declares an option or an argument for a command."""


class Option(click.Option):
    """An option of a program.

    `help` is the text of --help and the manual; `more` is added in the manual. `setting` is the setting that applies
    without the option.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        help: str,  # noqa: A002 - as click names it
        more: str = "",
        setting: Setting[Any] | None = None,
        **declared: Any,
    ) -> None:
        shown = help if setting is None else f"{help.rstrip('.')} [default: {setting.default_help or setting.default}]."
        super().__init__(names, help=shown, **declared)
        self.summary = help
        self.more = more
        self.setting = setting


def option(shown: str, name: str = "", *, setting: Setting[Any] | None = None, **declared: Any) -> Declared:
    """Declare an option as it is shown, such as `-w, --workers NUMBER`; `name` is another name for its parameter.

    Without a metavariable it is a flag; with words such as `a|b` it is a choice. Its help is that of the setting unless
    it has its own.
    """
    words = shown.split()
    flags = [word.rstrip(",") for word in words if word.startswith("-")]
    if len(flags) == len(words):
        declared["is_flag"] = True
    else:
        declared["metavar"] = words[-1]
        if "|" in words[-1]:
            declared["type"] = click.Choice(words[-1].split("|"))
    if setting is not None:
        declared = {"help": setting.help, "setting": setting} | declared
    return click.option(*flags, *filter(None, [name]), cls=Option, **declared)


def metrics_option(setting: Setting[Any] | None = None) -> Declared:
    """Declare the option of programs that serve metrics while they run."""
    return option(
        "--metrics [HOST:]PORT",
        setting=setting,
        help="Serve metrics for Prometheus over HTTP.",
        more="Without a host, only programs on this machine can reach them. It requires the package prometheus-client.",
    )


def with_options(*declared: Declared) -> Declared:
    """Declare options for a command, in their order."""
    return lambda command: functools.reduce(lambda declaring, each: each(declaring), reversed(declared), command)


class Documented(click.Command):
    """A command whose help is the docstring of its function, even if Python runs without docstrings."""

    def __init__(self, *arguments: Any, **declared: Any) -> None:
        super().__init__(*arguments, **declared)
        self.help = self.help or docstring(self.callback)


def files(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Make the user's shell complete the name of a file."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(begun, type="file")]


class Span(click.IntRange):
    """A whole number of seconds, or one with its unit behind it: `90s`, `10m`, `2h`, `1d`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the seconds."""
        from qmcore import times

        text: Any = times.in_seconds(value) if isinstance(value, str) else value
        return super().convert(text, param, ctx)


class Argument(click.Argument):
    """The arguments of a program.

    `meanings` describes each for the manual, `settings` is the setting that applies without it.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        meanings: Mapping[str, str],
        settings: Mapping[str, Setting[Any]] | None = None,
        **declared: Any,
    ) -> None:
        super().__init__(names, **declared)
        self.meanings = meanings
        self.settings = settings or {}


def docstring(function: Callable[..., Any] | None) -> str:
    """Return the docstring of a function without its indentation; from its source if `-OO` has removed it."""
    if function is None:
        return ""
    if function.__doc__ is None and has_no_docstrings():
        return _from_source(function)
    return inspect.cleandoc(function.__doc__ or "")


def has_no_docstrings() -> bool:
    """Return whether this Python has no docstrings (`-OO`, `PYTHONOPTIMIZE=2`)."""
    return sys.flags.optimize > 1


def _from_source(function: Callable[..., Any]) -> str:
    import ast
    import textwrap

    try:
        (found,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, SyntaxError, ValueError):
        # Installed without its source.
        return ""
    assert isinstance(found, ast.FunctionDef)  # noqa: S101 - what else has a handler
    return ast.get_docstring(found) or ""
