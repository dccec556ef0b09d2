"""The figures of a device's queue spaces as the text that Prometheus reads, for `qmadmin --metrics`."""

from __future__ import annotations

import contextlib
from typing import TextIO

from qmadmin.console.process import Exit, refuse, say
from qmadmin.monitoring.metrics import Named, SpaceFigures, look
from qmadmin.monitoring.metrics_server import written
from qmadmin.monitoring.prometheus import SpaceCollector
from qmadmin.opening import open_device
from qmcore.errors import QueueError

_ROLE = "qmadmin"
"""The name of the process in a queue space; with it, it can be attached beyond the limit."""


def run(device_path: str, space: str, out: TextIO) -> Exit:
    """Write the figures of a queue space, or with an empty name of all, and return the exit status.

    It is UNUSABLE, with nothing written, if the device or the queue space of that name cannot be read; and FAILED if
    others can be read and some cannot, which then are told as not up.
    """
    found: dict[Named, SpaceFigures | None] = {}
    status = Exit.OK
    try:
        with open_device(device_path) as device:
            lost = {name for volume in device.missing_volumes() for name in volume.spaces}
            every = sorted({*lost, *(each.name for each in device.spaces())})
            for name in [space] if space else every:
                try:
                    with contextlib.closing(device.open_space(name, role=_ROLE)) as opened:
                        found[device.path, name] = look(opened)
                except QueueError as error:
                    if space:
                        raise
                    say(f"ERROR: the figures of queue space {name!r} cannot be read: {error.message}", error.hint)
                    found[device.path, name], status = None, Exit.FAILED
        text = written(SpaceCollector(lambda: found))
    except QueueError as error:
        return refuse(error.message, error.hint)
    out.write(text)
    out.flush()
    return status
