"""The ATMI face: joining and leaving, what a call brings and takes, and transactions."""

# ruff: noqa: F403, F405 - as programs import it

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import qmadmin
from qmadmin import atmi
from qmadmin.atmi import *
from qmadmin.atmi import calls, control, errno
from tests.fix_atmi import refused
from tests.fix_store import Child, Work

CHILD = """
from qmadmin.atmi import *

def outcome(call, *arguments, **options):
    try:
        return call(*arguments, **options)
    except TPException as error:
        return error.name
"""


def taken(queue: str = "STRING", space: str = "QSPACE") -> bytes | str | None:
    """Return what a dequeue gives, or the name of the diagnostic."""
    try:
        return tpdequeue(space, queue, None)
    except TPException as error:
        return error.message.partition(":")[0]


def test_the_face_gives_what_its_modules_list() -> None:
    assert sorted(atmi.__all__) == sorted(calls.__all__ + control.__all__ + errno.__all__)


# ---- joining --------------------------------------------------------------------------------------------------------


def test_the_device_of_qmconfig_is_joined_by_the_first_call(atmi_device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMCONFIG", str(atmi_device))
    tpenqueue("QSPACE", "STRING", None, b"data")
    assert taken() == b"data"
    tpterm()


def test_without_a_device_the_call_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("QMCONFIG", raising=False)
    for call in (tpinit, tpbegin, lambda: tpenqueue("QSPACE", "STRING", None, b"")):
        error = refused(call)
        assert error.name == "TPEINVAL"
        assert "QMCONFIG is not set" in str(error)
    assert refused(tpinit, tmp_path / "absent").name == "TPENOENT"
    assert refused(tpinit, tmp_path).name == "TPENOENT"


def test_a_device_of_a_newer_release_is_tperelease(atmi_device: Path) -> None:
    import sqlite3

    with sqlite3.connect(atmi_device) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    assert refused(tpinit, atmi_device).name == "TPERELEASE"


@pytest.mark.parametrize(
    "wrong",
    [
        {"device": 7},
        {"device": ""},
        {"device": b"QUE"},
        {"timeout": -1},
        {"timeout": math.nan},
        {"timeout": "5"},
        {"timeout": True},
        {"cltid": 7},
        {"cltid": "x" * 128},
        {"appkey": 2**63},
        {"appkey": "1"},
    ],
    ids=str,
)
def test_an_argument_that_is_no_good_is_tpeinval(joined: Path, wrong: dict[str, object]) -> None:
    assert refused(tpinit, **wrong).name == "TPEINVAL"


def test_joining_twice_is_no_error_and_another_device_is_tpeproto(joined: Path, tmp_path: Path) -> None:
    tpinit()
    tpinit(joined)
    tpinit(os.path.relpath(joined))
    error = refused(tpinit, tmp_path / "another")
    assert error.name == "TPEPROTO"
    assert repr(str(joined)) in str(error)
    tpenqueue("QSPACE", "STRING", None, b"data")
    assert taken() == b"data"


def test_a_process_that_has_left_joins_again_and_is_nobody(joined: Path) -> None:
    tpinit(cltid="teller", appkey=5)
    tpterm()
    tpterm()
    tpinit(joined)
    tpenqueue("QSPACE", "STRING", None, b"")
    found = TPQCTL()
    tpdequeue("QSPACE", "STRING", found)
    assert (found.cltid, found.appkey) == ("", 0)


# ---- data -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("joined")
def test_data_comes_back_as_bytes_and_none_is_not_empty() -> None:
    buffer = bytearray(b"buffer")
    for data in (b"bytes", buffer, memoryview(b"a view")[::2], "text \u00e4", b"", "", None):
        tpenqueue("QSPACE", "STRING", None, data)
    buffer[:] = b"xxxxxx"
    assert [taken() for _ in range(7)] == [b"bytes", b"buffer", b"ave", "text \u00e4".encode(), b"", b"", None]


@pytest.mark.usefixtures("joined")
def test_data_in_a_transaction_is_what_it_was_at_the_call() -> None:
    buffer = bytearray(b"at the call")
    tpbegin()
    tpenqueue("QSPACE", "STRING", None, buffer)
    buffer[:] = b"x" * len(buffer)
    tpcommit()
    assert taken() == b"at the call"


@pytest.mark.usefixtures("joined")
def test_without_a_structure_a_message_goes_and_comes_all_the_same() -> None:
    tpenqueue("QSPACE", "STRING", None, b"data")
    assert tpdequeue("QSPACE", "STRING", None) == b"data"


# ---- transactions ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("joined")
def test_a_transaction_over_two_queue_spaces_commits_both() -> None:
    tpbegin()
    tpenqueue("QSPACE", "STRING", None, b"one")
    tpenqueue("OTHER", "STRING", None, b"two")
    assert refused(tpdequeue, "QSPACE", "STRING", None, TPNOTRAN).diagnostic == QMENOMSG
    tpcommit()
    assert taken() == b"one"
    assert taken(space="OTHER") == b"two"


@pytest.mark.usefixtures("joined")
def test_an_abort_gives_back_what_was_dequeued_and_forgets_what_was_enqueued() -> None:
    tpenqueue("QSPACE", "STRING", None, b"request")
    tpbegin()
    assert taken() == b"request"
    tpenqueue("QSPACE", "RPLYQ", None, b"reply")
    tpabort()
    assert taken("RPLYQ") == "QMENOMSG"
    # No retries are granted to the queue, so the rollback sent the request to the error queue.
    assert taken("errq") == b"request"


@pytest.mark.usefixtures("joined")
def test_a_transaction_cannot_dequeue_what_it_has_enqueued() -> None:
    tpbegin()
    tpenqueue("QSPACE", "STRING", None, b"data")
    assert taken() == "QMENOMSG"
    tpcommit()


@pytest.mark.usefixtures("joined")
def test_tpnotran_keeps_calls_out_of_the_transaction() -> None:
    tpenqueue("QSPACE", "STRING", None, b"taken")
    tpbegin()
    tpenqueue("QSPACE", "RPLYQ", None, b"kept", TPNOTRAN)
    assert tpdequeue("QSPACE", "STRING", None, TPNOTRAN) == b"taken"
    tpabort()
    assert taken() == "QMENOMSG"
    assert taken("errq") == "QMENOMSG"
    assert taken("RPLYQ") == b"kept"


@pytest.mark.usefixtures("joined")
def test_tpnotran_outside_of_a_transaction_means_nothing() -> None:
    tpenqueue("QSPACE", "STRING", None, b"data", TPNOTRAN)
    assert tpdequeue("QSPACE", "STRING", None, TPNOTRAN) == b"data"


@pytest.mark.usefixtures("joined")
def test_calls_out_of_place_are_tpeproto_and_change_nothing() -> None:
    assert refused(tpcommit).name == "TPEPROTO"
    assert refused(tpabort).name == "TPEPROTO"
    tpbegin()
    tpenqueue("QSPACE", "STRING", None, b"data")
    assert refused(tpbegin).name == "TPEPROTO"
    assert refused(tpterm).name == "TPEPROTO"
    assert tpgetlev() == 1
    tpcommit()
    assert tpgetlev() == 0
    assert taken() == b"data"


@pytest.mark.usefixtures("joined")
@pytest.mark.parametrize("timeout", [-1, 2**31, math.nan, math.inf, "5", None, True])
def test_a_timeout_that_is_none_is_tpeinval(timeout: object) -> None:
    assert refused(tpbegin, timeout).name == "TPEINVAL"
    assert tpgetlev() == 0


@pytest.mark.usefixtures("joined")
@pytest.mark.parametrize("flags", [TPNOTRAN, TPNOBLOCK, -1, None, True, 0.0])
def test_flags_of_a_call_that_has_none_are_tpeinval(flags: object) -> None:
    assert refused(tpbegin, 0, flags).name == "TPEINVAL"
    tpbegin()
    assert refused(tpcommit, flags).name == "TPEINVAL"
    assert refused(tpabort, flags).name == "TPEINVAL"
    assert tpgetlev() == 1


# ---- threads and processes ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("joined")
def test_each_thread_has_its_own_transaction() -> None:
    def other() -> list[object]:
        levels: list[object] = [tpgetlev()]
        tpbegin()
        tpenqueue("QSPACE", "STRING", None, b"theirs")
        tpcommit()
        return levels

    tpbegin()
    tpenqueue("QSPACE", "STRING", None, b"ours")
    assert Work(other).results() == [[0]]
    tpabort()
    assert taken() == b"theirs"
    assert taken() == "QMENOMSG"


def test_a_transaction_of_another_thread_rolls_back_when_the_process_leaves(
    joined: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QMCONFIG", str(joined))
    tpenqueue("QSPACE", "STRING", None, b"request")

    def end() -> list[str]:
        tpbegin()
        tpdequeue("QSPACE", "STRING", None)
        Work(tpterm).results()
        # It must not fall out of the transaction unnoticed, and be done.
        names = [refused(tpenqueue, "QSPACE", "RPLYQ", None, b"reply").name]
        tpinit()
        names.append(refused(tpenqueue, "QSPACE", "RPLYQ", None, b"reply").name)
        names.append(refused(tpcommit).name)
        return [*names, str(tpgetlev())]

    assert Work(end).results() == [["TPEPROTO", "TPEPROTO", "TPEABORT", "0"]]
    assert taken("RPLYQ") == "QMENOMSG"
    # Leaving counts as a try.
    assert taken("errq") == b"request"


@pytest.mark.usefixtures("joined")
def test_a_thread_that_dies_in_a_transaction_keeps_nothing() -> None:
    tpenqueue("QSPACE", "STRING", None, b"request")

    def begin() -> None:
        tpbegin()
        tpdequeue("QSPACE", "STRING", None)

    assert Work(begin).results() == [None]
    tpinit(timeout=30)
    assert tpdequeue("QSPACE", "errq", TPQCTL(flags=TPQWAIT)) == b"request"


def test_a_forked_process_is_in_no_transaction_and_the_parents_goes_on(
    atmi_device: Path, start: Callable[..., Child]
) -> None:
    parent = start(
        CHILD + "tpinit(sys.argv[1])\n"
        "tpenqueue('QSPACE', 'STRING', None, b'request')\n"
        "tpbegin()\n"
        "tpdequeue('QSPACE', 'STRING', None)\n"
        "tpenqueue('QSPACE', 'RPLYQ', None, b'of the parent')\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    say(tpgetlev(), outcome(tpcommit), outcome(tpdequeue, 'QSPACE', 'STRING', None))\n"
        "    tpbegin()\n"
        "    tpenqueue('QSPACE', 'RPLYQ', None, b'of the child')\n"
        "    tpcommit()\n"
        "    say(outcome(tpdequeue, 'QSPACE', 'RPLYQ', None))\n"
        "    tpterm()\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "say(tpgetlev())\n"
        "tpcommit()\n"
        "say(outcome(tpdequeue, 'QSPACE', 'RPLYQ', None), outcome(tpdequeue, 'QSPACE', 'STRING', None))\n"
        "tpterm()\n",
        atmi_device,
    )
    parent.expect("0 TPEPROTO TPEDIAGNOSTIC", "b'of the child'", "1", "b'of the parent' TPEDIAGNOSTIC")
    parent.finish()


def test_a_process_that_is_forked_while_another_thread_is_in_a_call_can_go_on(
    atmi_device: Path, start: Callable[..., Child]
) -> None:
    parent = start(
        CHILD + "tpinit(sys.argv[1])\n"
        "from qmadmin.atmi import calls\n"
        "held, done = threading.Event(), threading.Event()\n"
        "def hold():\n"
        "    with calls._context._lock:\n"
        "        held.set()\n"
        "        done.wait(90)\n"
        "thread = threading.Thread(target=hold)\n"
        "thread.start()\n"
        "held.wait()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    tpenqueue('QSPACE', 'STRING', None, b'of the child')\n"
        "    os._exit(0)\n"
        "say(os.waitpid(child, 0)[1])\n"
        "done.set()\n"
        "thread.join()\n"
        "say(outcome(tpdequeue, 'QSPACE', 'STRING', None))\n",
        atmi_device,
    )
    parent.expect("0", "b'of the child'")
    parent.finish()


def test_a_queue_space_that_was_destroyed_and_made_again_is_opened_again(joined: Path) -> None:
    tpenqueue("QSPACE", "STRING", None, b"of the old one")
    with qmadmin.open_device(joined) as device:
        definition = device.space("QSPACE").definition
        device.destroy_space("QSPACE", force=True)
        assert refused(tpenqueue, "QSPACE", "STRING", None, b"").name == "TPENOENT"
        device.create_space(definition)
        with device.open_space("QSPACE") as space:
            space.create_queue(qmadmin.QueueDefinition(name="STRING"))
    tpenqueue("QSPACE", "STRING", None, b"of the new one")
    assert taken() == b"of the new one"


def test_a_consumer_of_a_queue_for_several_is_named_with_its_queue(joined: Path) -> None:
    with qmadmin.open_device(joined) as device, device.open_space("QSPACE") as space:
        space.create_queue("NEWS", multiple_consumers=True)
        assert "QMENORECIPIENT" in refused(tpenqueue, "QSPACE", "NEWS", None, b"nobody's").message
        for name in ("billing", "audit"):
            space.subscribe("NEWS", name)
    tpenqueue("QSPACE", "NEWS", None, b"data")
    tpbegin(0)
    assert taken("NEWS:billing") == b"data"
    tpcommit()
    assert (taken("NEWS:billing"), taken("NEWS:audit")) == ("QMENOMSG", b"data")
    assert (taken("NEWS"), taken("NEWS:nobody")) == ("QMEINVAL", "QMEBADQUEUE")
