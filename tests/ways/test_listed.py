"""Every way in is listed with the transitions of messages that it makes, or none."""

import tomllib
from pathlib import Path

import pytest

import qmadmin
from qmadmin import atmi, mib
from qmadmin.shell.catalogue import GROUPS
from qmadmin.spark.program import qmspark
from tests.ways import transitions

ROOT = Path(__file__).parents[2]


def methods(owner):
    """Return the public methods of a class by their names."""
    return {name for name in dir(owner) if not name.startswith("_") and callable(getattr(owner, name))}


def test_every_public_function():
    functions = {
        name for name in qmadmin.__all__ if callable(found := getattr(qmadmin, name)) and not isinstance(found, type)
    }
    assert functions == set(transitions.FUNCTIONS)


@pytest.mark.parametrize(
    ("owner", "listed"),
    [
        (qmadmin.Device, transitions.DEVICE),
        (qmadmin.QueueSpace, transitions.SPACE),
        (qmadmin.Transaction, transitions.TRANSACTION),
    ],
)
def test_every_public_method(owner, listed):
    assert methods(owner) == set(listed)


def test_every_call_of_atmi():
    assert {name for name in atmi.__all__ if name.startswith("tp") and callable(getattr(atmi, name))} == set(
        transitions.ATMI
    )


def test_every_command():
    assert {command.name for group in GROUPS for command in group.commands} == set(transitions.COMMANDS)


def test_every_class_of_the_mib():
    assert set(mib.CLASSES) == set(transitions.MIB)


def test_every_program():
    programs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(programs) == set(transitions.PROGRAMS)


def test_every_command_of_qmspark():
    assert set(qmspark.commands) == set(transitions.QMSPARK)
