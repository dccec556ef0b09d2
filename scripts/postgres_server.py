"""A PostgreSQL server of one's own that is as durable as PostgreSQL is by default, for figures and for the soak.

Its life cycle is that of the tests' servers, which themselves do without fsync.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# The tests are not in the reach of the type checker.
cluster: Any = importlib.import_module("tests.cluster")
cluster_guard: Any = importlib.import_module("tests.cluster_guard")

DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}


class NoServerError(Exception):
    """No server can be brought up; the text says why."""


class Server:
    """A server with fsync, which its owner may stop, kill and start again."""

    def __init__(self, parent: Path, settings: Mapping[str, str]) -> None:
        """Make it in a new directory below `parent`, and start it.

        Raises NoServerError where there are no programs or no user for them, or where the server does not start.
        """
        room, run = cluster_guard.make_room(parent.resolve())
        try:
            self._cluster = cluster.Cluster.made(room, run)
            self._cluster.stop()
            with (self._cluster.data / "postgresql.conf").open("a", encoding="utf-8") as file:
                file.writelines(f"{name} = '{value}'\n" for name, value in {**DURABLE, **settings}.items())
            self._cluster.start()
        except BaseException as error:
            run.close()
            cluster_guard.remove(room)
            if isinstance(error, cluster.Missing | RuntimeError | OSError):
                raise NoServerError(str(error)) from error
            raise

    @property
    def url(self) -> str:
        """The URL of its database `postgres`, as libpq and all drivers understand it."""
        shown: str = self._cluster.url()
        return shown.replace("postgresql+psycopg://", "postgresql://", 1)

    def start(self) -> None:
        """Start it again; return when it takes connections."""
        self._cluster.start()

    def stop(self, mode: str = "fast") -> None:
        """Stop it as `pg_ctl -m` does: fast or immediate."""
        self._cluster.stop(mode)

    def kill(self) -> None:
        """Kill it as `kill -9` does."""
        self._cluster.kill()

    def close(self) -> None:
        """Stop it, if it runs, and remove all that it has written."""
        self._cluster.close()


@contextlib.contextmanager
def durable_server(parent: Path, settings: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Give a server that is started; in the end nothing of it is left. Raises as Server does."""
    server = Server(parent, settings or {})
    try:
        yield server
    finally:
        server.close()
