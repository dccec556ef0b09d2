"""`qmadmin.django` in the INSTALLED_APPS of a project, on both kinds of database."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fix_applications import database_of_django
from tests.fix_store import ROOT, SOURCES, device_path


@pytest.fixture(params=["file", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path, memory_dir: Path) -> dict[str, Any]:
    found = database_of_django(device_path(request.param, request, tmp_path))
    name = str(tmp_path / "TEST") if request.param == "file" else f"test_of_{found['NAME']}"
    return found | {"TEST": {"NAME": name}}


@pytest.fixture
def file_database(tmp_path: Path, memory_dir: Path) -> dict[str, Any]:
    return database_of_django(str(tmp_path / "db.sqlite3"))


def manage(database: dict[str, Any], *arguments: str, **setting: Any) -> subprocess.CompletedProcess[str]:
    """Run a command of manage.py."""
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "tests.api.django_queues.settings",
        "DJANGO_QUEUES_DATABASE": json.dumps(database),
        "PYTHONPATH": SOURCES,
    }
    if setting:
        environment["DJANGO_QUEUES_SETTING"] = json.dumps(setting["setting"])
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "django", *arguments],
        capture_output=True,
        check=False,
        text=True,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
    )


def test_a_project_passes_its_own_tests(database: dict[str, Any]) -> None:
    done = manage(database, "test", "--noinput", "tests.api.django_queues.queue_tests")
    assert done.returncode == 0, done.stderr
    assert re.search(r"Ran 6 tests in .*\n\nOK\n", done.stderr), done.stderr


def test_migrate_makes_the_queues_and_the_shell_shows_them(database: dict[str, Any]) -> None:
    for _ in range(2):
        done = manage(database, "migrate", "--run-syncdb")
        assert done.returncode == 0, done.stderr
    shown = manage(database, "qmadmin", "--format", "csv", "-c", "qput orders 'a chair'", "-c", "qinfo")
    assert shown.returncode == 0, shown.stderr
    assert "orders,1,1" in shown.stdout
    assert manage(database, "check").returncode == 0


def test_a_file_that_has_the_tables_of_the_project_already_gets_the_queues(file_database: dict[str, Any]) -> None:
    assert manage(file_database, "migrate", "--run-syncdb").returncode == 0
    Path(file_database["NAME"]).chmod(0o600)
    done = manage(file_database, "qmadmin", "-c", "qcheck")
    assert (done.returncode, done.stdout) == (0, "No problems found\n"), done.stderr


def test_the_exit_status_of_the_shell_is_that_of_the_command(file_database: dict[str, Any]) -> None:
    done = manage(file_database, "qmadmin", "-c", "qinfo")
    assert done.returncode == 1
    assert "there is no device" in done.stderr


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        (None, "the setting QMADMIN must be a dict such as {'SPACE': 'SHOP'}, got None"),
        ({}, "the setting QMADMIN names no queue space: it needs the key SPACE"),
        ({"SPACE": ""}, "the setting QMADMIN is wrong: "),
        ({"SPACE": "SHOP", "PLACE": 1}, "the setting QMADMIN has no key 'PLACE'"),
        ({"SPACE": "SHOP", "DATABASE": "other"}, "must be an alias in DATABASES, got 'other'"),
        ({"SPACE": "SHOP", "QUEUES": "orders"}, "QUEUES of the setting QMADMIN must be a list of names, got 'orders'"),
        ({"SPACE": "SHOP", "DEVICE": 7}, "DEVICE of the setting QMADMIN must be a path or a URL, got 7"),
        ({"SPACE": "SHOP", "DEVICE": "mysql://x/y"}, "devices of the kind 'mysql' are not supported"),
    ],
)
def test_a_wrong_setting_is_named_in_a_sentence(file_database: dict[str, Any], setting: Any, sentence: str) -> None:
    for command in ("check", "qmadmin"):
        done = manage(file_database, command, setting=setting)
        assert done.returncode != 0
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr


def test_a_database_in_memory_is_refused(file_database: dict[str, Any]) -> None:
    done = manage(file_database | {"NAME": ":memory:"}, "check")
    assert done.returncode == 1
    assert "the database 'default' is in memory, where no device can be" in done.stderr


def test_a_database_whose_transactions_begin_late_is_warned_of(tmp_path: Path) -> None:
    program = """
import django
from django.conf import settings
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db"}},
    INSTALLED_APPS=["qmadmin.django"], QMADMIN={"SPACE": "SHOP"}, SECRET_KEY="not for production",
)
django.setup()
from django.core import checks
print(*((found.id, found.hint) for found in checks.run_checks() if found.id.startswith("qmadmin")))
"""
    environment = os.environ | {"PYTHONPATH": SOURCES}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path, env=environment
    )
    assert "qmadmin.W001" in done.stdout
    assert "'transaction_mode': 'IMMEDIATE'" in done.stdout
    assert list(tmp_path.iterdir()) == []
