"""The virtual environments of the peers, made on demand and apart from the project's own."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path


class NoPeersError(Exception):
    """The packages cannot be installed; the text says why."""


def default_directory(kind: str) -> Path:
    """Return where the environment of the peers of a kind stands unless another place is asked for."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "qmadmin" / f"bench-peers-{kind}"


def interpreter(directory: Path, requirements: Sequence[str]) -> str:
    """Return the Python of the environment in `directory`; make it and install what is required where that is not done.

    Raises NoPeersError where that fails.
    """
    wanted = hashlib.sha256("\n".join((sys.version, *requirements)).encode()).hexdigest()
    python, note = directory / "bin" / "python", directory / "qmadmin-peers"
    if not note.exists() or note.read_text() != wanted:
        print(f"installing {', '.join(requirements)} in {directory}", file=sys.stderr)
        _install(directory, python, requirements)
        note.write_text(wanted)
    return str(python)


def _install(directory: Path, python: Path, requirements: Sequence[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        venv.create(directory, with_pip=True, clear=(directory / "pyvenv.cfg").exists())
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoPeersError(str(error)) from error
    if done.returncode:
        raise NoPeersError(done.stderr.strip().splitlines()[-1])
