"""The HTML site is made, complete, needs nothing but its own files, and is read on a telephone and in the dark."""

import fcntl
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.manual import browser
from tests.manual.test_pages import PAGES, ROOT

NEEDED = "scripts/site installs what makes the site, the extra 'site'"
for module in ("furo", "myst_parser", "pypandoc"):
    pytest.importorskip(module, reason=NEEDED)
make_site = pytest.importorskip("make_site", reason=NEEDED)

pytestmark = pytest.mark.slow

RECORDED = ROOT / "tests" / "house" / "public_names.txt"
WIDTHS = (360, 1280)
LEAST_CONTRAST = 4.5
"""Of text to its ground, by the Web Content Accessibility Guidelines, AA."""

WIDTH_OF_PAGE = "document.documentElement.scrollWidth"
UNREADABLE = """
(() => {
  const parts = color => color.match(/[\\d.]+/g).map(Number);
  const ground = element => {
    for (let each = element; each; each = each.parentElement) {
      const found = parts(getComputedStyle(each).backgroundColor);
      if (found.length < 4 || found[3] == 1) return found;
    }
    return [255, 255, 255];
  };
  const light = color => {
    const [r, g, b] = color.map(x => (x /= 255) <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = new Map();
  for (const element of document.querySelectorAll("article *, .sidebar-tree *, footer *")) {
    const shown = [...element.childNodes].some(node => node.nodeType == 3 && node.data.trim());
    if (!shown || !element.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
    const [a, b] = [light(parts(getComputedStyle(element).color)), light(ground(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < LEAST) found.set(element.className || element.tagName, [contrast, element.textContent.slice(0, 30)]);
  }
  return Object.fromEntries(found);
})()
""".replace("LEAST", str(LEAST_CONTRAST))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, made once for all processes of pytest-xdist."""
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent
    made = place / "site"
    with (place / "site.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not made.exists():
            make(place / "unchecked").rename(made)
    return made


def make(directory: Path) -> Path:
    """Make the site in a directory, and return that."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "make_site.py"), str(directory)],
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return directory


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    """A browser for the tests of this file."""
    if browser.FOUND is None:
        pytest.skip("Chromium is not installed")
    with browser.browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


def test_site_has_all_pages(site: Path) -> None:
    made = {str(page.relative_to(site)) for page in site.rglob("*.html")}
    guides = {f"man/pages/{guide.stem}.html" for guide in (ROOT / "man" / "pages").glob("*.md")}
    assert made >= {"index.html", "search.html"} | guides | {f"man/{page.name}.html" for page in PAGES}
    start = (site / "index.html").read_text()
    assert [page for page in guides if page not in start] == []
    # A browser loads no data from the disk but scripts.
    assert (site / "searchindex.js").read_text().startswith("Search.setIndex(")


def test_api_has_all_names_that_users_rely_on(site: Path) -> None:
    there = {
        found for page in (site / "api").glob("*.html") for found in re.findall(r' id="([\w.]+)"', page.read_text())
    }
    recorded = RECORDED.read_text()
    names = set(re.findall(r"^python ([\w.]+)", recorded, re.MULTILINE))
    fixtures = {f"qmadmin.pytest_plugin.{name}" for name in re.findall(r"^fixture (\w+)", recorded, re.MULTILINE)}
    assert len(names) > 1000
    assert len(fixtures) > 2
    assert sorted(name for name in names | fixtures if name not in there and not _is_above(name, there)) == []


def _is_above(name: str, there: set[str]) -> bool:
    """Return whether a member is written about with the class that has it: one of ours, or of Python's."""
    path, _, member = name.rpartition(".")
    module, _, of = path.rpartition(".")
    found = getattr(sys.modules.get(module), of, None)
    if not isinstance(found, type):
        return False
    home = next(
        base for base in found.__mro__ if member in vars(base) or member in getattr(base, "__annotations__", ())
    )
    return not home.__module__.startswith("qm") or f"qmadmin.{home.__name__}.{member}" in there


def test_no_page_is_wider_than_the_screen_or_loads_from_elsewhere(site: Path, reader: browser.Browser) -> None:
    reader.requested.clear()
    wide = []
    for page in site.rglob("*.html"):
        reader.show(page.as_uri())
        for width in WIDTHS:
            reader.resize(width)
            wide += [f"{page.name} at {width}"] * (reader.evaluate(WIDTH_OF_PAGE) > width)
    assert wide == []
    assert len(reader.requested) > len(PAGES)
    assert [url for url in reader.requested if not url.startswith(("file:", "data:"))] == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_text_is_readable(site: Path, reader: browser.Browser, theme: str) -> None:
    pages = ["index.html", "search.html", "man/pages/python.html", "man/qmadmin.1.html", "api/qmadmin.testing.html"]
    for page in pages:
        reader.show((site / page).as_uri(), theme=theme)
        assert reader.evaluate(UNREADABLE) == {}, page


def test_search_finds_without_a_server(site: Path, reader: browser.Browser) -> None:
    reader.show(f"{(site / 'search.html').as_uri()}?q=parked")
    found = reader.evaluate(
        """new Promise(done => {
            const links = () => [...document.querySelectorAll("#search-results li a")].map(link => link.href);
            const said = () => document.querySelector(".search-summary")?.textContent ?? "";
            const look = () => said().startsWith("Search finished") ? done(links()) : setTimeout(look, 20);
            look();
        })"""
    )
    assert any("man/pages/error-queue.html" in link for link in found), found


def test_what_is_wrong_with_a_site_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a id="here" href="b.html">b</a> <a href="#here">a</a> <a href="#there">a</a>'
        '<script src="https://example.com/x.js"></script> <a href="https://example.com/">elsewhere</a>'
    )
    (tmp_path / "a.css").write_text('@import "//example.com/font.css"; a { background: url(picture.svg) }')
    assert sorted(make_site.problems_of(tmp_path)) == [
        "a.css: loads //example.com/font.css",
        "a.html: #there leads nowhere",
        "a.html: b.html leads nowhere",
        "a.html: loads https://example.com/x.js",
    ]


def test_what_cannot_be_read_is_noticed(tmp_path: Path, reader: browser.Browser) -> None:
    page = tmp_path / "a.html"
    page.write_text(
        '<meta name="viewport" content="width=device-width"><article><p style="color: #aaa">pale</p>'
        '<p>dark</p><pre style="width: 400px">wide</pre></article>'
    )
    reader.show(page.as_uri())
    assert list(reader.evaluate(UNREADABLE)) == ["P"]
    reader.resize(WIDTHS[0])
    assert reader.evaluate(WIDTH_OF_PAGE) > WIDTHS[0]
