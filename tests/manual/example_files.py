"""The Python of all examples, as files of one directory in which each finds the others of its page."""

import re
from pathlib import Path

from tests.manual.page_examples import examples
from tests.manual.test_pages import ROOT
from tests.manual.test_readme import blocks

MARKDOWN = [ROOT / "README.md", *sorted((ROOT / "man" / "pages").glob("*.md"))]
MANUAL = sorted((ROOT / "man").glob("*.in"))
FEW_ANNOTATIONS = "# mypy: allow-untyped-defs, allow-untyped-calls\n"
"""For man pages, whose lines are short."""

NO_TYPES = """\
# mypy: allow-subclassing-any, allow-untyped-decorators, no-warn-return-any
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportGeneralTypeIssues=false
"""
"""For Django, which ships none and makes the managers of its models at run time."""


def lay_out(directory: Path) -> list[Path]:
    """Write the Python of all pages into a directory, and return its files.

    The modules of a page have its name before theirs, as `shop` is one on many pages, and import each other so.
    """
    return [file for page in MARKDOWN + MANUAL for file in _write(directory, page)]


def _write(directory: Path, page: Path) -> list[Path]:
    found = _python_of(page)
    prefix = "of_" + re.sub(r"\W", "_", page.name.partition(".")[0].lower())
    own = "|".join(sorted({name.partition("/")[0].removesuffix(".py") for name in found}))
    files = []
    for name, text in found.items():
        file = directory / f"{prefix}_{name}"
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.parent != directory:
            (file.parent / "__init__.py").touch()
        renamed = re.sub(rf"^from ({own})\b", rf"from {prefix}_\1", text, flags=re.MULTILINE)
        renamed = re.sub(rf"^import ({own})$", rf"import {prefix}_\1 as \1", renamed, flags=re.MULTILINE)
        file.write_text(FEW_ANNOTATIONS * (page.suffix == ".in") + NO_TYPES * ("django" in text) + renamed)
        files.append(file)
    return files


def _python_of(page: Path) -> dict[str, str]:
    if page.suffix == ".md":
        return {block.name: block.text for block in blocks(page.read_text()) if block.kind == "python"}
    return {
        example.name or f"line_{example.line}.py": example.text
        for example in examples(page.read_text())
        if example.kind == "python" or example.name.endswith(".py")
    }
