"""The three rings of tests: each test is in one of them, by its folder, its file and what its fixtures cost.

quick: what shows most mistakes within minutes. Values, calls, manual, services, the shell without a terminal, and the
    contract of the stores on SQLite in memory. `scripts/check` runs it.
whole: both stores, on files and on a server, and the programs as real processes and in terminals.
proof: kills, books with many examples, plans of statements, Spark, installations.

`pytest -m quick` runs one ring, `pytest -m "not proof"` the first two, `scripts/test` all of them. What a test needs
puts it into a ring; only what no fixture tells is marked `slow` by hand, and is proof.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

import pytest

QUICK, WHOLE, PROOF = RINGS = ("quick", "whole", "proof")

FOLDERS = {
    "fault": WHOLE,
    "migration": WHOLE,
    "process": WHOLE,
    "race": PROOF,
    "spark": PROOF,
    "transfer": WHOLE,
}
"""The rings of the folders that are not quick."""

FILES = {
    "house/test_postgres_server.py": WHOLE,
    "house/test_recipes.py": WHOLE,
    "manual/test_guides.py": WHOLE,
    "process/test_kill.py": PROOF,
    "shell/test_credentials.py": WHOLE,
    "shell/test_program.py": WHOLE,
    "store/test_books.py": PROOF,
    "store/test_distributed_books.py": WHOLE,
    "store/test_postgres_plans.py": PROOF,
    "store/test_query_plans.py": PROOF,
}
"""Files that cost more than the fixtures of their tests tell."""

FIXTURES = {
    "arena": WHOLE,
    "clone": PROOF,
    "file_device": WHOLE,
    "file_store": WHOLE,
    "java": PROOF,
    "own_cluster": PROOF,
    "postgres_server": WHOLE,
    "real_device": WHOLE,
    "site": WHOLE,
    "small_disk": WHOLE,
    "spark": PROOF,
    "start": WHOLE,
    "start_fresh": WHOLE,
    "terminal": WHOLE,
}
"""What fixtures cost: a server, a disk, a terminal, processes."""

STORES = dict.fromkeys(("file", "postgres", "file-awaited", "memory-awaited", "postgres-awaited"), WHOLE)
"""What the parameters of the stores' fixtures cost; a device in memory is quick."""

_TESTS = Path(__file__).parent


# Before -m chooses among them.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its ring, and put the proof first.

    What takes long begins first, so that no worker is left alone with it when the others have nothing more to do; and
    what shares one costly thing, as a session of Spark, comes to the first worker. The random order holds within both.
    """
    for item in items:
        item.add_marker(ring_of(item))
    items.sort(key=lambda item: item.get_closest_marker(PROOF) is None)


def ring_of(item: pytest.Item) -> str:
    """Return the outermost ring that anything about a test asks for."""
    return max(_asked_for(item), key=RINGS.index)


def _asked_for(item: pytest.Item) -> Iterable[str]:
    yield from _asked_for_all_of(item.path)
    yield from (FIXTURES[name] for name in getattr(item, "fixturenames", ()) if name in FIXTURES)
    yield from (STORES[value] for value in _parameters(item) if value in STORES)
    if item.get_closest_marker("slow"):
        yield PROOF


@functools.cache
def _asked_for_all_of(path: Path) -> tuple[str, str]:
    file = path.relative_to(_TESTS)
    return FOLDERS.get(file.parts[0], QUICK), FILES.get(file.as_posix(), QUICK)


def _parameters(item: pytest.Item) -> list[str]:
    callspec = getattr(item, "callspec", None)
    return [value for value in callspec.params.values() if isinstance(value, str)] if callspec else []
