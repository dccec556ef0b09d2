"""An application with handlers, on a device in a file and on PostgreSQL."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

import qmadmin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclasses.dataclass
class Order:
    """What is sold."""

    number: int
    what: str = "a vase"


@pytest.fixture(params=["file", "postgres"])
def app_place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the device of the application is."""
    return str(tmp_path / "QUE") if request.param == "file" else request.getfixturevalue("database_url")


@pytest.fixture
def app(app_place: str) -> Iterator[qmadmin.App]:
    """An application without handlers; its device, queue space and queues are made at first use."""
    made = qmadmin.App(app_place, space="QS", create=True)
    yield made
    made.close()


def bodies(app: qmadmin.App, queue: str) -> list[str]:
    """Take the messages of a queue, and return their bodies."""
    return [message.text for message in app.space.dequeue_many(queue, 1000)]
