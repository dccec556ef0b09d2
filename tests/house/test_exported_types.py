"""What the public API asks for or returns is exported by `qmadmin`: nobody has to import it from within."""

import dataclasses
import inspect
import re

import pytest

import qmadmin

WITHIN = {"Attachment", "Branch", "Clock", "Mark", "Token", "Volume"}
"""What only our own programs and tests ask for or are given."""

OF_OTHERS = {
    "Any",
    "BaseException",
    "Callable",
    "Connection",
    "EllipsisType",
    "Iterable",
    "Iterator",
    "Literal",
    "Mapping",
    "None",
    "PathLike",
    "Self",
    "Sequence",
    "Unpack",
}

FACES = (qmadmin.App, qmadmin.AppHandler, qmadmin.Device, qmadmin.QueueSpace, qmadmin.Transaction)
VALUES = [
    found
    for name in qmadmin.__all__
    if dataclasses.is_dataclass(found := getattr(qmadmin, name)) and name.endswith(("Definition", "Control"))
]
FUNCTIONS = (qmadmin.create_device, qmadmin.open_device, qmadmin.restore_device, qmadmin.decode)


def annotations_of(face):
    """Return the annotations of the public methods and properties of a class, or of a function, as texts."""
    if inspect.isfunction(face):
        return list(face.__annotations__.values())
    found = []
    for name in dir(face):
        member = inspect.getattr_static(face, name)
        function = inspect.unwrap(getattr(member, "fget", None) or getattr(member, "__func__", member))
        if not name.startswith("_") and inspect.isfunction(function):
            found += function.__annotations__.values()
    if face in VALUES:
        found += [field.type for field in dataclasses.fields(face)]
    return found


@pytest.mark.parametrize("face", [*FACES, *VALUES, *FUNCTIONS], ids=lambda face: face.__name__)
def test_what_is_asked_for_or_returned_is_exported(face):
    named = {name for text in annotations_of(face) for name in re.findall(r"\b[A-Z]\w+", str(text))}
    # A progress is a function that is given a number.
    assert named - OF_OTHERS - WITHIN - {"Progress"} <= set(qmadmin.__all__)
