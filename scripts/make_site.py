#!/usr/bin/env python3
"""Make the HTML site of the README, the guides, the man pages and the API.

make_site.py [DIRECTORY]    make it in the directory, by default site/

Sphinx makes it, from the Markdown of the README and the guides, the man pages as Pandoc reads them, and the docstrings
of what qmadmin exports. The status is 1 if a link leads nowhere or a page would load anything from elsewhere.
"""

from __future__ import annotations

import argparse
import builtins
import importlib
import inspect
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pypandoc
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer

import qmadmin

ROOT = Path(__file__).resolve().parent.parent
FIGURES = "scripts/benchmarks/recorded/README.md"
GUIDES = {
    "Tutorials": ("python", "administrator"),
    "How to": (
        "outbox-sqlalchemy",
        "outbox-django",
        "publish-subscribe",
        "fastapi",
        "from-cron",
        "error-queue",
        "moving",
        "machines",
        "sizing",
    ),
    "Compared": ("coming-from", "beside"),
}
MODULES = (
    "qmadmin",
    "qmadmin.aio",
    "qmadmin.django",
    "qmadmin.zope",
    "qmadmin.testing",
    "qmadmin.pytest_plugin",
    "qmadmin.forwarder",
    "qmadmin.atmi",
    "qmadmin.mib",
    "qmadmin.spark",
)
"""What applications import, a page of the API each."""

SETTINGS = {
    "project": "qmadmin",
    "extensions": ["myst_parser", "sphinx.ext.autodoc"],
    "html_theme": "furo",
    "html_title": "qmadmin",
    "html_copy_source": False,
    "html_show_copyright": False,
    "html_static_path": ["static"],
    "html_css_files": ["site.css"],
    # Two hyphens are an option, and no dash.
    "smartquotes": False,
    # What stands between single backticks in a docstring is a name: a link, where the site has it.
    "default_role": "py:obj",
    # The summaries are fetched, which no browser does from a file.
    "html_show_search_summary": False,
    "html_show_sphinx": False,
    "autodoc_typehints": "signature",
    "autodoc_class_signature": "mixed",
    "autodoc_member_order": "alphabetical",
    # As the source has them: a function that is a default, a union with a name.
    "autodoc_preserve_defaults": True,
    "autodoc_type_aliases": {
        name: name for name in ("ApplicationConnection", "Body", "Condition", "DatabaseConnection")
    },
    # One parameter a line where a signature is long.
    "maximum_signature_line_length": 80,
    "python_use_unqualified_type_names": True,
    # Classes have titles; their methods would fill the contents of the page.
    "toc_object_entries": False,
    # What a terminal shows is not what a lexer of shells expects.
    "suppress_warnings": ["misc.highlighting_failure", "myst.header"],
    "exclude_patterns": [],
}
SECTIONS = ("Functions", "Classes", "Errors", "Constants and types")
MANUAL = {f"{page.stem}({page.suffix[1:]})": page for page in (ROOT / "man").iterdir() if page.suffix[1:].isdigit()}
"""The man pages by what they are called, such as qmadmin(1)."""

_NAMED = re.compile(r"\b[\w.-]+\([1-8]\)")
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
        sphinx = Sphinx(
            source, None, site, Path(place, "doctrees"), "html", confoverrides=SETTINGS, status=None, freshenv=True
        )
        sphinx.connect("autodoc-process-docstring", _reword)
        sphinx.connect("autodoc-process-signature", _name_aliases)
        sphinx.connect("doctree-read", _name_fully)
        sphinx.build()
    problems = sorted(set(problems_of(site)))
    print(*problems, f"{site}: {len(problems)} problems", sep="\n")
    return 1 if problems else 0


def lay_out(source: Path) -> None:
    """Write the sources of the pages, in the folders that they have in the repository."""
    manual = sorted(MANUAL.values(), key=lambda page: (page.suffix, page.name))
    chapters = {title: [f"man/pages/{name}" for name in names] for title, names in GUIDES.items()}
    chapters["Manual"] = [f"man/{page.name}" for page in manual]
    chapters["Python API"] = [f"api/{name}" for name in MODULES]
    chapters["Measured"] = [FIGURES.removesuffix(".md")]
    pages = {ROOT / "README.md": source / "index.md", ROOT / FIGURES: source / FIGURES}
    pages |= {path: source / path.relative_to(ROOT) for path in (ROOT / "man" / "pages").glob("*.md")}
    texts = {target: markdown(path, set(pages)) for path, target in pages.items()}
    for title, names in chapters.items():
        texts[source / "index.md"] += "\n".join(
            ["", "```{toctree}", ":hidden:", f":caption: {title}", "", *names, "```", ""]
        )
    texts |= {source / "man" / f"{page.name}.rst": manual_page(page) for page in manual}
    texts |= {source / "api" / f"{name}.rst": api(name) for name in MODULES}
    for target, text in texts.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    copies = {picture: source / picture.relative_to(ROOT) for picture in (ROOT / "scripts").rglob("*.svg")}
    copies[ROOT / "scripts" / "site.css"] = source / "static" / "site.css"
    for path, target in copies.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def markdown(path: Path, pages: set[Path]) -> str:
    """Return a page with links to what the site has, and with the names of its files above them."""

    def link(found: re.Match[str]) -> str:
        target = (path.parent / found[2]).resolve()
        if target == ROOT / "README.md":
            return f"[{found[1]}]({found[2].removesuffix('README.md')}index.md)"
        return found[0] if target in pages or target.suffix == ".svg" or "://" in found[2] else found[1]

    def rest(text: str) -> str:
        text = re.sub(r"\[([^\]]*)\]\(([^)]+)\)", link, text)
        return _NAMED.sub(lambda found: _page_link(found[0], "[{0}](/man/{1}.rst)"), text)

    # Every other part is code, and stays as it is.
    parts = re.split(r"(^```.*?^```$|`[^`\n]+`)", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    parts[::2] = map(rest, parts[::2])
    return re.sub(r"^```(\w+) (\S+)$", r"```{code-block} \1\n:caption: \2\n", "".join(parts), flags=re.MULTILINE)


def manual_page(page: Path) -> str:
    """Return a man page in reStructuredText, under its name and with links to the others."""
    title = f"{page.stem}({page.suffix[1:]})"
    text = pypandoc.convert_file(str(page), "rst", format="man")
    bold = re.compile(r"\*\*([\w.-]+)\*\*\\ \((\d)\)")
    linked = bold.sub(lambda found: _page_link(f"{found[1]}({found[2]})", ":doc:`{0} </man/{1}>`", found[0]), text)
    return f"{title}\n{'#' * len(title)}\n\n{linked}"


def _page_link(name: str, form: str, otherwise: str | None = None) -> str:
    return form.format(name, MANUAL[name].name) if name in MANUAL else otherwise or name


def api(name: str) -> str:
    """Return the page of what a module gives to applications."""
    module = importlib.import_module(name)
    text = "\n".join(docstring(inspect.getdoc(module) or ""))
    parts = [f"{name}\n{'=' * len(name)}\n\n.. py:module:: {name}\n\n{text}\n"]
    exported = {each: getattr(module, each) for each in exported_by(module)}
    sections: dict[str, list[str]] = {title: [] for title in SECTIONS}
    for each in sorted(exported, key=str.lower):
        title, entry = _entry(name, each, exported[each], set(exported))
        sections[title].append(entry)
    for title, entries in sections.items():
        if entries:
            parts += [f"{title}\n{'-' * len(title)}\n", *entries]
    return "\n".join(parts)


def exported_by(module: Any) -> list[str]:
    """Return the names that a module gives to applications; those of the plugin are fixtures."""
    names: list[str] = getattr(module, "__all__", None) or [
        name for name in vars(module) if name.startswith("qmadmin_")
    ]
    return names


def _entry(module: str, name: str, found: Any, exported: set[str]) -> tuple[str, str]:
    """Return the section and the entry of a name."""
    path = f"{module}.{name}"
    if module != "qmadmin" and getattr(qmadmin, name, None) is found:
        return "Classes", f".. py:class:: {name}\n\n   The same as `qmadmin.{name}`.\n"
    if isinstance(found, type):
        # What is inherited from a class that has no entry of its own stands with those that have.
        bases = [
            base.__name__ for base in found.__mro__[1:] if base.__name__ in exported or base.__module__[:2] != "qm"
        ]
        options = f"   :members:\n   :undoc-members:\n   :inherited-members: {','.join(bases)}\n"
        options += "   :show-inheritance:\n" * bool(exported.intersection(bases))
        if issubclass(found, BaseException):
            return "Errors", f".. autoexception:: {path}\n{options}"
        return "Classes", f"{name}\n{'~' * len(name)}\n\n.. autoclass:: {path}\n{options}"
    if inspect.isroutine(found):
        return "Functions", f".. autofunction:: {path}\n"
    text = docstring(_text_of(name, found))
    value = f"   :value: {found!r}\n" if isinstance(found, int) else ""
    return "Constants and types", "\n".join([f".. py:data:: {name}", value, *(f"   {line}" for line in text), ""])


def _text_of(name: str, found: Any) -> str:
    """Return what is written about a constant: by itself, or below it where it is defined."""
    if hasattr(found, "enqueue"):
        calls = {"tpenqueue(3)": found.enqueue, "tpdequeue(3)": found.dequeue}
        return "\n\n".join(f"{call}: {text}" for call, text in calls.items() if text)
    if hasattr(found, "_get_wrapped_function"):
        return inspect.getdoc(found) or ""
    for home in [home for home in sys.modules if home.startswith(("qmadmin", "qmcore"))]:
        if vars(sys.modules[home]).get(name) is found:
            lines = ModuleAnalyzer.for_module(home).find_attr_docs().get(("", name))
            if lines:
                return "\n".join(lines)
    return ""


def docstring(text: str) -> list[str]:
    """Return the lines of a docstring in reStructuredText: its indented blocks are examples."""
    lines: list[str] = []
    example = False
    for line in text.splitlines():
        indented = line.startswith("    ")
        if indented and not example and lines and not lines[-1]:
            lines += [".. code-block:: python", ""]
        if line:
            example = indented
        lines.append(line if example else _NAMED.sub(lambda found: _page_link(found[0], ":doc:`{0} </man/{1}>`"), line))
    return lines


def _reword(_app: Sphinx, _what: str, _name: str, _found: object, _options: object, lines: list[str]) -> None:
    lines[:] = docstring("\n".join(lines))


def _name_aliases(
    _app: Sphinx, _what: str, _name: str, _found: object, _options: object, arguments: str | None, returned: str | None
) -> tuple[str | None, ...]:
    """Write an alias in a union as the source has it."""
    return tuple(text and re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", text) for text in (arguments, returned))


def _name_fully(_app: Sphinx, page: Any) -> None:
    """Have types in signatures mean what they mean to Python, and not whatever has such a name on some page."""
    for reference in list(page.findall(addnodes.pending_xref)):
        name, module = reference["reftarget"], reference.get("py:module")
        if reference["refdomain"] != "py":
            continue
        if hasattr(builtins, name):
            reference["reftarget"] = f"builtins.{name}"
        elif name in qmadmin.__all__ and module and name not in exported_by(sys.modules[module]):
            reference["reftarget"] = f"qmadmin.{name}"


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
