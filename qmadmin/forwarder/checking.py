"""What is wrong with the services and queues of a forwarder, before it is started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from qmadmin.forwarder.errors import StartError
from qmadmin.forwarder.services_file import ServicesFile
from qmadmin.opening import open_device
from qmcore.errors import QueueError

if TYPE_CHECKING:
    from qmadmin.forwarder.settings import Settings
    from qmadmin.space import QueueSpace
    from qmcore.queue import Queue


def faults(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """Return all that would keep the forwarder from its work, each as one sentence. Nothing is forwarded."""
    described, found = ServicesFile.check(settings.services, environ)
    names = settings.queues or described.names
    if not names and not found:
        found.append(f"services file {settings.services!r} has no services")
    for name in names:
        try:
            settings.policy(described.description(name))
        except StartError as error:
            found.append(str(error))
    try:
        with open_device(settings.device) as device, device.open_space(settings.space, role="application") as space:
            if device.readonly:
                found.append(f"device {device.path!r} can only be read by this user, but forwarding must write to it")
            found += [fault for name in names for fault in _faults_of_queue(space, name)]
    except QueueError as error:
        found.append(error.message)
    return found


def _faults_of_queue(space: QueueSpace, name: str) -> Iterator[str]:
    """Tell of a queue that is not there, or that loses messages."""
    try:
        queue = space.queue(name)
    except QueueError as error:
        yield error.message
        return
    if missing := missing_error_queue(space, queue):
        yield missing


def missing_error_queue(space: QueueSpace, queue: Queue) -> str:
    """Return what becomes of the failures of a queue whose error queue is not there; empty where nothing is wrong."""
    usual = space.definition.error_queue
    named, there = queue.definition.error_queue or usual, {each.name for each in space.queues()}
    if not named or named in there:
        return ""
    then = f"failed requests go to {usual!r}" if usual in there else "failed requests are discarded"
    return f"queue {queue.name!r} has the error queue {named!r}, which does not exist: {then}"
