"""The queues of a project of Django.

    INSTALLED_APPS = [..., "qmadmin.django"]
    QMADMIN = {"SPACE": "SHOP", "QUEUES": ["orders"]}

`manage.py migrate` creates the device, the queue space and the queues; `manage.py qmadmin` is the shell on them.

    from django.db import connection, transaction
    from qmadmin.django import space

    with transaction.atomic():
        order.save()
        space().enqueue("orders", {"number": order.pk}, connection=connection)
"""

from __future__ import annotations

from qmadmin.django.opened import close, space

__all__ = ["close", "space"]
