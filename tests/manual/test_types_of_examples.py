"""What the examples show passes the type checkers that teams use: mypy --strict, and pyright as it is by default."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fix_store import SOURCES
from tests.manual.example_files import lay_out
from tests.manual.test_pages import ROOT

pytestmark = pytest.mark.slow

SAMPLES = [ROOT / "scripts" / "qsample" / name for name in ("outbox.py", "transfer.py", "zope_orders.py")]
OTHERS = [ROOT / "scripts" / "examples", *SAMPLES]


def checked(*command: str, cwd: Path) -> str:
    """Return what a checker says about the files."""
    done = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, check=False, timeout=600, cwd=cwd
    )
    return done.stdout + done.stderr


def test_mypy_finds_nothing(tmp_path: Path) -> None:
    files = lay_out(tmp_path)
    said = checked("mypy", *map(str, [*files, *OTHERS]), cwd=ROOT)
    assert said.startswith("Success: no issues found"), said


def test_pyright_finds_nothing(tmp_path: Path) -> None:
    pytest.importorskip("basedpyright", reason="basedpyright is not installed")
    examples = tmp_path / "examples"
    lay_out(examples)
    settings = {
        "include": [str(examples), *map(str, OTHERS)],
        "extraPaths": SOURCES.split(":"),
        "typeCheckingMode": "standard",
        "pythonVersion": "3.11",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    said = checked("basedpyright", "-p", str(tmp_path), "--pythonpath", sys.executable, cwd=tmp_path)
    assert said.startswith("0 errors"), said
