"""Handlers whose database is away: their messages wait for it, without a try."""

import contextlib
import re
import sqlite3

import pytest
from django.db import connections

import qmadmin
from qmadmin.forwarder import join
from tests.fix_applications import Django, application_at
from tests.fix_databases import forget_tables
from tests.fix_distributed import PAIRS
from tests.fix_store import drain
from tests.proxy import Proxy

ONE = pytest.mark.parametrize("pair", PAIRS[:1], indirect=True)
KINDS = pytest.mark.parametrize("how", ["psycopg", "SQLAlchemy", "Session", "Django"])


class Net:
    """A database of an application that is reached through a network that can be cut."""

    def __init__(self, url):
        host, port = re.search(r"@([^:/]+):(\d+)/", url).groups()
        self.server = host, int(port)
        self.proxy = Proxy(self.server)
        self.url = url.replace(f"@{host}:{port}/", f"@127.0.0.1:{self.proxy.port}/")

    def mend(self):
        """Let the network take connections again, after it refused them."""
        self.proxy.close()
        self.proxy = Proxy(self.server, self.proxy.port)


@pytest.fixture
def net(database_of_applications):
    made = Net(database_of_applications)
    yield made
    made.proxy.close()
    forget_tables(database_of_applications)


@pytest.fixture
def shop(net, how):
    made = application_at(net.url, how)
    with made.transaction() as connection:
        qmadmin.create_decision_table(connection)
    yield made
    with contextlib.suppress(Exception):
        made.close()


def run(space, function):
    """Have a function handle a message that has no retries; return what has failed, and how often it was called."""
    failures, called = [], []
    app = qmadmin.App("unused", space="A")
    app.on_failure(lambda _message, error: failures.append(error))

    @app.handler("Q", retries=0)
    def handle(message):
        called.append(message.text)
        assert message.retries == 0
        function(app, message.text, len(called))

    space.enqueue("Q", "a", reply_queue="OUT")
    with app.using(space):
        app.run(until_empty=True)
    return failures, len(called)


@ONE
@KINDS
@pytest.mark.parametrize("joins", ["app", "forwarder"])
def test_a_message_waits_without_a_try_for_a_database_that_is_away(pair, net, shop, joins):
    closing = []

    def connect_again():
        with contextlib.suppress(Exception):
            shop.close()
        if not isinstance(shop, Django):
            shop.open()

    def ship(app, text, time):
        if isinstance(shop, Django):
            its = connections["default"]
            its.inc_thread_sharing()
            closing.append(its)
        if time == 1:
            net.proxy.refuse()
        if time == 3:
            net.mend()
            connect_again()
        (app.join if joins == "app" else join)(shop.connection)
        shop.order(text)

    assert run(pair.a, ship) == ([], 3)
    for each in closing:
        each.close()
    assert (drain(pair.a), drain(pair.a, "OUT"), drain(pair.a, "ERRORS")) == ([], [""], [])
    assert shop.orders() == ["a"]


@ONE
@pytest.mark.parametrize("how", ["Session"])
def test_a_session_connects_again_by_itself(pair, net, shop):
    def ship(app, text, time):
        if time == 1:
            net.proxy.refuse()
        if time == 4:
            net.mend()
        app.join(shop.connection)
        shop.order(text)

    failures, called = run(pair.a, ship)
    assert (failures, called >= 4) == ([], True)
    assert (drain(pair.a, "ERRORS"), shop.orders()) == ([], ["a"])


@ONE
@pytest.mark.parametrize("how", ["psycopg"])
def test_a_connection_that_is_lost_while_the_handler_works_is_a_try(pair, net, shop):
    def ship(app, text, _time):
        app.join(shop.connection)
        shop.order(text)
        net.proxy.reset()

    failures, called = run(pair.a, ship)
    assert (len(failures), called, drain(pair.a, "ERRORS")) == (1, 1, ["a"])
    assert "was lost" in str(failures[0])


@ONE
def test_a_file_that_others_keep_locked_is_waited_for(pair, tmp_path):
    path = tmp_path / "shop.db"
    with (
        contextlib.closing(sqlite3.connect(path, timeout=0, check_same_thread=False)) as shop,
        contextlib.closing(sqlite3.connect(path, check_same_thread=False)) as other,
    ):
        qmadmin.create_decision_table(shop)
        shop.execute("CREATE TABLE sale (what)")
        shop.commit()
        shop.isolation_level = "IMMEDIATE"

        def sell(app, text, time):
            if time == 1:
                other.execute("BEGIN IMMEDIATE")
            if time == 2:
                other.rollback()
            app.join(shop)
            shop.execute("INSERT INTO sale VALUES (?)", [text])

        assert run(pair.a, sell) == ([], 2)
        assert shop.execute("SELECT what FROM sale").fetchall() == [("a",)]
