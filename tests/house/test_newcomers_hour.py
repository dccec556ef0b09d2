"""What is installed from a clone works, editable and not; each environment is then that of somebody's first hour.

The hour is typed into one shell.
"""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.fix_clone import run_as_stranger
from tests.house.test_fresh_clone import gives_working_commands_and_man_pages
from tests.manual.test_readme import README, Learner

HOUR = Path(__file__).with_name("newcomers_hour.md")
IN_PYTHON = Path(__file__).with_name("newcomers_hour_in_python.md")
TUTORIAL = README.parent / "man" / "pages" / "python.md"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_one_command_shows_the_main_job_and_every_command_of_the_hour_does_what_its_transcript_shows(
    clone, tmp_path, old_device
):
    # It sets up the environment that is used from here on, editable.
    shows_the_main_job(clone, tmp_path)
    places = gives_working_commands_and_man_pages(clone / ".venv", tmp_path / "elsewhere")
    assert places == [clone, clone / "core", clone / "storage"]
    newcomer = newcomer_with(clone, tmp_path / "hour")
    shutil.copytree(old_device.parent, newcomer.directory / "old", symlinks=True)
    newcomer.type(f"cd old && python3 - <<'!'\n{_MOVED.format(new=newcomer.directory / 'old')}!\n")
    newcomer.follow_page(README_OF_THE_HOUR)
    newcomer.follow_page(HOUR.read_text())

    shows_a_text_of_the_caller(clone, tmp_path)


def test_every_command_of_the_hour_in_python_does_what_its_transcript_shows(clone, tmp_path):
    # The Python of the tests is able to; the first in the PATH may be too old.
    run_as_stranger(f"{sys.base_prefix}/bin/python3", "-m", "venv", str(clone / ".venv"), cwd=clone)
    pip = str(clone / ".venv" / "bin" / "pip")
    # The tutorial tests its handler.
    run_as_stranger(pip, "install", "--quiet", ".[metrics]", "pytest", cwd=clone)
    (home,) = set(gives_working_commands_and_man_pages(clone / ".venv", tmp_path / "elsewhere"))
    assert home.is_relative_to(clone / ".venv")
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


def shows_the_main_job(clone, place):
    """The demonstration makes an environment, runs the sample and takes a long text through queues."""
    (place / "temporary").mkdir()
    done = run_as_stranger(str(clone / "scripts" / "demo"), "--keep", cwd=place, TMPDIR=str(place / "temporary"))
    assert "making a virtual environment" in done.stderr
    assert "after: THIS IS A Q EXAMPLE" in done.stdout
    count = int(re.search(r"^lines     (\d+)$", done.stdout, re.MULTILINE)[1])
    assert count >= 10_000
    assert f"replies   {count}: 0 lost, 0 doubled, 0 wrong" in done.stdout
    kept = Path(re.search(r"everything is in (.*)$", done.stdout)[1])
    assert {path.name for path in kept.iterdir()} == {"sample", "lines", "move"}
    assert (kept / "sample" / "QUE").exists()
    assert (kept / "lines" / "QUE").stat().st_size < 20_000_000


def shows_a_text_of_the_caller(clone, place):
    """It does so again in no time, and in a clone that was moved with an environment that is made anew."""
    text = place / "a text"
    text.write_text("one\ntwo\n")
    again = run_as_stranger(str(clone / "scripts" / "demo"), str(text), cwd="/")
    clone.rename(place / "moved")
    moved = run_as_stranger("moved/scripts/demo", text.name, cwd=place)
    for done in (again, moved):
        assert "after: THIS IS A Q EXAMPLE" in done.stdout
        assert "replies   2: 0 lost, 0 doubled, 0 wrong" in done.stdout
    assert "virtual environment" not in again.stderr
    assert "making a virtual environment" in moved.stderr


_MOVED = """
import sqlite3
connection = sqlite3.connect("QUE")
for index, name in enumerate(("QUE", "second")):
    connection.execute("UPDATE entry SET path = ? WHERE dlindex = ?", (f"{new}/{{name}}", index))
connection.commit()
"""
"""What chdl of release 0.1.0 did for a device that was moved."""
