"""The application for INSTALLED_APPS."""

from __future__ import annotations

import contextlib
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate

from qmadmin.django.opened import LABEL, ProjectApp, create, space
from qmadmin.django.project import configured
from qmcore.errors import QueueError


class QmadminConfig(AppConfig):  # type: ignore[misc] # Django ships no types
    """Creates the queue space with `migrate`, and opens it before a transaction could be in its way."""

    name = "qmadmin.django"
    label = LABEL
    verbose_name = "Message queues"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        # Handlers are declared while applications are loaded, before `ready`.
        self.app = ProjectApp()

    def ready(self) -> None:
        """Register the check, and listen for what happens to databases."""
        checks.register(check)
        post_migrate.connect(_create, sender=self)
        connection_created.connect(_open)


def check(**_: Any) -> list[checks.CheckMessage]:
    """Say what is wrong with the setting, or with the database for it."""
    try:
        found = configured()
    except ImproperlyConfigured as error:
        return [checks.Error(str(error), id="qmadmin.E001")]
    connection = connections[found.database]
    mode = connection.settings_dict.get("OPTIONS", {}).get("transaction_mode")
    if connection.vendor == "sqlite" and str(mode).upper() not in ("IMMEDIATE", "EXCLUSIVE"):
        return [
            checks.Warning(
                f"transactions of the database {found.database!r} that read before they enqueue can fail, because"
                f" others may have written in between (transaction_mode is {mode!r})",
                hint=f"Set DATABASES[{found.database!r}]['OPTIONS'] = {{'transaction_mode': 'IMMEDIATE'}}.",
                id="qmadmin.W001",
            )
        ]
    return []


def _create(using: str, **_: Any) -> None:
    if using == configured().database:
        create()


def _open(connection: Any, **_: Any) -> None:
    """Open the queue space when Django has connected to its file: the transaction that comes next would keep it out."""
    # `migrate` may be about to create it; whoever asks for it is told what is wrong.
    with contextlib.suppress(ImproperlyConfigured, QueueError):
        if connection.vendor == "sqlite" and connection.alias == configured().database:
            space()
