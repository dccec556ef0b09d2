"""The processes attached to the queue spaces of a file that is not open here."""

from __future__ import annotations

from collections.abc import Iterator

from qmcore.records import Owner
from qmcore.space import Space
from qmstorage.sqlite import files
from qmstorage.sqlite.owner_files import OwnerFiles
from qmstorage.sqlite.unit import SqliteUnit
from qmstorage.statements import Texts


def living(path: str, *, older: bool = False) -> Iterator[tuple[Space, list[Owner]]]:
    """Yield the queue spaces of a file, also of an `older` one, each with its live attached processes."""
    probe = OwnerFiles(files.surroundings(path))
    with files.reading(path, older=older) as connection:
        unit = SqliteUnit(connection.cursor(), Texts(files.DIALECT))
        for space in unit.spaces.listed():
            yield space, [owner for owner in unit.owners.of_space(space.id) if probe.is_alive(owner)]
