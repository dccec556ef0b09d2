"""Drivers of PostgreSQL, by their names."""

from __future__ import annotations

import contextlib
from typing import Any


def connected(driver: str, url: str) -> Any:
    """Return a connection of a driver of PostgreSQL."""
    import psycopg

    if driver == "psycopg":
        return psycopg.connect(url)
    if driver == "psycopg2":
        import psycopg2

        return psycopg2.connect(url)
    import pg8000.dbapi
    import scramp
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(url)
    its: dict[str, Any] = {"database": parts["dbname"], "password": parts.get("password")}
    port = int(parts.get("port", 5432))
    try:
        return pg8000.dbapi.connect(parts.get("user"), host=parts.get("host", "localhost"), port=port, **its)
    except scramp.ScramException:
        # It takes no password of one round, as our server has; its socket needs none.
        with contextlib.closing(psycopg.connect(url)) as connection:
            (directory,) = connection.execute("SHOW unix_socket_directories").fetchone()
        return pg8000.dbapi.connect(parts.get("user"), unix_sock=f"{directory}/.s.PGSQL.{port}", **its)
