"""Handlers whose database is away: their messages wait for it, without a try."""

import contextlib
import re
import sqlite3

import pytest
from django.db import connections

import qmadmin
from qmadmin.forwarder import join
from qmcore.errors import OutcomeUnknownError
from tests.fix_applications import Django, application_at, connected
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


class TestTheSameDatabase:
    """The answer of the one commit that is of the rows and of the messages is lost."""

    @pytest.fixture
    def net(self, pair):
        made = Net(pair.configs[0])
        yield made
        made.proxy.close()
        forget_tables(pair.configs[0])

    @pytest.fixture
    def shop(self, net, how):
        made = application_at(net.url, how)
        yield made
        with contextlib.suppress(Exception):
            made.close()

    OWN = pytest.mark.parametrize("pair", ["postgres-postgres"], indirect=True)
    HOW = pytest.mark.parametrize("how", ["psycopg", "Session"])
    MOMENTS = pytest.mark.parametrize("moment", ["before", "answer"])

    @OWN
    @HOW
    @MOMENTS
    def test_it_is_told_that_nobody_knows(self, pair, net, shop, moment):
        pair.a.enqueue("Q", "a")
        with pytest.raises(OutcomeUnknownError, match="whether it was done is unknown"):  # noqa: SIM117 - its end raises
            with qmadmin.transaction(pair.a, shop.connection):
                shop.order(pair.a.dequeue("Q").text)
                net.proxy.trap(b"COMMIT", moment, "reset")
        assert net.proxy.sprung.wait(60)
        left = [(info.retries, pair.a.content(info).text) for info in pair.a.messages("Q")]
        if moment == "answer":
            assert (left, seen(pair)) == ([], ["a"])
        else:
            assert (left, seen(pair)) == ([(0, "a")], [])

    @OWN
    @HOW
    @MOMENTS
    def test_a_handler_is_called_again_only_if_it_was_not_done(self, pair, net, shop, moment):
        def ship(app, text, time):
            if time == 2:
                with contextlib.suppress(Exception):
                    shop.close()
                shop.open()
            app.join(shop.connection)
            shop.order(text)
            if time == 1:
                net.proxy.trap(b"COMMIT", moment, "reset")

        assert run(pair.a, ship) == ([], 1 if moment == "answer" else 2)
        assert (drain(pair.a), drain(pair.a, "OUT"), drain(pair.a, "ERRORS")) == ([], [""], [])
        assert seen(pair) == ["a"]


def seen(pair):
    """Return the orders of an application in the database of a queue space."""
    with contextlib.closing(connected(pair.configs[0])) as connection:
        return [row[0] for row in connection.execute("SELECT text FROM shop_order ORDER BY text")]
