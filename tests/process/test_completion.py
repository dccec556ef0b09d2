"""What shells complete behind the names of the programs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fix_shell import ROOT

PROGRAMS = ("qmadmin", "qmspark", "tmqforward")
MODULES = {
    "qmadmin": "qmadmin.program",
    "qmspark": "qmadmin.spark.program",
    "tmqforward": "qmadmin.forwarder.program",
}


@pytest.fixture
def on_path(laid_out):
    """The environment of a shell that finds the programs of this checkout."""
    for name, module in MODULES.items():
        program = laid_out.directory / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    return laid_out.environ | {"PATH": f"{laid_out.directory / 'bin'}:{os.environ['PATH']}"}


def offered(environ, program, *words):
    """Return what bash offers for the last word."""
    script = f"""
        source {ROOT}/scripts/completion/{program}.bash
        compopt() {{ COMPREPLY+=("(files)"); }}
        COMP_WORDS=({program} "$@"); COMP_CWORD=$#
        _{program}_completion {program}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", script, "bash", *words],
        env=environ,
        cwd=Path(environ["HOME"]),
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


@pytest.mark.parametrize(
    ("program", "words", "found"),
    [
        ("qmadmin", ["--form"], ["--format"]),
        ("qmadmin", ["QUE", "--format", "c"], ["csv"]),
        ("qmadmin", ["-s", "Q"], ["QSPACE"]),
        ("qmadmin", ["QUE", "-s", ""], ["QSPACE"]),
        ("qmadmin", ["absent", "-s", ""], [""]),
        ("qmadmin", ["Q"], ["(files)"]),
        ("qmadmin", ["-f", ""], ["(files)"]),
        ("tmqforward", ["--onc"], ["--once"]),
        ("qmspark", ["expo"], ["export"]),
    ],
)
def test_bash_completes_options_and_values(on_path, program, words, found):
    assert offered(on_path, program, *words) == found


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(
    ("program", "line", "found"),
    [
        ("qmadmin", "--form", "--format"),
        ("qmadmin", "QUE -s Q", "QSPACE"),
        ("tmqforward", "--onc", "--once"),
        ("qmspark", "expo", "export"),
    ],
)
def test_fish_completes_options_and_values(on_path, program, line, found):
    script = f"source {ROOT}/scripts/completion/{program}.fish; complete -C '{program} {line}'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", script],
        env=on_path,
        cwd=Path(on_path["HOME"]),
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    assert done.stderr == ""
    assert [shown.partition("\t")[0] for shown in done.stdout.splitlines()] == [found]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(("kind", "file"), [("zsh", "_{}"), ("fish", "{}.fish"), ("bash", "{}.bash")])
def test_program_writes_what_its_file_asks_for(on_path, program, kind, file):
    written = (ROOT / "scripts" / "completion" / file.format(program)).read_text(encoding="utf-8")
    variable = f"_{program.upper()}_COMPLETE"
    assert f"{variable}={kind}_source {program}" in written
    source = subprocess.run(
        [program], env=on_path | {variable: f"{kind}_source"}, capture_output=True, text=True, check=True, timeout=240
    ).stdout
    assert f"_{program}_completion" in source
    assert f"_{program}_completion" in written or kind != "zsh"


def test_files_are_installed_where_shells_look():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for program in PROGRAMS:
        assert f'"scripts/completion/{program}.bash" = "share/bash-completion/completions/{program}"' in project
        assert f'"scripts/completion/_{program}" = "share/zsh/site-functions/_{program}"' in project
        assert f'"scripts/completion/{program}.fish" = "share/fish/vendor_completions.d/{program}.fish"' in project
