"""Rows of messages: what is found wrong in them, and the messages that are made of them."""

import dataclasses
import json

import pytest

from qmcore.message import Message, MessageInfo, Origin, Reason, State, message_id
from qmcore.message_rows import BODY, BODY_ID, FIELDS, fault_in, message_of
from qmcore.queue import Delivery
from qmcore.row_rules import RULES
from qmcore.space import Space, SpaceDefinition

OURS = "0123456789abcdef"
NOW = 1_800_000_000_000_000
SPACE = Space(
    1,
    OURS,
    SpaceDefinition(name="SPACE", ipc_key=1, pages=100, queues=4, transactions=4, processes=4, messages=9),
    True,
    0,
)
PLAIN = dict.fromkeys(FIELDS) | {
    "id": 1 << 48 | 7,
    "queue_id": 3,
    "order_key": b"\x80",
    "priority": 50,
    "enqueued_at": NOW,
    "pages": 1,
    "size": 4,
    "urcode": 0,
    "appkey": 0,
    "type": "CARRAY",
    "body": b"body",
}
FULL = PLAIN | {
    "available_at": NOW + 1,
    "expires_at": NOW + 2,
    "urcode": -5,
    "appkey": 6,
    "corrid": b"corrid",
    "reply_queue": "REPLY",
    "failure_queue": "FAILURE",
    "error_queue": "ERROR",
    "delivery_asked": Delivery.PERSIST.value,
    "reply_delivery": Delivery.NONPERSIST.value,
    "client_id": "client",
    "type": "STRING",
    "subtype": "words",
    "group_id": 1 << 48 | 5,
    "origin_queue": "ORIGIN",
    "origin_msgid": message_id(OURS, 4),
    "origin_reason": Reason.RETRIES.value,
    "origin_error": "it failed",
    "moved_at": NOW + 3,
    "headers": json.dumps({"name": "value"}),
    "first_msgid": message_id(OURS, 2),
    "expires_before": NOW + 4,
}
MOVED = {name: FULL[name] for name in ("origin_queue", "origin_msgid", "origin_reason", "moved_at")}
TIMES = {"enqueued_at", "available_at", "expires_at", "moved_at"}
KINDS = {"plain": PLAIN, "full": FULL}
NOT_CHECKED = {"id", "queue_id", "order_key", "expires_before", "body_id", "body"}
"""Of these no part of a message is made, or whoever has read them knows them."""


def made(row, kind=Message, **other):
    return message_of(kind, tuple(row.values()), SPACE, "Q", Delivery.PERSIST, 2, **other)


@pytest.mark.parametrize("kind", KINDS)
def test_in_a_sound_row_no_fault_is_found_with_its_body_and_without(kind):
    row = tuple(KINDS[kind].values())
    assert fault_in(row, 0) is None
    assert fault_in(row[:BODY], 0) is None
    assert fault_in(row[:BODY_ID], 0) is None


@pytest.mark.parametrize("field", [field for field in FIELDS if field not in NOT_CHECKED])
@pytest.mark.parametrize("kind", KINDS)
def test_a_field_of_another_kind_is_a_fault(kind, field):
    wrong = "text" if field in TIMES else 1.5
    fault = fault_in(tuple((KINDS[kind] | MOVED | {field: wrong}).values()), 0)
    # An archive has groups by another name.
    assert fault == (
        "its record cannot be read" if field == "group_id" else f"its field {field} is not {RULES[field].what}"
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", [None, b"", b"bod", b"longer", 4, 4.0])
def test_a_body_that_is_not_as_long_as_it_should_be_is_a_fault(kind, body):
    fault = fault_in(tuple((KINDS[kind] | {"body": body}).values()), 0)
    assert fault is not None
    assert fault.startswith("its body has ")


@pytest.mark.parametrize("kind", KINDS)
def test_retries_that_are_not_a_number_are_a_fault(kind):
    assert fault_in(tuple(KINDS[kind].values()), None) == "its field retries is not a number of 0 or more"


def test_a_message_has_what_its_row_says():
    assert made(FULL) == Message(
        msgid=message_id(OURS, 7),
        queue="Q",
        priority=50,
        enqueued_us=NOW,
        available_us=NOW + 1,
        expires_us=NOW + 2,
        corrid=b"corrid",
        reply_queue="REPLY",
        failure_queue="FAILURE",
        error_queue="ERROR",
        urcode=-5,
        appkey=6,
        client_id="client",
        size=4,
        retries=2,
        delivery=Delivery.PERSIST,
        reply_delivery=Delivery.NONPERSIST,
        type="STRING",
        subtype="words",
        headers={"name": "value"},
        group=message_id(OURS, 5),
        origin=Origin("ORIGIN", message_id(OURS, 4), Reason.RETRIES, NOW + 3, "it failed", message_id(OURS, 2)),
        state=State.HELD,
        delivery_asked=Delivery.PERSIST,
        last_error="it failed",
        body=b"body",
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_information_is_that_of_the_message_without_its_body(kind):
    message = dataclasses.asdict(made(KINDS[kind], state=State.READY))
    info = dataclasses.asdict(made(KINDS[kind], MessageInfo, state=State.READY))
    assert message == info | {"body": b"body"}


def test_what_a_message_does_not_have_is_empty():
    message = made(PLAIN)
    assert (message.client_id, message.subtype, message.headers, message.group, message.origin) == (
        "",
        "",
        {},
        None,
        None,
    )
    assert (message.delivery_asked, message.reply_delivery, message.state) == (None, None, State.HELD)


def test_a_message_whose_body_was_not_read_has_none():
    row = tuple(PLAIN.values())[:BODY]
    assert message_of(Message, row, SPACE, "Q", Delivery.PERSIST, 0).body is None
