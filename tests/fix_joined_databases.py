"""Applications whose handlers have a database of their own take part in the transaction of their message."""

from __future__ import annotations

import contextlib
import copy
import sqlite3
import threading

import pytest

import qmadmin
from tests.fix_applications import Django
from tests.fix_databases import BARE
from tests.fix_distributed import PAIRS
from tests.fix_store import drain

ONE = pytest.mark.parametrize("pair", PAIRS[:1], indirect=True)
STORES = pytest.mark.parametrize("pair", ["file-file", "postgres-postgres"], indirect=True)
DRIVERS = pytest.mark.parametrize("shop", BARE, indirect=True, ids="-".join)
SERVERS = pytest.mark.parametrize("shop", [("server", "psycopg"), ("server", "Session")], indirect=True, ids="-".join)


class Shop:
    """An application with one handler, of the queue Q of a queue space, whose threads have a connection each."""

    def __init__(self, pair, shop):
        self.pair = pair
        self.space = pair.a
        self.app = qmadmin.App("unused", space="A")
        self.failures = []
        self._shop = shop
        self._of_thread = threading.local()
        self._closing = []
        self.app.on_failure(lambda _message, error: self.failures.append(error))

    @property
    def here(self):
        """The application as this thread uses it."""
        if not hasattr(self._of_thread, "shop"):
            made = self._of_thread.shop = copy.copy(self._shop)
            made.open()
            if isinstance(made, Django):
                from django.db import connections

                connections["default"].inc_thread_sharing()
                self._closing.append(connections["default"].close)
            else:
                self._closing.append(made.close)
        return self._of_thread.shop

    def sell(self, text):
        """Take part, and record an order."""
        self.app.join(self.here.connection)
        self.here.order(text)

    def run(self, function, *texts, **options):
        """Put messages on the queue, and have a function handle them until there are none."""
        self.app.handler("Q", **options)(function)
        self.space.enqueue_many("Q", [text.encode() for text in texts], qmadmin.EnqueueControl(reply_queue="OUT"))
        with self.app.using(self.space):
            self.app.run(until_empty=True)

    @property
    def left(self):
        """What is in the queue, among the replies and among those that have failed."""
        return [drain(self.space, queue) for queue in ("Q", "OUT", "ERRORS")]

    def close(self):
        """Close the connections of threads that are gone."""
        for close in self._closing:
            # Those of sqlite3 are closed with their threads.
            with contextlib.suppress(sqlite3.ProgrammingError):
                close()


@pytest.fixture
def at(pair, shop):
    """An application whose handler uses a database of its own."""
    made = Shop(pair, shop)
    yield made
    made.close()
