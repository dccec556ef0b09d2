"""Runs the steps on the connection that the caller has put into the configuration; alembic runs this file."""

from __future__ import annotations

from alembic import context

from qmstorage.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table_schema=context.config.attributes["schema"],
    # SQLite can change little of a table in place; alembic then makes it anew and copies the rows.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
