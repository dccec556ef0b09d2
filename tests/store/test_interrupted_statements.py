"""Exceptions from outside in the middle of a statement on a connection of the application."""

from __future__ import annotations

import contextlib
import itertools

import pg8000.core
import psycopg.connection
import pytest

import qmadmin
from qmcore.errors import InvalidArgumentError, QueueError
from tests.fix_distributed import PAIRS
from tests.fix_store import drain, eventually
from tests.interrupts import InterruptedAt

ONE = pytest.mark.parametrize("pair", PAIRS[:1], indirect=True)
PSYCOPG = pytest.mark.parametrize(
    "shop", [("server", "psycopg"), ("server", "Session"), ("server", "Django")], indirect=True, ids="-".join
)


def driver_of(shop):
    """Return the driver's connection below that of the application."""
    connection = shop.connection
    if isinstance(connection, psycopg.Connection):
        return connection
    if hasattr(connection, "ensure_connection"):
        return connection.connection
    return connection.connection().connection.driver_connection


@ONE
@PSYCOPG
def test_a_connection_that_was_left_in_the_middle_of_a_statement_can_be_used_again(pair, shop):
    for _ in range(2):
        with pytest.raises(LookupError), qmadmin.transaction(pair.a, shop.connection):
            pair.a.enqueue("OUT", "x")
            shop.order("x")
            # As an exception from outside leaves it.
            driver_of(shop).pgconn.send_query(b"SELECT pg_sleep(3600)")
            raise LookupError
    with qmadmin.transaction(pair.a, shop.connection):
        pair.a.enqueue("OUT", "y")
        shop.order("y")
    assert (drain(pair.a, "OUT"), shop.orders()) == (["y"], ["y"])


@ONE
@pytest.mark.parametrize("shop", [("server", "psycopg")], indirect=True, ids="-".join)
def test_one_that_was_left_in_the_middle_of_a_copy_is_closed(pair, shop):
    with pytest.raises(LookupError), qmadmin.transaction(pair.a, shop.connection):
        shop.order("x")
        shop.connection.pgconn.send_query(b"COPY shop_order FROM STDIN")
        raise LookupError
    with (
        pytest.raises(InvalidArgumentError, match="the connection is closed"),
        qmadmin.transaction(pair.a, shop.connection),
    ):
        pass
    assert shop.orders() == []


@ONE
@pytest.mark.parametrize("shop", [("server", "psycopg2")], indirect=True, ids="-".join)
def test_what_the_caller_handles_meanwhile_has_interrupted_nothing(pair, shop):
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        with pytest.raises(LookupError), qmadmin.transaction(pair.a, shop.connection):
            shop.order("x")
            raise LookupError from None
    with qmadmin.transaction(pair.a, shop.connection):
        pair.a.enqueue("OUT", "y")
        shop.order("y")
    assert (drain(pair.a, "OUT"), shop.orders()) == (["y"], ["y"])


@pytest.mark.matrix(apart=True)
@ONE
@pytest.mark.parametrize(
    ("shop", "module"),
    [
        (("server", "psycopg"), psycopg.connection),
        (("server", "Session"), psycopg.connection),
        (("server", "pg8000"), pg8000.core),
    ],
    indirect=["shop"],
    ids=["psycopg", "Session", "pg8000"],
)
def test_an_interrupt_at_any_line_of_a_driver_leaves_all_or_nothing(pair, shop, module):
    for line in itertools.count(1):
        with contextlib.suppress(KeyboardInterrupt), qmadmin.transaction(pair.a, shop.connection):
            pair.a.enqueue("OUT", str(line))
            with InterruptedAt(module, line) as interrupt:
                shop.order(str(line))
        try:
            qmadmin.recover(shop.connection)
        except QueueError:
            # What cannot be used any more is refused.
            shop.open()
        if not interrupt.was_reached:
            break
    eventually(lambda: not qmadmin.recover(shop.connection), "the end of all that was in doubt")
    assert line > 10
    assert drain(pair.a, "OUT") == sorted(shop.orders(), key=int)
