"""The virtual environment of the peers, made on demand and apart from the project's own."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

REQUIREMENTS = ("procrastinate>=3,<4", "pgqueuer>=1,<2", "psycopg[binary]>=3.2,<4", "asyncpg>=0.30,<1")


class NoPeersError(Exception):
    """The packages cannot be installed; the text says why."""


def default_directory() -> Path:
    """Return where the environment stands unless another place is asked for."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "qmadmin" / "bench-peers"


def interpreter(directory: Path) -> str:
    """Return the Python of the environment in `directory`; make it and install the peers where that was not done yet.

    Raises NoPeersError where that fails.
    """
    wanted = hashlib.sha256("\n".join((sys.version, *REQUIREMENTS)).encode()).hexdigest()
    python, note = directory / "bin" / "python", directory / "qmadmin-peers"
    if not note.exists() or note.read_text() != wanted:
        print(f"installing {', '.join(REQUIREMENTS)} in {directory}", file=sys.stderr)
        _install(directory, python)
        note.write_text(wanted)
    return str(python)


def _install(directory: Path, python: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        venv.create(directory, with_pip=True, clear=(directory / "pyvenv.cfg").exists())
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoPeersError(str(error)) from error
    if done.returncode:
        raise NoPeersError(done.stderr.strip().splitlines()[-1])
