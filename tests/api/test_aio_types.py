"""The types by which a checker tells what awaited calls take and return."""

import subprocess
import sys

import pytest

from tests.fix_store import SOURCES, STRICT

USES = """
import sqlite3

import psycopg
from sqlalchemy.ext.asyncio import (
    AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
)

import qmadmin
from qmadmin import aio

engine = create_async_engine("sqlite+aiosqlite:///QUE")


async def use() -> None:
    async with aio.open_device("QUE", create=True) as device, device.open_space("QS") as space:
        made: qmadmin.Space = await device.create_space("QS", pages=5_000, exist_ok=True)
        defined: qmadmin.SpaceDefinition = await space.definition
        msgid: str = await space.enqueue("Q", {"n": 1}, priority=3)
        deleted: int = await space.purge("Q", condition="priority > 5")
        async for info in space.messages("Q"):
            listed: qmadmin.MessageInfo = info
        async for message in space.browse("Q"):
            seen: qmadmin.Message = message
        async with space.transaction(3) as tx:
            found: qmadmin.Message | None = await space.dequeue("Q", wait=5, transaction=tx)
            await tx.give_back([msgid], counts=False)
        async with engine.connect() as connection, await psycopg.AsyncConnection.connect() as other:
            joined: list[aio.ApplicationConnection] = [
                connection, AsyncSession(engine), async_scoped_session(async_sessionmaker(engine), lambda: 1), other,
            ]
            for one in joined:
                await space.enqueue("Q", "x", connection=one)
                taken: list[qmadmin.Message] = await space.dequeue_many("Q", 5, connection=one)
"""
WRONG = [
    'await space.purge("Q", nonsense=1)',
    'await space.enqueue("Q")',
    'await space.enqueue("Q", "x", transaction="tx")',
    "await tx.rollback(4)",
    'await device.create_space("QS", pages="many")',
    'number: int = await space.enqueue("Q", "x")',
    'await space.enqueue("Q", "x", connection=sqlite3.connect(""))',
    'await space.enqueue("Q", "x", connection=psycopg.connect())',
    'await space.enqueue("Q", "x", connection=engine)',
]


@pytest.mark.slow
def test_calls_have_the_types_of_the_synchronous_ones(tmp_path):
    (tmp_path / "uses.py").write_text(USES + "".join(f"            {line}\n" for line in WRONG))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *STRICT, "uses.py"],
        capture_output=True,
        check=False,
        text=True,
        cwd=tmp_path,
        env={"MYPYPATH": SOURCES, "PATH": "", "HOME": str(tmp_path)},
    )
    errors = [line for line in done.stdout.splitlines() if line.startswith("uses.py:") and ": error: " in line]
    first = USES.count("\n") + 1
    assert [line.split(":")[1] for line in errors] == [str(first + at) for at in range(len(WRONG))], done.stdout
