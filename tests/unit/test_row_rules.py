"""What each value of a message has to be."""

import pytest

from qmcore.bulk_rows import COLUMNS
from qmcore.row_rules import RULES, fault_of

SOUND = {
    "sequence": 1,
    "order_key": b"\x80",
    "priority": 50,
    "enqueued_at": 0,
    "pages": 1,
    "size": 0,
    "urcode": -(2**63),
    "appkey": 2**63 - 1,
    "type": "CARRAY",
    "retries": 0,
}
MOVED = {
    "origin_queue": "Q",
    "origin_msgid": "0123456789abcdef0000000000000001",
    "origin_reason": "admin",
    "moved_at": 1,
}


def row(**values):
    return tuple((SOUND | values).get(name) for name in COLUMNS)


def test_every_column_but_the_body_has_a_rule():
    assert set(COLUMNS) - RULES.keys() == {"body"}


@pytest.mark.parametrize("values", [{}, MOVED, {"headers": '{"a":"ä"}'}, {"body": b"", "corrid": b"x" * 32}])
def test_what_is_sound_has_no_fault(values):
    assert fault_of(row(**values)) is None


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"headers": "?"}, "its field headers is not a JSON object of texts"),
        ({"headers": "[]"}, "its field headers is not a JSON object of texts"),
        ({"headers": '{"a":1}'}, "its field headers is not a JSON object of texts"),
        ({"headers": "[" * 100_000}, "its field headers is not a JSON object of texts"),
        ({"reply_delivery": "maybe"}, "its field reply_delivery is not one of persist, nonpersist, default"),
        ({"priority": 101}, "its field priority is not a priority from 1 to 100"),
        ({"priority": "50"}, "its field priority is not a priority from 1 to 100"),
        ({"priority": None}, "it has no priority"),
        ({"corrid": b"x" * 33}, "its field corrid is not at most 32 bytes"),
        ({"reply_queue": "a\nb"}, "its field reply_queue is not the name of a queue"),
        ({"moved_at": 1}, "its origin is incomplete"),
        (MOVED | {"origin_msgid": "x"}, "its field origin_msgid is not a message identifier"),
        (MOVED | {"origin_reason": "x"}, "its field origin_reason is not one of retries, expired, admin, forward"),
        ({"expires_at": 2**63 - 1}, "its field expires_at is not a time between the years 1 and 9999"),
        ({"client_id": "\udc80"}, "its field client_id is not a text in UTF-8 without NUL characters"),
    ],
)
def test_what_is_wrong_is_said(values, fault):
    assert fault_of(row(**values)) == fault
