"""The statements that upgrade the tables of a volume to a schema version.

Alembic generates them from the steps in `migrations`, and is loaded only here, never when a device is opened. The
caller holds the volume alone, and begins and commits the transaction.
"""

from __future__ import annotations

import io

from qmstorage.schema import VERSION


class _Statements(io.StringIO):
    """A stream that alembic writes statements to, each in one write with a semicolon and a blank line after it."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []

    def write(self, text: str) -> int:
        """Take one statement."""
        self.written.append(text.strip().removesuffix(";"))
        return len(text)


def statements(dialect: str, found: int, *, schema: str | None = None) -> list[str]:
    """Return the statements that upgrade tables from version `found`, 0 for none, to that of this release, in order.

    `dialect` is "sqlite" or "postgresql"; `schema` is where the tables are, for SQLite the name of an attached file.
    """
    from alembic import command
    from alembic.config import Config

    out = _Statements()
    config = Config(output_buffer=out)
    config.set_main_option("script_location", "qmstorage:migrations")
    config.attributes.update(dialect=dialect, schema=schema)
    command.upgrade(config, f"{f'{found:04d}' if found else 'base'}:{VERSION:04d}", sql=True)
    return [text for text in out.written if text and not text.startswith("--")]
