"""The first hour of somebody who has cloned the repository, typed into one shell of an environment of its own."""

import os
import shutil
from pathlib import Path

import pytest

from tests.fix_clone import run_as_stranger
from tests.manual.test_readme import README, Learner

HOUR = Path(__file__).with_name("newcomers_hour.md")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_every_command_of_the_hour_does_what_its_transcript_shows(clone, tmp_path, old_device):
    # It sets up the environment that is used from here on.
    demo = run_as_stranger(str(clone / "scripts" / "demo"), str(clone / "README.md"), cwd=tmp_path)
    assert "after: THIS IS A Q EXAMPLE" in demo.stdout
    place = tmp_path / "hour"
    place.mkdir()
    newcomer = Learner(place)
    newcomer.environ["PATH"] = os.pathsep.join([str(clone / ".venv" / "bin"), os.environ["PATH"]])
    newcomer.environ["QM_SHM_DIR"] = os.environ["QM_SHM_DIR"]
    del newcomer.environ["PYTHONPATH"]
    shutil.copytree(old_device.parent, newcomer.directory / "old", symlinks=True)
    newcomer.type(f"cd old && python3 - <<'!'\n{_MOVED.format(new=newcomer.directory / 'old')}!\n")
    # What comes behind it takes extras, which the demo has no need for.
    newcomer.follow_page(README.read_text().partition("## Several machines")[0])
    newcomer.follow_page(HOUR.read_text())


_MOVED = """
import sqlite3
connection = sqlite3.connect("QUE")
for index, name in enumerate(("QUE", "second")):
    connection.execute("UPDATE entry SET path = ? WHERE dlindex = ?", (f"{new}/{{name}}", index))
connection.commit()
"""
"""What chdl of release 0.1.0 did for a device that was moved."""
