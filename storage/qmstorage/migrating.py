"""Bringing the tables of a volume to a schema version. Alembic loads only here, never where a device is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config

from qmstorage.schema import REVISION

if TYPE_CHECKING:
    from sqlalchemy import Connection


def migrate(connection: Connection, revision: str = REVISION, *, schema: str | None = None) -> None:
    """Bring the tables behind a connection to a revision, from whichever they have; from none they are created.

    `schema` is the one that they are in, for SQLite the name of an attached file. The caller holds the volume alone,
    begins the transaction and commits it.
    """
    config = Config()
    config.set_main_option("script_location", "qmstorage:migrations")
    config.attributes["connection"] = connection
    config.attributes["schema"] = schema
    command.upgrade(config, revision)
