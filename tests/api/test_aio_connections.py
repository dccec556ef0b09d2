"""Calls of tasks in transactions of their application: what differs from calls that are not awaited."""

import asyncio
import contextlib
import gc
import sqlite3
import threading
import warnings

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import qmadmin
from qmadmin import aio
from qmcore.errors import AbortedError, InvalidArgumentError, ProtocolError
from tests.fix_aio import opened, until
from tests.fix_postgres import database_of
from tests.fix_store import device_path, eventually, make_queue, maker_of_devices, space_definition
from tests.fix_task_applications import engine_of


@pytest.fixture(params=["file", "postgres"])
def device(request, tmp_path, memory_dir):
    """A device on the machine's own clock, with a queue space `SPACE` and the queue `Q`."""
    path = device_path(request.param, request, tmp_path)
    with maker_of_devices(request.param, request)(path, 50_000) as made:
        made.create_space(space_definition(pages=20_000, messages=20_000))
        with made.open_space("SPACE") as space:
            make_queue(space, "Q", retries=3)
        yield made


on_files = pytest.mark.parametrize("device", ["file"], indirect=True)
on_servers = pytest.mark.parametrize("device", ["postgres"], indirect=True)


def run(device, story):
    """Run what tasks do with a queue space, and an engine of SQLAlchemy on its database, in an event loop."""

    async def main():
        async with opened(device) as space:
            engine = engine_of(device.path)
            try:
                await asyncio.wait_for(story(space, engine), 240)
            finally:
                await engine.dispose()

    asyncio.run(main())


def connected(device, **how):
    """Return a connection of psycopg for asyncio, to be awaited."""
    return psycopg.AsyncConnection.connect(database_of(device.path)[0], **how)


@contextlib.contextmanager
def nobody_else_may_write(device):
    """Have another connection lock what each message needs."""
    if "://" in device.path:
        with psycopg.connect(database_of(device.path)[0]) as other:
            schema = device.path.partition("schema=")[2]
            other.execute(f"LOCK TABLE {schema}.message IN ACCESS EXCLUSIVE MODE")
            yield
    else:
        with contextlib.closing(sqlite3.connect(device.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
            other.execute("ROLLBACK")


async def texts(space):
    return [message.text async for message in space.browse("Q")]


async def refused(space, connection, match, kind=InvalidArgumentError):
    """Both directions are refused with the same sentence."""
    for call in (space.enqueue("Q", "x", connection=connection), space.dequeue("Q", connection=connection)):
        with pytest.raises(kind, match=match) as refusal:
            await call
        assert refusal.value.hint
    return refusal.value


class TestTheLoop:
    def test_goes_on_while_the_database_does_not_answer(self, device):
        async def story(space, engine):
            async with engine.begin() as connection:
                with nobody_else_may_write(device):
                    call = asyncio.create_task(space.enqueue("Q", "joined", connection=connection))
                    for _ in range(20):
                        await asyncio.sleep(0.001)
                    assert not call.done()
                await call
            assert await texts(space) == ["joined"]

        run(device, story)

    @on_servers
    def test_is_where_the_functions_of_the_connection_are_called(self, device):
        async def story(space, engine):
            async with await connected(device) as connection, await connected(device, autocommit=True) as other:
                heard = []
                connection.add_notify_handler(lambda notice: heard.append((notice.payload, threading.get_ident())))
                await connection.execute("LISTEN application")
                await connection.commit()
                await other.execute("NOTIFY application, 'a'")
                # It is sent at the end of a transaction, which a call ends that finds nothing.
                while not heard:
                    assert await space.dequeue("Q", connection=connection) is None
                assert heard == [("a", threading.get_ident())]

        run(device, story)

    @on_servers
    def test_that_ends_under_a_call_leaves_no_thread_behind(self, device):
        def mine():
            return [thread for thread in threading.enumerate() if thread.name.startswith("qmadmin-aio")]

        loop = asyncio.new_event_loop()

        async def begin():
            made = aio.Device(device)
            space = await made.open_space("SPACE")
            connection = await connected(device)
            asyncio.create_task(space.enqueue("Q", "lost", connection=connection))  # noqa: RUF006 - it is lost
            await until(lambda: connection.info.transaction_status == psycopg.pq.TransactionStatus.ACTIVE)

        with nobody_else_may_write(device), warnings.catch_warnings(action="ignore"):
            loop.run_until_complete(begin())
            assert mine()
            loop.close()
            eventually(lambda: gc.collect() >= 0 and not mine(), "the threads end")
        with device.open_space("SPACE") as space:
            assert space.dequeue("Q") is None


class TestACancellation:
    @on_servers
    def test_undoes_the_call_at_once_and_nothing_else_of_the_transaction(self, device):
        async def story(space, engine):
            async with await connected(device) as connection:
                await connection.execute("CREATE TABLE mine (number int)")
                with nobody_else_may_write(device):
                    call = asyncio.create_task(space.enqueue("Q", "cancelled", connection=connection))
                    await until(lambda: connection.info.transaction_status == psycopg.pq.TransactionStatus.ACTIVE)
                    call.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await call
                await space.enqueue("Q", "joined", connection=connection)
                await connection.execute("DROP TABLE mine")
                await connection.commit()
            assert await texts(space) == ["joined"]

        run(device, story)

    @on_files
    def test_that_comes_too_late_takes_effect_at_the_next_await(self, device):
        async def story(space, engine):
            done = []

            async def place(connection):
                done.append(await space.enqueue("Q", "joined", connection=connection))
                await asyncio.sleep(240)

            async with engine.connect() as connection:
                with nobody_else_may_write(device):
                    task = asyncio.create_task(place(connection))
                    await until(lambda: connection.sync_connection.connection.driver_connection.in_transaction)
                    await asyncio.sleep(0.05)
                    task.cancel()
                    await asyncio.sleep(0.05)
                    assert not task.done()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await connection.commit()
            (msgid,) = done
            assert (await space.dequeue("Q", msgid=msgid)).text == "joined"

        run(device, story)


class TestTasks:
    @on_servers
    def test_may_share_a_connection_of_psycopg(self, device):
        async def story(space, engine):
            async with await connected(device) as connection:
                await connection.execute("CREATE TEMPORARY TABLE mine (number int)")

                async def place(number):
                    await connection.execute("INSERT INTO mine VALUES (%s)", [number])
                    with contextlib.suppress(qmadmin.BadQueueError):
                        await space.enqueue("Q" if number % 2 else "NONE", str(number), connection=connection)

                await asyncio.gather(*(place(number) for number in range(20)))
                await connection.commit()
                counted = await (await connection.execute("SELECT count(*) FROM mine")).fetchone()
                assert counted == (20,)
            assert sorted(map(int, await texts(space))) == list(range(1, 20, 2))

        run(device, story)

    def test_other_than_that_of_the_transaction_wait_for_its_end(self, device):
        async def story(space, engine):
            async with engine.begin() as connection:
                await space.enqueue("Q", "joined", connection=connection)
                with pytest.raises(ProtocolError, match="this task has a transaction of its own open"):
                    await space.create_queue("NEW")
                other = asyncio.create_task(space.create_queue("NEW"))
                await asyncio.sleep(0.05)
                assert not other.done()
            await other
            assert await texts(space) == ["joined"]

        run(device, story)

    @pytest.mark.parametrize("end", ["invalidate", "commit"])
    def test_go_on_after_an_end_behind_the_back_of_sqlalchemy(self, device, end):
        async def story(space, engine):
            async with engine.connect() as connection:
                await space.enqueue("Q", "joined", connection=connection)
                if end == "commit":
                    await (await connection.get_raw_connection()).driver_connection.commit()
                else:
                    await connection.invalidate()
                await space.create_queue("NEW")
                await space.enqueue("Q", "plain")
                await connection.invalidate()
            assert await texts(space) == (["joined", "plain"] if end == "commit" else ["plain"])

        run(device, story)

    def test_that_wait_are_woken_by_the_commit(self, device):
        async def story(space, engine):
            waiting = asyncio.create_task(space.dequeue("Q", wait=60))
            async with engine.begin() as connection:
                await space.enqueue("Q", "joined", connection=connection)
                await asyncio.sleep(0.05)
                assert not waiting.done()
            assert (await waiting).text == "joined"

        run(device, story)


class TestRefused:
    @on_files
    @pytest.mark.parametrize("wrong", ["a str", 5, sqlite3])
    def test_what_is_no_connection(self, device, wrong):
        async def story(space, engine):
            error = await refused(space, wrong, "the connection of a task must be one for asyncio")
            assert "AsyncConnection or AsyncSession of SQLAlchemy" in error.hint
            await refused(space, engine, r"got sqlalchemy.ext.asyncio.engine.AsyncEngine$")

        run(device, story)

    @on_files
    def test_a_connection_that_is_not_for_asyncio(self, device):
        async def story(space, engine):
            with contextlib.closing(sqlite3.connect(device.path)) as connection:
                await refused(space, connection, r"must be one for asyncio.* got sqlite3.Connection$")
            with contextlib.closing(sqlalchemy.create_engine(f"sqlite:///{device.path}").connect()) as connection:
                await refused(space, connection, r"must be one for asyncio.* got sqlalchemy.engine.base.Connection$")
                connection.engine.dispose()

        run(device, story)

    def test_one_for_asyncio_where_the_call_is_not_awaited(self, device):
        async def story(space, engine):
            async with engine.connect() as connection:
                with pytest.raises(InvalidArgumentError, match=r"for asyncio, as .*AsyncConnection is") as refusal:
                    space.synchronous.enqueue("Q", "x", connection=connection)
                assert "qmadmin.aio" in refusal.value.hint
                with pytest.raises(InvalidArgumentError, match=r"for asyncio, as sqlalchemy.engine.base.Connection is"):
                    await connection.run_sync(lambda its: space.synchronous.enqueue("Q", "x", connection=its))

        run(device, story)

    def test_a_connection_that_is_closed_or_was_never_opened(self, device):
        async def story(space, engine):
            connection = engine.connect()
            await refused(space, connection, "is closed")
            await connection.start()
            await space.enqueue("Q", "lost", connection=connection)
            await connection.close()
            await refused(space, connection, "is closed")
            if "://" in device.path:
                made = await connected(device)
                await made.close()
                await refused(space, made, "is closed")
            assert await texts(space) == []

        run(device, story)

    @on_servers
    @pytest.mark.parametrize("kind", ["psycopg", "SQLAlchemy"])
    def test_one_that_tasks_of_another_event_loop_use(self, device, kind):
        async def use(driver, used, left):
            waiting = asyncio.create_task(driver.lock.acquire())
            async with driver.lock:
                # It waits behind this task, by which the lock learns of the loop.
                await asyncio.sleep(0)
                used.set()
                await asyncio.to_thread(left.wait)
            await waiting
            driver.lock.release()

        async def story(space, engine):
            connection = await (connected(device) if kind == "psycopg" else engine.connect().start())
            driver = connection if kind == "psycopg" else (await connection.get_raw_connection()).driver_connection
            used, left = threading.Event(), threading.Event()
            elsewhere = threading.Thread(target=asyncio.run, args=(use(driver, used, left),))
            elsewhere.start()
            await asyncio.to_thread(used.wait)
            try:
                with pytest.raises(ProtocolError, match="the connection is in use in another event loop"):
                    await space.enqueue("Q", "x", connection=connection)
            finally:
                left.set()
                await asyncio.to_thread(elsewhere.join)
            await connection.rollback()
            await space.enqueue("Q", "y", connection=connection)
            await connection.commit()
            assert await texts(space) == ["y"]
            await connection.close()

        run(device, story)

    def test_a_connection_in_autocommit(self, device):
        async def story(space, engine):
            # Without the events by which the other begins transactions itself.
            made = create_async_engine(engine.url, isolation_level="AUTOCOMMIT")
            async with made.connect() as connection:
                await refused(space, connection, "AUTOCOMMIT")
                assert not connection.in_transaction()
            await made.dispose()
            if "://" in device.path:
                async with await connected(device, autocommit=True) as made:
                    await refused(space, made, "AUTOCOMMIT")
                    async with made.transaction():
                        await space.enqueue("Q", "joined", connection=made)
                assert await texts(space) == ["joined"]

        run(device, story)

    @on_servers
    def test_a_transaction_in_two_phases(self, device):
        async def story(space, engine):
            async with await connected(device) as made:
                await made.tpc_begin("qmadmin-test")
                await refused(space, made, "is in a two-phase transaction")
                await made.tpc_rollback()
            async with AsyncSession(engine, twophase=True) as session:
                await refused(space, session, "is in a two-phase transaction")

        run(device, story)

    @on_servers
    def test_a_transaction_in_which_a_statement_has_failed(self, device):
        async def story(space, engine):
            async with engine.connect() as connection:
                await space.enqueue("Q", "lost", connection=connection)
                with contextlib.suppress(sqlalchemy.exc.DBAPIError):
                    await connection.exec_driver_sql("SELECT 1/0")
                await refused(space, connection, "can only be rolled back", AbortedError)
                with pytest.raises(AbortedError, match="was rolled back and not committed"):
                    await connection.commit()
                await connection.rollback()
                await space.enqueue("Q", "joined", connection=connection)
                await connection.commit()
            assert await texts(space) == ["joined"]

        run(device, story)

    @on_servers
    def test_another_database_or_commits_that_may_be_lost(self, device):
        async def story(space, engine):
            async with await connected(device, dbname="postgres") as made:
                await refused(space, made, "leads to database 'postgres'")
            async with await connected(device) as made:
                await made.execute("SET synchronous_commit = off")
                await refused(space, made, "synchronous_commit is off")

        run(device, story)

    @on_servers
    def test_another_driver_than_psycopg(self, device):
        async def story(space, engine):
            other = create_async_engine(engine.url.set(drivername="postgresql+asyncpg"))
            async with other.connect() as connection:
                error = await refused(space, connection, "leads to postgresql through asyncpg, the device is")
                assert "postgresql+psycopg://" in error.hint
                assert not connection.in_transaction()
            await other.dispose()

        run(device, story)

    def test_waiting_and_two_transactions_at_once(self, device):
        async def story(space, engine):
            async with engine.begin() as connection:
                with pytest.raises(InvalidArgumentError, match="cannot wait"):
                    await space.dequeue("Q", wait=1, connection=connection)
                async with space.transaction() as tx:
                    await refused(space, connection, "or to that of the connection, not to both", ProtocolError)
                    await space.enqueue("Q", "alone", transactional=False, connection=connection)
                    with pytest.raises(ProtocolError, match="not to both"):
                        await space.enqueue("Q", "x", transaction=tx, connection=connection)
            assert await texts(space) == ["alone"]

        run(device, story)
