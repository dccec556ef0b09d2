"""What the tests of the management information base share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qmadmin import mib
from qmadmin.device import Device
from qmadmin.space import QueueSpace

if TYPE_CHECKING:
    from tests.fix_store import Store

PAGE = 4096
QS = {"TA_APPQSPACENAME": "QS"}
Q = QS | {"TA_APPQNAME": "Q"}


@pytest.fixture
def mib_device(file_store: Store, memory_dir: Path) -> Device:
    """A device on a file, whose non-persistent messages are kept beside it."""
    return file_store.device


@pytest.fixture
def mib_space(mib_device: Device) -> Iterator[QueueSpace]:
    """A queue space QS with memory, a queue Q and an error queue E; open in this process."""
    from tests.fix_store import make_queue, space_definition

    mib_device.create_space(space_definition("QS", memory=20 * PAGE, error_queue="E"))
    with mib_device.open_space("QS") as opened:
        make_queue(opened, "Q", retries=3)
        make_queue(opened, "E")
        yield opened


def one(device: Device, class_name: str, **keys: Any) -> dict[str, Any]:
    """Return the one object of the class that the keys select in the queue space QS."""
    (found,) = mib.get(device, class_name, QS | keys)
    return found


def refused(code: str, attribute: str, request: Callable[..., Any], *given: Any, **more: Any) -> mib.MibError:
    """Return the refusal of a request, which has this code and names this attribute."""
    with pytest.raises(mib.MibError) as refusal:
        request(*given, **more)
    assert (refusal.value.code, refusal.value.attribute) == (mib.Code[code], attribute)
    assert refusal.value.message
    return refusal.value
