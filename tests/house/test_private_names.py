"""How often tests reach into the private names of other objects: each use breaks with a change of the inside.

A limit here may fall and does not rise. What a test wants to know, production offers: calls, files, commands, and where
that is not enough the Probe of an open device (`qmcore.probe`), which has a named point before and after each durable
step. To give a private name a public one, for tests alone, is no way out.
"""

import ast
import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

MOST_USES = 20
"""Uses of `other._name` in all tests, and in the programs that they run."""

MOST_PATCHES = 14
"""Patches of a private name, by its name in a string."""

PATCHING = ("setattr", "delattr", "patch", "object")
OF_NAMED_TUPLES = {"_replace", "_asdict", "_fields", "_make", "_field_defaults"}
DOCUMENTED = {"_exit"}
"""Of the standard library: `os._exit`."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in OF_NAMED_TUPLES | DOCUMENTED


def is_own(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in {"self", "cls"}


def source_of(file: Path) -> ast.AST:
    """Return a module of tests, with the programs in its texts that its processes run."""
    tree = ast.parse(file.read_text())
    texts = [each.value for each in ast.walk(tree) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    for text in texts:
        if "\n" in text and "._" in text:
            with contextlib.suppress(SyntaxError, UnicodeEncodeError):
                tree.body += ast.parse(text).body
    return tree


def uses(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Give each use of a private name of another object than the test's own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not is_own(node.value):
            yield node


def patches(tree: ast.AST) -> Iterator[ast.Call]:
    """Give each call that puts something in the place of a private name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in PATCHING:
            names = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            if any(is_private(part) for name in names for part in name.split(".")):
                yield node


@pytest.fixture(scope="module")
def sources():
    """The modules of tests by their paths."""
    return {str(file.relative_to(TESTS)): source_of(file) for file in TESTS.rglob("*.py")}


@pytest.mark.parametrize(("found_in", "most"), [(uses, MOST_USES), (patches, MOST_PATCHES)], ids=["uses", "patches"])
def test_private_names_of_other_objects_are_used_less_and_less(sources, found_in, most):
    counted = Counter({name: sum(1 for _ in found_in(source)) for name, source in sources.items()})
    assert counted.total() <= most, counted.most_common(12)


def test_the_count_sees_what_it_is_to_see():
    tree = ast.parse(
        "self._own; other._name; cls._own; row._replace(); m.setattr(wal, '_sync', 1); m.setattr('a._b', 1)"
    )
    assert [ast.unparse(each) for each in uses(tree)] == ["other._name"]
    assert len(list(patches(tree))) == 2
