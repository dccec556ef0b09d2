"""A stranger builds from a clone what the repository promises; what is installed, test_newcomers_hour.py works with."""

import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from qmadmin.version import __version__
from tests.fix_clone import run_as_stranger as run

MAN_PAGES = [
    "man1/qmadmin-run.1",
    "man1/qmadmin.1",
    "man1/qmspark.1",
    "man3/tpdequeue.3",
    "man3/tpenqueue.3",
    "man5/qmadmin-archive.5",
    "man5/qmadmin-mib.5",
    "man5/qmadmin.toml.5",
    "man7/qmadmin-diagnostics.7",
    "man7/qmadmin-queue.7",
    "man8/tmqforward.8",
]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def gives_working_commands_and_man_pages(venv, elsewhere):
    """See to it that an environment that pip has installed a clone into gives all; return where the packages lie."""
    elsewhere.mkdir()

    assert __version__ in run(str(venv / "bin" / "qmadmin"), "--version", cwd=elsewhere).stdout
    assert "qmspark" in run(str(venv / "bin" / "qmspark"), "--help", cwd=elsewhere).stdout
    assert "tmqforward" in run(str(venv / "bin" / "tmqforward"), "--help", cwd=elsewhere).stdout
    for page in MAN_PAGES:
        assert (venv / "share" / "man" / page).is_file()

    device, commands = elsewhere / "device", elsewhere / "commands"
    commands.write_text(f"crdl {device} 0 100\nlidl\n")
    assert str(device) in run(str(venv / "bin" / "qmadmin"), "-f", str(commands), str(device), cwd=elsewhere).stdout
    assert device.is_file()

    # The texts of the statements were compiled for both stores, and programs do without SQLAlchemy.
    lists = f"import sys, qmadmin.program; qmadmin.program.main([{str(device)!r}, '-c', 'lidl'])"
    asked = "print('sqlalchemy' in sys.modules, *sorted(each.name for each in here.glob('*.json')))"
    told = run(
        str(venv / "bin" / "python"),
        "-c",
        f"{lists}\nimport pathlib, qmstorage.texts as texts\nhere = pathlib.Path(texts.__file__).parent\n{asked}",
        cwd=elsewhere,
    )
    assert told.stdout.splitlines()[-1] == "False texts-postgresql.json texts-sqlite.json"

    code = "import qmadmin, qmcore, qmstorage; print(qmadmin.__file__, qmcore.__file__, qmstorage.__file__, sep='\\n')"
    places = run(str(venv / "bin" / "python"), "-c", code, cwd=elsewhere).stdout.splitlines()
    return [Path(place).parent.parent for place in places]


def test_wheel_and_sdist_hold_what_they_should(clone, tmp_path):
    def build(kind, source, into):
        run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(into), cwd=source)
        (made,) = into.iterdir()
        return made

    sdist = build("sdist", clone, tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    expected = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"}
    expected |= {".ci", "qmadmin", "core", "storage", "tests", "man", "scripts", "PKG-INFO"}
    assert {entry.name for entry in unpacked.iterdir()} - {".gitignore"} == expected

    def names(wheel):
        with zipfile.ZipFile(wheel) as archive:
            return set(archive.namelist())

    from_sdist = names(build("wheel", unpacked, tmp_path / "wheel from sdist"))
    from_clone = names(build("wheel", clone, tmp_path / "wheel"))
    assert from_clone == from_sdist

    sources = set()
    for base, package in ((clone, "qmadmin"), (clone / "core", "qmcore"), (clone / "storage", "qmstorage")):
        files = (path for path in (base / package).rglob("*") if path.is_file() and path.parent.name != "__pycache__")
        sources |= {str(path.relative_to(base)) for path in files}
    # Only who has the sources works on them.
    sources -= {"qmadmin/README.md"}
    others = {name for name in from_clone if ".dist-info/" not in name and ".data/" not in name}
    assert others == sources
    assert any(name.startswith("qmstorage/migrations/") for name in others)
    pages = {name.partition("/share/man/")[2] for name in from_clone if "/share/man/" in name}
    assert pages == set(MAN_PAGES)
