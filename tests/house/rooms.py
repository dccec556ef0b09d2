"""The picture of the rooms of a floor, as its page draws it, and as the imports of its modules have it.

The picture is a flowchart of Mermaid. A room has a title and the modules that are in it, by their paths or by patterns;
the closest pattern counts. An arrow leads to a room that may be imported, and so may all be that arrows lead to from
there: an arrow that other arrows say already is not drawn.
"""

from __future__ import annotations

import ast
import fnmatch
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "qmadmin": ROOT / "qmadmin",
    "qmstorage": ROOT / "storage" / "qmstorage",
    "qmcore": ROOT / "core" / "qmcore",
    "tests": ROOT / "tests",
}

Arrow: TypeAlias = tuple[str, str]
Graph: TypeAlias = dict[str, set[str]]


class Picture(NamedTuple):
    """Rooms, each with the patterns of its modules, and the arrows between them."""

    rooms: dict[str, list[str]]
    arrows: set[Arrow]


def picture_in(page: str) -> Picture:
    """Return the picture that is drawn in the text of a page."""
    (drawn,) = re.findall(r"^```mermaid\nflowchart \w+\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    rooms: dict[str, list[str]] = {}
    arrows: set[Arrow] = set()
    for line in filter(None, map(str.strip, drawn.splitlines())):
        if room := re.fullmatch(r'(\w+)\["(.+)"\]', line):
            title, *modules = room[2].split("<br>")
            rooms[room[1]] = " ".join(modules or [title]).split()
        else:
            sources, targets = (side.split(" & ") for side in line.split(" --> "))
            arrows |= set(itertools.product(sources, targets))
    return Picture(rooms, arrows)


def modules_of(package: str) -> dict[str, Path]:
    """Return the modules of a package by their full names."""
    top = PACKAGES[package]
    found = {}
    for path in sorted(top.rglob("*.py")):
        inside = path.relative_to(top).with_suffix("").parts
        parts = inside[:-1] if inside[-1] == "__init__" else inside
        found[".".join((package, *parts))] = path
    return found


def imports_of(package: str) -> Graph:
    """Return which modules of the packages each module of a package imports as it runs."""
    names = {name for each in PACKAGES for name in modules_of(each)}
    return {name: set(_imported(ast.parse(path.read_text()), names)) for name, path in modules_of(package).items()}


def room_of(module: str, package: str, rooms: dict[str, list[str]]) -> str | None:
    """Return the room that a module is in; None where it is in none."""
    top, _, inside = module.partition(".")
    if top != package:
        return next((room for room, patterns in rooms.items() if patterns == [top]), None)
    path = inside.replace(".", "/") or "__init__"
    found = [
        (pattern == path, len(pattern), room)
        for room, patterns in rooms.items()
        for pattern in patterns
        if pattern not in PACKAGES and (fnmatch.fnmatchcase(path, pattern) or fnmatch.fnmatchcase(f"{path}/", pattern))
    ]
    return max(found)[2] if found else None


def without_rooms(package: str, picture: Picture) -> list[str]:
    """Return the modules of a package that are in no room of the picture."""
    return [name for name in modules_of(package) if room_of(name, package, picture.rooms) is None]


def empty_patterns(package: str, picture: Picture) -> list[str]:
    """Return what the picture names and no module of the package is."""
    paths = [name.partition(".")[2].replace(".", "/") or "__init__" for name in modules_of(package)]
    named = [pattern for patterns in picture.rooms.values() for pattern in patterns if pattern not in PACKAGES]
    return [pattern for pattern in named if not any(fnmatch.filter([path, f"{path}/"], pattern) for path in paths)]


def imports_between(package: str, rooms: dict[str, list[str]]) -> Graph:
    """Return which rooms the modules of each room import."""
    graph: Graph = {room: set() for room in rooms}
    for each in (package, *(patterns[0] for patterns in rooms.values() if patterns[0] in PACKAGES)):
        for module, imported in imports_of(each).items():
            source = room_of(module, package, rooms)
            targets = {room_of(other, package, rooms) for other in imported} - {source, None}
            if source is not None:
                graph[source] |= {target for target in targets if target is not None}
    return graph


def circles_in(graph: Graph) -> list[str]:
    """Return the rooms from which imports lead back to themselves."""
    return [room for room in graph if room in _reached(graph, room)]


def arrows_of(graph: Graph) -> set[Arrow]:
    """Return the arrows that a picture of rooms without circles needs: those that no other arrows say."""
    return {
        (source, target)
        for source, targets in graph.items()
        for target in targets
        if not any(target in _reached(graph, other) for other in targets - {target})
    }


def _reached(graph: Graph, room: str) -> set[str]:
    found: set[str] = set()
    left = [*graph[room]]
    while left:
        each = left.pop()
        if each not in found:
            found.add(each)
            left += graph[each]
    return found


def _imported(tree: ast.AST, names: set[str]) -> Iterator[str]:
    """Yield the modules that are imported, but those for types alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module in names:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from inner & names or {node.module}
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        else:
            yield from _imported(node, names)
