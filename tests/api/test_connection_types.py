"""The types by which a checker tells what calls can join."""

import subprocess
import sys

import pytest

from tests.fix_store import SOURCES, STRICT

USES = '''
import sqlite3

import pg8000.dbapi  # type: ignore[import-untyped]
import psycopg
import sqlalchemy
from django.db import connection, connections  # type: ignore[import-untyped]
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import qmadmin


class Wrapper:
    """As the types of Django show one of its connections."""

    in_atomic_block: bool

    def on_commit(self, func: object, robust: bool = False) -> None: ...


def use(space: qmadmin.QueueSpace, engine: sqlalchemy.Engine) -> None:
    joined: list[qmadmin.ApplicationConnection] = [
        sqlite3.connect(""), psycopg.connect(), engine.connect(), Session(engine), scoped_session(sessionmaker(engine)),
        connection, connections["default"], Wrapper(),
    ]
    taken: list[qmadmin.DatabaseConnection] = [*joined, pg8000.dbapi.connect("user")]
    with qmadmin.transaction(space, *taken):
        qmadmin.recover(*taken)
    for one in joined:
        space.enqueue("Q", "x", connection=one)
        message: qmadmin.Message | None = space.dequeue("Q", connection=one)
'''
WRONG = [
    '""',
    "5",
    "engine",
    "psycopg.AsyncConnection.connect()",
    "sqlite3.connect('').cursor()",
    "psycopg.connect().cursor()",
]


@pytest.mark.slow
def test_each_kind_of_connection_is_accepted_and_what_is_none_is_not(tmp_path):
    refused = "".join(f"    space.enqueue('Q', 'x', connection={one})\n" for one in WRONG)
    (tmp_path / "uses.py").write_text(USES + refused)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *STRICT, "uses.py"],
        capture_output=True,
        check=False,
        text=True,
        cwd=tmp_path,
        env={"MYPYPATH": SOURCES, "PATH": "", "HOME": str(tmp_path)},
    )
    errors = [line for line in done.stdout.splitlines() if line.startswith("uses.py:") and ": error: " in line]
    assert len(errors) == len(WRONG), done.stdout + done.stderr
    assert all('Argument "connection" to "enqueue"' in line for line in errors), done.stdout
