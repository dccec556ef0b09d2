"""A transaction of a device with two volumes: when tpcommit returns, and what it says of what went otherwise."""

# ruff: noqa: F403, F405 - as programs import it

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

import qmadmin
from qmadmin.atmi import *
from qmcore.acts import recovering
from tests.fix_atmi import refused
from tests.fix_distributed import Pair
from tests.fix_store import Work, drain

PAIRS = ["volumes-file", "volumes-postgres"]
Arrange: TypeAlias = Callable[[Callable[[], object]], None]


@pytest.fixture
def joined(pair: Pair) -> Iterator[Pair]:
    """This process has joined the device; B has a message, so that it decides, and A follows."""
    pair.b.enqueue("Q", "x")
    tpinit(pair.configs[0], timeout=0.05)
    yield pair
    tpterm()


def move(timeout: float = 0) -> None:
    """Begin a transaction that moves the message from B to A."""
    tpbegin(timeout)
    tpenqueue("A", "OUT", None, tpdequeue("B", "Q", None))


def control() -> int:
    """Return what is set by tpscmt()."""
    found = tpscmt(TP_CMT_LOGGED)
    tpscmt(found)
    return found


@pytest.fixture
def out_of_reach(joined: Pair, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what lets the completion fail, at the moment at which the transaction is decided."""

    def fail(*_arguments: object) -> None:
        raise qmadmin.OperatingSystemError("the server is away")

    def away() -> None:
        monkeypatch.setattr(recovering, "complete", fail)

    return away


@pytest.mark.parametrize("pair", PAIRS, indirect=True)
def test_both_volumes_commit(joined: Pair) -> None:
    move()
    tpcommit()
    assert (drain(joined.a, "OUT"), drain(joined.b), tpgetlev()) == (["x"], [], 0)


@pytest.mark.parametrize("pair", PAIRS, indirect=True)
def test_the_control_is_complete_at_first_and_that_of_its_thread(joined: Pair) -> None:
    assert tpscmt(TP_CMT_LOGGED) == TP_CMT_COMPLETE == 2
    assert Work(control).results() == [TP_CMT_COMPLETE]
    move()
    assert tpscmt(TP_CMT_COMPLETE) == TP_CMT_LOGGED == 1
    tpcommit()
    tpscmt(TP_CMT_LOGGED)
    tpterm()
    assert control() == TP_CMT_COMPLETE


@pytest.mark.parametrize("pair", PAIRS[:1], indirect=True)
@pytest.mark.parametrize("wrong", [0, 3, 4, -1, None, True, "1"])
def test_a_control_that_there_is_not_is_tpeinval(joined: Pair, wrong: object) -> None:
    assert refused(tpscmt, wrong).name == "TPEINVAL"
    assert control() == TP_CMT_COMPLETE


@pytest.mark.parametrize("pair", PAIRS, indirect=True)
def test_a_volume_that_cannot_be_told_in_time_is_tpehazard_and_follows(
    joined: Pair, out_of_reach: Callable[[], None]
) -> None:
    move()
    out_of_reach()
    error = refused(tpcommit)
    assert (error.name, error.diagnostic, tpgetlev()) == ("TPEHAZARD", 0, 0)
    assert "is committed, but a queue space that has a part in it could not be told" in error.message
    joined.wait_until_settled()
    assert (drain(joined.a, "OUT"), drain(joined.b)) == (["x"], [])


@pytest.mark.parametrize("pair", PAIRS, indirect=True)
@pytest.mark.parametrize("flags", [0, TPTXCOMMITDLOG])
def test_it_is_not_waited_for_where_the_decision_is_enough(
    joined: Pair, out_of_reach: Callable[[], None], flags: int
) -> None:
    move()
    out_of_reach()
    if not flags:
        tpscmt(TP_CMT_LOGGED)
    tpcommit(flags)
    assert (tpgetlev(), drain(joined.b)) == (0, [])
    joined.wait_until_settled()
    assert drain(joined.a, "OUT") == ["x"]


@pytest.mark.parametrize("pair", PAIRS, indirect=True)
def test_it_is_waited_for_as_long_as_the_transaction_has_time(joined: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    complete, failed = recovering.complete, []

    def fail_twice(*arguments: object) -> None:
        if len(failed) < 2:
            failed.append(1)
            raise qmadmin.OperatingSystemError("the server is away")
        complete(*arguments)

    move(timeout=600)
    monkeypatch.setattr(recovering, "complete", fail_twice)
    tpcommit()
    assert (len(failed), drain(joined.a, "OUT")) == (2, ["x"])


@pytest.mark.parametrize("pair", ["volumes-file"], indirect=True)
def test_a_part_that_an_administrator_has_rolled_back_is_tpeheuristic(joined: Pair, before_decision: Arrange) -> None:
    move()
    before_decision(lambda: joined.end_without_decider("A", qmadmin.QueueSpace.abort_transaction))
    error = refused(tpcommit)
    assert (error.name, error.diagnostic, tpgetlev()) == ("TPEHEURISTIC", 0, 0)
    assert "was rolled back heuristically by" in error.message
    assert (drain(joined.a, "OUT"), drain(joined.b)) == ([], [])


@pytest.mark.parametrize("pair", PAIRS, indirect=True)
def test_a_part_that_one_has_rolled_back_before_the_decision_is_tpeabort(
    joined: Pair, before_decision: Arrange
) -> None:
    move()
    before_decision(lambda: joined.a.abort_transaction(joined.a.transactions()[0].name))
    assert refused(tpcommit).name == "TPEABORT"
    joined.wait_until_settled()
    assert (drain(joined.a, "OUT"), drain(joined.b)) == ([], ["x"])
