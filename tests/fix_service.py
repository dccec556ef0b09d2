"""Fixtures of the services of the forwarder, called directly: a directory with a services file, and requests."""

from __future__ import annotations

import math
import os
import sys
import threading

import pytest

import qmadmin
from qmadmin import QueueDefinition, SpaceDefinition
from qmadmin.bodies import encode
from qmadmin.consumers import Call, Failure, Unavailable, current
from qmadmin.forwarder.services_file import ServicesFile
from qmcore.message import Message, State
from qmcore.queue import Delivery

NO_BODY = (
    "its answer cannot be encoded: the body must be bytes, another buffer, str, None, a value of JSON, a data class,"
    " or a model of pydantic or msgspec, got object"
)
"""The reason of a call that returns an object of no use."""


def request_of(body=b"", **changes):
    """Return a request with this body, of the type that an enqueue gives it."""
    data, kind = encode(body)
    usual = {
        "msgid": "0123456789abcdef0000000000000001", "queue": "S", "priority": 50, "enqueued_us": 0,
        "available_us": None, "expires_us": None, "corrid": None, "reply_queue": None, "failure_queue": None,
        "error_queue": None, "urcode": 0, "appkey": 0, "client_id": "", "size": len(data or b""), "retries": 0,
        "delivery": Delivery.PERSIST, "reply_delivery": None, "subtype": "", "headers": {}, "group": None,
        "type": kind, "origin": None, "state": State.HELD,
    }  # fmt: skip
    return Message(**(usual | changes), body=data)


def call(service, body=b"", seconds=60.0, **changes):
    """Call a service with a request, in no transaction."""
    return service.call(Call(request_of(body, **changes), seconds))


def failure_of(service, body=b"", seconds=60.0, **changes):
    """Return the Failure that a call ends in."""
    with pytest.raises(Failure) as failed:
        call(service, body, seconds, **changes)
    return failed.value


def unavailability_of(service, body=b"", seconds=60.0, **changes):
    """Return why a service says that it cannot work."""
    with pytest.raises(Unavailable) as refused:
        call(service, body, seconds, **changes)
    return refused.value


def threads_named(name):
    """Return the threads of that name, of whichever service they are."""
    return {thread for thread in threading.enumerate() if thread.name == name}


class Calling:
    """A call in a thread of its own."""

    def __init__(self, service, body=b"", seconds=math.inf):
        self.outcome = None
        self._thread = threading.Thread(target=self._run, args=(service, body, seconds), daemon=True)
        self._thread.start()

    def _run(self, service, body, seconds):
        try:
            self.outcome = call(service, body, seconds)
        except BaseException as error:  # noqa: BLE001 - it is looked at
            self.outcome = error

    def wait(self):
        """Return what the call gave or raised."""
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.outcome


class Services:
    """A directory with a services file, modules and commands."""

    def __init__(self, directory):
        self.directory = directory
        self.made = []

    def write(self, name, text, mode=0o644):
        (self.directory / name).write_text(text)
        (self.directory / name).chmod(mode)

    def make(self, text, *, name="S", environ=None, **modules):
        """Write the services file, whose one table has this text, and modules; return the service."""
        for module, source in modules.items():
            self.write(f"{module}.py", source)
        self.write("services.toml", f"[services.{name}]\n{text}\n")
        file = ServicesFile.read(str(self.directory / "services.toml"))
        service = file.service(name, dict(os.environ) if environ is None else environ)
        self.made.append(service)
        return service

    def close(self):
        for service in self.made:
            service.close()


@pytest.fixture
def services(tmp_path, monkeypatch):
    """A directory for services; what is imported from it is forgotten afterwards, and its services are closed."""
    directory = tmp_path / "services"
    directory.mkdir()
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    services = Services(directory)
    yield services
    services.close()
    for name in set(sys.modules) - before:
        if str(directory) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


@pytest.fixture
def queues(tmp_path):
    """A queue space with the queues NEXT and FULL, the second of which is stopped."""
    with qmadmin.create_device(tmp_path / "QUE", 2000) as device:
        device.create_space(
            SpaceDefinition(name="QSPACE", ipc_key=54320, pages=500, queues=5, transactions=5, processes=5, messages=50)
        )
        with device.open_space("QSPACE") as space:
            for name in ("NEXT", "STOPPED"):
                space.create_queue(QueueDefinition(name=name))
            space.stop_queue("STOPPED")
            yield space


def call_in(space, service, body=b"", seconds=60.0, **changes):
    """Call a service as the forwarder does, in a transaction that commits unless the call fails."""
    this = Call(request_of(body, **changes), seconds)
    with space.transaction(), current.CurrentCall(space, this):
        return service.call(this)


def bodies(space, queue="NEXT"):
    """Take all messages off a queue; return their bodies."""
    return [message.body for message in iter(lambda: space.dequeue(queue), None)]
