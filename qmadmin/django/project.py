"""The setting QMADMIN of a project."""

from __future__ import annotations

import os
from typing import Any, Final
from urllib.parse import quote, urlencode

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.utils import DEFAULT_DB_ALIAS

from qmadmin.volume_makers import path_of
from qmcore import names
from qmcore.errors import QueueError
from qmcore.values import dataclass

KEYS: Final = ("SPACE", "DATABASE", "DEVICE", "QUEUES")
_SCHEMA: Final = "qmadmin"


@dataclass(frozen=True, slots=True)
class Configured:
    """What the setting says.

    `database` is the alias of the database that the calls of the project join; `device` is the path or URL of the
    device, by default in that database; `queues` are made by migrate.
    """

    space: str
    database: str
    device: str
    queues: tuple[str, ...]


def configured() -> Configured:
    """Return what the setting says; ImproperlyConfigured says in a sentence what is wrong with it."""
    given = getattr(settings, "QMADMIN", None)
    if not isinstance(given, dict):
        raise ImproperlyConfigured(f"the setting QMADMIN must be a dict such as {{'SPACE': 'SHOP'}}, got {given!r}")
    for key in given:
        if key not in KEYS:
            raise ImproperlyConfigured(f"the setting QMADMIN has no key {key!r}: its keys are {', '.join(KEYS)}")
    if "SPACE" not in given:
        raise ImproperlyConfigured("the setting QMADMIN names no queue space: it needs the key SPACE")
    queues = given.get("QUEUES", ())
    if not isinstance(queues, (list, tuple)):
        raise ImproperlyConfigured(f"QUEUES of the setting QMADMIN must be a list of names, got {queues!r}")
    alias = given.get("DATABASE", DEFAULT_DB_ALIAS)
    if alias not in connections:
        raise ImproperlyConfigured(f"DATABASE of the setting QMADMIN must be an alias in DATABASES, got {alias!r}")
    try:
        space = names.space_name(given["SPACE"])
        found = tuple(names.queue_name(queue) for queue in queues)
        device = os.fspath(given["DEVICE"]) if "DEVICE" in given else _device_in(alias)
        path_of(device)
    except QueueError as error:
        raise ImproperlyConfigured(f"the setting QMADMIN is wrong: {error.message}") from error
    except TypeError as error:
        raise ImproperlyConfigured(
            f"DEVICE of the setting QMADMIN must be a path or a URL, got {given['DEVICE']!r}"
        ) from error
    return Configured(space, alias, device, found)


def _device_in(alias: str) -> str:
    """Return the name of the device in a database of Django: for its tests, in the one that they make."""
    connection = connections[alias]
    its: dict[str, Any] = connection.settings_dict
    if connection.vendor == "sqlite":
        name = str(its["NAME"])
        if ":memory:" in name or "mode=memory" in name:
            raise ImproperlyConfigured(
                f"the database {alias!r} is in memory, where no device can be: name a file"
                f" (for tests: DATABASES[{alias!r}]['TEST'] = {{'NAME': ...}}), or DEVICE in the setting QMADMIN"
            )
        return name
    if connection.vendor != "postgresql":
        raise ImproperlyConfigured(
            f"the database {alias!r} is {connection.display_name}, and a device is in SQLite or PostgreSQL:"
            " name DEVICE in the setting QMADMIN"
        )
    login = ":".join(quote(str(its[key]), safe="") for key in ("USER", "PASSWORD") if its.get(key))
    # A directory of sockets is a host too.
    where = {key.lower(): str(its[key]) for key in ("HOST", "PORT") if its.get(key)}
    at = f"{login}@" if login else ""
    return f"postgresql://{at}/{quote(str(its['NAME']), safe='')}?{urlencode(where | {'schema': _SCHEMA})}"
