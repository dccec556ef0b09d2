"""SQLite's log, which grows while somebody reads for long, gives its room back when that is over."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from qmcore.queue import Delivery
from qmstorage.sqlite import files
from tests.fix_store import make_queue, space_definition

KEPT = 256 * 1024


def work(space, rounds):
    for _ in range(rounds):
        space.enqueue_many("Q", [bytes(2000)] * 200)
        space.dequeue_many("Q", 200)


@pytest.mark.parametrize("delivery", [Delivery.PERSIST, Delivery.NONPERSIST])
def test_the_log_shrinks_after_a_long_reader_has_gone(file_store, memory_dir, monkeypatch, delivery):
    monkeypatch.setattr(files, "_LOG_KEPT", KEPT)
    file_store.device.close()
    with file_store.another() as device:
        device.create_space(space_definition(memory=8_000_000))
        with device.open_space("SPACE") as opened:
            make_queue(opened, "Q", delivery=delivery)
            path = Path(device.path)
            if delivery is Delivery.NONPERSIST:
                path = next(memory_dir.glob("qmadmin-*/memory"))
            log = path.with_name(path.name + "-wal")
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)) as reader:
                reader.execute("BEGIN")
                reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
                work(opened, 20)
                assert log.stat().st_size > 16 * KEPT
            work(opened, 20)
            assert log.stat().st_size < 16 * KEPT
