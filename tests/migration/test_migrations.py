"""The schema has one shape, however a device came to it."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

import qmadmin
from qmstorage import schema
from qmstorage.migrating import statements
from qmstorage.sql import made
from tests.fix_release import tables


@pytest.fixture
def migrated(tmp_path: Path) -> Path:
    path = tmp_path / "migrated"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for text in statements("sqlite", 0):
            connection.execute(text)
        connection.commit()
    return path


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    path = tmp_path / "fresh"
    qmadmin.create_device(path, 100).close()
    return path


def test_a_fresh_device_has_the_tables_of_a_migrated_one(fresh: Path, migrated: Path) -> None:
    assert tables(fresh) == tables(migrated)


def test_the_steps_lead_to_what_the_schema_says(migrated: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{migrated}")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), made(schema.metadata)) == []
    engine.dispose()


@pytest.mark.parametrize("made", ["fresh", "migrated"])
def test_the_version_is_recorded_where_alembic_looks_for_it(made: str, request: pytest.FixtureRequest) -> None:
    engine = sa.create_engine(f"sqlite:///{request.getfixturevalue(made)}")
    with engine.connect() as connection:
        assert MigrationContext.configure(connection).get_current_revision() == schema.REVISION
    engine.dispose()


def test_what_is_up_to_date_takes_no_statement() -> None:
    assert statements("sqlite", schema.VERSION) == []


def test_the_newest_step_is_the_version_of_a_database_and_one_of_the_steps_that_of_a_file() -> None:
    config = Config()
    config.set_main_option("script_location", "qmstorage:migrations")
    steps = ScriptDirectory.from_config(config)
    assert steps.get_heads() == [f"{schema.VERSION:04d}"]
    assert schema.REVISION in [step.revision for step in steps.walk_revisions()]


def test_a_step_after_the_version_of_a_file_changes_no_table() -> None:
    for_a_database = statements("postgresql", schema.VERSION, schema="q")
    assert bool(for_a_database) == (schema.VERSION < schema.VERSION)
    assert [text for text in for_a_database if "alembic_version" not in text] == []


def test_a_table_that_the_schema_lacks_would_be_seen(migrated: Path) -> None:
    with sqlite3.connect(migrated) as connection:
        connection.execute("DROP TABLE history")
    connection.close()
    engine = sa.create_engine(f"sqlite:///{migrated}")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), made(schema.metadata))
    engine.dispose()


def test_opening_a_device_does_not_load_alembic(fresh: Path) -> None:
    program = f"import sys, qmadmin\nqmadmin.open_device({str(fresh)!r}).close()\nsys.exit('alembic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
