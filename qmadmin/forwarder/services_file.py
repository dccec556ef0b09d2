"""The file that says which services there are: TOML, a table `[services.NAME]` for each.

[services.STRING]
python = "server:upper"                # the function upper in server.py beside this file, or of any module

[services.SORT]
command = ["sort", "--reverse"]        # the request on its standard input, the reply on its standard output
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qmadmin.forwarder.command_service import CommandService
from qmadmin.forwarder.errors import StartError
from qmadmin.forwarder.python_service import PythonService, find_function

if TYPE_CHECKING:
    from qmadmin.forwarder.service import Service

KINDS = ("python", "command")


@dataclasses.dataclass(frozen=True, slots=True)
class ServicesFile:
    """The services of a file as it describes them; nothing is imported or looked for yet."""

    path: Path
    described: Mapping[str, Mapping[str, Any]]

    @classmethod
    def read(cls, path: str) -> ServicesFile:
        """Read a services file, or raise StartError for one that is missing, is no TOML, or has what has no meaning."""
        file = Path(path)
        try:
            content = tomllib.loads(file.read_text("utf-8"))
        except FileNotFoundError:
            raise StartError(
                f"there is no services file {path!r}", "Name one with -s, or in the environment variable QM_SERVICES."
            ) from None
        except OSError as error:
            raise StartError(f"services file {path!r} cannot be read: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise StartError(f"services file {path!r} is not TOML: {error}") from error
        where = f"services file {path!r}"
        _refuse_unknown(where, content, ["services"])
        described = _table(content.get("services", {}), f"services in {where}")
        for name, description in described.items():
            _check_description(f"service {name!r} in {where}", description)
        return cls(file, described)

    def services(self, names: Iterable[str], environ: Mapping[str, str]) -> dict[str, Service]:
        """Return the services of these names, ready to be called; `environ` is the environment of commands.

        Modules are imported, from the directory of the file too, and commands looked for.
        """
        directory = str(self.path.absolute().parent)
        if directory not in sys.path:
            sys.path.insert(0, directory)
        return {name: self._service(name, environ) for name in names}

    def _service(self, name: str, environ: Mapping[str, str]) -> Service:
        description = self.described.get(name)
        if description is None:
            raise StartError(
                f"services file {str(self.path)!r} has no service for queue {name!r}{_meant(name, self.described)}",
                f"Describe it in a table [services.{name}].",
            )
        if "python" in description:
            return PythonService(find_function(description["python"], name))
        program, *arguments = description["command"]
        return CommandService([self._program(name, program, environ), *arguments], environ)

    def _program(self, name: str, program: str, environ: Mapping[str, str]) -> str:
        """Return the path of a command; one with a slash in it is looked for from the directory of the file."""
        if os.sep in program:
            path = str(self.path.absolute().parent / program)
            found = path if os.access(path, os.X_OK) and not Path(path).is_dir() else None
        else:
            found = shutil.which(program, path=environ.get("PATH"))
        if found is None:
            raise StartError(f"service {name!r}: command {program!r} was not found, or may not be run")
        return os.path.abspath(found)


def _check_description(where: str, value: object) -> None:
    description = _table(value, where)
    _refuse_unknown(where, description, KINDS)
    if len(description) != 1:
        raise StartError(f"{where} must have either python or command, and has {'both' if description else 'neither'}")
    if "python" in description:
        target = description["python"]
        if not isinstance(target, str) or target.count(":") != 1:
            raise StartError(f"{where}: python must be of the form 'module:function', got {target!r}")
        return
    command = description["command"]
    if not isinstance(command, list) or not command or not all(isinstance(word, str) and word for word in command[:1]):
        raise StartError(f'{where}: command must be a list such as ["tr", "a-z", "A-Z"], got {command!r}')
    if not all(isinstance(word, str) and "\0" not in word for word in command):
        raise StartError(f"{where}: every word of command must be text, got {command!r}")


def _table(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise StartError(f"{where} must be a table, got {value!r}")
    return value


def _refuse_unknown(where: str, table: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            meant = _meant(key, known) or f"; known {'are' if len(known) > 1 else 'is'} {' and '.join(known)}"
            raise StartError(f"{where} has the unknown key {key!r}{meant}")


def _meant(word: str, known: Iterable[str]) -> str:
    near = get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
