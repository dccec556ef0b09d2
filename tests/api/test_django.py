"""A project of Django, tested by Django's own runner."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.fix_applications import database_of_django
from tests.fix_store import ROOT, SOURCES, device_path


@pytest.mark.parametrize("store", ["file", "postgres"])
def test_a_project_with_its_queues_in_its_database_passes_its_own_tests(store, request, tmp_path, memory_dir):
    database = database_of_django(device_path(store, request, tmp_path))
    # Django makes a database for its tests, and drops it.
    database["TEST"] = {"NAME": str(tmp_path / "SHOP") if store == "file" else f"shop_of_{database['NAME']}"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "django", "test", "--noinput", "tests.api.django_shop.shop_tests"],
        capture_output=True,
        check=False,
        text=True,
        cwd=ROOT,
        env=os.environ
        | {
            "DJANGO_SETTINGS_MODULE": "tests.api.django_shop.settings",
            "DJANGO_SHOP_DATABASE": json.dumps(database),
            "PYTHONPATH": SOURCES,
        },
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"Ran 10 tests in .*\n\nOK\n", done.stderr), done.stderr
