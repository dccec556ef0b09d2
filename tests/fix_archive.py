"""An archive with everything in it that an archive can have: all states, all fields set and not set."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path

import pytest

from qmadmin.archive import Fault, manifest_file
from qmadmin.archive.manifest import ArchivedQueue, ArchivedSpace, ArchiveSource, LeftOut, Manifest, counted
from qmadmin.archive.rows import batch_of, rows_of
from qmadmin.archive.writing import ArchiveWriter
from qmcore import bulk_rows
from qmcore.backoff import Growth
from qmcore.bulk_rows import Adopted
from qmcore.errors import QueueError
from qmcore.limits import CapacityLimit, Threshold, Unit
from qmcore.message import State, message_id
from qmcore.order import OutOfOrder, QueueOrder
from qmcore.queue import FOREVER, Delivery, QueueDefinition
from qmcore.space import SpaceDefinition

NOON = 1_767_268_800_000_000
"""1 January 2026, 12:00 UTC, in microseconds."""

FIRST_SPACE, SECOND_SPACE = "00c0ffee00c0ffee", "5eed5eed5eed5eed"
FOREIGN = "0123456789abcdef"
KEY = bytes(range(32))

PLAIN = {
    "priority": 50,
    "enqueued_at": NOON,
    "pages": 1,
    "urcode": 0,
    "appkey": 0,
    "type": "CARRAY",
    "retries": 0,
}
FULL = {
    "priority": 100,
    "enqueued_at": NOON + 1,
    "available_at": NOON + 2,
    "expires_at": NOON + 3,
    "pages": 2,
    "urcode": -(2**63),
    "appkey": 2**63 - 1,
    "corrid": b"\0\xff" * 16,
    "reply_queue": "Antwörten",
    "failure_queue": "FAILQ",
    "error_queue": "ERRQ",
    "delivery_asked": "default",
    "reply_delivery": "nonpersist",
    "client_id": "client \N{SNOWMAN}",
    "type": "VIEW32",
    "subtype": "acct_info",
    "group_sequence": 7,
    "origin_queue": "FROM",
    "origin_msgid": message_id(FOREIGN, 99),
    "origin_reason": "retries",
    "origin_error": "it\nfailed",
    "moved_at": NOON + 4,
    "headers": '{"traceparent":"00-1","ключ":"значение"}',
    "body": bytes(range(256)),
    "retries": 2**31 - 1,
    "until": NOON + 5,
}
TYPED = [
    ("STRING", None, b"text\0"),
    ("JSON", None, b'{"a": 1}'),
    ("XML", None, b"<a/>"),
    ("FML32", None, b"\x01\x02\x03\x04\xff"),
    ("VIEW", "employee", b"\x10\x20\x30"),
    ("X_OCTET", None, b""),
    ("MBSTRING", "UTF-16", "Wörter".encode("utf-16-be")),
]
LARGE = bytes(1_200_000)
"""A body that a store keeps in chunks."""


def row(sequence, **given):
    """Return a row of a message of which only that is special which is given."""
    values = {"sequence": sequence, "order_key": b"\x80" + sequence.to_bytes(8) + b"\x80", **PLAIN, **given}
    values["size"] = len(values.get("body") or b"")
    return tuple(values.get(name) for name in bulk_rows.COLUMNS)


ORDER = QueueOrder.parse("priority,time,lifo")


def placed(sequence, **given):
    """Return such a row with the place that a queue of this order gives it."""
    values = {**PLAIN, "expires_at": None, **given}
    at = values.get("available_at") or values["enqueued_at"]
    key = ORDER.key(priority=values["priority"], available_at=at, expires_at=values["expires_at"], sequence=sequence)
    return row(sequence, **{"order_key": key, **given})


CONSUMED = {"consumed_at": NOON + 6, "consumer": "qmadmin 4711 on host", "transaction": -5, "retries": 0}

GROUPS = {
    "part-00000.parquet": [
        ("QSPACE", "Q", State.READY, False, [row(1), row(2, body=b""), row(3, body=b"x"), row(4, **FULL)]),
        ("QSPACE", "Q", State.DELAYED, False, [row(5, until=NOON + 60_000_000, available_at=NOON + 60_000_000)]),
        (
            "QSPACE",
            "Q",
            State.CONSUMED,
            False,
            [row(6, **CONSUMED), row(7, **{**FULL, **CONSUMED, "transaction": None})],
        ),
        ("QSPACE", "Q", State.READY, True, [row(8, body=b"in memory", delivery_asked="nonpersist")]),
    ],
    "part-00001.parquet": [
        (
            "QSPACE",
            "Wärteschlange №1",
            State.READY,
            False,
            [
                *(
                    placed(10 + at, type=kind, subtype=subtype, body=body)
                    for at, (kind, subtype, body) in enumerate(TYPED)
                ),
                placed(17, body=LARGE, pages=293),
                placed(18, enqueued_at=-1, expires_at=-62_135_596_800_000_000, available_at=253_402_300_799_000_000),
            ],
        ),
        ("OTHER", "GROUPED", State.READY, False, [row(21, group_sequence=20), row(22, group_sequence=20)]),
    ],
}
"""The messages of the parts."""

IN_ERROR_QUEUE = {"first_msgid": message_id(FOREIGN, 98), "expires_before": NOON + 7}
GROUPS_OF_MINOR_2 = GROUPS | {
    "part-00002.parquet": [("QSPACE", "Q", State.READY, False, [row(9, **FULL, **IN_ERROR_QUEUE)])],
}
"""The same, and a message with what the second minor version brought."""

QUEUES = {
    "QSPACE": [
        (QueueDefinition(name="Q"), True, True),
        (
            QueueDefinition(
                name="Wärteschlange №1",
                order=ORDER,
                out_of_order=OutOfOrder.TOP | OutOfOrder.MSGID,
                retries=3,
                retry_delay=30,
                threshold=Threshold(CapacityLimit(80, Unit.PERCENT), CapacityLimit(20, Unit.PERCENT), "echo high"),
                memory_threshold=Threshold(CapacityLimit(9, Unit.BYTES), CapacityLimit(0, Unit.BYTES), "echo memory"),
                delivery=Delivery.NONPERSIST,
                expiration=3600,
                error_queue="Q",
                keep_expired=True,
                retention=FOREVER,
            ),
            False,
            True,
        ),
    ],
    "OTHER": [
        (QueueDefinition(name="GROUPED", grouping=True, retention=60), True, False),
        (QueueDefinition(name="EMPTY"), True, True),
    ],
}
_GROWING = {
    "retries": 5,
    "retry_delay": 2,
    "retry_growth": Growth.EXPONENTIAL,
    "retry_factor": 1.5,
    "retry_maximum": 60,
    "retry_jitter": 0.25,
    "default_delay": 7,
}
QUEUES_OF_MINOR_3 = QUEUES | {
    "OTHER": [QUEUES["OTHER"][0], (QueueDefinition(name="EMPTY", **_GROWING), True, True)],
}
"""The same, and the attributes that the third minor version brought."""

SPACES = {
    "QSPACE": SpaceDefinition(
        name="QSPACE",
        ipc_key=42_002,
        pages=400,
        queues=5,
        transactions=6,
        processes=7,
        messages=800,
        error_queue="Q",
        blocking=9,
        actions=10,
        memory=65_536,
        overflow=11,
        handles=12,
        cursors=13,
        owners=14,
        temporary_queues=15,
        filter_memory=16,
    ),
    "OTHER": SpaceDefinition(name="OTHER", ipc_key=42_003, pages=40, queues=2, transactions=1, processes=1, messages=9),
}
ADOPTED = (Adopted(FOREIGN, 1, 100, -80), Adopted("fedcba9876543210", 5, 5, 2**40))


def msgid(space):
    incarnation = FIRST_SPACE if space == "QSPACE" else SECOND_SPACE
    return lambda sequence: message_id(incarnation, sequence)


def written(writer, parts=GROUPS):
    """Write the parts, and return their entries."""
    entries = []
    for name, groups in parts.items():
        with writer.part(name) as part:
            for space, queue, state, memory, rows in groups:
                part.write(batch_of(space, queue, state, memory, rows, msgid(space)))
            entries.append(part.close())
    return tuple(entries)


def manifest_of(entries, queues=QUEUES, **given):
    """Return the manifest of an archive with such parts and queues."""
    counts = counted(entries)
    archived = {
        space: tuple(
            ArchivedQueue(definition, enqueue, dequeue, counts.get((space, definition.name), ()))
            for definition, enqueue, dequeue in of_space
        )
        for space, of_space in queues.items()
    }
    left_out = LeftOut(held=1, as_rolled_back=2, pending=3, active=4, prepared=5)
    values = {
        "archive": "a1" * 16,
        "created_us": NOON + 10_000_000,
        "release": "0.1.0",
        "source": ArchiveSource("QUE", "device-1", "sqlite", 4096, NOON + 9_000_000),
        "selection": {"spaces": ["*"], "states": ["ready", "delayed"], "count": None},
        "spaces": (
            ArchivedSpace(SPACES["QSPACE"], FIRST_SPACE, 1, 18, (), archived["QSPACE"], left_out),
            ArchivedSpace(SPACES["OTHER"], SECOND_SPACE, 20, 22, ADOPTED, archived["OTHER"]),
        ),
        "parts": entries,
    }
    return Manifest(**(values | given))


def make(directory, key=None, parts=GROUPS, queues=QUEUES, **given):
    """Write the archive into a directory."""
    writer = ArchiveWriter.create(Path(directory), key)
    manifest = manifest_of(written(writer, parts), queues, **given)
    writer.finish(manifest)
    return manifest


def contents(archive):
    """Return all messages of an archive as `GROUPS` has them."""
    found = {}
    for entry in archive.manifest.parts:
        groups = found.setdefault(entry.name, [])
        for _, batch in archive.batches(entry):
            for (space, queue, state, memory), rows in rows_of(batch):
                if groups and groups[-1][:4] == (space, queue, state, memory):
                    groups[-1][4].extend(rows)
                else:
                    groups.append((space, queue, state, memory, rows))
    return found


def resealed(directory, change, key=None):
    """Change the JSON document of a manifest, and seal it as its writer would have."""
    path = directory / manifest_file.NAME
    document = json.loads(path.read_bytes())
    document = change(document) or document
    path.write_text(json.dumps(document))
    name, seal = manifest_file.seal(path.read_bytes(), key)
    (directory / name).write_bytes(seal)


def refitted(directory, data, at=0):
    """Give a part another content, with a manifest that has its digest and size."""

    def change(document):
        entry = document["parts"][at]
        (directory / entry["name"]).write_bytes(data)
        entry |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    resealed(directory, change)


@contextlib.contextmanager
def refuses(fault, sentence):
    """Expect a refusal for a fault, in words."""
    with pytest.raises(QueueError) as told:
        yield
    assert told.value.message == sentence
    assert told.value.facts["fault"] is Fault(fault)
    assert told.value.hint.endswith(".")
    assert "\n" not in told.value.message


@pytest.fixture
def archive(tmp_path):
    """The directory of an archive that everything is in."""
    make(tmp_path / "archive")
    return tmp_path / "archive"
