"""A page that records an order and sends a message about it. With ATOMIC_REQUESTS a page is one transaction."""

import functools

from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.urls import path

import qmadmin
from tests.api.django_shop.apps import device_of
from tests.api.django_shop.models import Order


@functools.cache
def space() -> qmadmin.QueueSpace:
    """Return the queue space, opened at first use."""
    return qmadmin.open_device(device_of("default")).open_space("SHOP")


def place(request: HttpRequest) -> HttpResponse:
    """Place an order; one for nothing is an error after both are done."""
    what = request.GET["what"]
    space().enqueue("ORDERS", what, connection=connection)
    Order.objects.create(what=what)
    if what == "nothing":
        raise ValueError(what)
    return HttpResponse(what)


urlpatterns = [path("place", place)]
