"""What a reader of the repository may rely on."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = [ROOT / "qmadmin", ROOT / "core" / "qmcore", ROOT / "storage" / "qmstorage"]

# Around 400 lines is where to look for the seam; here the search ends.
MOST_LINES = 450


def run(*command):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(package.parent) for package in PACKAGES)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=240)


def test_floors_hold():
    done = run(Path(sys.executable).with_name("lint-imports"), "--no-cache")
    assert done.returncode == 0, done.stdout + done.stderr


def test_man_pages_are_current():
    done = run(sys.executable, "scripts/make_man.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_man_page_is_installed_in_its_section():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    installed = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    pages = [path for path in (ROOT / "man").iterdir() if re.fullmatch(r"\.\d", path.suffix)]
    of_man = {source: place for source, place in installed.items() if source.startswith("man/")}
    assert of_man == {f"man/{page.name}": f"share/man/man{page.suffix[1:]}/{page.name}" for page in pages}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_every_package_ships_its_types(package):
    assert (package / "py.typed").is_file()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_no_module_is_too_long_to_read(package):
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in package.rglob("*.py")}
    assert lengths
    assert {path: length for path, length in lengths.items() if length > MOST_LINES} == {}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_code_decides_by_attributes_of_errors_and_not_by_strings_among_their_facts(package):
    looked_up = re.compile(r"\w*(error|refusal|failure|told)\w*\.facts(\[|\.get\(|\.pop\()|\bin \w+\.facts\b")
    assert not [path for path in package.rglob("*.py") if looked_up.search(path.read_text())]


def test_rows_of_messages_are_deleted_by_one_piece():
    storage = ROOT / "storage" / "qmstorage"
    deletes = re.compile(r"delete\(message\)|DELETE\s+FROM\s+\S*message\b", re.IGNORECASE)
    found = [path for kind in ("py", "sql") for path in storage.rglob(f"*.{kind}") if deletes.search(path.read_text())]
    assert found == [storage / "rows.py"]


def test_changelog_has_a_place_for_the_unreleased():
    assert re.search(r"^## \[Unreleased\]$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("script", ["check", "demo", "environment", "site", "test"])
def test_scripts_are_valid_for_any_posix_shell(script):
    done = run("sh", "-n", f"scripts/{script}")
    assert (done.returncode, done.stderr) == (0, "")


def test_ci_script_is_valid():
    done = run("bash", "-n", ".ci/run")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("script", ["scripts/check", "scripts/demo", "scripts/site", "scripts/test", ".ci/run"])
def test_scripts_can_be_called(script):
    assert (ROOT / script).stat().st_mode & 0o111 == 0o111
