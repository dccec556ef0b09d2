"""The manual pages: complete, consistent, and set well by both formatters."""

import re
import shutil
import subprocess
import tomllib

import pytest

from qmadmin import manual
from qmadmin.manual import programs
from qmcore.errors import QueueError, Resource
from tests.fix_shell import ROOT
from tests.manual import page_examples

PAGES = sorted(path for path in (ROOT / "man").iterdir() if re.fullmatch(r"\.\d", path.suffix))
SOURCES = [source if (source := page.with_name(f"{page.name}.in")).exists() else page for page in PAGES]


def name_of(page):
    return page.name


def titled(path):
    """Return a page as other pages and texts name it."""
    return f"{path.stem}({path.suffix[1:]})"


def formatted(page, width):
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-P-c", "-ww", f"-rLL={width}n", page],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return re.sub(r".\x08", "", done.stdout)


def section(page, title):
    """Return the lines of a section of a page's source."""
    found = re.search(rf'^\.SH "?{title}"?\n(.*?)(?=^\.SH|\Z)', page.read_text(), re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def references(text):
    return re.findall(r"^\.BR \\?([\w.-]+) \((\d)\)", text.replace("\\-", "-"), re.MULTILINE)


@pytest.mark.parametrize("kind", QueueError.by_name.values(), ids=lambda kind: kind.name)
def test_diagnostic_is_explained(kind):
    text = programs.diagnostics()
    entry = text[text.index(f"\\fB{kind.name}\\fR (\\-{-kind.number}), \\fB{kind.__name__}\\fR\n") :]
    entry = entry[: entry.index(".RE\n")]
    for told in (kind.__doc__, kind.causes, kind.remedy):
        assert told.endswith(".")
        assert manual.prose(told) in entry
    assert re.search(r"\\fItperrno\\fR\nTPE\w+", entry)


@pytest.mark.parametrize(
    ("name", "errnos"),
    [
        ("QMEINVAL", "TPEDIAGNOSTIC."),
        ("QMEBADRMID", "TPENOENT."),
        ("QMEABORTED", "TPEDIAGNOSTIC, TPETIME after the timeout of the transaction."),
        ("QMESYSTEM", "TPEDIAGNOSTIC, TPETIME where another program kept the file locked."),
    ],
)
def test_diagnostic_names_the_tperrno_that_the_calls_make_of_it(name, errnos):
    entry = programs.diagnostics().partition(f"\\fB{name}\\fR")[2]
    assert entry.partition("\\fItperrno\\fR\n")[2].startswith(f"{errnos}\n")


def test_each_resource_tells_what_helps():
    for resource in Resource:
        assert f"{manual.bold(resource.value)}\n{manual.prose(resource.remedy)}\n" in programs.resources()


def test_messages_have_the_numbers_of_the_catalogue_and_their_facts_in_italics():
    assert ".TP 6\n1216\nERROR: Queue creation failed for queue \\fIqueue\\fR\n" in programs.shell_messages()
    assert "\n1603\nWARN: \\-t option ignored as argument is too large" in programs.forwarder_messages()


def test_template_must_have_each_part_once():
    assert manual.filled('a\n.\\" @X@\nb\n', {"X": "x\n"}) == "a\nx\nb\n"
    for wrong in ("", '.\\" @X@\n.\\" @X@\n'):
        with pytest.raises(ValueError, match="@X@"):
            manual.filled(wrong, {"X": "x"})


@pytest.mark.parametrize("text", [".TP", "a\\b", "'quoted'", '`x` ^ ~ "y" -z', "...", "é"])
def test_escaped_text_comes_back(text):
    assert page_examples.plain(manual.escaped(text)) == text


@pytest.mark.parametrize("page", PAGES, ids=name_of)
@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_page_is_set_without_a_complaint_and_within_the_screen(page):
    text = formatted(page, 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "\\f" not in text
    assert not re.search(r"^ *\.[A-Z]{2}\b", text, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_prose_of_the_page_fits_a_narrow_screen(page, tmp_path):
    # Examples are what they are.
    without = re.sub(r"^\.(EX|nf)\n.*?^\.(EE|fi)$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    (tmp_path / page.name).write_text(without)
    assert max(map(len, formatted(tmp_path / page.name, 60).splitlines())) <= 60


@pytest.mark.parametrize("page", PAGES, ids=name_of)
@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_page_has_no_fault_that_mandoc_finds(page):
    # The pages bear no date; a blank line is part of some examples.
    done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", page], capture_output=True, text=True, check=False)
    found = [line for line in done.stdout.splitlines() if "missing date" not in line]
    assert (found, done.stderr) == ([], "")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_page_has_the_sections_that_a_reader_looks_for(page):
    titles = re.findall(r'^\.SH "?([A-Z ]+?)"?$', page.read_text(), re.MULTILINE)
    assert titles[0] == "NAME"
    assert "DESCRIPTION" in titles
    assert titles[-1] == "SEE ALSO"
    assert "EXAMPLES" in titles
    assert re.search(rf"^{re.escape(page.stem)}(, [\w.-]+)* \\- [a-z]", section(page, "NAME"), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_see_also_names_pages_that_there_are_in_their_order_and_all_that_the_text_names(page):
    listed = references(section(page, "SEE ALSO"))
    assert listed == sorted(listed, key=lambda found: (found[1], found[0]))
    ours = {(path.stem, path.suffix[1:]) for path in PAGES}
    everywhere = set(references(page.read_text()))
    assert {found for found in everywhere if found[0].startswith(("qm", "tm", "tp"))} <= ours
    assert (everywhere & ours) - {(page.stem, page.suffix[1:])} <= set(listed)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_page_is_named_by_another_one(page):
    assert any(
        (page.stem, page.suffix[1:]) in references(section(other, "SEE ALSO")) for other in PAGES if other != page
    )


@pytest.mark.parametrize("source", SOURCES, ids=name_of)
def test_every_example_is_marked_for_the_tests(source):
    assert page_examples.unmarked(source.read_text()) == []
    assert page_examples.examples(source.read_text())


def test_readme_and_changelog_name_every_page():
    for text in ((ROOT / "README.md").read_text(), (ROOT / "CHANGELOG.md").read_text()):
        assert [titled(page) for page in PAGES if titled(page) not in text] == []


def test_texts_of_the_programs_name_only_pages_that_there_are():
    known = {titled(page) for page in PAGES}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings["project"]["name"] == "qmadmin"
    for path in [*(ROOT / "qmadmin").rglob("*.py"), *(ROOT / "core").rglob("*.py"), ROOT / "README.md"]:
        named = set(re.findall(r"(?<![\w.])(?:qmadmin[\w.-]*|tmqforward|tpenqueue|tpdequeue)\(\d\)", path.read_text()))
        assert named <= known, path
