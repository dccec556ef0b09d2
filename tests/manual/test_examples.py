"""The examples of the manual pages do what the pages say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.manual.page_examples import PageExample, examples
from tests.manual.test_pages import ROOT, SOURCES, name_of

PROGRAMS = {
    "qmadmin": "-m qmadmin.program",
    "qmspark": "-m qmadmin.spark.program",
    "tmqforward": "-m qmadmin.forwarder.program",
    "python3": "",
    # An installation names the plugin to pytest; a checkout need not be installed.
    "pytest": "-m pytest -p qmadmin.pytest_plugin",
}


class Reader:
    """Somebody who does what a page shows, in a directory of their own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "work"
        self.directory.mkdir()
        programs = directory / "bin"
        programs.mkdir()
        for name, arguments in PROGRAMS.items():
            (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
            (programs / name).chmod(0o755)
        memory = directory / "memory"
        memory.mkdir()
        self.environ = {
            "HOME": str(directory),
            "LANG": "C.UTF-8",
            "PATH": os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)]),
            "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("", "core", "storage")),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "QM_SHM_DIR": str(memory),
            "TZ": "UTC",
        }
        self.said = ""

    def follow(self, example: PageExample) -> None:
        """Do what an example shows."""
        match example.kind:
            case "setup" | "sh":
                self.said = self.run("/bin/sh", "-ec", example.text)
            case "python":
                self.said = self.run("python3", "-c", example.text)
            case "file":
                (self.directory / example.name).write_text(example.text)
            case "output":
                assert matches(example.text, self.said), self.said
            case "dialogue":
                # What a session shows is what a script with echo on repeats.
                start, *lines = example.typed
                script = "\n".join(["echo on", *lines])
                said = self.run("/bin/sh", "-ec", f"{start} <<'!'\n{script}\n!\n")
                shown = example.text.partition("\n")[2]
                assert matches(shown, re.sub(r"\A(> echo on\n)?Echo mode is now on\n", "", said)), said
            case "session":
                steps = commands(example.text)
                mark = "-- that was all --"
                script = "".join(f"{command}echo '{mark}'\n" for command, _ in steps)
                said = self.run("/bin/sh", "-c", script).split(f"{mark}\n")
                assert len(said) == len(steps) + 1
                for (command, shown), printed in zip(steps, said[:-1], strict=True):
                    assert matches(shown, printed), f"{command}{printed}"

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            cwd=self.directory,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=900,
        )
        assert "Traceback" not in done.stdout, done.stdout
        assert done.returncode == 0, done.stdout
        return done.stdout


def commands(text: str) -> list[tuple[str, str]]:
    """Return the commands of a session, and what each prints."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
    assert parts[0] == ""
    found = [re.match(r"([^\n]*\n(?:> [^\n]*\n)*)(.*)", part, re.DOTALL) for part in parts[1:]]
    return [(re.sub(r"^> ", "", match[1], flags=re.MULTILINE), match[2]) for match in found if match]


def matches(shown: str, said: str) -> bool:
    """Return whether a text is what a page shows; `...` in it stands for anything."""
    # A line that is too long for the page is broken where a blank was.
    pattern = ".*?".join(re.sub(r"(\\ |\\\n)+", r"\\s+", re.escape(part)) for part in shown.split("..."))
    return re.fullmatch(pattern, said, re.DOTALL) is not None


@pytest.mark.parametrize("source", SOURCES, ids=name_of)
def test_examples_of_the_page_do_what_it_shows(source: Path, tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for example in examples(source.read_text()):
        try:
            reader.follow(example)
        except AssertionError as error:
            pytest.fail(f"{source.name}, line {example.line}: {error}")


def test_output_that_differs_is_noticed() -> None:
    assert matches("a ... c\n", "a b c\n")
    assert not matches("a ... c\n", "a b d\n")
    assert not matches("a\n", "a\nb\n")
    assert matches("a\nb c\n", "a b c\n")
    assert not matches("a bc\n", "a b c\n")


def test_a_mark_without_an_example_is_refused() -> None:
    for page in ('.\\" example: sh\n.PP\n', '.\\" example: perl\n.EX\n.EE\n'):
        with pytest.raises(ValueError, match="line 1"):
            examples(page)


def test_example_says_what_it_is_and_roff_is_taken_away() -> None:
    page = '.PP\n.\\" setup: cd x\n.\\" setup: ls\n.\\" example: file a.toml\n.EX\na \\- \\(aqb\\(aq\n.EE\n'
    assert examples(page) == [
        PageExample("setup", "", "cd x\nls\n", 2),
        PageExample("file", "a.toml", "a - 'b'\n", 5),
    ]
