"""Each attribute of a message is read by every face, whether it was given by the API or by qput, or was imported.

One message has all that a sender can ask for, one was moved to an error queue, and one is of a group.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest

from qmadmin import mib
from qmadmin.archive.columns import BY_NAME
from qmadmin.opening import create_device, open_device
from qmadmin.transfer.exporting import export
from qmadmin.transfer.importing import load_archive
from qmcore.message import EnqueueControl, MessageInfo, Origin
from qmcore.message_attributes import ATTRIBUTES, MessageAttribute, ValueKind
from qmcore.queue import QueueDefinition
from tests.fix_shell import ROOT, Shell
from tests.fix_store import space_definition

if TYPE_CHECKING:
    from collections.abc import Callable

    from qmadmin.space import QueueSpace

FULL = (
    "qput -C ORDER -s eu -p 7 -t +500 -e +900 -i corrid -d persist -r REPLY -q nonpersist -F FAILED -E ERR -u 3 -k 4"
    " -H region=north Q text\n"
)
FACTS = {
    "queue": "Q", "state": "delayed", "priority": 7, "corrid": b"corrid", "type": "ORDER", "subtype": "eu", "size": 4,
    "retries": 0, "delivery": "persist", "delivery_asked": "persist", "reply_queue": "REPLY",
    "reply_delivery": "nonpersist", "failure_queue": "FAILED", "error_queue": "ERR", "urcode": 3,
    "headers": {"region": "north"},
}  # fmt: skip
"""What the message has, but for its identifier and its times."""

MOVED = {
    "appkey": 9, "client_id": "client", "origin_queue": "TRIED", "origin_reason": "retries", "origin_error": "broken",
}  # fmt: skip
IN_THE_MIB = {
    "msgid": "TA_APPQMSGID", "queue": "TA_APPQNAME", "state": "TA_MSGSTATE", "priority": "TA_PRIORITY",
    "corrid": "TA_CORRID", "type": "TA_MSGTYPE", "subtype": "TA_MSGSUBTYPE", "size": "TA_MSGSIZE",
    "retries": "TA_CURRETRIES", "delivery": "TA_PERSISTENCE", "delivery_asked": "TA_PERSISTENCEASKED",
    "enqueued_at": "TA_ENQUEUETIME", "available_at": "TA_TIME", "expires_at": "TA_EXPIRETIME",
    "reply_queue": "TA_REPLYQNAME", "reply_delivery": "TA_REPLYPERSISTENCE", "failure_queue": "TA_FAILUREQNAME",
    "error_queue": "TA_ERRORQNAME", "urcode": "TA_URCODE", "appkey": "TA_APPKEY", "client_id": "TA_CLTID",
    "group_msgid": "TA_GROUPMSGID", "origin_queue": "TA_ORIGINQNAME", "origin_msgid": "TA_ORIGINMSGID",
    "first_msgid": "TA_FIRSTMSGID", "origin_reason": "TA_ORIGINREASON", "moved_at": "TA_MOVETIME",
    "origin_error": "TA_ORIGINERROR", "headers": "TA_HEADERS",
}  # fmt: skip
IN_QPEEK = {"size": "bytes", "group_msgid": "group", "enqueued_at": "enqueued", "available_at": "available",
            "expires_at": "expires", "moved_at": "moved"}  # fmt: skip


def test_all_that_a_message_has_is_declared():
    fields = {field.name for field in dataclasses.fields(MessageInfo)} - {"origin"}
    fields |= {f"origin.{field.name}" for field in dataclasses.fields(Origin)}
    # The last error is that of the message, also of one that was not moved.
    fields -= {"origin.error"}
    assert {known.path for known in ATTRIBUTES.values()} == fields
    assert set(IN_THE_MIB) == set(ATTRIBUTES)


# ---- how it is given -------------------------------------------------------------------------------------------------


def by_the_api(shell: Shell) -> None:
    with open_device(shell.device) as device, device.open_space("SPACE") as space:
        space.enqueue(
            *("Q", "text"),
            **{name: FACTS[name] for name in ("priority", "corrid", "type", "subtype", "urcode", "headers")},
            **{name: FACTS[name] for name in ("reply_queue", "failure_queue", "error_queue")},
            delay=500,
            expires_in=900,
            persistent=True,
            reply_persistent=False,
        )
        fail_and_group(space)


def by_qput(shell: Shell) -> None:
    ran = shell.run(f"qopen SPACE\n{FULL}")
    assert ran.status == 0, ran.both
    with open_device(shell.device) as device, device.open_space("SPACE") as space:
        fail_and_group(space)


def by_an_import(shell: Shell) -> None:
    (shell.directory / "other").mkdir()
    other = Shell(shell.directory / "other")
    create_device(other.device, 4_000).close()
    lay_out(other)
    by_the_api(other)
    export(other.device, shell.directory / "other" / "archive")
    with open_device(shell.device) as device:
        device.destroy_space("SPACE")
    load_archive(shell.directory / "other" / "archive", shell.device)


def fail_and_group(space: QueueSpace) -> None:
    space.put("TRIED", b"x", EnqueueControl(appkey=9, client_id="client"))
    with space.transaction() as transaction:
        space.dequeue("TRIED")
        transaction.rollback("broken")
    with space.transaction():
        space.enqueue("GROUPED", "x")


def lay_out(shell: Shell) -> None:
    with open_device(shell.device) as device:
        device.create_space(space_definition("SPACE", error_queue="FAILED"))
        with device.open_space("SPACE") as space:
            for name in ("Q", "TRIED", "FAILED"):
                space.create_queue(QueueDefinition(name=name))
            space.create_queue(QueueDefinition(name="GROUPED", grouping=True))


# ---- how it is read --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [by_the_api, by_qput, by_an_import], ids=lambda way: way.__name__)
def test_what_is_given_by_one_face_is_read_by_all(shell: Shell, way: Callable[[Shell], None]):
    create_device(shell.device, 4_000).close()
    lay_out(shell)
    way(shell)
    with open_device(shell.device) as device, device.open_space("SPACE") as space:
        infos = {queue: next(space.messages(queue)) for queue in ("Q", "FAILED", "GROUPED")}
        full = {name: known.get(infos["Q"]) for name, known in ATTRIBUTES.items()}
        assert {name: full[name] for name in FACTS} == FACTS
        assert (full["available_at"] - full["enqueued_at"], full["expires_at"] - full["enqueued_at"]) == (500e6, 900e6)
        assert {name: ATTRIBUTES[name].get(infos["FAILED"]) for name in MOVED} == MOVED
        for queue, info in infos.items():
            read_by_conditions(space, queue, info)
    for queue, info in infos.items():
        read_by_qpeek(shell, queue, info)
        read_by_the_mib(shell, queue, info)
    read_in_an_archive(shell, infos)


def read_by_conditions(space: QueueSpace, queue: str, info: MessageInfo) -> None:
    for name, known in ATTRIBUTES.items():
        if known.asked:
            there = space.count(queue, condition=f"{name} IS NOT NULL")
            assert there == (known.get(info) is not None), name


def read_by_qpeek(shell: Shell, queue: str, info: MessageInfo) -> None:
    ran = shell.run(f"qopen SPACE\nformat json\nqpeek {queue}\n")
    documents = [json.loads(line) for line in ran.out.splitlines() if line.startswith("{")]
    (found,) = documents[0]["rows"]
    for name, known in ATTRIBUTES.items():
        value = known.get(info)
        told = found[IN_QPEEK.get(name, name)]
        assert (told in (None, {})) == (value is None or (name in ("urcode", "appkey") and value == 0)), name
        if isinstance(value, str):
            assert told == value, name
    text = shell.run(f"qopen SPACE\nqpeek {queue}\n").out
    for known in ATTRIBUTES.values():
        assert (f"  {known.label}:" in text) == is_seen(known, info), known.name


def is_seen(known: MessageAttribute, info: MessageInfo) -> bool:
    value = known.get(info)
    return bool(known.label) and value is not None and not (known.name in ("urcode", "appkey") and value == 0)


def read_by_the_mib(shell: Shell, queue: str, info: MessageInfo) -> None:
    (found,) = mib.get(shell.device, "T_APPQMSG", {"TA_APPQSPACENAME": "SPACE", "TA_APPQNAME": queue})
    for name, known in ATTRIBUTES.items():
        value, told = known.get(info), found[IN_THE_MIB[name]]
        if name in ("priority", "available_at"):
            # They are told where a queue is ordered by them.
            assert told in (-1, ""), name
        elif isinstance(value, str):
            assert told.lower() == value.lower(), name
        elif known.kind is ValueKind.WHOLE:
            assert told == value, name
        else:
            assert (told not in ("", "DEFAULT", "{}")) == (value is not None), name


def read_in_an_archive(shell: Shell, infos: dict[str, MessageInfo]) -> None:
    export(shell.device, shell.directory / "read")
    rows: dict[str, Any] = {}
    for part in sorted((shell.directory / "read").glob("*.parquet")):
        rows |= {row["msgid"]: row for row in pyarrow.parquet.read_table(part).to_pylist()}
    for info in infos.values():
        row = rows[info.msgid]
        for name, known in ATTRIBUTES.items():
            value = known.get(info)
            assert name in BY_NAME
            assert row[name] == value or known.kind is ValueKind.TIME or name == "headers", name
            assert (row[name] is None) == (value is None), name


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_each_has_its_place_in_the_pages(name: str):
    pages = ("qmadmin-mib.5", IN_THE_MIB[name]), ("qmadmin-archive.5", name), ("qmadmin.1", IN_QPEEK.get(name, name))
    for page, word in (*pages, *((("qmadmin-queue.7", name),) if ATTRIBUTES[name].asked else ())):
        text = re.sub(r"\\f[BIR]", "", (ROOT / "man" / page).read_text())
        assert re.search(rf"\b{word}\b", text), page
