"""Make the virtual environment of this checkout, or bring it up to date. Standard library only.

What was done is noted in a file inside the environment. A run that finds everything as noted does nothing and says
nothing; a run that finds an environment that was half made, moved or whose Python is gone makes it again; otherwise the
packages are installed again when `pyproject.toml` has changed since.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parent.parent
NOTE = ".qmadmin.json"
LOG = "qmadmin-install.log"

# Settings that send pip's work, or its idea of what is installed, elsewhere.
MISLEADING = ("PIP_PREFIX", "PIP_ROOT", "PIP_TARGET", "PIP_USER", "PYTHONHOME", "PYTHONPATH", "__PYVENV_LAUNCHER__")

# Bytes that a step which failed would surely have needed.
NEARLY_FULL = 8 * 2**20

# What pip's output tells about the cause, most telling first.
CAUSES = (
    (r"No space left on device", "the disk for temporary files is full"),
    (r"Disk quota exceeded", "the disk quota is used up"),
    (
        r"(Connection|NameResolution|NewConnection|Protocol|Proxy|SSL)Error|(Connect|Read)Timeout|No route to",
        "no package index could be reached",
    ),
    (r"Could not find a version|No matching distribution", "no package index could be reached, or it lacks a package"),
    (r"requires a different Python|Requires-Python", "a package does not support this Python"),
)


class Stop(Exception):  # noqa: N818 - it carries the sentence that ends the run
    """The environment cannot be made; the text says what is missing."""


class Environment:
    """The virtual environment in one directory, and what an earlier run noted there."""

    def __init__(self, path: Path) -> None:
        """Look at the directory; change nothing."""
        self.path = path
        self.python = path / "bin" / "python"
        self.note: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            read = json.loads((path / NOTE).read_text("utf-8"))
            self.note = read if isinstance(read, dict) else {}

    def write_note(self, **facts: object) -> None:
        """Replace the note in one step, so that it is never half written."""
        self.note = dict(facts)
        fresh = self.path / f"{NOTE}.new"
        fresh.write_text(json.dumps(self.note, indent=2) + "\n", "utf-8")
        fresh.replace(self.path / NOTE)

    def is_ready(self, wanted: set[str], checksum: str) -> bool:
        """Return whether an earlier run has installed exactly this, here."""
        note = self.note
        noted = (note.get("state"), note.get("path"), note.get("root"), note.get("checksum"))
        return noted == ("ready", str(self.path), str(ROOT), checksum) and wanted <= set(note.get("extras", []))

    def is_abandoned(self) -> bool:
        """Return whether an earlier run was interrupted, or worked elsewhere, which the scripts in it still name.

        In an environment that somebody else made, what was interrupted is simply done again.
        """
        note = self.note
        interrupted = note.get("state") != "ready" and note.get("made_here") is True
        return bool(note) and (interrupted or note.get("path") != str(self.path))

    @functools.cached_property
    def version(self) -> str:
        """Its Python's version with all details; "" where that does not run, is too old or belongs elsewhere."""
        question = "import sys, pip; print(sys.prefix); print(sys.version); sys.exit(sys.version_info < (3, 11))"
        try:
            answer = subprocess.run(
                [self.python, "-c", question], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
            )
        except (OSError, subprocess.CalledProcessError):
            return ""
        prefix, _, version = answer.stdout.partition("\n")
        return version.strip() if Path(prefix).resolve() == self.path else ""

    def is_ours_to_remove(self) -> bool:
        """Return whether a run of this script made it, or it stands where this script makes one by default."""
        default_place = self.path == ROOT / ".venv" and (self.path / "pyvenv.cfg").exists()
        return self.note.get("made_here") is True or default_place

    def is_there(self) -> bool:
        """Return whether anything stands in its place."""
        return self.path.exists() and any(self.path.iterdir())


def prepare(venv: Path, extras: set[str], *, exactly: bool, caller: str) -> None:
    """Leave `venv` with this checkout and `extras` installed; `exactly`: with the Python that runs this script."""
    with only_one_run(caller):
        environment = Environment(venv)
        checksum = checksum_of("pyproject.toml", "qmadmin/version.py")
        other_python = not environment.version or (exactly and environment.version != sys.version.strip())
        stale = other_python or environment.is_abandoned()
        if not stale and environment.is_ready(extras, checksum):
            return
        if stale:
            remove(environment)
            say(caller, f"making a virtual environment in {shown(venv)} with Python {sys.version.split()[0]}")
            make(environment)
        installed = environment.note.get("extras", []) if environment.note.get("root") == str(ROOT) else []
        extras = extras | set(installed)
        made_here = environment.note.get("made_here", False)
        facts = {"path": str(venv), "root": str(ROOT), "made_here": made_here, "extras": sorted(extras)}
        environment.write_note(state="installing", **facts)
        say(
            caller,
            f"installing qmadmin and {'the tools of its developers' if 'dev' in extras else 'what it depends on'}",
        )
        install(environment, extras)
        environment.write_note(state="ready", checksum=checksum, **facts)


@contextlib.contextmanager
def only_one_run(caller: str) -> Any:
    """Hold the lock that keeps two runs from working on the same environment; wait for it if need be.

    The lock is on `pyproject.toml`, so that no file is left behind, and it ends with the process, however that ends.
    """
    with (ROOT / "pyproject.toml").open("rb") as locked:
        try:
            fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(caller, "waiting for another run that is preparing the virtual environment")
            fcntl.flock(locked, fcntl.LOCK_EX)
        except OSError:
            # Some network file systems have no locks; two runs at once are then the caller's own risk.
            pass
        yield


def checksum_of(*names: str) -> str:
    """Return one checksum over these files of the checkout."""
    digest = hashlib.sha256()
    for name in names:
        digest.update(name.encode())
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def remove(environment: Environment) -> None:
    """Remove what stands in the environment's place, if it is ours to remove."""
    if not environment.is_there():
        return
    if not environment.is_ours_to_remove():
        raise Stop(f"{environment.path} is no working virtual environment; remove it, or name another with QM_VENV")
    shutil.rmtree(environment.path)


def make(environment: Environment) -> None:
    """Make the environment, with pip in it. The note comes first: whatever is found beside it is ours."""
    environment.path.mkdir(parents=True, exist_ok=True)
    environment.write_note(state="making", path=str(environment.path), root=str(ROOT), made_here=True)
    failed = run(environment, [sys.executable, "-m", "venv", str(environment.path)])
    if failed:
        raise Stop(f"cannot make a virtual environment in {environment.path}: {cause_in(failed, environment.path)}")


def install(environment: Environment, extras: set[str]) -> None:
    """Install this checkout, editable, with what it depends on."""
    target = f".[{','.join(sorted(extras))}]" if extras else "."
    # Most modules are never imported; those that are, Python compiles when they first are.
    options = ["--quiet", "--no-input", "--disable-pip-version-check", "--no-compile"]
    failed = run(environment, [str(environment.python), "-m", "pip", "install", *options, "--editable", target])
    if failed:
        cause = cause_in(failed, environment.path)
        raise Stop(f"cannot install qmadmin: {cause} (pip's own words are in {environment.path / LOG})")


def run(environment: Environment, command: list[str]) -> str:
    """Run a step; return "" when it went well, else what it printed, which is kept in the log of the environment."""
    settings = {name: value for name, value in os.environ.items() if name not in MISLEADING}
    settings.setdefault("PIP_RETRIES", "2")
    done = subprocess.run(
        command, cwd=ROOT, env=settings, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        check=False, text=True, errors="replace",
    )  # fmt: skip
    if done.returncode == 0:
        return ""
    with contextlib.suppress(OSError):
        (environment.path / LOG).write_text(f"$ {' '.join(command)}\n{done.stdout}", "utf-8")
    return done.stdout.strip() or f"exit status {done.returncode}"


def cause_in(output: str, path: Path) -> str:
    """Say in a few words why a step failed that was to write below `path`."""
    if shutil.disk_usage(path).free < NEARLY_FULL:
        return "the disk is full"
    for pattern, cause in CAUSES:
        if re.search(pattern, output):
            return cause
    errors = [line for line in output.splitlines() if line.lower().startswith("error")]
    return (errors or output.splitlines())[-1]


def shown(path: Path) -> str:
    """Return the path as a person would write it: from the working directory, if it lies there."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def say(caller: str, text: str, stream: TextIO = sys.stderr) -> None:
    """Print one line, begun with the name of the script that the person called."""
    print(f"{caller}: {text}", file=stream, flush=True)


def main() -> int:
    """Return 0 when the environment is ready, 2 when it cannot be made, 130 when the person stopped it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("venv", type=Path, help="directory of the virtual environment")
    parser.add_argument("--with", dest="extras", choices=["runtime", "archive", "dev", "site"], default="runtime")
    parser.add_argument("--for", dest="caller", default="make_venv", help="name to begin each line with")
    parser.add_argument("--exactly", action="store_true", help="make it again if it has another Python than this one")
    given = parser.parse_args()
    try:
        prepare(
            Path(given.venv).resolve(),
            {given.extras} - {"runtime"},
            exactly=given.exactly,
            caller=given.caller,
        )
    except Stop as stop:
        say(given.caller, str(stop))
    except OSError as problem:
        what = problem.strerror or str(problem)
        say(given.caller, f"cannot work in {given.venv}: {what}; name another directory with QM_VENV=DIR")
    except KeyboardInterrupt:
        return 130
    else:
        return 0
    return 2


if __name__ == "__main__":
    sys.exit(main())
