"""A device on PostgreSQL for races: its counters are held against its tables, and a deadlock fails the test."""

import threading

import pytest

from tests.fix_postgres import KEEPER, database_of
from tests.fix_store import Store, Work, attachment_of, eventually

LOCK_TIMEOUT_MS = 20_000
"""Whoever waits for a lock for so long fails; what they would wait for here lasts until they are done."""

OTHERS = f"""
FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
AND backend_type = 'client backend' AND application_name <> '{KEEPER}'
"""
"""The sessions on the database that are not the tests' own."""


def session_of(volume):
    """Return the session on the server that lies idle, and that the next work gets."""
    with volume.session(fresh=False) as session:
        return session


def new_session(volume):
    """End the sessions that lie idle, and return a new one, which the next work gets: nothing is prepared in it."""
    with volume.session(fresh=True) as session:
        return session


class Arena(Store):
    """A device on PostgreSQL, and what its tables say."""

    def __init__(self, url, clock, make):
        # Loaded here: who has no server need not have the driver.
        import psycopg

        super().__init__("postgres", url, clock, make)
        self.url = url
        database, self.schema = database_of(url)
        self.looking = psycopg.connect(database, autocommit=True)

    @property
    def volume(self):
        return attachment_of(self.spaces[0]).volume

    def sql(self, text):
        cursor = self.looking.execute(text.replace("qm.", f"{self.schema}."))
        return cursor.fetchall() if cursor.description is not None else []

    def open_sessions(self, count):
        """Open so many sessions at once, each of which fails when it waits for others."""
        gate = threading.Barrier(count)

        def opened():
            with self.volume.session(fresh=False) as session:
                gate.wait(90)
                session.run(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")

        assert Work(*[opened] * count).results() == [None] * count

    def sessions(self):
        """Return how many sessions all processes have for their works, where this one alone is attached."""
        return len(self.sql(f"SELECT {OTHERS}")) - 1

    def check_counters(self):
        """Prove that what is counted is what is there, in each queue and in the queue space."""
        for schema in ("qm", f"{self.schema}_memory"):
            counted, stored = (
                {queue: rest for queue, *rest in self.sql(f"SELECT queue_id, {what} FROM {table} GROUP BY queue_id")}
                for what, table in (
                    ("sum(messages), sum(pages), sum(size)", f"{schema}.counter"),
                    ("count(*), sum(pages), sum(size)", f"{schema}.message"),
                )
            )
            whole = counted.pop(0, [0, 0, 0])
            assert {queue: rest for queue, rest in counted.items() if rest != [0, 0, 0]} == stored
            assert whole == [sum(part) for part in zip([0, 0, 0], *stored.values(), strict=True)]

    def deadlocks(self):
        """Return how many deadlocks the server has found in the database; all sessions but the tests' have ended."""
        eventually(lambda: not self.sql(f"SELECT {OTHERS}"), "the sessions end")
        return self.sql("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")[0][0]


@pytest.fixture
def arena(database_url, emptied_devices, clock):
    """A device whose test fails where the server had to break a deadlock."""
    made = Arena(database_url, clock, emptied_devices.device)
    before = made.sql("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")[0][0]
    yield made
    made.close()
    found = made.deadlocks()
    made.looking.close()
    assert found == before
