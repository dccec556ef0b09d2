"""scripts/environment finds a Python and makes the virtual environment, or says in one line what is missing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ABLE = getattr(sys, "_base_executable", sys.executable)

CALLER = """
me=caller
root=$1
. "$root/scripts/environment"
environment runtime
echo "ready with $python"
"""


def call(root=ROOT, **settings):
    """Source the script as its callers do, with nothing in the environment but the settings."""
    return subprocess.run(
        ["/bin/sh", "-c", CALLER, "sh", root], env=settings, capture_output=True, text=True, check=False, timeout=240
    )


@pytest.fixture
def path(tmp_path):
    """Return a directory that is the whole PATH, and a function that puts a Python of the given behaviour in it."""
    directory = tmp_path / "bin"
    directory.mkdir()

    def add(name, script):
        (directory / name).write_text(f"#!/bin/sh\n{script}\n")
        (directory / name).chmod(0o755)

    return directory, add


@pytest.fixture
def checkout(tmp_path):
    """Return a checkout whose environment is only pretended to be made, which is quick."""
    scripts = tmp_path / "check out" / "scripts"
    scripts.mkdir(parents=True)
    (scripts / "environment").write_text((ROOT / "scripts" / "environment").read_text())
    (scripts / "make_venv.py").write_text(
        "import pathlib, sys\npathlib.Path(sys.argv[-1], 'bin').mkdir(parents=True)\nprint('made by', sys.executable)\n"
    )
    return scripts.parent


def assert_refused(done, *words):
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("caller: ")
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


def test_without_any_python_one_line_says_so(path):
    directory, _ = path
    assert_refused(call(PATH=str(directory)), "no Python was found", "3.11")


def test_an_old_python_is_named_with_its_version(path):
    directory, add = path
    add("python3", "echo old 3.9")
    assert_refused(call(PATH=str(directory)), "python3 is Python 3.9", "3.11 or newer")


def test_a_python_without_ensurepip_names_the_package_to_install(path, tmp_path):
    directory, add = path
    (tmp_path / "ensurepip.py").write_text("raise ImportError\n")
    add("python3", f"PYTHONPATH='{tmp_path}' exec '{ABLE}' \"$@\"")
    assert_refused(call(PATH=str(directory)), "no module ensurepip", "python3-venv")


def test_a_python_without_sqlite_is_refused(path, tmp_path):
    directory, add = path
    (tmp_path / "sqlite3.py").write_text("raise ImportError\n")
    add("python3", f"PYTHONPATH='{tmp_path}' exec '{ABLE}' \"$@\"")
    assert_refused(call(PATH=str(directory)), "without SQLite")


def test_a_named_python_that_does_not_run_is_refused(path):
    directory, add = path
    add("python3", f"exec '{ABLE}' \"$@\"")
    assert_refused(call(PATH=str(directory), PYTHON="/no/such/python"), "PYTHON=/no/such/python")


def test_a_name_that_only_prints_an_error_is_passed_over(path, checkout):
    directory, add = path
    add("python3", "echo 'no version is set' >&2; exit 127")
    add("python3.13", "echo old 3.10")
    add("python3.12", f"exec '{ABLE}' \"$@\"")
    done = call(checkout, PATH=str(directory))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"made by {ABLE}\nready with {checkout}/.venv/bin/python\n"


def test_a_place_that_cannot_be_written_is_named(path, tmp_path):
    directory, add = path
    add("python3", f"exec '{ABLE}' \"$@\"")
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "venv"
    assert_refused_at_the_end(call(PATH=str(directory), QM_VENV=str(place)), f"{tmp_path}/file", "QM_VENV")


def test_a_directory_with_other_things_in_it_is_left_alone(path, tmp_path):
    directory, add = path
    add("python3", f"exec '{ABLE}' \"$@\"")
    place = tmp_path / "home"
    place.mkdir()
    (place / "letter").write_text("dear")
    assert_refused(call(PATH=str(directory), QM_VENV=str(place)), str(place), "QM_VENV")
    assert [entry.name for entry in place.iterdir()] == ["letter"]


@pytest.mark.slow
def test_a_half_made_environment_is_made_again_and_a_missing_index_is_named(tmp_path):
    place = tmp_path / "half made"
    (place / "lib").mkdir(parents=True)
    (place / "lib" / "rubbish").touch()
    (place / ".qmadmin.json").write_text(json.dumps({"state": "making", "path": str(place), "made_here": True}))
    settings = {"PYTHON": ABLE, "QM_VENV": str(place), "PATH": os.defpath}
    done = call(**settings, PIP_NO_INDEX="1", PIP_CONFIG_FILE=os.devnull)
    assert_refused_at_the_end(done, "no package index")
    assert (place / "bin" / "python").exists()
    assert not (place / "lib" / "rubbish").exists()


def assert_refused_at_the_end(done, *words):
    """As assert_refused, after lines that say what was begun."""
    assert done.returncode == 2
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("caller: ")
    for word in words:
        assert word in last
