"""The HTML site is made, complete, and needs nothing but its own files."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.manual.test_pages import PAGES, ROOT

NEEDED = "scripts/site installs what makes the site, the extra 'site'"
for module in ("furo", "myst_parser", "pypandoc"):
    pytest.importorskip(module, reason=NEEDED)
make_site = pytest.importorskip("make_site", reason=NEEDED)

pytestmark = pytest.mark.slow


def test_site_has_all_pages_and_no_link_that_leads_nowhere_or_elsewhere(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "make_site.py"), str(tmp_path / "made")],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    made = {str(page.relative_to(tmp_path / "made")) for page in (tmp_path / "made").rglob("*.html")}
    guides = {f"man/pages/{guide.stem}.html" for guide in (ROOT / "man" / "pages").glob("*.md")}
    assert made >= {"index.html", "search.html", "api.html"} | guides | {f"man/{page.name}.html" for page in PAGES}
    start = (tmp_path / "made" / "index.html").read_text()
    assert [page for page in guides if page not in start] == []
    # A browser loads no data from the disk but scripts.
    assert (tmp_path / "made" / "searchindex.js").read_text().startswith("Search.setIndex(")


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
