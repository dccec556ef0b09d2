"""Transactions of tasks with a connection to the very database of their queue space: one database transaction."""

import asyncio

import pytest

from qmadmin import aio
from tests.api.test_aio_databases import connected, on_each_kind, order
from tests.fix_applications import application_at
from tests.fix_databases import forget_tables, prepared_in
from tests.fix_store import drain

pytestmark = pytest.mark.parametrize("pair", ["postgres-postgres"], indirect=True)


@pytest.fixture
def shop(pair):
    """The table of an application in the database of the queue spaces, which has no table of decisions."""
    made = application_at(pair.configs[0], "psycopg")
    yield made
    made.close()
    forget_tables(made.place)


def run(pair, shop, kind, story):
    """Run what a task does with a queue space and a connection to its database."""

    async def main():
        async with (
            aio.open_device(pair.configs[0]) as device,
            device.open_space("A") as a,
            connected(shop.place, kind) as connection,
        ):
            await asyncio.wait_for(story(a, connection), 50)

    asyncio.run(main())


@on_each_kind
def test_messages_and_rows_are_one_database_transaction(pair, shop, kind):
    pair.a.enqueue("Q", "x")

    async def story(a, connection):
        async with aio.transaction(a, connection) as tx:
            message = await a.dequeue("Q")
            await order(connection, message.text)
            await a.enqueue("OUT", message.text)
            # Nothing of it can be seen by others, and none of them waits for it.
            assert (pair.a.usage("OUT").messages, shop.orders(), pair.rows("trans")) == (0, [], 0)
        assert tx.complete

    run(pair, shop, kind, story)
    assert (drain(pair.a), drain(pair.a, "OUT"), shop.orders()) == ([], ["x"], ["x"])
    assert (pair.rows("trans"), pair.rows("decision"), prepared_in(shop.place)) == (0, 0, 0)


@on_each_kind
def test_neither_is_there_where_the_block_fails(pair, shop, kind):
    pair.a.enqueue("Q", "x")

    async def story(a, connection):
        with pytest.raises(ZeroDivisionError):
            async with aio.transaction(a, connection):
                await order(connection, (await a.dequeue("Q")).text)
                await a.enqueue("OUT", "never")
                raise ZeroDivisionError
        async with aio.transaction(a, connection):
            await order(connection, "alone")

    run(pair, shop, kind, story)
    assert (drain(pair.a), drain(pair.a, "OUT"), shop.orders()) == (["x"], [], ["alone"])
    assert (pair.rows("trans"), pair.rows("decision"), prepared_in(shop.place)) == (0, 0, 0)
