"""The tools that tests of applications are made with, on every store."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import qmadmin
from qmadmin.testing import InlineWorker, ShiftedClock
from qmcore.errors import InvalidArgumentError, ProtocolError
from tests.fix_store import DEADLINE

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def shifted() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture(params=["memory", "file", "postgres"])
def test_space(request: pytest.FixtureRequest, tmp_path: Path, shifted: ShiftedClock) -> Iterator[qmadmin.QueueSpace]:
    paths = {"memory": lambda: ":memory:", "file": lambda: str(tmp_path / "QUE")}
    path = paths.get(request.param, lambda: request.getfixturevalue("database_url"))()
    with qmadmin.create_device(path, clock=shifted) as device:
        device.create_space("TEST")
        with device.open_space("TEST") as space:
            yield space


@pytest.fixture
def app(tmp_path: Path) -> qmadmin.App:
    """An application whose own device is not there."""
    return qmadmin.App(tmp_path / "none" / "QUE", space="QS")


def test_time_that_is_moved_makes_a_delayed_message_ready(
    app: qmadmin.App, test_space: qmadmin.QueueSpace, shifted: ShiftedClock
) -> None:
    got = []

    @app.handler("orders")
    def ship(message: qmadmin.Message) -> None:
        got.append(message.text)

    with InlineWorker.of(app, test_space) as worker:
        ship.enqueue("a chair", delay=3600)
        worker.run()
        assert got == []
        shifted.advance(3600)
        worker.run()
    assert got == ["a chair"]


def test_time_goes_on_by_itself_so_that_a_wait_ends(test_space: qmadmin.QueueSpace) -> None:
    test_space.create_queue("orders")
    assert test_space.dequeue("orders", wait=0.01) is None


def test_time_is_not_moved_back(shifted: ShiftedClock) -> None:
    with pytest.raises(InvalidArgumentError, match="the time to advance by must be 0 to"):
        shifted.advance(-1)


def test_an_application_uses_its_own_device_again_when_the_block_has_ended(
    app: qmadmin.App, test_space: qmadmin.QueueSpace
) -> None:
    with app.using(test_space):
        assert app.space is test_space
        app.close()
        assert app.space is test_space
    with pytest.raises(qmadmin.BadResourceError, match="there is no device"):
        _ = app.space
    assert test_space.usage("errors").messages == 0


def test_one_block_within_another_gives_back_what_it_took(app: qmadmin.App, test_space: qmadmin.QueueSpace) -> None:
    with qmadmin.create_device(":memory:") as device:
        device.create_space("OTHER")
        with device.open_space("OTHER") as other, app.using(test_space):
            with app.using(other):
                assert app.space is other
            assert app.space is test_space


def test_hooks_of_the_block_end_with_it(app: qmadmin.App, test_space: qmadmin.QueueSpace) -> None:
    seen = []

    @app.handler("orders")
    def ship(message: qmadmin.Message) -> None:
        raise ValueError(message.text)

    for text in ("one", "two"):
        with app.using(test_space):
            app.on_failure(lambda _message, error: seen.append(str(error)))
            ship.enqueue(text)
            app.run(until_empty=True)
    assert seen == ["one", "two"]


def test_a_running_application_keeps_its_queue_space(app: qmadmin.App, test_space: qmadmin.QueueSpace) -> None:
    @app.handler("orders")
    def ship(message: qmadmin.Message) -> None:
        raise AssertionError(message)

    begun = threading.Event()
    with app.using(test_space):
        app.on_start(begun.set)
        with app.running():
            assert begun.wait(DEADLINE)
            with pytest.raises(ProtocolError, match="runs on queue space 'TEST'"), app.using(test_space):
                raise AssertionError
        app.run(until_empty=True)
