"""TPQCTL, flag by flag: what an enqueue takes from it, what a dequeue puts into it, and what both refuse."""

# ruff: noqa: F403, F405 - as programs import it

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import qmadmin
from qmadmin.atmi import *
from tests.fix_atmi import refused

pytestmark = pytest.mark.usefixtures("joined")

GIVEN = {
    TPQCORRID: {"corrid": b"order-17"},
    TPQREPLYQ: {"replyqueue": "RPLYQ"},
    TPQFAILUREQ: {"failurequeue": "FAILQ"},
    TPQPRIORITY: {"priority": 70},
    TPQDELIVERYQOS: {"delivery_qos": TPQQOSNONPERSISTENT},
    TPQREPLYQOS: {"reply_qos": TPQQOSPERSISTENT},
}
"""What travels with a message, by its flag."""

ALL = sum(GIVEN)
EVERYTHING = {field: value for fields in GIVEN.values() for field, value in fields.items()}


@pytest.fixture
def space(joined: Path) -> Iterator[qmadmin.QueueSpace]:
    """The queue space as the Python interface sees it."""
    with qmadmin.open_device(joined) as device, device.open_space("QSPACE") as opened:
        yield opened


def sent(flags: int, queue: str = "STRING", **fields: object) -> TPQCTL:
    control = TPQCTL(flags=flags, **fields)
    tpenqueue("QSPACE", queue, control, b"data")
    return control


def got(flags: int, queue: str = "STRING", call_flags: int = 0, **fields: object) -> TPQCTL:
    control = TPQCTL(flags=flags, **fields)
    assert tpdequeue("QSPACE", queue, control, call_flags) == b"data"
    return control


def enqueue_refused(diagnostic: int, *, queue: str = "STRING", **fields: object) -> None:
    """Assert that the call fails so, enqueues nothing, and leaves the structure as it was but for the diagnostic."""
    control = TPQCTL(**fields)
    before = copy.copy(control)
    error = refused(tpenqueue, "QSPACE", queue, control, b"")
    assert (error.name, error.diagnostic) == ("TPEDIAGNOSTIC", diagnostic)
    before.diagnostic = diagnostic
    assert control == before
    assert refused(tpdequeue, "QSPACE", queue, None).diagnostic == QMENOMSG


def dequeue_refused(diagnostic: int, call_flags: int = 0, **fields: object) -> None:
    control = TPQCTL(**fields)
    error = refused(tpdequeue, "QSPACE", "STRING", control, call_flags)
    assert (error.name, error.diagnostic, control.diagnostic) == ("TPEDIAGNOSTIC", diagnostic, diagnostic)


# ---- what travels with a message ------------------------------------------------------------------------------------


def test_what_a_sender_sets_the_receiver_finds() -> None:
    sent(ALL, **EVERYTHING, urcode=-5)
    found = got(ALL)
    assert found == TPQCTL(flags=ALL, **EVERYTHING, urcode=-5, type="CARRAY")


@pytest.mark.parametrize("flag", GIVEN, ids=hex)
def test_a_field_is_only_taken_and_only_returned_with_its_flag(flag: int) -> None:
    fields = {name: value for name, value in EVERYTHING.items() if name != "priority"} | {"priority": 7}
    sent(ALL & ~flag, **fields)
    sent(flag, **EVERYTHING)
    found = got(ALL)
    assert bool(found.flags & flag) == (flag == TPQPRIORITY)
    assert found.flags | flag == ALL
    assert [getattr(found, name) for name in GIVEN[flag]] == [
        50 if flag == TPQPRIORITY else TPQCTL.__dict__[name] for name in GIVEN[flag]
    ]
    found = got(flag)
    assert found == TPQCTL(flags=flag, **GIVEN[flag], type="CARRAY")


def test_flags_for_what_a_message_has_not_are_off_and_their_fields_are_left_alone() -> None:
    sent(TPNOFLAGS, corrid=b"not sent", replyqueue=None, failurequeue=3, msgid=None, delivery_qos="x", exp_time=None)
    found = got(ALL | TPQMSGID, **EVERYTHING)
    assert found.flags == TPQPRIORITY | TPQMSGID
    assert found == TPQCTL(flags=found.flags, **{**EVERYTHING, "priority": 50}, msgid=found.msgid, type="CARRAY")


def test_an_enqueue_returns_the_identifier_only_with_its_flag_and_leaves_the_flags_alone() -> None:
    without = sent(TPQCORRID, corrid=b"a")
    assert (without.flags, without.msgid) == (TPQCORRID, b"")
    with_it = sent(TPQCORRID | TPQMSGID, corrid=b"b")
    assert with_it.flags == TPQCORRID | TPQMSGID
    assert isinstance(with_it.msgid, bytes)
    assert len(with_it.msgid) == TMMSGIDLEN
    assert got(TPQMSGID | TPQGETBYMSGID, msgid=with_it.msgid).msgid == with_it.msgid


def test_the_user_return_code_needs_no_flag_and_has_64_bits() -> None:
    for code in (-(2**63), 2**63 - 1):
        sent(TPNOFLAGS, urcode=code)
        assert got(TPNOFLAGS).urcode == code


def test_times_are_not_returned() -> None:
    sent(TPQTIME_ABS | TPQEXPTIME_REL, deq_time=1, exp_time=1000)
    found = got(TPQTIME_ABS | TPQEXPTIME_REL)
    assert (found.flags, found.deq_time, found.exp_time) == (0, 0, 0)


def test_who_sent_a_message_is_what_it_said_when_it_joined_and_not_what_a_structure_says() -> None:
    tpinit(cltid="teller", appkey=2**63 - 1)
    control = sent(TPNOFLAGS, cltid="somebody else", appkey=7)
    assert (control.cltid, control.appkey) == ("somebody else", 7)
    found = got(TPNOFLAGS)
    assert (found.cltid, found.appkey) == ("teller", 2**63 - 1)


def test_a_structure_that_is_used_again_carries_nothing_over() -> None:
    control = TPQCTL(flags=ALL, **EVERYTHING)
    tpenqueue("QSPACE", "STRING", control, b"request")
    control.flags = TPQCORRID | TPQREPLYQ | TPQFAILUREQ
    assert tpdequeue("QSPACE", "STRING", control) == b"request"
    tpenqueue("QSPACE", "RPLYQ", control, b"reply")
    control = TPQCTL(flags=ALL)
    assert tpdequeue("QSPACE", "RPLYQ", control) == b"reply"
    assert control.flags == TPQCORRID | TPQREPLYQ | TPQFAILUREQ | TPQPRIORITY
    assert (control.corrid, control.priority, control.delivery_qos) == (b"order-17", 50, 0)


def test_a_success_takes_the_diagnostic_of_the_call_before_away() -> None:
    control = TPQCTL()
    refused(tpdequeue, "QSPACE", "STRING", control)
    assert control.diagnostic == QMENOMSG
    tpenqueue("QSPACE", "STRING", control, b"")
    assert control.diagnostic == 0
    control.diagnostic = QMENOMSG
    tpdequeue("QSPACE", "STRING", control)
    assert control.diagnostic == 0


# ---- identifiers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [b"a", b"a" + b"\0" * 31, bytearray(b"a\0"), memoryview(b"a"), "a", "a\0\0"])
def test_the_nuls_behind_a_correlation_identifier_are_not_part_of_it(asked: object) -> None:
    sent(TPQCORRID, corrid=b"a".ljust(TMCORRIDLEN, b" "))
    sent(TPQCORRID, corrid=b"a".ljust(TMCORRIDLEN, b"\0"))
    assert got(TPQGETBYCORRID | TPQCORRID, corrid=asked).corrid == b"a"
    assert got(TPQCORRID).corrid == b"a".ljust(TMCORRIDLEN, b" ")


def test_all_32_bytes_of_a_correlation_identifier_count() -> None:
    longest = b"\0" * 31 + b"x"
    sent(TPQCORRID, corrid=b"y" * 31)
    sent(TPQCORRID, corrid=longest)
    sent(TPQCORRID, corrid=b"y" * 32)
    assert got(TPQGETBYCORRID | TPQCORRID, corrid=longest).corrid == longest
    assert got(TPQGETBYCORRID | TPQCORRID, corrid=b"y" * 32).corrid == b"y" * 32


def test_a_correlation_identifier_of_nuls_is_one_all_the_same() -> None:
    sent(TPNOFLAGS)
    sent(TPQCORRID, corrid=b"\0" * 32)
    found = got(TPQGETBYCORRID | TPQCORRID, corrid=b"")
    assert (found.corrid, found.flags & TPQCORRID) == (b"", TPQCORRID)
    dequeue_refused(QMENOMSG, flags=TPQGETBYCORRID, corrid=b"")
    assert got(TPQCORRID).flags == 0


@pytest.mark.parametrize("padding", [b"", b"\0\0", b"  "])
def test_the_padding_of_a_message_identifier_is_not_part_of_it(padding: bytes) -> None:
    for wanted in (bytes, bytearray, memoryview, bytes.decode):
        msgid = sent(TPQMSGID).msgid
        assert isinstance(msgid, bytes)
        assert got(TPQGETBYMSGID | TPQMSGID, msgid=wanted(msgid + padding)).msgid == msgid


@pytest.mark.parametrize("flags", [TPQGETBYMSGIDOLD, TPQGETBYMSGID])
def test_both_forms_of_the_flag_get_a_message_by_its_identifier(flags: int) -> None:
    sent(TPQMSGID)
    second = sent(TPQMSGID).msgid
    assert got(flags | TPQMSGID, msgid=second).flags == flags | TPQMSGID
    dequeue_refused(QMENOMSG, flags=flags, msgid=second)


@pytest.mark.parametrize("flags", [TPQGETBYCORRIDOLD, TPQGETBYCORRID])
def test_both_forms_of_the_flag_get_a_message_by_its_correlation_identifier(flags: int) -> None:
    sent(TPQCORRID, corrid=b"a")
    sent(TPQCORRID, corrid=b"b")
    assert got(flags | TPQCORRID, corrid=b"b").flags == flags | TPQCORRID
    dequeue_refused(QMENOMSG, flags=flags, corrid=b"b")


@pytest.mark.parametrize("msgid", [b"", b"short", b"g" * 32, b"\xff" * 32, None, 7, ["a"]])
def test_what_is_no_message_identifier_is_qmebadmsgid(msgid: object) -> None:
    dequeue_refused(QMEBADMSGID, flags=TPQGETBYMSGID, msgid=msgid)
    enqueue_refused(QMEBADMSGID, queue="FREE", flags=TPQBEFOREMSGID, msgid=msgid)


# ---- order and times ------------------------------------------------------------------------------------------------


def test_a_message_goes_to_the_top_or_before_another_where_the_queue_allows_it() -> None:
    second = TPQCTL(flags=TPQMSGID)
    tpenqueue("QSPACE", "FREE", second, b"3")
    tpenqueue("QSPACE", "FREE", TPQCTL(flags=TPQTOP), b"1")
    before = TPQCTL(flags=TPQBEFOREMSGID | TPQMSGID, msgid=second.msgid)
    tpenqueue("QSPACE", "FREE", before, b"2")
    assert before.flags == TPQBEFOREMSGID | TPQMSGID
    assert before.msgid != second.msgid
    assert [tpdequeue("QSPACE", "FREE", None) for _ in range(3)] == [b"1", b"2", b"3"]


def test_a_place_out_of_order_is_qmeinval_where_the_queue_does_not_allow_it() -> None:
    enqueue_refused(QMEINVAL, flags=TPQTOP)
    enqueue_refused(QMEINVAL, flags=TPQBEFOREMSGID, msgid=b"0" * 32)


def test_a_place_before_a_message_that_is_gone_is_qmebadmsgid() -> None:
    gone = sent(TPQMSGID, "FREE").msgid
    got(TPNOFLAGS, "FREE")
    enqueue_refused(QMEBADMSGID, queue="FREE", flags=TPQBEFOREMSGID, msgid=gone)


def test_times_are_seconds_from_the_enqueue_or_from_1970(space: qmadmin.QueueSpace) -> None:
    moment = int(time.time()) + 5000
    sent(TPQTIME_REL | TPQEXPTIME_REL, deq_time=1000, exp_time=2000)
    sent(TPQTIME_ABS | TPQEXPTIME_ABS, deq_time=moment, exp_time=moment + 1)
    relative, absolute = sorted(space.messages("STRING"), key=lambda info: info.enqueued_us)
    assert relative.available_us == relative.enqueued_us + 1_000_000_000
    assert relative.expires_us == relative.enqueued_us + 2_000_000_000
    assert (absolute.available_us, absolute.expires_us) == (moment * 1_000_000, (moment + 1) * 1_000_000)
    assert refused(tpdequeue, "QSPACE", "STRING", None).diagnostic == QMENOMSG


def test_a_time_that_has_passed_makes_a_message_available_at_once() -> None:
    sent(TPQTIME_ABS, deq_time=0)
    sent(TPQTIME_REL, deq_time=0)
    got(TPNOFLAGS)
    got(TPNOFLAGS)


@pytest.mark.parametrize(("flags", "queue"), [(TPQEXPTIME_ABS, "STRING"), (TPQEXPTIME_REL, "STRING"), (0, "SHORT")])
def test_a_message_that_has_expired_is_enqueued_and_never_found(flags: int, queue: str) -> None:
    sent(flags | TPQMSGID, queue)
    assert refused(tpdequeue, "QSPACE", queue, None).diagnostic == QMENOMSG


def test_a_message_can_be_kept_from_expiring() -> None:
    sent(TPQEXPTIME_NONE, "SHORT")
    got(TPNOFLAGS, "SHORT")


@pytest.mark.parametrize("field", ["deq_time", "exp_time"])
def test_a_span_that_is_out_of_range_or_no_whole_number_is_qmeinval(field: str) -> None:
    for value in (-1, 2**31, 2**63, 10**100, 1.5, "1", None, True, b"1", [1]):
        enqueue_refused(QMEINVAL, flags=TPQTIME_REL if field == "deq_time" else TPQEXPTIME_REL, **{field: value})


def test_a_time_that_is_out_of_range_is_qmeinval() -> None:
    for value in (2**40, -(2**40), 2**63, 1.5, None):
        enqueue_refused(QMEINVAL, flags=TPQTIME_ABS, deq_time=value)
        enqueue_refused(QMEINVAL, flags=TPQEXPTIME_ABS, exp_time=value)


# ---- quality of service ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queue", ["STRING", "MEMORY"])
@pytest.mark.parametrize("quality", [None, TPQQOSDEFAULTPERSIST, TPQQOSPERSISTENT, TPQQOSNONPERSISTENT])
def test_the_quality_that_was_asked_for_decides_and_is_returned(
    space: qmadmin.QueueSpace, queue: str, quality: int | None
) -> None:
    if quality is None:
        sent(TPNOFLAGS, queue)
    else:
        sent(TPQDELIVERYQOS | TPQREPLYQOS, queue, delivery_qos=quality, reply_qos=quality)
    by_queue = qmadmin.Delivery.PERSIST if queue == "STRING" else qmadmin.Delivery.NONPERSIST
    (info,) = space.messages(queue)
    assert info.delivery is {
        TPQQOSPERSISTENT: qmadmin.Delivery.PERSIST,
        TPQQOSNONPERSISTENT: qmadmin.Delivery.NONPERSIST,
    }.get(quality or 0, by_queue)
    found = got(TPQDELIVERYQOS | TPQREPLYQOS, queue)
    expected = (0, 0, 0) if quality is None else (TPQDELIVERYQOS | TPQREPLYQOS, quality, quality)
    assert (found.flags, found.delivery_qos, found.reply_qos) == expected


def test_what_was_asked_for_stays_known_in_a_transaction_and_in_the_error_queue() -> None:
    tpbegin()
    sent(TPQDELIVERYQOS | TPQREPLYQOS, delivery_qos=TPQQOSDEFAULTPERSIST, reply_qos=TPQQOSNONPERSISTENT)
    tpcommit()
    tpbegin()
    got(TPNOFLAGS)
    tpabort()
    found = got(TPQDELIVERYQOS | TPQREPLYQOS, "errq")
    assert (found.delivery_qos, found.reply_qos) == (TPQQOSDEFAULTPERSIST, TPQQOSNONPERSISTENT)


def test_a_quality_that_there_is_not_is_qmeinval() -> None:
    for value in (0, 3, 5, 8, -1, 2**64, None, "1", True, 1.0):
        enqueue_refused(QMEINVAL, flags=TPQDELIVERYQOS, delivery_qos=value)
        enqueue_refused(QMEINVAL, flags=TPQREPLYQOS, reply_qos=value)


# ---- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flags",
    [
        TPQTIME_ABS | TPQTIME_REL,
        TPQTOP | TPQBEFOREMSGID,
        TPQEXPTIME_ABS | TPQEXPTIME_REL,
        TPQEXPTIME_ABS | TPQEXPTIME_NONE,
        TPQEXPTIME_REL | TPQEXPTIME_NONE,
        TPQEXPTIME_ABS | TPQEXPTIME_REL | TPQEXPTIME_NONE,
    ],
    ids=hex,
)
def test_flags_that_exclude_each_other_are_qmeinval(flags: int) -> None:
    enqueue_refused(QMEINVAL, queue="FREE", flags=flags, deq_time=1, exp_time=1, msgid=b"0" * 32)


@pytest.mark.parametrize("flag", [TPQGETBYMSGID, TPQGETBYMSGIDOLD, TPQGETBYCORRID, TPQGETBYCORRIDOLD, TPQWAIT, TPQPEEK])
def test_flags_of_a_dequeue_are_qmeinval_for_an_enqueue(flag: int) -> None:
    enqueue_refused(QMEINVAL, flags=flag, msgid=b"0" * 32, corrid=b"a")


@pytest.mark.parametrize(
    "flag", [TPQTOP, TPQBEFOREMSGID, TPQTIME_ABS, TPQTIME_REL, TPQEXPTIME_ABS, TPQEXPTIME_REL, TPQEXPTIME_NONE]
)
def test_flags_of_an_enqueue_are_off_after_a_dequeue_whether_or_not_it_succeeds(flag: int) -> None:
    control = TPQCTL(flags=flag | TPQPRIORITY)
    refused(tpdequeue, "QSPACE", "STRING", control)
    assert control.flags == TPQPRIORITY
    sent(TPNOFLAGS)
    assert got(flag | TPQPRIORITY).flags == TPQPRIORITY


def test_flags_that_do_not_exist_are_qmeinval() -> None:
    partial = (0x40000, 0x80000, 0x40000 | TPQGETBYCORRID)
    for flags in (0x100000, *partial, -1, 2**70, None, "1", 1.0, True):
        enqueue_refused(QMEINVAL, flags=flags)
        dequeue_refused(QMEINVAL, flags=flags, corrid=b"a")


def test_a_refusal_names_the_flags() -> None:
    error = refused(tpenqueue, "QSPACE", "STRING", TPQCTL(flags=TPQTIME_ABS | TPQTIME_REL), b"")
    assert "TPQTIME_ABS and TPQTIME_REL exclude each other" in str(error)
    error = refused(tpenqueue, "QSPACE", "STRING", TPQCTL(flags=TPQWAIT | TPQGETBYMSGID | 2**30), b"")
    assert "tpenqueue has no control flags TPQGETBYMSGID and TPQWAIT and 0x40000000" in str(error)


def test_a_dequeue_by_two_identifiers_is_qmeinval() -> None:
    msgid = sent(TPQMSGID | TPQCORRID, corrid=b"a").msgid
    dequeue_refused(QMEINVAL, flags=TPQGETBYMSGID | TPQGETBYCORRID, msgid=msgid, corrid=b"a")
    got(TPNOFLAGS)


@pytest.mark.parametrize(
    ("flag", "field", "values"),
    [
        (TPQPRIORITY, "priority", (0, 101, -1, 2**64, None, "50", 50.0, True)),
        (TPQCORRID, "corrid", (b"x" * 33, "ä" * 17, "\ud800", None, 7, ["a"])),
        (TPQREPLYQ, "replyqueue", ("", "x" * 128, b"RPLYQ", None, 7, "a\0")),
        (TPQFAILUREQ, "failurequeue", ("", "x" * 128, b"FAILQ", None, 7, "\ud800")),
        (TPNOFLAGS, "urcode", (2**63, -(2**63) - 1, None, "0", 1.0, True)),
    ],
    ids=["priority", "corrid", "replyqueue", "failurequeue", "urcode"],
)
def test_a_value_of_a_wrong_type_or_out_of_range_is_qmeinval(flag: int, field: str, values: tuple[object, ...]) -> None:
    for value in values:
        enqueue_refused(QMEINVAL, flags=flag, **{field: value})


@pytest.mark.parametrize("corrid", [b"x" * 33, "\ud800", None, 7])
def test_no_message_is_got_by_what_is_no_correlation_identifier(corrid: object) -> None:
    dequeue_refused(QMEINVAL, flags=TPQGETBYCORRID, corrid=corrid)


def test_a_name_may_be_as_long_as_the_structure_has_room_for() -> None:
    sent(TPQREPLYQ | TPQFAILUREQ, replyqueue="r" * TMQNAMELEN, failurequeue="f" * TMQNAMELEN)
    found = got(TPQREPLYQ | TPQFAILUREQ)
    assert (found.replyqueue, found.failurequeue) == ("r" * TMQNAMELEN, "f" * TMQNAMELEN)


def test_an_identifier_reaches_no_other_queue() -> None:
    msgid = sent(TPQMSGID | TPQCORRID, corrid=b"a").msgid
    for control in (TPQCTL(flags=TPQGETBYMSGID, msgid=msgid), TPQCTL(flags=TPQGETBYCORRID, corrid=b"a")):
        assert refused(tpdequeue, "QSPACE", "RPLYQ", control).diagnostic == QMENOMSG
        assert refused(tpdequeue, "OTHER", "STRING", control).diagnostic == QMENOMSG


# ---- looking --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [{}, {"msgid": True}, {"corrid": b"a"}], ids=str)
def test_a_message_that_is_looked_at_stays(by: dict[str, object]) -> None:
    msgid = sent(TPQMSGID | TPQCORRID, corrid=b"a").msgid
    flags = {"msgid": TPQGETBYMSGID, "corrid": TPQGETBYCORRID}.get(next(iter(by), ""), 0)
    fields = {"msgid": msgid} if "msgid" in by else by
    for _ in range(2):
        found = got(TPQPEEK | TPQMSGID | flags, call_flags=TPNOTRAN, **fields)
        assert (found.flags, found.msgid) == (TPQPEEK | TPQMSGID | flags, msgid)
    assert got(TPQMSGID).msgid == msgid


def test_a_look_demands_tpnotran_also_outside_of_a_transaction() -> None:
    sent(TPNOFLAGS)
    dequeue_refused(QMEINVAL, flags=TPQPEEK)
    tpbegin()
    dequeue_refused(QMEINVAL, flags=TPQPEEK)
    got(TPQPEEK, call_flags=TPNOTRAN)
    tpcommit()
    got(TPNOFLAGS)


def test_a_look_at_an_empty_queue_is_qmenomsg() -> None:
    dequeue_refused(QMENOMSG, TPNOTRAN, flags=TPQPEEK)


# ---- the values -----------------------------------------------------------------------------------------------------


def test_flags_and_qualities_have_the_values_of_the_header_file() -> None:
    names = (
        "CORRID FAILUREQ BEFOREMSGID GETBYMSGIDOLD MSGID PRIORITY TOP WAIT REPLYQ TIME_ABS TIME_REL GETBYCORRIDOLD"
        " PEEK DELIVERYQOS REPLYQOS EXPTIME_ABS EXPTIME_REL EXPTIME_NONE"
    )
    assert [globals()[f"TPQ{name}"] for name in names.split()] == [1 << bit for bit in range(18)]
    assert (TPNOFLAGS, TPQGETBYMSGID, TPQGETBYCORRID) == (0, 0x40008, 0x80800)
    assert (TPQQOSDEFAULTPERSIST, TPQQOSPERSISTENT, TPQQOSNONPERSISTENT) == (1, 2, 4)
    assert (TMQNAMELEN, TMMSGIDLEN, TMCORRIDLEN) == (127, 32, 32)
    assert (TPNOBLOCK, TPSIGRSTRT, TPNOTRAN, TPNOTIME, TPNOCHANGE) == (1, 2, 8, 0x20, 0x100)
