"""The schema has one shape, however a device came to it."""

from __future__ import annotations

import re
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
from qmstorage.migrating import migrate


def tables(path: Path) -> dict[str, str]:
    """Return what SQLite says of each table and index, blanks folded."""
    with sqlite3.connect(path) as connection:
        found = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    connection.close()
    return {name: normal(sql) for name, sql in found}


def normal(sql: str) -> str:
    """Fold the blanks, and order the constraints, which mean the same in any order."""
    head, _, rest = re.sub(r"\s+", " ", sql).partition("(")
    body, _, tail = rest.rpartition(")")
    parts = sorted(part.strip() for part in re.split(r",(?![^(]*\))", body))
    return f"{head.strip()} ({', '.join(parts)}) {tail.strip()}"


@pytest.fixture
def migrated(tmp_path: Path) -> Path:
    path = tmp_path / "migrated"
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        migrate(connection)
    engine.dispose()
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
        assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []
    engine.dispose()


@pytest.mark.parametrize("made", ["fresh", "migrated"])
def test_the_version_is_recorded_where_alembic_looks_for_it(made: str, request: pytest.FixtureRequest) -> None:
    engine = sa.create_engine(f"sqlite:///{request.getfixturevalue(made)}")
    with engine.connect() as connection:
        assert MigrationContext.configure(connection).get_current_revision() == schema.REVISION
    engine.dispose()


def test_migrating_what_is_up_to_date_changes_nothing(fresh: Path) -> None:
    before = tables(fresh)
    engine = sa.create_engine(f"sqlite:///{fresh}")
    with engine.begin() as connection:
        migrate(connection)
    engine.dispose()
    assert tables(fresh) == before


def test_the_newest_step_is_the_version_that_this_release_reads() -> None:
    config = Config()
    config.set_main_option("script_location", "qmstorage:migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [schema.REVISION]
    assert f"{schema.VERSION:04d}" == schema.REVISION


def test_a_table_that_the_schema_lacks_would_be_seen(migrated: Path) -> None:
    with sqlite3.connect(migrated) as connection:
        connection.execute("DROP TABLE history")
    connection.close()
    engine = sa.create_engine(f"sqlite:///{migrated}")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), schema.metadata)
    engine.dispose()


def test_opening_a_device_does_not_load_alembic(fresh: Path) -> None:
    program = f"import sys, qmadmin\nqmadmin.open_device({str(fresh)!r}).close()\nsys.exit('alembic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
