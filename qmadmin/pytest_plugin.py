"""Fixtures of pytest for applications. Nothing else of the library is imported until a test asks for one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from qmadmin.app import App
    from qmadmin.space import QueueSpace
    from qmadmin.testing import InlineWorker, ShiftedClock

_DEVICE: Final = "qmadmin_device"
_KINDS: Final = ("memory", "file")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option of the configuration file."""
    parser.addini(
        _DEVICE, "where qmadmin_space is kept: memory (the default) or file, a temporary one", default="memory"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers", "qmadmin(device): where qmadmin_space is kept in this test: 'memory', or 'file', a temporary one"
    )


@pytest.fixture
def qmadmin_clock() -> ShiftedClock:
    """The clock of `qmadmin_space`, which `advance(seconds)` moves forward."""
    from qmadmin.testing import ShiftedClock

    return ShiftedClock()


@pytest.fixture
def qmadmin_space(request: pytest.FixtureRequest, tmp_path: Path, qmadmin_clock: ShiftedClock) -> Iterator[QueueSpace]:
    """An open queue space `TEST` of this test alone, whose only queue is its error queue, `errors`."""
    from qmadmin.opening import create_device

    path = ":memory:" if _kind(request) == "memory" else tmp_path / "qmadmin-device"
    with create_device(path, clock=qmadmin_clock) as device:
        device.create_space("TEST")
        with device.open_space("TEST") as space:
            yield space


@pytest.fixture
def qmadmin_worker(qmadmin_space: QueueSpace) -> Iterator[Callable[[App], InlineWorker]]:
    """Have an application use `qmadmin_space` in the test; `run()` of what it returns calls its handlers."""
    from qmadmin.testing import InlineWorker

    with contextlib.ExitStack() as stack:
        yield lambda app: stack.enter_context(InlineWorker.of(app, qmadmin_space))


def _kind(request: pytest.FixtureRequest) -> str:
    marker = request.node.get_closest_marker("qmadmin")
    if marker is None:
        where, kind = f"the option {_DEVICE}", request.config.getini(_DEVICE)
    elif marker.args or marker.kwargs.keys() != {"device"}:
        raise pytest.UsageError("the marker qmadmin takes one keyword, device: write qmadmin(device='file')")
    else:
        where, kind = "the marker qmadmin", marker.kwargs["device"]
    if kind not in _KINDS:
        raise pytest.UsageError(f"the device of {where} must be memory or file, got {kind!r}")
    return str(kind)
