"""The queues, which are made before the tables in the same database."""

from typing import Any

from django.apps import AppConfig
from django.db import connections
from django.db.models.signals import pre_migrate

import qmadmin

LIMITS = {"pages": 1000, "queues": 5, "transactions": 10, "processes": 10, "messages": 1000}


class Shop(AppConfig):
    name = "tests.api.django_shop"
    label = "shop"
    default_auto_field = "django.db.models.AutoField"

    def ready(self) -> None:
        pre_migrate.connect(lay_out, sender=self)


def device_of(alias: str) -> str:
    """Return the name of the device in a database of Django."""
    its = connections[alias].settings_dict
    if connections[alias].vendor == "sqlite":
        return str(its["NAME"])
    login = f"{its['USER']}:{its['PASSWORD']}@" if its["PASSWORD"] else f"{its['USER']}@"
    return f"postgresql://{login}{its['HOST']}:{its['PORT']}/{its['NAME']}?schema=queues"


def lay_out(using: str, **_: Any) -> None:
    """Make the device."""
    with qmadmin.create_device(device_of(using), 2000) as device:
        device.create_space(qmadmin.SpaceDefinition(name="SHOP", ipc_key=40000, **LIMITS))
        with device.open_space("SHOP") as space:
            space.create_queue(qmadmin.QueueDefinition(name="ORDERS"))
