"""The log of an SQLite file stays short while messages are loaded, and nobody is kept out for that."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

from qmstorage.sqlite import wal
from tests.fix_store import drain
from tests.importer import Importer, plan_of, planned, rows_of

LARGE = rows_of(["x" * 400_000, "y"])
LARGE_PAGES = 400_000 // 4096


@pytest.fixture
def importer(file_store, monkeypatch):
    """An import of two batches into a file whose log is soon long."""
    monkeypatch.setattr(wal, "LONG", 1)
    importer = Importer(file_store.space())
    importer.begin(plan_of(planned(LARGE)))
    return importer


def frames_in_log(path):
    """Return how many pages the log has that were written since it was begun; to look brings them into the file."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]


def test_a_log_that_is_long_is_begun_again_after_a_batch(file_store, importer):
    importer.load(LARGE[:1])
    importer.load(LARGE[1:], batch=("part-0", 1))
    assert 0 < frames_in_log(file_store.path) < LARGE_PAGES


def test_a_reader_who_stays_keeps_the_log_and_not_the_import(file_store, importer):
    with contextlib.closing(sqlite3.connect(file_store.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM message").fetchone()
        importer.load(LARGE[:1])
        importer.load(LARGE[1:], batch=("part-0", 1))
        assert frames_in_log(file_store.path) > LARGE_PAGES
    importer.publish()
    assert [len(text) for text in drain(importer.space)] == [400_000, 1]
