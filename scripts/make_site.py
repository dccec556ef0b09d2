#!/usr/bin/env python3
"""Make the HTML site of the README, the guides, the man pages and the API.

make_site.py [DIRECTORY]    make it in the directory, by default site/

Sphinx makes it, from the Markdown of the README and the guides, the man pages as Pandoc reads them, and the docstrings
of what qmadmin exports. The status is 1 if a link leads nowhere or a page would load anything from elsewhere.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pypandoc
from sphinx.application import Sphinx

import qmadmin

ROOT = Path(__file__).resolve().parent.parent
FIGURES = "scripts/benchmarks/recorded/README.md"
GUIDES = {
    "Tutorials": ("python", "administrator"),
    "How to": ("outbox-sqlalchemy", "outbox-django", "from-cron", "error-queue", "moving", "machines", "sizing"),
    "Compared": ("coming-from", "beside"),
}
SETTINGS = {
    "project": "qmadmin",
    "extensions": ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"],
    "html_theme": "furo",
    "html_title": "qmadmin",
    "html_copy_source": False,
    # The summaries are fetched, which no browser does from a file.
    "html_show_search_summary": False,
    "html_show_sphinx": False,
    "autodoc_typehints": "signature",
    "autodoc_member_order": "alphabetical",
    # What a terminal shows is not what a lexer of shells expects.
    "suppress_warnings": ["misc.highlighting_failure", "myst.header"],
    "exclude_patterns": [],
}
LOADED = {"audio": "src", "iframe": "src", "img": "src", "link": "href", "script": "src", "source": "src"}


def main() -> int:
    """Make the site and check it."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", metavar="DIRECTORY", nargs="?", type=Path, default=ROOT / "site")
    site = parser.parse_args().directory
    with tempfile.TemporaryDirectory() as place:
        source = Path(place, "source")
        lay_out(source)
        Sphinx(
            source, None, site, Path(place, "doctrees"), "html", confoverrides=SETTINGS, status=None, freshenv=True
        ).build()
    problems = sorted(set(problems_of(site)))
    print(*problems, f"{site}: {len(problems)} problems", sep="\n")
    return 1 if problems else 0


def lay_out(source: Path) -> None:
    """Write the sources of the pages, in the folders that they have in the repository."""
    manual = sorted(path for path in (ROOT / "man").iterdir() if re.fullmatch(r"\.\d", path.suffix))
    chapters = {title: [f"man/pages/{name}" for name in names] for title, names in GUIDES.items()}
    chapters["Reference"] = [f"man/{page.name}" for page in manual] + ["api", FIGURES.removesuffix(".md")]
    pages = {ROOT / "README.md": source / "index.md", ROOT / FIGURES: source / FIGURES}
    pages |= {path: source / path.relative_to(ROOT) for path in (ROOT / "man" / "pages").glob("*.md")}
    for path, target in pages.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(markdown(path, set(pages)))
    with (source / "index.md").open("a") as index:
        for title, names in chapters.items():
            index.write("\n".join(["", "```{toctree}", ":hidden:", f":caption: {title}", "", *names, "```", ""]))
    for picture in (ROOT / "scripts").rglob("*.svg"):
        target = source / picture.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, target)
    for page in manual:
        (source / "man" / f"{page.name}.rst").write_text(manual_page(page, {other.name for other in manual}))
    (source / "api.rst").write_text(api())


def markdown(path: Path, pages: set[Path]) -> str:
    """Return a page with links to what the site has, and with the names of its files above them."""

    def link(found: re.Match[str]) -> str:
        target = (path.parent / found[2]).resolve()
        if target == ROOT / "README.md":
            return f"[{found[1]}]({found[2].removesuffix('README.md')}index.md)"
        return found[0] if target in pages or target.suffix == ".svg" or "://" in found[2] else found[1]

    text = re.sub(r"\[([^\]]*)\]\(([^)]+)\)", link, path.read_text())
    return re.sub(r"^```(\w+) (\S+)$", r"```{code-block} \1\n:caption: \2\n", text, flags=re.MULTILINE)


def manual_page(page: Path, names: set[str]) -> str:
    """Return a man page in reStructuredText, under its name and with links to the others."""

    def link(found: re.Match[str]) -> str:
        name = f"{found[1]}.{found[2]}"
        return f":doc:`{found[1]}({found[2]}) </man/{name}>`" if name in names else found[0]

    title = f"{page.stem}({page.suffix[1:]})"
    text = pypandoc.convert_file(str(page), "rst", format="man")
    linked = re.sub(r"\*\*([\w.-]+)\*\*\\ \((\d)\)", link, text)
    return f"{title}\n{'#' * len(title)}\n\n{linked}"


def api() -> str:
    """Return the page of what qmadmin exports."""
    parts = ["Python API\n==========\n\nWhat ``import qmadmin`` gives; tpenqueue(3) and tpdequeue(3) say more.\n"]
    for name in sorted(qmadmin.__all__):
        kind = "autoclass" if isinstance(getattr(qmadmin, name), type) else "autofunction"
        if callable(getattr(qmadmin, name)):
            parts.append(f".. {kind}:: qmadmin.{name}\n" + "   :members:\n" * (kind == "autoclass"))
    return "\n".join(parts)


class Links(HTMLParser):
    """What a page names, what it loads, and what it can be linked at."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.linked: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the links of a tag."""
        values = {name: value for name, value in attrs if value}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag in LOADED and LOADED[tag] in values:
            self.loaded.append(values[LOADED[tag]])
        elif tag == "a" and "href" in values:
            self.linked.append(values["href"])


def problems_of(site: Path) -> Iterator[str]:
    """Yield a line for each link of a site that leads nowhere, and for all that it loads from elsewhere."""
    pages = {page.resolve(): Links(page) for page in site.rglob("*.html")}
    for page, links in pages.items():
        yield from (f"{page.name}: loads {url}" for url in links.loaded if urlsplit(url).netloc)
        for url in links.linked + links.loaded:
            parts = urlsplit(url)
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if parts.scheme or parts.netloc:
                continue
            if not target.exists() or (parts.fragment and target in pages and not _has(pages[target], parts.fragment)):
                yield f"{page.name}: {url} leads nowhere"
    for sheet in site.rglob("*.css"):
        found = re.findall(r"(?:url\(|@import )\s*[\"']?((?:https?:)?//[^\"')\s]+)", sheet.read_text())
        yield from (f"{sheet.name}: loads {url}" for url in found)


def _has(links: Links, fragment: str) -> bool:
    return unquote(fragment) in links.anchors


if __name__ == "__main__":
    sys.exit(main())
