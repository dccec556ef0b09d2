"""Handlers that have the very database of their queue space take part in the transaction of their message."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

import qmadmin
from qmadmin.forwarder import join
from qmcore.errors import ProtocolError
from tests.fix_applications import application_at, connected
from tests.fix_joined_databases import STORES
from tests.fix_store import drain


class TestTheSameDatabase:
    """The rows, and all that the handler does in the queue space, are one database transaction there."""

    @pytest.fixture(params=["driver", "SQLAlchemy", "Session", "scoped_session", "Django"])
    def shop(self, request, pair):
        is_file = "://" not in pair.configs[0]
        how = {"driver": "sqlite3" if is_file else "psycopg"}.get(request.param, request.param)
        made = application_at(pair.configs[0], how)
        yield made
        made.close()
        with contextlib.closing(connected(made.place)) as connection:
            connection.execute("DROP TABLE shop_order")
            connection.commit()

    @STORES
    def test_both_are_committed_by_the_connection(self, at, pair, shop):
        def ship(message):
            at.sell(message.text)
            at.app.enqueue("IDLE", "one")
            at.app.enqueue("IDLE", "two")
            return f"sold {message.text}"

        at.run(ship, "a", "b")
        assert (at.failures, at.left, shop.orders()) == ([], [[], ["sold a", "sold b"], []], ["a", "b"])
        assert drain(pair.a, "IDLE") == ["one", "two"] * 2
        assert pair.rows("trans") == pair.rows("decision") == 0

    @STORES
    def test_neither_is_where_the_call_fails(self, at, pair, shop):
        def ship(message):
            at.sell(message.text)
            at.app.enqueue("IDLE", message.text)
            if message.text == "a":
                raise LookupError

        at.run(ship, "a", "b")
        assert (len(at.failures), at.left, shop.orders()) == (4, [[], [""], ["a"]], ["b"])
        assert drain(pair.a, "IDLE") == ["b"]

    @STORES
    def test_a_failure_with_an_answer_leaves_the_answer_alone(self, at, pair, shop):
        def ship(message):
            at.sell(message.text)
            at.app.enqueue("IDLE", message.text)
            raise qmadmin.Failure("no", body="none left")

        pair.a.enqueue("Q", "a", failure_queue="OUT")
        at.run(ship, gives_up=True, retries=3)
        assert (len(at.failures), at.left, shop.orders()) == (1, [[], ["none left"], []], [])
        assert drain(pair.a, "IDLE") == []

    @STORES
    def test_a_message_that_is_put_off_is_there_without_the_rows(self, at, pair, shop):
        def ship(message):
            at.sell(message.text)
            raise qmadmin.Park("not now")

        at.run(ship, "a")
        pair.a.unpark("Q")
        assert (at.failures, at.left, shop.orders()) == ([], [["a"], [], []], [])

    @STORES
    def test_several_workers_do_so_beside_each_other(self, at, pair, shop):
        texts = [f"{number:02}" for number in range(40)]

        def ship(message):
            at.sell(message.text)
            at.app.enqueue("IDLE", message.text)

        at.run(ship, *texts, workers=4)
        assert (at.failures, shop.orders(), sorted(drain(pair.a, "IDLE"))) == ([], texts, texts)

    @pytest.mark.parametrize("pair", ["file-file"], indirect=True)
    def test_what_is_enqueued_before_would_stand_behind(self, at, pair, shop):
        def ship(message):
            at.app.enqueue("IDLE", "before")
            at.sell(message.text)

        at.run(ship, "a", retries=0)
        assert "would come to stand behind" in str(at.failures[0])
        assert (at.left, shop.orders(), drain(pair.a, "IDLE")) == ([[], [], ["a"]], [], [])

    @pytest.mark.parametrize("pair", ["file-file"], indirect=True)
    def test_another_database_takes_no_part_in_it(self, at, pair, shop, tmp_path):
        def ship(message):
            with contextlib.closing(sqlite3.connect(tmp_path / "other.db")) as other:
                qmadmin.create_decision_table(other)
                at.sell(message.text)
                with pytest.raises(ProtocolError, match="to which nothing on other volumes or in other databases"):
                    join(other)
                assert not other.in_transaction

        at.run(ship, "a")
        assert (at.failures, at.left, shop.orders()) == ([], [[], [""], []], ["a"])
