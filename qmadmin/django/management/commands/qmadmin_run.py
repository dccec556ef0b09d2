"""manage.py qmadmin_run: a worker for the queues of the project, as `qmadmin run` is one for an application."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.utils.autoreload import get_child_arguments

from qmadmin.django.opened import app, handler_modules
from qmadmin.options import Documented
from qmadmin.worker_program import StartError, imported, main, run, run_options

if TYPE_CHECKING:
    from qmadmin.app import App

USAGE: Final = "Usage: manage.py qmadmin_run [OPTIONS]"


@click.command(cls=Documented, options_metavar="[OPTIONS]")
@run_options
@click.option("--settings", "--pythonpath", "_of_django", hidden=True, multiple=True)
def qmadmin_run(_of_django: object, **options: Any) -> int:
    """Call the handlers of the project with the messages of their queues.

    They are declared in modules `handlers` of the applications in INSTALLED_APPS, by @qmadmin.django.handler(queue).
    SIGTERM, SIGINT and SIGHUP end the program after the running calls. It logs to the standard error.
    """
    return run(
        _app_of_the_project,
        settings.SETTINGS_MODULE or "the project",
        [str(word) for word in get_child_arguments()],
        **options,
    )


def _app_of_the_project() -> App:
    for name in handler_modules():
        imported(name)
    try:
        found = app()
    except ImproperlyConfigured as error:
        raise StartError(str(error)) from error
    if not found.handlers:
        raise StartError(
            "no application in INSTALLED_APPS declares a handler",
            "Declare one in its module handlers: @qmadmin.django.handler(queue).",
        )
    return found


class Command(BaseCommand):  # type: ignore[misc] # Django ships no types
    """Hands its arguments on to the program that runs the application of the project."""

    help = "Call the handlers of the project with the messages of their queues."

    def run_from_argv(self, argv: list[str]) -> None:
        """Run the program with all arguments as they are, and end with its exit status."""
        sys.exit(main(argv[2:], qmadmin_run, "manage.py qmadmin_run", USAGE))

    def print_help(self, prog_name: str, subcommand: str) -> None:
        """Print the options of the program."""
        self.stdout.write(qmadmin_run.get_help(click.Context(qmadmin_run, info_name=f"{prog_name} {subcommand}")))

    def handle(self, *_: Any, **__: Any) -> None:
        """Refuse to be called by a program."""
        raise CommandError("qmadmin_run is a program of its own: in Python call qmadmin.django.app().run()")
