"""Data classes whose methods are not compiled at each start, as those of `dataclasses` are.

There each method of each class is written as source and compiled when the class is made, which for the classes of a
short command took a third of its time. Of frozen ones, only the methods that set attributes have to be.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass

__all__ = ["dataclass"]

T = TypeVar("T")


def _frozen(*, frozen: bool, slots: bool, kw_only: bool = False) -> Callable[[type[T]], type[T]]:
    """Return what makes a data class of immutable values, with the methods that its class does not have itself."""

    def made(its: Any) -> Any:
        for name, method in _METHODS.items():
            if its.__dict__.get(name) is None:
                setattr(its, name, method)
        of: Any = dataclasses.dataclass(frozen=frozen, slots=slots, kw_only=kw_only, eq=False, repr=False)(its)
        names = [field.name for field in dataclasses.fields(of) if field.compare]
        of._values = staticmethod(attrgetter(*names) if names else _none)  # noqa: SLF001 - it is made here
        return of

    return made


def _none(_: object) -> tuple[()]:
    return ()


def _equal(self: Any, other: Any) -> Any:
    if other.__class__ is self.__class__:
        return self._values(self) == self._values(other)
    return NotImplemented


def _hash(self: Any) -> int:
    return hash(self._values(self))


def _repr(self: Any) -> str:
    told = [f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr]
    return f"{self.__class__.__qualname__}({', '.join(told)})"


_METHODS: dict[str, Callable[..., Any]] = {"__eq__": _equal, "__hash__": _hash, "__repr__": _repr}

if not TYPE_CHECKING:
    dataclass = _frozen
