"""The page of each floor: its picture is what is imported, what it names is there, and it is short enough to read."""

import re
from functools import cache
from itertools import chain

import pytest

from tests.house.rooms import (
    PACKAGES,
    ROOT,
    arrows_of,
    circles_in,
    empty_patterns,
    imports_between,
    modules_of,
    picture_in,
    without_rooms,
)

PAGES = {
    "qmcore": ROOT / "core" / "README.md",
    "qmstorage": ROOT / "storage" / "README.md",
    "qmadmin": ROOT / "qmadmin" / "README.md",
    "tests": ROOT / "tests" / "README.md",
}
LENGTH = range(100, 151)
MOST_FILES = 5
SUBJECTS = ("queue attribute", "command", "rule", "verdict", "error", "setting")
"""What somebody may want to add, of which each page says which files to open."""

PATH = re.compile(r"[\w.*@-]+/[\w.*/@-]*|[\w*-]+\.(?:py|md|sql|toml|txt|json|in)")
NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*(?:\(\))?")

each_page = pytest.mark.parametrize("package", PAGES)


def page_of(package):
    return PAGES[package].read_text()


def spans_of(text):
    """Return what the text of a page sets as code within its sentences."""
    sentences = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", re.sub(r"^    .*$", "", sentences, flags=re.MULTILINE))


def is_there(path, package):
    places = (PAGES[package].parent, PACKAGES[package], ROOT, ROOT / "core", ROOT / "storage")
    return any(next(place.glob(path.strip("/")), None) for place in places)


@cache
def words_of_the_code():
    files = (path for each in PACKAGES for path in modules_of(each).values())
    others = (PACKAGES["qmstorage"].rglob("*.sql"), (ROOT / "scripts").rglob("*.py"), [ROOT / "pyproject.toml"])
    return {word for path in chain(files, *others) for word in re.findall(r"\w+", path.read_text())}


def rows_of(text):
    """Return the rows of the table that says what to open: what is added, and the files."""
    (table,) = re.findall(r"^## To add\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    return rows[2:]


@each_page
def test_a_page_is_read_in_a_few_minutes(package):
    assert len(page_of(package).splitlines()) in LENGTH


@each_page
def test_each_module_is_in_a_room_of_the_picture(package):
    picture = picture_in(page_of(package))
    assert without_rooms(package, picture) == []
    assert empty_patterns(package, picture) == []


@each_page
def test_the_arrows_of_the_picture_are_the_imports(package):
    picture = picture_in(page_of(package))
    graph = imports_between(package, picture.rooms)
    assert circles_in(graph) == []
    imported = arrows_of(graph)
    assert {"missing": imported - picture.arrows, "wrong": picture.arrows - imported} == {
        "missing": set(),
        "wrong": set(),
    }


@each_page
def test_files_that_a_page_names_are_there(package):
    named = {span for span in spans_of(page_of(package)) if PATH.fullmatch(span)}
    linked = set(re.findall(r"\]\(([^)#:]+)\)", page_of(package)))
    assert named
    assert [path for path in sorted(named | linked) if not is_there(path, package)] == []


@each_page
def test_names_that_a_page_uses_are_in_the_code(package):
    named = [span for span in spans_of(page_of(package)) if NAME.fullmatch(span) and not PATH.fullmatch(span)]
    unknown = {name for name in named if not words_of_the_code().issuperset(re.findall(r"\w+", name))}
    assert unknown == set()


@each_page
def test_a_page_says_what_to_open_for_each_thing_that_is_added(package):
    rows = rows_of(page_of(package))
    first_cells = [row[0].lower() for row in rows]
    assert [subject for subject in SUBJECTS if not any(subject in cell for cell in first_cells)] == []
    opened = {row[0]: [span for cell in row[1:] for span in spans_of(cell) if PATH.fullmatch(span)] for row in rows}
    assert {what: files for what, files in opened.items() if not 1 <= len(files) <= MOST_FILES} == {}


def test_the_readme_leads_to_the_page_of_each_floor():
    readme = (ROOT / "README.md").read_text()
    links = set(re.findall(r"\]\(([^)]+)\)", readme[readme.index("## Work on it") :]))
    assert links >= {str(page.relative_to(ROOT)) for page in PAGES.values()}
