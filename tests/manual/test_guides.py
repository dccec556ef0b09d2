"""The tutorials and the how-tos do what they say, each from top to bottom in a directory of its own."""

import re
from pathlib import Path

import pytest

from qmadmin.volume_makers import address_of
from tests.manual.test_pages import PAGES, ROOT, name_of, titled
from tests.manual.test_readme import ELSEWHERE, Learner, blocks

GUIDES = sorted((ROOT / "man" / "pages").glob("*.md"))
ON_POSTGRESQL = ROOT / "man" / "pages" / "machines.md"
MOST_LINES = 150
MAN_PAGES = {titled(page) for page in PAGES}

each_guide = pytest.mark.parametrize("guide", GUIDES, ids=name_of)


@pytest.mark.parametrize("guide", [guide for guide in GUIDES if guide != ON_POSTGRESQL], ids=name_of)
def test_examples_do_what_the_guide_shows_in_its_order(guide: Path, tmp_path: Path) -> None:
    Learner(tmp_path).follow_page(guide.read_text(), guide.name)


def test_examples_do_what_the_guide_to_postgresql_shows(database_url: str, tmp_path: Path) -> None:
    address = address_of(database_url)
    assert address is not None
    page = ON_POSTGRESQL.read_text().replace(ELSEWHERE, database_url).replace("crdl queues", f"crdl {address.schema}")
    Learner(tmp_path).follow_page(page, ON_POSTGRESQL.name)


@each_guide
def test_a_guide_is_read_in_a_few_minutes(guide: Path) -> None:
    lines = guide.read_text().splitlines()
    assert lines[0].startswith("# ")
    assert len(lines) <= MOST_LINES


@each_guide
def test_files_that_a_guide_names_are_there(guide: Path) -> None:
    text = guide.read_text()
    linked = [guide.parent / path for path in re.findall(r"\]\(([^)#:]+)\)", text)]
    named = [ROOT / path for path in re.findall(r"`(scripts/[\w./-]+)`", text)]
    assert [path for path in linked + named if not path.exists()] == []


@each_guide
def test_man_pages_that_a_guide_names_are_there(guide: Path) -> None:
    assert set(re.findall(r"\b[\w.-]+\([1-8]\)", guide.read_text())) - {"crontab(5)"} <= MAN_PAGES


@each_guide
def test_what_a_guide_shows_is_tried(guide: Path) -> None:
    shown = {block.kind for block in blocks(guide.read_text()) if not block.name}
    assert shown <= {"console", "text"}
