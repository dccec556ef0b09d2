"""A store is put together from parts, one for each noun: no class has everything that any of them can do."""

import json
import sys

import pytest

from tests.house.test_order_in_the_house import run

MOST_ANCESTORS = 8
"""Classes of ours that a class descends from, directly or not."""

MOST_METHODS = 30
"""Methods and properties that a class of a store has, inherited ones and private ones too."""

COUNTING = """
import importlib, inspect, json, pkgutil

PACKAGES = "qmcore", "qmstorage", "qmadmin"

def modules():
    for package in map(importlib.import_module, PACKAGES):
        for each in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not each.name.endswith("__main__") and "migrations" not in each.name:
                yield importlib.import_module(each.name)

def name_of(kind):
    return f"{kind.__module__}.{kind.__qualname__}"

def ancestors(kind):
    return [each for each in kind.__mro__[1:] if each.__module__.partition(".")[0] in PACKAGES]

def methods(kind):
    found = {
        name
        for each in (kind, *ancestors(kind))
        for name, value in vars(each).items()
        if inspect.isfunction(value) or isinstance(value, (property, classmethod, staticmethod))
    }
    return [name for name in found if not name.startswith("__")]

kinds = {
    kind for module in modules() for kind in vars(module).values()
    # Not isinstance: the settings of Django answer for their class, and refuse to where there are none.
    if issubclass(type(kind), type) and kind.__module__ == module.__name__
}
print(json.dumps({name_of(kind): (list(map(name_of, ancestors(kind))), len(methods(kind))) for kind in kinds}))
"""


@pytest.fixture(scope="module")
def kinds():
    """The ancestors of each class and how many methods it has, by its name."""
    done = run(sys.executable, "-c", COUNTING)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def is_of_a_store(name):
    return name.startswith(("qmcore.", "qmstorage."))


def test_no_class_descends_from_too_many_and_no_class_of_a_store_has_too_many_methods(kinds):
    found = {
        name: (len(ancestors), methods)
        for name, (ancestors, methods) in kinds.items()
        if len(ancestors) > MOST_ANCESTORS or (methods > MOST_METHODS and is_of_a_store(name))
    }
    assert found == {}


def test_what_differs_on_a_store_stands_in_the_file_of_the_same_name(kinds):
    parts = {
        name: ancestors
        for name, (ancestors, _) in kinds.items()
        if {"qmstorage.unit_part.UnitPart", "qmstorage.unit_part.StorePart"} & {*ancestors}
    }
    assert len(parts) > 12
    twins = {name: ancestors[0] for name, ancestors in parts.items() if name.split(".")[1] in {"sqlite", "postgres"}}
    assert twins
    for name, common in twins.items():
        assert name.split(".")[-2] == common.split(".")[-2], (name, common)
