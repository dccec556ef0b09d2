"""The function by which SQLite tests bodies: it does what the engine does with a condition and a body at hand."""

from __future__ import annotations

import functools

from qmcore.condition import BodyPath, Subject
from qmcore.condition_parser import parse
from qmcore.condition_truth import Test, compiled
from qmcore.json_values import BodyValues


def holds(body: object, condition: str) -> bool | None:
    """Return whether a condition that only asks for values in the body is true or false of one, or neither.

    What is no bytes, as NULL or something in a damaged file, has no values.
    """
    its = BodyValues(body if isinstance(body, bytes) else None)

    def fact(subject: Subject) -> object:
        return its.at(subject.steps) if isinstance(subject, BodyPath) else None

    return _test(condition)(fact)


@functools.lru_cache(maxsize=256)
def _test(condition: str) -> Test:
    return compiled(parse(condition))
