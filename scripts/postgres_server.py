"""A PostgreSQL server of one's own: a cluster in a directory that was given, reached through a Unix socket only.

The server is a child of this process and is told to stop when its parent is gone, however that ends, so nothing is left
running. A caller who is root has it run as the user `postgres`, or else `nobody`, because the server refuses root. It
is durable as PostgreSQL is by default: fsync, full_page_writes and synchronous_commit are on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path

SUPERUSER = "qmadmin"
_PATIENCE = 60.0
_PR_SET_PDEATHSIG = 1


class NoServerError(Exception):
    """No server can be brought up; the text says why."""


class Server:
    """One cluster and the server over it."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        """Make the cluster in `directory`, which is empty; `settings` are configuration parameters of the server.

        Raises NoServerError where there are no programs or no user for it.
        """
        self._programs = programs()
        self._user = _unprivileged_user()
        # A socket's name is limited to some hundred characters, whatever directory was chosen for the data.
        self._sockets = Path(tempfile.mkdtemp(prefix="qm-pg-"))
        self._settings = dict(settings or {})
        self._log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self.data = directory / "data"
        for path in (directory, self._sockets):
            if self._user:
                os.chown(path, self._user.pw_uid, self._user.pw_gid)
        self._make_cluster()

    @property
    def pid(self) -> int:
        """The process id of the server."""
        assert self._process is not None, "the server was not started"
        return self._process.pid

    def url(self, database: str = "postgres") -> str:
        """Return the URL of one of its databases, as libpq understands it."""
        return f"postgresql://{SUPERUSER}@/{database}?host={urllib.parse.quote(str(self._sockets), safe='')}"

    def start(self) -> None:
        """Start it and wait until it accepts connections, recovery included."""
        deadline = time.monotonic() + _PATIENCE
        while not self._came_up(deadline):
            # The children of a server that was killed hold its shared memory until they have noticed.
            if time.monotonic() > deadline:
                raise NoServerError(f"the server does not start: {self._last_words()}")
            time.sleep(0.2)

    def stop(self, *, immediately: bool = False) -> None:
        """Stop it: in good order, or at once and with recovery at the next start."""
        self._end(signal.SIGQUIT if immediately else signal.SIGINT)

    def kill(self) -> None:
        """End it as `kill -9` does; its children notice by themselves."""
        self._end(signal.SIGKILL)

    def remove(self) -> None:
        """Stop it if need be, and remove what is outside of its directory."""
        self.stop(immediately=True)
        shutil.rmtree(self._sockets, ignore_errors=True)

    def _make_cluster(self) -> None:
        options = ["--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", f"--username={SUPERUSER}"]
        done = subprocess.run(
            [self._programs / "initdb", "-D", self.data, *options],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True, cwd="/", **self._identity(),
        )  # fmt: skip
        if done.returncode:
            raise NoServerError(f"initdb fails: {done.stdout.strip().splitlines()[-1]}")

    def _came_up(self, deadline: float) -> bool:
        settings = {"listen_addresses": "", "unix_socket_directories": str(self._sockets)} | self._settings
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        libc = ctypes.CDLL(None)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self.data, *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True,
                preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT),  # noqa: PLW1509 - one call, no lock
                **self._identity(),
            )  # fmt: skip
        while self._process.poll() is None and time.monotonic() < deadline:
            if self._is_ready():
                return True
            time.sleep(0.02)
        self.stop(immediately=True)
        return False

    def _is_ready(self) -> bool:
        """Tell whether the server has written into its file that it accepts connections."""
        with contextlib.suppress(OSError):
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"
        return False

    def _end(self, number: int) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(number)
            self._process.wait(_PATIENCE)

    def _identity(self) -> dict[str, object]:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it says nothing"


@contextlib.contextmanager
def temporary_server(parent: Path, settings: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Give a server that is started, in a new directory below `parent`; in the end nothing of it is left."""
    directory = Path(tempfile.mkdtemp(prefix="qmadmin-pg-", dir=parent))
    try:
        server = Server(directory, settings)
        try:
            server.start()
            yield server
        finally:
            server.remove()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def programs() -> Path:
    """Return the directory of the newest server's programs; QM_POSTGRES_BIN names another one.

    Raises NoServerError where there is none.
    """
    if named := os.environ.get("QM_POSTGRES_BIN"):
        candidates = [Path(named)]
    else:
        found = Path("/usr/lib/postgresql").glob("*/bin")
        candidates = sorted(found, key=lambda path: int("0" + path.parent.name.partition(".")[0]), reverse=True)
        in_path = shutil.which("postgres")
        candidates += [Path(in_path).resolve().parent] if in_path else []
    for candidate in candidates:
        if (candidate / "postgres").exists() and (candidate / "initdb").exists():
            return candidate
    raise NoServerError("no PostgreSQL server was found; install one, or name its programs with QM_POSTGRES_BIN")


def _unprivileged_user() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise NoServerError("the server refuses to run as root, and there is neither a user postgres nor nobody")
