"""The parts that a unit is put together from: a class of its own for each noun, made where it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from qmstorage.statements import Runner

if TYPE_CHECKING:
    from qmcore.purpose import Purpose
    from qmstorage.unit import MemoryStore, SqlUnit

P_co = TypeVar("P_co", covariant=True)


class PartOf(Generic[P_co]):
    """The name of a part in the class of the whole: `imports = PartOf(Imports)`.

    Each look makes another one, which costs little and keeps nothing: neither does a part outlive what its whole is
    doing, nor do the two keep each other alive.
    """

    def __init__(self, part: Callable[[Any], P_co]) -> None:
        self._part = part

    def __get__(self, whole: object, kind: object = None) -> P_co:
        return self._part(whole)


class LastingPartOf(PartOf[P_co]):
    """The same for what messages pass: it is made once for each whole, so that another look costs nothing.

    It works with the cursor and the notifications that the whole had by then, and knows nothing of a work: the whole
    does, and has to be asked.
    """

    def __set_name__(self, kind: type, name: str) -> None:
        self._name = name

    def __get__(self, whole: object, kind: object = None) -> P_co:
        part = self._part(whole)
        # Python looks there first. To ask for the dictionary of the whole would make all its attributes slower.
        setattr(whole, self._name, part)
        return part


class StorePart(Runner):
    """One noun of a store of messages, be it a unit or the memory of a queue space."""

    store: SqlUnit | MemoryStore

    def __init__(self, store: SqlUnit | MemoryStore) -> None:
        super().__init__(*store.session)
        self.store = store


class UnitPart(Runner):
    """One noun of a unit, in the database transaction of the unit."""

    unit: SqlUnit

    def __init__(self, unit: SqlUnit) -> None:
        super().__init__(*unit.session)
        self.unit = unit

    @property
    def purpose(self) -> Purpose:
        """What the work is for that the unit does now."""
        return self.unit.purpose
