"""Waits of the ATMI calls: for a message, for another writer, and what ends them."""

# ruff: noqa: F403, F405 - as programs import it

from __future__ import annotations

import functools
import math
import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

import qmadmin
from qmadmin.atmi import *
from qmadmin.atmi import calls, context
from qmcore.acts import waiting
from qmstorage.sqlite import translate
from tests.fix_atmi import refused
from tests.fix_store import Child, MovableClock, Work, eventually, waiting_for


@pytest.fixture
def patient(joined: Path) -> Path:
    """The device, joined by a process that waits for long."""
    tpinit(timeout=60)
    return joined


@pytest.fixture
def noted() -> Iterator[list[int]]:
    """The signals that a handler of the program was called with."""
    signals: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        signals.append(number)

    before = signal.signal(signal.SIGUSR1, note)
    yield signals
    assert signal.getsignal(signal.SIGUSR1) is note
    signal.signal(signal.SIGUSR1, before)


def when_waiting(device: Path, act: Callable[[], object], waiters: int = 1) -> threading.Thread:
    """Do something in another thread as soon as so many wait for a message."""

    def watch() -> None:
        eventually(lambda: waiting_for(str(device)) >= waiters, "the wait")
        act()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def wait(call_flags: int = 0, queue: str = "STRING", **fields: object) -> str:
    """Wait for a message and return its text, or what there was instead."""
    control = TPQCTL(**{"flags": TPQWAIT, **fields})
    try:
        return (tpdequeue("QSPACE", queue, control, call_flags) or b"").decode()
    except TPException as error:
        return error.message.partition(":")[0] if error.tperrno == TPEDIAGNOSTIC else error.name


# ---- for a message --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("joined")
@pytest.mark.parametrize("flags", [0, TPNOTIME, TPNOBLOCK, TPSIGRSTRT, TPNOTRAN])
def test_waiting_in_vain_is_tpetime_whatever_the_flags(flags: int) -> None:
    control = TPQCTL(flags=TPQWAIT, diagnostic=-99)
    error = refused(tpdequeue, "QSPACE", "STRING", control, flags)
    assert (error.name, error.diagnostic, control.diagnostic) == ("TPETIME", 0, 0)


@pytest.mark.usefixtures("joined")
def test_a_process_whose_timeout_is_zero_does_not_wait() -> None:
    tpinit(timeout=0)
    assert wait() == "TPETIME"
    tpenqueue("QSPACE", "STRING", None, b"there")
    assert wait() == "there"


def test_a_message_that_comes_ends_the_wait(patient: Path) -> None:
    helper = when_waiting(patient, lambda: tpenqueue("QSPACE", "STRING", None, b"came"))
    assert wait() == "came"
    helper.join()


@pytest.mark.parametrize("peek", [0, TPQPEEK])
def test_a_wait_for_a_correlation_identifier_lets_other_messages_be(patient: Path, peek: int) -> None:
    def send() -> None:
        tpenqueue("QSPACE", "STRING", TPQCTL(flags=TPQCORRID, corrid=b"other"), b"other")
        tpenqueue("QSPACE", "STRING", TPQCTL(flags=TPQCORRID, corrid=b"mine"), b"mine")

    helper = when_waiting(patient, send)
    assert wait(TPNOTRAN, flags=TPQWAIT | TPQGETBYCORRID | peek, corrid=b"mine") == "mine"
    helper.join()
    assert wait() == "other"


def test_a_wait_for_an_identifier_ends_when_a_transaction_gives_the_message_back(patient: Path) -> None:
    control = TPQCTL(flags=TPQMSGID)
    with qmadmin.open_device(patient) as device, device.open_space("QSPACE") as space:
        space.change_queue(qmadmin.QueueDefinition(name="STRING", retries=3))
        tpenqueue("QSPACE", "STRING", control, b"given back")
        with space.transaction() as transaction:
            assert space.dequeue("STRING") is not None
            transaction.leave_context()
            outcome = Work(lambda: wait(flags=TPQWAIT | TPQGETBYMSGID, msgid=control.msgid))
            eventually(lambda: waiting_for(str(patient)) == 1, "the wait")
            transaction.rollback()
        assert outcome.results() == ["given back"]


def test_a_wait_takes_only_a_message_of_the_expected_type(patient: Path) -> None:
    helper = when_waiting(patient, lambda: tpenqueue("QSPACE", "STRING", None, "text"))
    error = refused(tpdequeue, "QSPACE", "STRING", TPQCTL(flags=TPQWAIT), TPNOCHANGE, kind="CARRAY")
    assert error.name == "TPEOTYPE"
    helper.join()
    assert wait() == "text"


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("flags", [0, TPNOTRAN, TPNOTIME])
def test_a_wait_ends_with_the_time_of_the_transaction_which_can_only_be_aborted_then(flags: int) -> None:
    tpbegin(0.05)
    assert wait(flags) == "TPETIME"
    for late in (0, TPNOTRAN, TPNOBLOCK, TPNOTIME):
        assert refused(tpenqueue, "QSPACE", "STRING", None, b"late", late).name == "TPETIME"
        assert refused(tpdequeue, "QSPACE", "STRING", None, late).name == "TPETIME"
    assert tpgetlev() == 1
    assert refused(tpcommit).name == "TPEABORT"
    assert tpgetlev() == 0
    assert refused(tpdequeue, "QSPACE", "STRING", None).diagnostic == QMENOMSG


@pytest.fixture
def moved(atmi_device: Path, monkeypatch: pytest.MonkeyPatch, clock: MovableClock) -> Iterator[MovableClock]:
    """The clock of a device that this process has joined."""
    monkeypatch.setattr(context, "open_device", functools.partial(qmadmin.open_device, clock=clock))
    tpinit(atmi_device)
    yield clock
    if tpgetlev():
        tpabort()
    tpterm()


@pytest.mark.parametrize("end", [tpabort, lambda: refused(tpcommit)])
def test_nothing_remains_of_a_transaction_whose_time_is_over(moved: MovableClock, end: Callable[[], object]) -> None:
    tpenqueue("QSPACE", "STRING", None, b"request")
    tpbegin(10)
    assert tpdequeue("QSPACE", "STRING", None) == b"request"
    tpenqueue("QSPACE", "RPLYQ", None, b"reply")
    moved.advance(9)
    assert refused(tpdequeue, "QSPACE", "FAILQ", None).diagnostic == QMENOMSG
    moved.advance(1)
    assert refused(tpdequeue, "QSPACE", "FAILQ", None).name == "TPETIME"
    end()
    tpbegin()
    assert tpdequeue("QSPACE", "errq", None) == b"request"
    tpcommit()
    assert refused(tpdequeue, "QSPACE", "RPLYQ", None).diagnostic == QMENOMSG


def test_a_wait_that_ended_with_the_transactions_time_stays_so_when_the_clock_is_set_back(
    moved: MovableClock, atmi_device: Path
) -> None:
    def pass_the_time() -> None:
        moved.advance(10)
        moved.set_back(10)
        calls._context.space("QSPACE").wake()

    tpbegin(10)
    tpenqueue("QSPACE", "RPLYQ", None, b"reply")
    helper = when_waiting(atmi_device, pass_the_time)
    assert wait() == "TPETIME"
    helper.join()
    assert refused(tpenqueue, "QSPACE", "RPLYQ", None, b"late").name == "TPETIME"
    assert refused(tpcommit).name == "TPEABORT"
    assert refused(tpdequeue, "QSPACE", "RPLYQ", None).diagnostic == QMENOMSG


@pytest.mark.usefixtures("joined")
def test_a_wait_outside_of_a_transaction_that_is_over_leaves_the_transaction_as_it_was() -> None:
    tpbegin(1000)
    tpenqueue("QSPACE", "STRING", None, b"kept")
    assert wait(TPNOTRAN) == "TPETIME"
    tpcommit()
    assert wait() == "kept"


def test_a_wait_without_an_action_is_qmesystem_and_leaves_the_transaction_as_it_was(patient: Path) -> None:
    others = Work(wait, wait)
    eventually(lambda: others.ended() == waiting_for(str(patient)) == 1, "one waits, and the other was refused")
    tpbegin()
    tpenqueue("QSPACE", "STRING", None, b"for the one")
    assert wait(queue="RPLYQ") == "QMESYSTEM"
    tpcommit()
    assert sorted(others.results()) == ["QMESYSTEM", "for the one"]


def test_leaving_ends_the_waits_of_other_threads(patient: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Work(wait)
    eventually(lambda: waiting_for(str(patient)) == 1, "the wait")
    tpterm()
    assert waits.results() == ["QMENOTOPEN"]
    tpinit(patient)
    tpenqueue("QSPACE", "STRING", None, b"later")
    assert wait() == "later"


def test_a_queue_that_is_destroyed_or_stopped_ends_the_wait(patient: Path) -> None:
    with qmadmin.open_device(patient) as device, device.open_space("QSPACE") as space:
        helper = when_waiting(patient, lambda: space.stop_queue("STRING"))
        assert wait() == "QMEBADQUEUE"
        helper.join()


# ---- signals --------------------------------------------------------------------------------------------------------


def signal_me() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)


def test_a_signal_ends_the_wait_with_tpgotsig(patient: Path, noted: list[int]) -> None:
    helper = when_waiting(patient, signal_me)
    control = TPQCTL(flags=TPQWAIT, diagnostic=-99)
    error = refused(tpdequeue, "QSPACE", "STRING", control)
    helper.join()
    assert (error.name, error.diagnostic, control.diagnostic) == ("TPGOTSIG", 0, 0)
    assert noted == [signal.SIGUSR1]
    assert waiting_for(str(patient)) == 0


@pytest.mark.parametrize("flags", [TPNOTRAN | TPNOCHANGE, TPNOTRAN])
def test_a_signal_ends_any_kind_of_wait(patient: Path, noted: list[int], flags: int) -> None:
    helper = when_waiting(patient, signal_me)
    peek = 0 if flags & TPNOCHANGE else TPQPEEK
    error = refused(tpdequeue, "QSPACE", "STRING", TPQCTL(flags=TPQWAIT | peek), flags, kind="STRING")
    helper.join()
    assert error.name == "TPGOTSIG"


def test_a_signal_leaves_the_transaction_as_it_was(patient: Path, noted: list[int]) -> None:
    tpbegin(1000)
    tpenqueue("QSPACE", "RPLYQ", None, b"kept")
    helper = when_waiting(patient, signal_me)
    assert wait() == "TPGOTSIG"
    helper.join()
    tpcommit()
    assert wait(queue="RPLYQ") == "kept"


def test_with_tpsigrstrt_a_signal_does_not_end_the_wait(patient: Path, noted: list[int]) -> None:
    def disturb_and_send() -> None:
        signal_me()
        eventually(lambda: bool(noted), "the handler")
        tpenqueue("QSPACE", "STRING", None, b"came")

    helper = when_waiting(patient, disturb_and_send)
    assert wait(TPSIGRSTRT) == "came"
    helper.join()


def test_a_signal_is_noticed_at_once(patient: Path, noted: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    tpinit(timeout=math.inf)
    # Nothing else ends this wait, so that the test would hang.
    monkeypatch.setattr(waiting, "CHECK_SECONDS", 3600)
    over = threading.Event()

    def insist() -> None:
        # One that comes between the interpreter's last look for signals and the system call is seen when that returns,
        # as in all of Python; in production this is the next look of the wait.
        while not over.is_set():
            signal_me()
            over.wait(5)

    helper = when_waiting(patient, insist)
    assert wait() == "TPGOTSIG"
    over.set()
    helper.join()


def test_a_message_that_comes_with_the_signal_is_not_lost(patient: Path, noted: list[int]) -> None:
    def send_and_disturb() -> None:
        tpenqueue("QSPACE", "STRING", None, b"came")
        signal_me()

    helper = when_waiting(patient, send_and_disturb)
    assert wait() in ("came", "TPGOTSIG")
    helper.join()
    tpenqueue("QSPACE", "STRING", None, b"the last")
    assert wait() in ("came", "the last")
    assert noted


def test_what_a_handler_raises_goes_on_and_its_own_change_of_the_handler_stays(patient: Path) -> None:
    class StopError(Exception):
        pass

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        raise StopError

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        helper = when_waiting(patient, signal_me)
        with pytest.raises(StopError):
            wait()
        helper.join()
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, before)
    tpenqueue("QSPACE", "STRING", None, b"goes on")
    assert wait() == "goes on"


def test_a_signal_does_not_end_the_wait_of_another_thread(patient: Path, noted: list[int]) -> None:
    waits = Work(wait)
    eventually(lambda: waiting_for(str(patient)) == 1, "the wait")
    signal_me()
    assert noted
    tpenqueue("QSPACE", "STRING", None, b"came")
    assert waits.results() == ["came"]


# ---- for another writer ---------------------------------------------------------------------------------------------


@pytest.fixture
def writer(joined: Path, start: Callable[..., Child]) -> Child:
    """A process that has stopped while it writes; it goes on when it is told."""
    child = start(
        "from qmcore.purpose import Purpose\n"
        "device = open_device(sys.argv[1])\n"
        "def work(unit):\n"
        "    say('inside')\n"
        "    heard()\n"
        "device.volume_of(sys.argv[1]).write(work, Purpose.ADMINISTRATION)\n"
        "say('outside')\n",
        joined,
    )
    child.expect("inside")
    return child


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer is waited for a moment only, where the wait has a limit."""
    monkeypatch.setattr(translate, "BUSY_SECONDS", 0.02)


def both(flags: int) -> list[str]:
    outcomes = []
    for call in (
        lambda: tpenqueue("QSPACE", "STRING", None, b"data", flags),
        lambda: tpdequeue("QSPACE", "STRING", None, flags),
    ):
        try:
            call()
            outcomes.append("")
        except TPException as error:
            outcomes.append(error.name)
    return outcomes


def test_with_tpnoblock_another_writer_is_tpeblock(writer: Child) -> None:
    assert both(TPNOBLOCK) == ["TPEBLOCK", "TPEBLOCK"]
    writer.say()
    writer.expect("outside")
    assert both(TPNOBLOCK) == ["", ""]


def test_tpeblock_leaves_the_transaction_and_the_structure_as_they_were(
    joined: Path, start: Callable[..., Child]
) -> None:
    tpbegin()
    tpenqueue("QSPACE", "STRING", None, b"kept")
    with sqlite3.connect(joined, isolation_level=None) as connection:
        connection.execute("BEGIN IMMEDIATE")
        control = TPQCTL(flags=TPQMSGID, msgid=b"before", diagnostic=-99)
        assert refused(tpenqueue, "QSPACE", "STRING", control, b"", TPNOBLOCK).name == "TPEBLOCK"
        assert control == TPQCTL(flags=TPQMSGID, msgid=b"before", diagnostic=0)
        connection.execute("ROLLBACK")
    connection.close()
    tpcommit()
    assert wait() == "kept"


def test_a_call_with_tpnoblock_keeps_no_other_writer_out(joined: Path, start: Callable[..., Child]) -> None:
    # The first one opens the queue space, which writes.
    for _ in range(2):
        control = TPQCTL(flags=TPQPEEK)
        assert refused(tpdequeue, "QSPACE", "STRING", control, TPNOBLOCK | TPNOTRAN).diagnostic == QMENOMSG
    child = start("with open_device(sys.argv[1]) as d, d.open_space('QSPACE') as s: s.enqueue('STRING', b'in')", joined)
    child.finish()
    assert wait() == "in"


@pytest.mark.usefixtures("short_patience")
def test_without_flags_another_writer_is_tpetime_after_a_while(writer: Child) -> None:
    assert both(TPNOFLAGS) == ["TPETIME", "TPETIME"]
    writer.say()
    writer.expect("outside")
    assert both(TPNOFLAGS) == ["", ""]


@pytest.mark.usefixtures("short_patience")
def test_with_tpnotime_another_writer_is_waited_for(writer: Child) -> None:
    without, with_it = Work(lambda: both(TPNOFLAGS)), Work(lambda: both(TPNOTIME))
    assert without.results() == [["TPETIME", "TPETIME"]]
    writer.say()
    assert with_it.results() == [["", ""]]


def test_the_time_of_the_transaction_ends_the_wait_for_another_writer(writer: Child) -> None:
    tpbegin(0.05)
    assert both(TPNOTIME) == ["TPETIME", "TPETIME"]
    writer.say()
    writer.expect("outside")
    assert refused(tpcommit).name == "TPEABORT"


def test_a_signal_ends_the_wait_for_another_writer(writer: Child, noted: list[int]) -> None:
    threading.Timer(0.05, signal_me).start()
    assert refused(tpenqueue, "QSPACE", "STRING", None, b"", TPNOTIME).name == "TPGOTSIG"
    assert noted
    writer.say()
    writer.expect("outside")
    assert refused(tpdequeue, "QSPACE", "STRING", None).diagnostic == QMENOMSG
