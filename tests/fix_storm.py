"""A device on PostgreSQL for races: its counters are held against its tables, and a deadlock fails the test."""

import threading

import pytest

from tests.fix_postgres import KEEPER, database_of
from tests.fix_store import Store, Work, eventually

LOCK_TIMEOUT_MS = 20_000
"""Whoever waits for a lock for so long fails; what they would wait for here lasts until they are done."""


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
        return self.spaces[0]._attachment.volume

    def sql(self, text):
        cursor = self.looking.execute(text.replace("qm.", f"{self.schema}."))
        return cursor.fetchall() if cursor.description is not None else []

    def open_sessions(self, count):
        """Open so many sessions at once, each of which fails when it waits for others."""
        gate = threading.Barrier(count)
        assert Work(*[lambda: self.volume.read(lambda _: gate.wait(30))] * count).results()
        for session in self.volume._sessions._all:
            session.run(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")

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
        others = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        others += f" AND backend_type = 'client backend' AND application_name <> '{KEEPER}'"
        eventually(lambda: not self.sql(others), "the sessions end")
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
