"""The queues of a project of Django.

    INSTALLED_APPS = [..., "qmadmin.django"]
    QMADMIN = {"SPACE": "SHOP", "QUEUES": ["orders"]}

`manage.py migrate` creates the device, the queue space and the queues; `manage.py qmadmin` is the shell on them.

    from django.db import connection, transaction
    from qmadmin.django import space

    with transaction.atomic():
        order.save()
        space().enqueue("orders", {"number": order.pk}, connection=connection)

A module `handlers` of an application in INSTALLED_APPS says what is done with the messages:

    from qmadmin.django import handler

    @handler("orders", workers=4)
    def ship(order: dict[str, int]) -> None:
        ...

`manage.py qmadmin_run` calls the handlers; `ship.enqueue(...)` sends to one.
"""

from __future__ import annotations

from qmadmin.django.opened import app, close, handler, space

__all__ = ["app", "close", "handler", "space"]
