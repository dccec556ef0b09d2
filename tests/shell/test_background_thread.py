"""Work that is done aside while somebody types."""

import threading

import pytest

from qmadmin.shell.terminal import BackgroundThread
from tests.fix_store import eventually


@pytest.fixture
def gate():
    opened = threading.Event()
    yield opened
    opened.set()


def test_work_that_is_done_in_time_is_returned():
    aside = BackgroundThread(60)
    assert aside.find(lambda: "found", "nothing") == "found"
    assert not aside.is_busy


def test_work_that_fails_fails_where_it_is_asked_for():
    def fail():
        raise ValueError("broken")

    aside = BackgroundThread(60)
    with pytest.raises(ValueError, match="broken"):
        aside.find(fail, None)
    assert aside.find(lambda: "found", "nothing") == "found"


def test_work_that_takes_too_long_is_not_waited_for_and_others_meanwhile_not_even_begun(gate):
    aside = BackgroundThread(0)
    assert aside.find(gate.wait, "nothing") == "nothing"
    assert aside.is_busy
    begun = []
    assert aside.find(lambda: begun.append("it"), "nothing") == "nothing"
    gate.set()
    eventually(lambda: not aside.is_busy, "the first has come to its end")
    aside.find(lambda: begun.append("later"), None)
    eventually(lambda: begun == ["later"], "it goes on with what comes then")


def test_all_work_is_done_by_one_thread_that_ends_with_the_program():
    aside = BackgroundThread(60)
    threads = {aside.find(threading.current_thread, None) for _ in range(3)}
    (thread,) = threads
    assert thread.daemon
    assert thread is not threading.current_thread()
