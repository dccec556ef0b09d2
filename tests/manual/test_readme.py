"""The README does what it says, from top to bottom and in one place, as a newcomer would try it."""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest

from qmadmin.volume_makers import address_of
from tests.manual.test_examples import Reader, commands, matches
from tests.manual.test_pages import ROOT

README = ROOT / "README.md"
MOST_LINES = 200
ELSEWHERE = "postgresql://ann@db.example.com/shop?schema=queues"
"""The device on another machine, in whose place the tests have their own."""
_BLOCK = re.compile(r"^```(?P<kind>\w*)(?: (?P<name>\S+))?\n(?P<text>.*?)^```\n", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A piece of the page that is to be typed or written."""

    kind: str
    name: str
    text: str
    line: int


def blocks(page: str) -> Iterator[Block]:
    for found in _BLOCK.finditer(page):
        yield Block(found["kind"], found["name"] or "", found["text"], page.count("\n", 0, found.start()) + 1)


class Newcomer(Reader):
    """Somebody who types one example after the other into one shell."""

    def follow_page(self, page: str, called: str = README.name) -> None:
        """Write the files of the page and type its commands; each prints what the page shows."""
        for block in blocks(page):
            if block.name:
                file = self.directory / block.name
                file.parent.mkdir(exist_ok=True)
                file.write_text(block.text)
            elif block.kind == "console":
                for command, shown in commands(block.text):
                    if "| jq" in command and shutil.which("jq") is None:
                        continue
                    said = self.type(command)
                    assert matches(shown, said), f"{called}, line {block.line}: {command}{said}"

    def type(self, command: str) -> str:
        """Return what a command prints in a shell that knows the variables of those before."""
        kept = self.directory.parent / "variables"
        script = f"[ ! -e '{kept}' ] || . '{kept}'\n{command}status=$?\nexport -p >'{kept}'\nexit $status\n"
        return self.run("/bin/sh", "-c", f"set -a\n{script}")


class Learner(Newcomer):
    """A newcomer who also tries what is refused, and notes the exit status of that."""

    def type(self, command: str) -> str:
        return super().type(f'{command}[ $? = 0 ] || echo "[refused]"\n')


@pytest.mark.slow
def test_examples_do_what_the_page_shows_in_its_order(database_url: str, tmp_path: Path) -> None:
    address = address_of(database_url)
    assert address is not None
    page = README.read_text().replace(ELSEWHERE, database_url).replace("device queues", "device ...")
    page = page.replace("crdl queues", f"crdl {address.schema}")
    Newcomer(tmp_path).follow_page(page)


def test_page_is_short() -> None:
    assert len(README.read_text().splitlines()) <= MOST_LINES


def test_files_that_the_page_names_are_there() -> None:
    named = re.findall(r"\]\(([^)]+)\)|`(scripts/[\w./-]+)", README.read_text())
    assert [path for found in named for path in found if path and not (ROOT / path).exists()] == []
    assert len(named) > 8


def test_extras_are_installed_from_a_clone_and_there_are_such() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for path in (README, *(ROOT / "man").glob("*.in")):
        text = path.read_text().replace("\\(aq", "'").replace("\\-", "-")
        for what in re.findall(r"pip install ([^\n\"`#]+)", text):
            assert not what.startswith(("qmadmin", "'qmadmin")), f"{path.name}: {what}"
        assert set(re.findall(r"'\.\[(\w+)\]'", text)) <= set(extras)


@pytest.mark.slow
def test_pictures_are_drawn_by_programs_that_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "draw_pictures.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    for name, told in (("shell", "Queue &#x27;ORDERS&#x27; created"), ("qtop", "Drain")):
        drawn, kept = ((place / f"{name}.svg").read_text() for place in (tmp_path, ROOT / "scripts" / "pictures"))
        for picture in (drawn, kept):
            assert ET.fromstring(picture).tag.endswith("svg")
            assert told.replace("&#x27;", "'") in picture
