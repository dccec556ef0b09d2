"""Starting costs little: the big libraries load only where they are needed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {"alembic", "prompt_toolkit", "rich", "sqlalchemy"}

STARTS = {
    "import qmadmin": "import qmadmin",
    "a capacity command": "import qmadmin.capacity.runner",
    "qmadmin --version": """
import sys
from qmadmin.program import main
sys.argv = ["qmadmin", "--version"]
sys.exit(main())
""",
}


def run_and_list_imports(code):
    """Run the code in a new interpreter; return what it printed and the top-level packages that it imported."""
    paths = [ROOT, ROOT / "core", ROOT / "storage"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return done.stdout, {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


@pytest.mark.parametrize("start", STARTS)
def test_start_loads_no_big_library(start):
    _, imported = run_and_list_imports(STARTS[start])
    assert "qmadmin" in imported
    assert not imported & HEAVY


def test_version_is_printed():
    from qmadmin.version import __version__

    printed, _ = run_and_list_imports(STARTS["qmadmin --version"])
    assert __version__ in printed


def test_what_processes_leave_to_each_other_is_packed_only_where_they_meet(tmp_path):
    made = f"create_device({str(tmp_path / 'QUE')!r}, 1000)"
    _, imported = run_and_list_imports(f"from qmadmin.opening import create_device\nwith {made}: pass")
    assert "sqlalchemy" in imported
    assert "msgpack" not in imported


def test_forwarder_loads_what_a_kind_of_service_needs_with_the_first_of_that_kind():
    kinds = "qmadmin.forwarder.program, qmadmin.forwarder.daemon, qmadmin.forwarder.python_service"
    _, imported = run_and_list_imports(f"import {kinds}, qmadmin.forwarder.command_service")
    assert "qmadmin" in imported
    assert not imported & {"asyncio", "urllib3"}
