"""Writes the statements of the steps to the stream of the configuration; alembic runs this file."""

from __future__ import annotations

from alembic import context

from qmstorage.schema import metadata
from qmstorage.sql import made

context.configure(
    dialect_name=context.config.attributes["dialect"],
    dialect_opts={"paramstyle": "named"},
    output_buffer=context.config.output_buffer,
    target_metadata=made(metadata),
    version_table_schema=context.config.attributes["schema"],
    # The transaction is the caller's.
    transactional_ddl=False,
)
with context.begin_transaction():
    context.run_migrations()
