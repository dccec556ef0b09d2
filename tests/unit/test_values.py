"""Data classes whose methods are shared are as those of `dataclasses`."""

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from qmcore import values

ROOT = Path(__file__).parents[2]


def classes(dataclass):
    """Return classes that are made by a decorator."""

    @dataclass(frozen=True, slots=True)
    class Point:
        x: int
        y: list[int] | int = 2
        label: str = dataclasses.field(default="", compare=False)
        hidden: str = dataclasses.field(default="secret", repr=False)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Place(Point):
        z: int = 3

    @dataclass(frozen=True, slots=True)
    class Nothing:
        pass

    @dataclass(frozen=True, slots=True)
    class Own:
        x: int

        def __repr__(self):
            return "mine"

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 7

    return Point, Place, Nothing, Own


def facts(dataclass):
    """Return what can be told of the classes."""
    point, place, nothing, own = classes(dataclass)
    one = point(1)
    several = [one, point(1, 2, "other"), point(1, hidden=""), place(x=1), place(x=1, z=4), nothing(), own(1), own(2)]
    told = [
        *map(repr, several),
        [[a == b for b in several] for a in several],
        [[hash(a) == hash(b) for b in several] for a in several],
        dataclasses.replace(one, y=5) == point(1, 5),
        dataclasses.asdict(place(x=1)),
        [field.name for field in dataclasses.fields(place)],
        [str(inspect.signature(each)) for each in (point, place)],
        point.__match_args__,
        place.__slots__,
        hasattr(one, "__dict__"),
    ]
    for change in (lambda: setattr(one, "x", 2), lambda: delattr(one, "x"), lambda: hash(point(1, []))):
        with pytest.raises((dataclasses.FrozenInstanceError, TypeError)) as refused:
            change()
        told.append((type(refused.value), str(refused.value)))
    return told


def test_they_are_made_compared_and_shown_as_those_of_the_library():
    assert facts(values.dataclass) == facts(dataclasses.dataclass)


def test_values_are_made_in_this_one_way():
    form = re.compile(r"@dataclasses\.dataclass\(frozen=True, slots=True(, kw_only=True)?\)")
    sources = [path for package in ("qmadmin", "core", "storage") for path in (ROOT / package).rglob("*.py")]
    assert [str(path) for path in sources if form.search(path.read_text(encoding="utf-8"))] == []
