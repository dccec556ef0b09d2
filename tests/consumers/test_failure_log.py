"""What the log says of calls that failed."""

from __future__ import annotations

import logging

import pytest

from qmadmin.consumers import Failure, RemoteTracebackError
from qmadmin.consumers.failures import FAILURES_A_MINUTE, TRACEBACK_SECONDS, FailureLog
from qmadmin.consumers.function_handler import raise_failure_of
from qmadmin.forwarder.program_log import WORDING
from tests.fix_store import MovableClock


@pytest.fixture
def clock():
    return MovableClock()


@pytest.fixture
def log(clock, caplog):
    caplog.set_level(logging.INFO, logger="qmadmin")
    return FailureLog("Q", WORDING, clock.monotonic)


def fail(log, function=None, times=1):
    for number in range(times):
        try:
            (function or wrong)()
        except (ValueError, Failure) as error:
            try:
                raise_failure_of(error)
            except Failure as failure:
                log.failed(f"m{number}", 3, failure)


def wrong():
    raise ValueError("no account 17")


def wrong_elsewhere():
    raise ValueError("no account 18")


def plain():
    raise Failure("the till is closed")


def tracebacks(caplog):
    return [record for record in caplog.records if record.exc_info]


def test_a_failure_is_told_with_its_message_its_try_and_why(log, caplog):
    fail(log, plain)
    assert caplog.messages == ["service 'Q' failed on message m0, try 3: the till is closed"]
    assert not tracebacks(caplog)


def test_the_traceback_of_an_exception_is_told_once_an_hour_for_the_same_place(log, clock, caplog):
    fail(log, times=3)
    assert len(tracebacks(caplog)) == 1
    fail(log, wrong_elsewhere)
    assert len(tracebacks(caplog)) == 2
    clock.advance(TRACEBACK_SECONDS)
    fail(log)
    assert len(tracebacks(caplog)) == 3


def test_a_traceback_has_nothing_of_the_forwarder_in_it(log, caplog):
    fail(log)
    shown = logging.Formatter().formatException(tracebacks(caplog)[0].exc_info)
    assert "in wrong" in shown
    assert "qmadmin/forwarder" not in shown


def test_tracebacks_of_worker_processes_are_told_once_for_the_same_place_too(log, caplog):
    for line, account in ((7, 17), (7, 18), (9, 17)):
        trace = f'Traceback:\n  File "shop.py", line {line}, in pay\n    raise Wrong\nWrong: no account {account}'
        failure = Failure(f"Wrong: no account {account}")
        failure.__cause__ = RemoteTracebackError(trace)
        log.failed("m", 1, failure)
    assert [bool(record.exc_info) for record in caplog.records] == [True, False, True]


def test_of_many_failures_in_a_minute_some_are_told_and_the_others_counted(log, clock, caplog):
    fail(log, plain, times=1000)
    assert len(caplog.messages) == FAILURES_A_MINUTE
    log.log_rest()
    assert len(caplog.messages) == FAILURES_A_MINUTE
    clock.advance(60)
    log.log_rest()
    log.log_rest()
    assert caplog.messages[FAILURES_A_MINUTE:] == [
        f"service 'Q' failed {1000 - FAILURES_A_MINUTE} more times, the last on message m999, try 3: the till is closed"
    ]


def test_the_next_minute_has_lines_of_its_own_behind_what_was_counted(log, clock, caplog):
    fail(log, plain, times=FAILURES_A_MINUTE + 1)
    clock.advance(60)
    fail(log, plain)
    assert "failed 1 more times" in caplog.messages[-2]
    assert "failed on message m0" in caplog.messages[-1]


def test_what_was_counted_is_told_at_the_end_without_waiting_for_the_minute(log, caplog):
    log.log_rest(at_once=True)
    assert not caplog.messages
    fail(log, plain, times=FAILURES_A_MINUTE + 5)
    log.log_rest(at_once=True)
    assert "failed 5 more times" in caplog.messages[-1]
