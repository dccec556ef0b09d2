"""tpsuspend and tpresume: a transaction is passed to another thread or process by its TPTRANID."""

# ruff: noqa: F403, F405 - as programs import it

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import qmadmin
from qmadmin.atmi import *
from tests.fix_atmi import refused
from tests.fix_store import Child, Work, drain

OTHER = """
from qmadmin.atmi import *

tpinit(sys.argv[1])
say("ready")
try:
    tpresume(heard())
except TPException as error:
    say(error.name)
else:
    say(tpgetlev())
    tpenqueue("OTHER", "RPLYQ", None, b"of the other")
    {end}()
    say("done")
tpterm()
"""


def texts(path: Path, space: str, queue: str) -> list[str]:
    with qmadmin.open_device(path) as device, device.open_space(space) as opened:
        return drain(opened, queue)


@pytest.fixture
def tranid(joined: Path) -> TPTRANID:
    """A suspended transaction that has taken `request` and brings a reply in each of two queue spaces."""
    tpenqueue("QSPACE", "STRING", None, b"request")
    tpbegin()
    assert tpdequeue("QSPACE", "STRING", None) == b"request"
    tpenqueue("QSPACE", "RPLYQ", None, b"reply")
    tpenqueue("OTHER", "RPLYQ", None, b"copy")
    return tpsuspend()


def test_the_thread_is_in_no_transaction_until_it_is_resumed(joined: Path, tranid: TPTRANID) -> None:
    assert tpgetlev() == 0
    tpenqueue("QSPACE", "FAILQ", None, b"at once")
    tpbegin()
    tpenqueue("QSPACE", "FAILQ", None, b"undone")
    tpabort()
    tpresume(tranid)
    assert tpgetlev() == 1
    tpenqueue("QSPACE", "RPLYQ", None, b"more")
    tpcommit()
    assert [texts(joined, "QSPACE", name) for name in ("STRING", "RPLYQ", "FAILQ")] == [
        [],
        ["reply", "more"],
        ["at once"],
    ]
    assert texts(joined, "OTHER", "RPLYQ") == ["copy"]


def test_tpabort_undoes_all_of_it(joined: Path, tranid: TPTRANID) -> None:
    tpresume(tranid)
    tpabort()
    assert [texts(joined, "QSPACE", name) for name in ("STRING", "RPLYQ", "errq")] == [[], [], ["request"]]
    assert texts(joined, "OTHER", "RPLYQ") == []


@pytest.mark.parametrize("form", [lambda it: it, str, bytes, lambda it: pickle.loads(pickle.dumps(it))])
def test_it_is_passed_on_in_any_form(joined: Path, tranid: TPTRANID, form: Callable[[TPTRANID], str]) -> None:
    given = form(tranid)

    def work() -> None:
        tpresume(given)
        tpcommit()

    assert Work(work).results() == [None]
    assert texts(joined, "OTHER", "RPLYQ") == ["copy"]


def test_it_is_plain_text_and_equals_only_itself(tranid: TPTRANID) -> None:
    assert (bytes(tranid), len(bytes(tranid))) == (str(tranid).encode(), 36 + 2 * 33)
    assert {tranid: 1}[TPTRANID(str(tranid))] == 1
    tpresume(tranid)
    assert tpsuspend() != tranid


@pytest.mark.parametrize("end", ["tpcommit", "tpabort"])
def test_another_process_ends_it(joined: Path, tranid: TPTRANID, start: Callable[..., Child], end: str) -> None:
    other = start(OTHER.replace("{end}", end), joined)
    other.expect("ready")
    other.say(str(tranid))
    other.expect("1", "done")
    other.finish()
    assert refused(tpresume, tranid).name == "TPEINVAL"
    commits = end == "tpcommit"
    assert texts(joined, "OTHER", "RPLYQ") == (["copy", "of the other"] if commits else [])
    assert texts(joined, "QSPACE", "errq") == ([] if commits else ["request"])


def test_one_that_was_resumed_is_tpematch(joined: Path, tranid: TPTRANID, start: Callable[..., Child]) -> None:
    tpresume(tranid)
    other = start(OTHER.replace("{end}", "tpcommit"), joined)
    other.expect("ready")
    other.say(str(tranid))
    other.expect("TPEMATCH")
    other.finish()
    assert Work(lambda: refused(tpresume, tranid).name).results() == ["TPEMATCH"]
    tpcommit()
    error = refused(tpresume, tranid)
    assert error.name == "TPEINVAL"
    assert "has ended" in str(error)


def test_out_of_place_they_are_tpeproto(joined: Path, tranid: TPTRANID) -> None:
    assert refused(tpsuspend).name == "TPEPROTO"
    tpbegin()
    assert refused(tpresume, tranid).name == "TPEPROTO"
    assert tpgetlev() == 1
    tpabort()
    tpresume(tranid)


@pytest.mark.parametrize("wrong", [None, 7, "", "x", b"\xff", "tx1-", object(), TPTRANID("x")])
def test_what_is_no_tranid_is_tpeinval(joined: Path, wrong: str) -> None:
    assert refused(tpresume, wrong).name == "TPEINVAL"
    assert tpgetlev() == 0


def test_flags_are_refused(joined: Path, tranid: TPTRANID) -> None:
    assert refused(tpresume, tranid, TPNOTIME).name == "TPEINVAL"
    tpresume(tranid)
    assert refused(tpsuspend, TPNOTIME).name == "TPEINVAL"
    assert tpgetlev() == 1


def test_its_timeout_goes_on_and_is_tpeinval_when_it_is_over(joined: Path) -> None:
    tpenqueue("QSPACE", "STRING", None, b"request")
    tpbegin(timeout=0.01)
    tpdequeue("QSPACE", "STRING", None)
    tranid = tpsuspend()
    # It takes longer than that.
    assert tpdequeue_fails() == "TPETIME"
    assert refused(tpresume, tranid).name == "TPEINVAL"
    assert tpgetlev() == 0
    assert texts(joined, "QSPACE", "errq") == ["request"]


def tpdequeue_fails() -> str:
    return refused(tpdequeue, "QSPACE", "STRING", TPQCTL(flags=TPQWAIT)).name


def test_one_whose_time_is_over_is_aborted_and_tpeabort(joined: Path) -> None:
    tpbegin(timeout=0.01)
    assert tpdequeue_fails() == "TPETIME"
    assert refused(tpsuspend).name == "TPEABORT"
    assert tpgetlev() == 0


def test_one_that_can_only_be_aborted_is_aborted(joined: Path) -> None:
    tpenqueue("QSPACE", "STRING", None, b"request", kind="VIEW:order")
    tpbegin()
    assert refused(tpdequeue, "QSPACE", "STRING", None, TPNOCHANGE, kind="STRING").name == "TPEOTYPE"
    assert refused(tpsuspend).name == "TPEABORT"
    assert tpgetlev() == 0


def test_without_room_it_is_tpesystem_and_the_thread_stays_in_it(joined: Path) -> None:
    tpbegin()
    for _ in range(6):
        tpenqueue("QSPACE", "STRING", None, b"own")
    for _ in range(5):
        tpenqueue("QSPACE", "RPLYQ", None, b"first", TPNOTRAN)
    error = refused(tpsuspend)
    assert (error.name, "5 of 10 messages in use" in str(error), tpgetlev()) == ("TPESYSTEM", True, 1)
    tpdequeue("QSPACE", "RPLYQ", None, TPNOTRAN)
    tpresume(tpsuspend())
    tpcommit()
    assert texts(joined, "QSPACE", "STRING") == ["own"] * 6


def test_one_that_has_done_nothing_is_resumed_in_its_own_process_only(
    joined: Path, start: Callable[..., Child]
) -> None:
    tpbegin(timeout=60)
    tranid = tpsuspend()
    other = start(OTHER.replace("{end}", "tpcommit"), joined)
    other.expect("ready")
    other.say(str(tranid))
    other.expect("TPEINVAL")
    other.finish()

    def work() -> None:
        tpresume(tranid)
        tpenqueue("QSPACE", "STRING", None, b"x")
        tpcommit()

    assert Work(work).results() == [None]
    error = refused(tpresume, tranid)
    assert (error.name, "had done nothing yet" in str(error)) == ("TPEINVAL", True)
    assert texts(joined, "QSPACE", "STRING") == ["x"]


def test_one_of_another_device_is_tpeinval(joined: Path, tranid: TPTRANID) -> None:
    with qmadmin.open_device(joined) as device, device.open_space("OTHER") as other, other.transaction() as tx:
        other.enqueue("STRING", "x")
        tx_there = tx.suspend()
        wanted = tx_there.replace(tx_there[-32:-16], "0" * 16)
        error = refused(tpresume, wanted)
        assert (error.name, "does not have" in str(error)) == ("TPEINVAL", True)
        # One that Python has suspended goes on here.
        tpresume(tx_there)
        tpcommit()
    assert texts(joined, "OTHER", "STRING") == ["x"]
    tpresume(tranid)


def test_a_coordinators_branch_is_tpeinval(joined: Path) -> None:
    with qmadmin.open_device(joined) as device, device.open_space("OTHER") as other:
        other.tpc_begin((7, b"global", b""))
        other.enqueue("STRING", "x")
        token = other.tpc_suspend()
        assert refused(tpresume, token).name == "TPEINVAL"
        other.tpc_resume(token)
        other.tpc_commit()
    assert texts(joined, "OTHER", "STRING") == ["x"]


def test_tpterm_rolls_it_back(joined: Path, tranid: TPTRANID) -> None:
    tpbegin()
    untouched = tpsuspend()
    tpterm()
    tpinit(joined, timeout=0.05)
    assert [refused(tpresume, each).name for each in (tranid, untouched)] == ["TPEINVAL"] * 2
    assert texts(joined, "QSPACE", "errq") == ["request"]
