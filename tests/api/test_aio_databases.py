"""Transactions of tasks over queue spaces and databases of the application, by connections for asyncio."""

import asyncio
import contextlib

import aiosqlite
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine

import qmadmin
from qmadmin import aio
from qmcore.errors import AbortedError, InvalidArgumentError, ProtocolError
from tests.fix_applications import application_at
from tests.fix_databases import decisions_in, forget_tables, prepared_in
from tests.fix_distributed import PAIRS
from tests.fix_postgres import database_of
from tests.fix_store import drain, eventually

KINDS = ("psycopg", "AsyncConnection", "AsyncSession", "async_scoped_session")
pytestmark = pytest.mark.parametrize("pair", [PAIRS[0], "postgres-postgres"], indirect=True)
on_each_kind = pytest.mark.parametrize("kind", KINDS)
on_each_decider = pytest.mark.parametrize("decides", ["database", "space"])


@pytest.fixture
def shop(database_of_applications):
    """The tables of an application."""
    made = application_at(database_of_applications, "psycopg")
    with made.transaction() as connection:
        qmadmin.create_decision_table(connection)
    yield made
    made.close()
    forget_tables(made.place)


@contextlib.asynccontextmanager
async def connected(place, kind):
    """Open a connection for asyncio to the database."""
    address = database_of(place)[0]
    if kind == "psycopg":
        async with await psycopg.AsyncConnection.connect(address) as connection:
            yield connection
            await connection.rollback()
        return
    engine = create_async_engine(sa.engine.make_url(address).set(drivername="postgresql+psycopg"))
    try:
        if kind == "AsyncConnection":
            made = await engine.connect()
        elif kind == "AsyncSession":
            made = AsyncSession(engine)
        else:
            made = async_scoped_session(async_sessionmaker(engine), asyncio.current_task)
        yield made
        await made.close()
    finally:
        await engine.dispose()


async def order(connection, text="x"):
    """Record an order."""
    statement = f"INSERT INTO shop_order VALUES ('{text}')"
    is_psycopg = isinstance(connection, psycopg.AsyncConnection)
    await connection.execute(statement if is_psycopg else sa.text(statement))


def run(pair, shop, kind, story):
    """Run what a task does with a queue space and a connection."""

    async def main():
        async with (
            aio.open_device(pair.configs[0]) as device,
            device.open_space("A") as a,
            connected(shop.place, kind) as connection,
        ):
            await asyncio.wait_for(story(a, connection), 50)

    asyncio.run(main())


def there(pair, shop):
    """Return what is to be seen of it, once nothing is in doubt."""
    with contextlib.closing(psycopg.connect(database_of(shop.place)[0])) as connection:
        eventually(lambda: qmadmin.recover(connection) == 0 and pair.is_settled(), "the end of all in doubt")
    assert prepared_in(shop.place) == 0
    return drain(pair.a), drain(pair.a, "OUT"), shop.orders()


@on_each_kind
@on_each_decider
def test_messages_and_rows_are_committed_together_or_not_at_all(pair, shop, kind, decides):
    pair.a.enqueue("Q", "x")

    async def story(a, connection):
        its = {"database": connection, "space": a}[decides]
        with pytest.raises(ZeroDivisionError):
            async with aio.transaction(a, connection, decider=its):
                await a.enqueue("OUT", (await a.dequeue("Q")).text)
                await order(connection, "never")
                raise ZeroDivisionError
        for _ in range(2):
            async with aio.transaction(a, connection, decider=its) as tx:
                await order(connection)
                message = await a.dequeue("Q")
                if message is not None:
                    await a.enqueue("OUT", message.text)
            assert tx.complete
        async with aio.transaction(a, connection):
            await a.enqueue("OUT", "alone")

    run(pair, shop, kind, story)
    assert there(pair, shop) == ([], ["x", "alone"], ["x", "x"])
    assert decisions_in(shop.place) <= 1


@pytest.mark.parametrize("kind", KINDS[:3])
@on_each_decider
@pytest.mark.parametrize("after", range(1, 40, 6))
def test_a_cancellation_at_any_time_leaves_all_or_nothing(pair, shop, kind, decides, after):
    async def story(a, connection):
        async def work():
            its = {"database": connection, "space": a}[decides]
            async with aio.transaction(a, connection, decider=its):
                await a.enqueue("OUT", "x")
                await order(connection)

        task = asyncio.ensure_future(work())
        for _ in range(after):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        # The connection can be used again.
        async with aio.transaction(a, connection):
            await order(connection, "next")

    run(pair, shop, kind, story)
    assert there(pair, shop) in (([], [], ["next"]), ([], ["x"], ["next", "x"]))


def test_a_commit_that_waits_for_a_lock_comes_to_its_end_though_it_is_cancelled(pair, shop):
    async def story(a, connection):
        inside = asyncio.Event()

        async def work():
            async with aio.transaction(a, connection, decider=connection):
                await a.enqueue("OUT", "x")
                await order(connection)
                inside.set()

        async with await psycopg.AsyncConnection.connect(database_of(shop.place)[0]) as other:
            task = asyncio.ensure_future(work())
            await inside.wait()
            await other.execute("LOCK TABLE qmadmin_decision IN ACCESS EXCLUSIVE MODE")
            for _ in range(3):
                task.cancel()
                await asyncio.sleep(0)
            await other.rollback()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    run(pair, shop, "psycopg", story)
    found = there(pair, shop)
    assert found in (([], ["x"], ["x"]), ([], [], []))


def test_what_takes_no_part_is_refused(pair, shop, tmp_path):
    async def story(a, connection):
        async def refuses(error, words, *resources, **named):
            with pytest.raises(error, match=words):
                async with aio.transaction(*resources, **named):
                    pass

        await refuses(InvalidArgumentError, "needs at least one queue space or device", connection)
        await refuses(InvalidArgumentError, "takes part in the transaction twice", a, connection, connection)
        await refuses(InvalidArgumentError, "is none of the resources", a, decider=connection)
        await refuses(InvalidArgumentError, "of a transaction of tasks is a queue space or a device of", a, "shop")
        with contextlib.closing(psycopg.connect(database_of(shop.place)[0])) as its:
            await refuses(InvalidArgumentError, "or a connection for asyncio, of SQLAlchemy or psycopg 3, got", a, its)
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'x.db'}")
        async with engine.connect() as file:
            await refuses(InvalidArgumentError, "a connection to sqlite through aiosqlite takes no part", a, file)
        await engine.dispose()
        async with aiosqlite.connect(tmp_path / "x.db") as file:
            await refuses(InvalidArgumentError, "or a connection for asyncio, of SQLAlchemy or psycopg 3, got", a, file)
        not_begun = create_async_engine("postgresql+psycopg://").connect()
        await refuses(InvalidArgumentError, "is closed", a, not_begun)
        await order(connection)
        await refuses(InvalidArgumentError, "has a transaction open already", a, connection)
        await connection.rollback()
        with pytest.raises(ProtocolError, match="has ended the transaction on"):
            async with aio.transaction(a, connection):
                await a.enqueue("OUT", "x")
                await order(connection)
                await connection.rollback()
        with pytest.raises(AbortedError, match="a statement in it has failed"):
            async with aio.transaction(a, connection):
                await a.enqueue("OUT", "x")
                with contextlib.suppress(psycopg.Error):
                    await connection.execute("SELECT 1/0")

    run(pair, shop, "psycopg", story)
    assert there(pair, shop) == ([], [], [])
