"""The act of giving a queue space more pages, while others work with it.

As at its creation, the table of contents decides where the device and the queue space are in different files: the
extent is listed first, and then counted among the pages of the queue space. Where that second step was cut short, the
next extension counts both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from qmcore import device
from qmcore.acts import manage_spaces, thresholds
from qmcore.checks import check_int
from qmcore.definitions import OpenSpace, no_such_space
from qmcore.device import Extent
from qmcore.errors import BadResourceError
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.space import NUMBER_MAX, PAGE_QUANTUM, Space, rounded_pages
from qmcore.values import dataclass


def extend(main: Volume, volume: Volume, opened: OpenSpace, pages: int, progress: Callable[[int], None]) -> Space:
    """Give a queue space `pages` more pages of its file, rounded down to a multiple of four.

    Where the disk of the queue space was allocated at its creation, that of the extent is allocated too, and
    `progress` told the percent done.
    """
    name = opened.space.name
    pages = check_int(pages, f"number of pages for queue space {name!r}", PAGE_QUANTUM, NUMBER_MAX)
    more = rounded_pages(pages)
    main.read(lambda unit: _plan(unit, name, more))
    if opened.space.initialized:
        volume.allocate_disk(more, progress)
    if volume is main:
        return main.write(lambda unit: _count(unit, opened, _list(unit, name, more)), Purpose.ADMINISTRATION)
    # While disk was allocated, another queue space may have got the name.
    volume.read(lambda unit: _present(unit, opened))
    listed = main.write(lambda unit: _list(unit, name, more), Purpose.ADMINISTRATION)
    try:
        return volume.write(lambda unit: _count(unit, opened, listed), Purpose.ADMINISTRATION)
    except BadResourceError:
        # The queue space is gone, and its extents with it.
        raise
    except BaseException:
        main.write(lambda unit: _unlist(unit, volume, name, listed), Purpose.ADMINISTRATION)
        raise


@dataclass(frozen=True, slots=True)
class _Listed:
    """The extents that were cut, and the pages of the queue space with them."""

    extents: list[Extent]
    pages: int


def _plan(unit: Unit, name: str, pages: int) -> _Listed:
    extents = unit.device.extents()
    path = manage_spaces.path_of(unit, name)
    chosen = device.allocate(name, pages, unit.device.entries(), extents, path=path)
    total = sum(extent.pages for extent in (*extents, *chosen) if extent.space == name)
    check_int(total, f"number of pages of queue space {name!r} with {pages} more", 0, NUMBER_MAX)
    return _Listed(chosen, total)


def _list(unit: Unit, name: str, pages: int) -> _Listed:
    planned = _plan(unit, name, pages)
    unit.device.add_extents(planned.extents)
    return planned


def _count(unit: Unit, opened: OpenSpace, listed: _Listed) -> Space:
    """Count the extents among the pages of the queue space, where a later extension has not done so already."""
    present = _present(unit, opened)
    if listed.pages > present.definition.pages:
        definition = dataclasses.replace(present.definition, pages=listed.pages)
        present = dataclasses.replace(present, definition=definition)
        unit.spaces.change(present)
        thresholds.note_growth(unit, opened)
    return present


def _present(unit: Unit, opened: OpenSpace) -> Space:
    """Return the queue space as it is now, or raise BadResourceError where it is gone."""
    present = unit.spaces.find(opened.space.name)
    if present is None or not present.is_same_as(opened.space):
        raise no_such_space(opened.space.name)
    return present


def _unlist(unit: Unit, volume: Volume, name: str, listed: _Listed) -> None:
    """Take the extents out of the table of contents, unless another extension has counted them."""
    present = volume.read(lambda other: other.spaces.find(name))
    if present is None or present.definition.pages < listed.pages:
        for extent in listed.extents:
            unit.device.remove_extent(extent)
