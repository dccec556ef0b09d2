"""The first hour of somebody who has cloned the repository, typed into one shell of an environment of its own."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.fix_clone import run_as_stranger
from tests.manual.test_readme import README, Learner

HOUR = Path(__file__).with_name("newcomers_hour.md")
IN_PYTHON = Path(__file__).with_name("newcomers_hour_in_python.md")
TUTORIAL = README.parent / "man" / "pages" / "python.md"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_every_command_of_the_hour_does_what_its_transcript_shows(clone, tmp_path, old_device):
    # It sets up the environment that is used from here on.
    demo = run_as_stranger(str(clone / "scripts" / "demo"), str(clone / "README.md"), cwd=tmp_path)
    assert "after: THIS IS A Q EXAMPLE" in demo.stdout
    newcomer = newcomer_with(clone, tmp_path / "hour")
    shutil.copytree(old_device.parent, newcomer.directory / "old", symlinks=True)
    newcomer.type(f"cd old && python3 - <<'!'\n{_MOVED.format(new=newcomer.directory / 'old')}!\n")
    newcomer.follow_page(README_OF_THE_HOUR)
    newcomer.follow_page(HOUR.read_text())


def test_every_command_of_the_hour_in_python_does_what_its_transcript_shows(clone, tmp_path):
    # The Python of the tests is able to; the first in the PATH may be too old.
    run_as_stranger(f"{sys.base_prefix}/bin/python3", "-m", "venv", str(clone / ".venv"), cwd=clone)
    pip = str(clone / ".venv" / "bin" / "pip")
    # The tutorial tests its handler.
    run_as_stranger(pip, "install", "--quiet", ".[metrics]", "pytest", cwd=clone)
    newcomer = newcomer_with(clone, tmp_path / "hour")
    newcomer.follow_page(README_OF_THE_HOUR)
    for page in (TUTORIAL, IN_PYTHON):
        learner = newcomer_with(clone, tmp_path / page.stem)
        learner.follow_page(page.read_text(), page.name)


README_OF_THE_HOUR = README.read_text().partition("## Several machines")[0]
"""What comes behind it takes extras, which the hours have no need for."""


def newcomer_with(clone, place):
    """Return somebody who uses the environment of the clone."""
    place.mkdir()
    newcomer = Learner(place)
    newcomer.environ["PATH"] = os.pathsep.join([str(clone / ".venv" / "bin"), os.environ["PATH"]])
    newcomer.environ["QM_SHM_DIR"] = os.environ["QM_SHM_DIR"]
    del newcomer.environ["PYTHONPATH"]
    return newcomer


_MOVED = """
import sqlite3
connection = sqlite3.connect("QUE")
for index, name in enumerate(("QUE", "second")):
    connection.execute("UPDATE entry SET path = ? WHERE dlindex = ?", (f"{new}/{{name}}", index))
connection.commit()
"""
"""What chdl of release 0.1.0 did for a device that was moved."""
