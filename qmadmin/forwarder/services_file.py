"""The services file: TOML, with a table `[services.NAME]` for each service.

[services.STRING]
python = "server:upper"                # the function upper in server.py beside this file, or of any module

[services.SORT]
command = ["sort", "--reverse"]        # the request on its standard input, the reply on its standard output

[services.ORDERS]
url = "https://shop.example/orders"    # the request is the body of a POST, the reply that of the answer
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from qmadmin.consumers import Handler
from qmadmin.consumers.function_handler import EventLoop
from qmadmin.forwarder import StartError
from qmadmin.forwarder.descriptions import (
    CommandDescription,
    Description,
    HttpDescription,
    PythonDescription,
    description,
    find_function,
)
from qmadmin.forwarder.options import Settings
from qmadmin.forwarder.program_log import WORDING
from qmadmin.opening import open_device
from qmadmin.settings import fault_of_toml, meant
from qmadmin.space import QueueSpace
from qmcore.errors import QueueError
from qmcore.queue import Queue
from qmcore.values import dataclass


@dataclass(frozen=True, slots=True)
class ServicesFile:
    """The services of a file by name, as described; nothing is imported or searched for yet."""

    path: Path
    described: Mapping[str, Description]
    _loop: EventLoop = dataclasses.field(
        default_factory=functools.partial(EventLoop, WORDING), repr=False, compare=False
    )

    @classmethod
    def read(cls, path: str) -> ServicesFile:
        """Read a services file; raise StartError if it is missing, not TOML, or invalid."""
        file, faults = cls._with_faults(path)
        if faults:
            raise faults[0]
        return file

    @classmethod
    def check(cls, path: str, environ: Mapping[str, str]) -> tuple[ServicesFile, list[str]]:
        """Return the valid services of a file, and all that is wrong with it, each as one sentence.

        The valid ones are tried: their modules are imported, worker processes are started and ended, commands and files
        are searched for. No service is called.
        """
        file, faults = cls._with_faults(path)
        for name in file.names:
            try:
                file.service(name, environ).close()
            except StartError as error:
                faults.append(error)
        return file, list(map(str, faults))

    @classmethod
    def _with_faults(cls, path: str) -> tuple[ServicesFile, list[StartError]]:
        described: dict[str, Description] = {}
        faults = []
        try:
            for name, found in _described(path):
                if isinstance(found, StartError):
                    faults.append(found)
                else:
                    described[name] = found
        except StartError as error:
            faults.append(error)
        return cls(Path(path), described), faults

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the services."""
        return tuple(self.described)

    def description(self, name: str) -> Description:
        """Return the description of a service; raise StartError if the file has none."""
        if name not in self.described:
            raise StartError(
                f"services file {str(self.path)!r} has no service for queue {name!r}{meant(name, self.described)}",
                f"Describe it in a table [services.{name}].",
            )
        return self.described[name]

    def service(self, name: str, environ: Mapping[str, str], workers: int = 1) -> Handler:
        """Return a service, ready to be called; `environ` is the environment of what runs outside of this process.

        `workers` is how many calls run at a time if the file does not say.

        Raises StartError if it cannot be created: a module cannot be imported, a command does not exist. The caller
        closes it.
        """
        described = self.description(name)
        workers = described.workers or workers
        match described:
            case PythonDescription():
                return self._python(described, environ, workers)
            case CommandDescription():
                from qmadmin.forwarder.command_service import CommandService

                return CommandService.of(described, self._directory, environ)
            case HttpDescription():
                from qmadmin.forwarder.http_service import HttpService

                return HttpService(described, self._directory, environ, workers)
        raise AssertionError(described)

    def _python(self, described: PythonDescription, environ: Mapping[str, str], workers: int) -> Handler:
        if described.run == "process":
            from qmadmin.forwarder.process_service import ProcessService

            path = [self._directory, *(entry for entry in sys.path if entry != self._directory)]
            return ProcessService(described.python, described.name, workers, path, environ)
        from qmadmin.consumers.function_handler import handler_of

        if self._directory not in sys.path:
            sys.path.insert(0, self._directory)
        return handler_of(find_function(described.python, described.name), self._loop)

    @property
    def _directory(self) -> str:
        return str(self.path.absolute().parent)


def _described(path: str) -> Iterator[tuple[str, Description | StartError]]:
    """Yield each service of a file by name: what it is, or what is wrong with it."""
    content = _content(path)
    where = f"services file {path!r}"
    for word in content:
        if word != "services":
            near = f"; did you mean [services.{word}]?" if isinstance(content[word], dict) else "; known is services"
            raise StartError(f"{where} has the unknown key {word!r}{meant(word, ('services',)) or near}")
    for name, table in _table(content.get("services", {}), f"services in {where}").items():
        place = f"service {name!r} in {where}"
        try:
            yield name, description(name, _table(table, place))
        except ValueError as error:
            text = str(error)
            yield name, StartError(place + text if text.startswith(":") else f"{place} {text}")
        except StartError as error:
            yield name, error


def _content(path: str) -> Mapping[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text("utf-8-sig"))
    except FileNotFoundError:
        raise StartError(
            f"there is no services file {path!r}", "Name one with -s, or in the environment variable QM_SERVICES."
        ) from None
    except OSError as error:
        raise StartError(f"services file {path!r} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise StartError(f"services file {path!r} is not TOML: {fault_of_toml(error)}") from error


def _table(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise StartError(f"{where} must be a table, got {value!r}")
    return value


def faults(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """Return all that would prevent the forwarder from working, each as one sentence. Nothing is forwarded."""
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
    """Yield what is wrong with a queue: it does not exist, or loses messages."""
    try:
        queue = space.queue(name)
    except QueueError as error:
        yield error.message
        return
    if missing := missing_error_queue(space, queue):
        yield missing


def missing_error_queue(space: QueueSpace, queue: Queue) -> str:
    """Return what happens to failed requests of a queue whose error queue does not exist; empty if it exists."""
    usual = space.definition.error_queue
    named, there = queue.definition.error_queue or usual, {each.name for each in space.queues()}
    if not named or named in there:
        return ""
    then = f"failed requests go to {usual!r}" if usual in there else "failed requests are discarded"
    return f"queue {queue.name!r} has the error queue {named!r}, which does not exist: {then}"
