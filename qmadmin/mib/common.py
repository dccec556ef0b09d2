"""The attributes that every class has, and what its objects have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from qmadmin.mib.declare import Attribute, Kind, Mark, Request

if TYPE_CHECKING:
    from qmadmin.device import Device
    from qmadmin.space import QueueSpace

S = TypeVar("S")

SPACE = "TA_APPQSPACENAME"
QUEUE = "TA_APPQNAME"
DEVICE = "TA_QMCONFIG"
MACHINE = "TA_LMID"
STATE = "TA_STATE"

ROLE = "MIB"
"""What others see of a process while a request has a queue space open."""


def device_name(device: Device) -> str:
    """Return the path of the device, which is TA_QMCONFIG."""
    return device.path


def addresses(space: Callable[[S], str], device: Callable[[S], Device], *, marks: Mark) -> tuple[Attribute[S], ...]:
    """Return the attributes that say where an object is; `marks` are those of the queue space's name."""
    return (
        Attribute(
            name=SPACE,
            kind=Kind.STRING,
            permissions="ru-r--r--",
            values="1 to 15 bytes",
            about="The queue space.",
            marks=marks,
            get=space,
            field="space",
        ),
        Attribute(
            name=DEVICE,
            kind=Kind.STRING,
            permissions="ru-r--r--",
            values="a path",
            about="The device. It must be the device of the request, and may be omitted.",
            marks=Mark.KEY,
            get=lambda subject: device(subject).path,
        ),
        Attribute(
            name=MACHINE,
            kind=Kind.STRING,
            permissions="ru-r--r--",
            values="none",
            about="The machine. It must be omitted, because there is no configured application.",
        ),
    )


@contextlib.contextmanager
def opened(request: Request) -> Iterator[QueueSpace]:
    """Open the queue space that a request names for as long as the request takes."""
    with request.device.open_space(request.keys["space"], role=ROLE) as space:
        yield space
