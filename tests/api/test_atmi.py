"""The ATMI face: what code that was written for Tuxedo finds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import qmadmin
from qmadmin import atmi
from qmadmin.atmi import (
    TPQBEFOREMSGID,
    TPQCORRID,
    TPQCTL,
    TPQDELIVERYQOS,
    TPQEXPTIME_ABS,
    TPQEXPTIME_NONE,
    TPQEXPTIME_REL,
    TPQFAILUREQ,
    TPQGETBYCORRID,
    TPQGETBYMSGID,
    TPQMSGID,
    TPQPEEK,
    TPQPRIORITY,
    TPQQOSNONPERSISTENT,
    TPQQOSPERSISTENT,
    TPQREPLYQ,
    TPQTIME_ABS,
    TPQTIME_REL,
    TPQTOP,
    TPQWAIT,
    TPException,
    tpabort,
    tpbegin,
    tpcommit,
    tpdequeue,
    tpenqueue,
    tpgetlev,
    tpinit,
    tpterm,
)


@pytest.fixture
def device(tmp_path: Path) -> Path:
    path = tmp_path / "QUE"
    with qmadmin.create_device(path, 1000) as device:
        for name in ("QSPACE", "OTHER"):
            device.create_space(
                qmadmin.SpaceDefinition(
                    name=name,
                    ipc_key=230458,
                    pages=100,
                    queues=5,
                    transactions=3,
                    processes=3,
                    messages=10,
                    error_queue="errq",
                )
            )
            with device.open_space(name) as space:
                for queue in ("STRING", "RPLYQ", "errq"):
                    space.create_queue(qmadmin.QueueDefinition(name=queue))
    return path


@pytest.fixture
def joined(device: Path) -> Iterator[None]:
    tpinit(device, timeout=0.05)
    yield
    if tpgetlev():
        tpabort()
    tpterm()


def refused(call: object, *arguments: object, **options: object) -> TPException:
    assert callable(call)
    with pytest.raises(TPException) as caught:
        call(*arguments, **options)
    return caught.value


@pytest.mark.usefixtures("joined")
def test_what_a_sender_sets_in_the_control_structure_the_receiver_finds() -> None:
    sent = TPQCTL(
        flags=TPQCORRID | TPQREPLYQ | TPQFAILUREQ | TPQPRIORITY | TPQMSGID | TPQDELIVERYQOS,
        corrid=b"order-17",
        replyqueue="RPLYQ",
        failurequeue="errq",
        priority=70,
        urcode=-5,
        appkey=9,
        cltid="teller",
        delivery_qos=TPQQOSPERSISTENT,
    )
    tpenqueue("QSPACE", "STRING", sent, b"data")
    wanted = TPQMSGID | TPQCORRID | TPQREPLYQ | TPQFAILUREQ | TPQPRIORITY | TPQDELIVERYQOS
    got = TPQCTL(flags=wanted)
    assert tpdequeue("QSPACE", "STRING", got) == b"data"
    assert got.flags == wanted
    assert got == TPQCTL(**{**vars(sent), "flags": wanted})


@pytest.mark.usefixtures("joined")
def test_a_flag_for_what_a_message_has_not_is_off_after_the_dequeue() -> None:
    tpenqueue("QSPACE", "STRING", None, b"")
    got = TPQCTL(flags=TPQCORRID | TPQREPLYQ | TPQFAILUREQ | TPQPRIORITY | TPQTOP)
    assert tpdequeue("QSPACE", "STRING", got) == b""
    assert got.flags == TPQPRIORITY
    assert got.priority == 50


@pytest.mark.usefixtures("joined")
def test_a_message_without_data_is_not_an_empty_one() -> None:
    tpenqueue("QSPACE", "STRING", None, None)
    assert tpdequeue("QSPACE", "STRING", None) is None


@pytest.mark.usefixtures("joined")
def test_a_message_is_found_by_its_identifier_and_by_its_correlation_identifier() -> None:
    controls = [TPQCTL(flags=TPQCORRID | TPQMSGID, corrid=name.ljust(32, b"\0")) for name in (b"a", b"b", b"c")]
    for control in controls:
        tpenqueue("QSPACE", "STRING", control, control.corrid)
    by_corrid = TPQCTL(flags=TPQGETBYCORRID, corrid=b"b")
    by_msgid = TPQCTL(flags=TPQGETBYMSGID, msgid=controls[2].msgid)
    assert tpdequeue("QSPACE", "STRING", by_corrid) == b"b".ljust(32, b"\0")
    assert tpdequeue("QSPACE", "STRING", by_msgid) == b"c".ljust(32, b"\0")
    assert tpdequeue("QSPACE", "STRING", None) == b"a".ljust(32, b"\0")


@pytest.mark.usefixtures("joined")
def test_an_empty_queue_is_the_diagnostic_qmenomsg() -> None:
    control = TPQCTL()
    error = refused(tpdequeue, "QSPACE", "STRING", control)
    assert (error.tperrno, error.name, error.diagnostic, control.diagnostic) == (24, "TPEDIAGNOSTIC", -11, -11)


@pytest.mark.usefixtures("joined")
def test_waiting_in_vain_is_tpetime() -> None:
    assert refused(tpdequeue, "QSPACE", "STRING", TPQCTL(flags=TPQWAIT)).name == "TPETIME"


@pytest.mark.usefixtures("joined")
def test_an_unknown_queue_is_qmebadqueue_and_an_unknown_queue_space_tpenoent() -> None:
    assert refused(tpenqueue, "QSPACE", "NONE", None, b"").diagnostic == -10
    assert refused(tpenqueue, "NONE", "STRING", None, b"").name == "TPENOENT"


@pytest.mark.usefixtures("joined")
@pytest.mark.parametrize(
    ("flags", "diagnostic"),
    [
        (TPQTIME_ABS | TPQTIME_REL, -1),
        (TPQEXPTIME_ABS | TPQEXPTIME_REL, -1),
        (TPQEXPTIME_REL | TPQEXPTIME_NONE, -1),
        (0x4000000, -1),
        (TPQTOP, -1),
        (TPQTOP | TPQBEFOREMSGID, -1),
    ],
)
def test_flags_that_contradict_or_cannot_be_honoured_are_refused_and_nothing_is_enqueued(
    flags: int, diagnostic: int
) -> None:
    assert refused(tpenqueue, "QSPACE", "STRING", TPQCTL(flags=flags, deq_time=1, exp_time=1), b"").diagnostic == (
        diagnostic
    )
    assert refused(tpdequeue, "QSPACE", "STRING", None).diagnostic == -11


@pytest.mark.usefixtures("joined")
def test_a_priority_out_of_range_a_long_correlation_identifier_and_a_peek_in_a_transaction_are_refused() -> None:
    assert refused(tpenqueue, "QSPACE", "STRING", TPQCTL(flags=TPQPRIORITY, priority=101), b"").diagnostic == -1
    assert refused(tpenqueue, "QSPACE", "STRING", TPQCTL(flags=TPQCORRID, corrid=b"x" * 33), b"").diagnostic == -1
    assert refused(tpdequeue, "QSPACE", "STRING", TPQCTL(flags=TPQPEEK)).diagnostic == -1
    both = TPQCTL(flags=TPQGETBYMSGID | TPQGETBYCORRID, msgid=b"0" * 32, corrid=b"x")
    assert refused(tpdequeue, "QSPACE", "STRING", both).diagnostic == -1
    assert refused(tpdequeue, "QSPACE", "STRING", TPQCTL(flags=TPQGETBYMSGID, msgid=b"short")).diagnostic == -5


@pytest.mark.usefixtures("joined")
def test_a_non_persistent_message_is_refused_where_the_queue_space_has_no_memory() -> None:
    control = TPQCTL(flags=TPQDELIVERYQOS, delivery_qos=TPQQOSNONPERSISTENT)
    assert refused(tpenqueue, "QSPACE", "STRING", control, b"").diagnostic == -13


@pytest.mark.usefixtures("joined")
def test_call_flags_that_do_not_exist_are_tpeinval() -> None:
    assert refused(tpenqueue, "QSPACE", "STRING", None, b"", 0x1000).name == "TPEINVAL"
    assert refused(tpbegin, 0, atmi.TPNOTRAN).name == "TPEINVAL"


@pytest.mark.usefixtures("joined")
def test_a_transaction_over_two_queue_spaces_commits_both() -> None:
    tpbegin()
    tpenqueue("QSPACE", "STRING", None, b"one")
    tpenqueue("OTHER", "STRING", None, b"two")
    assert refused(tpdequeue, "QSPACE", "STRING", None, atmi.TPNOTRAN).diagnostic == -11
    tpcommit()
    assert tpdequeue("QSPACE", "STRING", None) == b"one"
    assert tpdequeue("OTHER", "STRING", None) == b"two"


@pytest.mark.usefixtures("joined")
def test_an_abort_gives_back_what_was_dequeued_and_forgets_what_was_enqueued() -> None:
    tpenqueue("QSPACE", "STRING", None, b"request")
    tpbegin()
    assert tpdequeue("QSPACE", "STRING", None) == b"request"
    tpenqueue("QSPACE", "RPLYQ", None, b"reply")
    tpabort()
    assert refused(tpdequeue, "QSPACE", "RPLYQ", None).diagnostic == -11
    # No retries are granted to the queue, so the rollback sent the request to the error queue.
    assert tpdequeue("QSPACE", "errq", None) == b"request"


@pytest.mark.usefixtures("joined")
def test_tpnotran_keeps_a_message_out_of_the_transaction() -> None:
    tpbegin()
    tpenqueue("QSPACE", "STRING", None, b"kept", atmi.TPNOTRAN)
    tpabort()
    assert tpdequeue("QSPACE", "STRING", None) == b"kept"


@pytest.mark.usefixtures("joined")
def test_an_empty_queue_does_not_doom_the_transaction() -> None:
    tpbegin()
    tpenqueue("QSPACE", "STRING", None, b"kept")
    assert refused(tpdequeue, "QSPACE", "RPLYQ", None).diagnostic == -11
    assert refused(tpdequeue, "QSPACE", "NONE", None).diagnostic == -10
    tpcommit()
    assert tpdequeue("QSPACE", "STRING", None) == b"kept"


@pytest.mark.usefixtures("joined")
def test_a_transaction_whose_time_is_over_can_only_be_aborted() -> None:
    tpbegin(0.01)
    assert refused(tpdequeue, "QSPACE", "STRING", TPQCTL(flags=TPQWAIT)).name == "TPETIME"
    assert refused(tpenqueue, "QSPACE", "STRING", None, b"late").name == "TPETIME"
    assert refused(tpcommit).name == "TPEABORT"
    assert tpgetlev() == 0


@pytest.mark.usefixtures("joined")
def test_calls_out_of_place_are_tpeproto() -> None:
    assert refused(tpcommit).name == "TPEPROTO"
    assert refused(tpabort).name == "TPEPROTO"
    tpbegin()
    assert tpgetlev() == 1
    assert refused(tpbegin).name == "TPEPROTO"
    assert refused(tpterm).name == "TPEPROTO"


@pytest.mark.usefixtures("joined")
def test_each_thread_has_its_own_transaction() -> None:
    levels: list[int] = []
    tpbegin()
    other = threading.Thread(target=lambda: levels.append(tpgetlev()))
    other.start()
    other.join()
    assert levels == [0]


def test_the_device_of_qmconfig_is_joined_by_the_first_call(device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMCONFIG", str(device))
    tpenqueue("QSPACE", "STRING", None, b"data")
    assert tpdequeue("QSPACE", "STRING", None) == b"data"
    tpterm()


def test_without_a_device_the_call_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("QMCONFIG", raising=False)
    assert "QMCONFIG is not set" in str(refused(tpinit))
    assert refused(tpinit, tmp_path / "absent").name == "TPENOENT"
