"""manage.py qmadmin: the shell of qmadmin on the device and the queue space of the project."""

from __future__ import annotations

import sys

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from qmadmin.django.project import configured


class Command(BaseCommand):  # type: ignore[misc] # Django ships no types
    """Hands its arguments on to the program qmadmin."""

    help = "Run the shell of qmadmin on the device and the queue space of the setting QMADMIN."

    def run_from_argv(self, argv: list[str]) -> None:
        """Run the program with all arguments as they are, and end with its exit status."""
        from qmadmin.program import main

        try:
            found = configured()
        except ImproperlyConfigured as error:
            self.stderr.write(str(CommandError(error)))
            sys.exit(2)
        sys.exit(main([found.device, "-s", found.space, *argv[2:]]))
