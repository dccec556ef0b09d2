"""Acts on queue spaces.

A queue space lives on one volume, and the table of contents of the device says that it exists. Where the two are
different files, the table of contents decides: what a destruction that was cut short has left on the volume is swept
away by the next creation, unless it holds messages: it may have been given up while the volume was lost, and is listed
again, or removed by a destruction of its name, only on demand. What a creation has listed before it was cut short is
finished by the same creation again.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from qmcore import device, space
from qmcore.acts import in_doubt, thresholds
from qmcore.acts.stores import stores
from qmcore.acts.sweeping import sweep_alone
from qmcore.definitions import OpenSpace, no_such_space
from qmcore.device import DeviceEntry, Extent
from qmcore.errors import (
    InUseError,
    InvalidArgumentError,
    NoSpaceError,
    SystemFailureError,
    in_other_words,
)
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.queue import QueueDefinition
from qmcore.records import Owner, Use
from qmcore.space import HighestUse, Space, SpaceDefinition, SpaceUsage

VolumeOf = Callable[[str], Volume]
"""Finds the volume behind a path of the device list."""


class Choice(NamedTuple):
    """The volumes that a queue space may be put on: that of the path, or without one any that is not missing."""

    path: str | None = None
    missing: Set[str] = frozenset()

    def among(self, entries: Iterable[DeviceEntry]) -> list[DeviceEntry]:
        """Return the entries of the device list that are not on a missing one."""
        return [entry for entry in entries if entry.path not in self.missing]


def create(
    main: Volume,
    volume_of: VolumeOf,
    definition: SpaceDefinition,
    now: int,
    progress: Callable[[int], None] | None,
    choice: Choice,
    queues: Sequence[QueueDefinition] = (),
) -> Space:
    """Create a queue space, or finish a creation that was cut short; its pages are rounded down to a multiple of four.

    Where `progress` is given the disk is allocated now, and told the percent done. Of the volumes of the `choice`
    the one with the most free pages is taken. The `queues` are created with it.
    """
    wanted = dataclasses.replace(definition, pages=space.rounded_pages(definition.pages))
    planned = _planned(main, volume_of, wanted, choice)
    volume = volume_of(planned.path)
    # What a destruction that was cut short has left there.
    left = volume.read(lambda unit: _left_empty(unit, wanted.name, planned.path))
    if progress is not None:
        volume.allocate_disk(wanted.pages, progress)
    incarnation = os.urandom(8).hex()

    def list_extents(unit: Unit) -> None:
        again = _plan(unit, wanted, choice)
        if again.is_listed and not planned.is_listed:
            raise _exists(wanted.name)
        if again.path != planned.path or again.is_listed != planned.is_listed:
            raise InUseError(f"the pages for queue space {wanted.name!r} were taken by another one meanwhile")
        if not planned.is_listed:
            unit.device.add_extents(again.extents)

    def record(unit: Unit) -> Space:
        present = _left_empty(unit, wanted.name, planned.path)
        if present is not None:
            if left is None or not present.is_same_as(left):
                raise _exists(wanted.name)
            unit.spaces.remove(present.id)
        new = unit.spaces.add(wanted, incarnation, now)
        for each in queues:
            unit.queues.add(new.id, each, now)
        if queues:
            unit.highest.raise_to(new.id, "queues", len(queues))
        if progress is not None:
            unit.spaces.set_initialized(new.id)
        return dataclasses.replace(new, initialized=progress is not None)

    if volume is main:

        def both(unit: Unit) -> Space:
            list_extents(unit)
            return record(unit)

        return main.write(both, Purpose.ADMINISTRATION)
    # Whoever lists the name has it; what the volume still has of that name is nobody's then.
    main.write(list_extents, Purpose.ADMINISTRATION)
    try:
        return volume.write(record, Purpose.ADMINISTRATION)
    except InvalidArgumentError:
        # Another has finished what we have listed; the extents are that one's.
        raise
    except BaseException:
        if not planned.is_listed:
            main.write(lambda unit: unit.device.remove_extents(wanted.name), Purpose.ADMINISTRATION)
        raise


def refuse(main: Volume, volume_of: VolumeOf, definition: SpaceDefinition, choice: Choice) -> None:
    """Refuse a queue space that could not be created now."""
    wanted = dataclasses.replace(definition, pages=space.rounded_pages(definition.pages))
    path = _planned(main, volume_of, wanted, choice).path
    volume_of(path).read(lambda unit: _left_empty(unit, wanted.name, path))


def initialize(volume: Volume, of: Space, progress: Callable[[int], None]) -> Space:
    """Allocate the disk of a queue space that exists, as far as its messages have none; tell the percent done."""
    volume.allocate_disk(of.definition.pages - volume.read(lambda unit: unit.counters.level(of.id)).pages, progress)
    volume.write(lambda unit: unit.spaces.set_initialized(of.id), Purpose.ADMINISTRATION)
    return dataclasses.replace(of, initialized=True)


def destroy(main: Volume, volume: Volume, name: str, *, force: bool) -> None:
    """Destroy a queue space with everything in it; `force` although processes are attached or messages are stored."""

    def unlist(unit: Unit) -> None:
        unit.device.remove_extents(name)

    def sweep(unit: Unit) -> None:
        found = unit.spaces.find(name)
        if found is not None and found.incarnation == incarnation:
            if not force:
                refuse_in_use(unit, found)
            unit.spaces.remove(found.id)

    def both(unit: Unit) -> None:
        sweep(unit)
        unlist(unit)

    present = volume.read(lambda unit: unit.spaces.find(name))
    incarnation = present.incarnation if present else ""
    if volume is main:
        main.write(both, Purpose.ADMINISTRATION)
        return
    if present is not None and not force:
        volume.read(lambda unit: refuse_in_use(unit, present))
    main.write(unlist, Purpose.ADMINISTRATION)
    volume.write(sweep, Purpose.ADMINISTRATION)


def left(main: Volume, volumes: Callable[[], Mapping[str, Volume]], name: str) -> dict[str, Space]:
    """Return what volumes, by their paths, still have of a queue space that the table of contents does not list.

    Where it is listed no volume is looked for: another one than its own may be damaged.
    """
    if name in main.read(names):
        return {}
    found = {path: volume.read(lambda unit: unit.spaces.find(name)) for path, volume in volumes().items()}
    # One is listed before it is there.
    listed = name in main.read(names)
    return {} if listed else {path: space for path, space in found.items() if space is not None}


def refuse_left(unit: Unit, name: str, path: str) -> None:
    """Refuse to do away with what the volume at a path still has of a queue space, if that holds messages."""
    found = unit.spaces.find(name)
    held = messages(unit, found) if found is not None else 0
    if held:
        raise InUseError(
            f"queue space {name!r} that is not in the table of contents holds {held}"
            f" {'message' if held == 1 else 'messages'} in {path!r}: it was given up, or its destruction was cut"
            " short",
            hint="Take it back with its messages: qspacecreate -r. Or remove it with them: qspacedestroy -f.",
            space=name,
            path=path,
        )


def take_back(main: Volume, volume: Volume, left: Space, path: str) -> Space:
    """List a queue space again that the volume at a path still has; its pages are cut from what is free there."""

    def list_again(unit: Unit) -> None:
        if left.name in names(unit):
            raise _exists(left.name)
        pages = left.definition.pages
        unit.device.add_extents(
            device.allocate(left.name, pages, unit.device.entries(), unit.device.extents(), path=path)
        )

    main.write(list_again, Purpose.ADMINISTRATION)
    present = volume.read(lambda unit: unit.spaces.find(left.name))
    if present is None or not present.is_same_as(left):
        # A destruction that had begun before was on its way.
        main.write(lambda unit: unit.device.remove_extents(left.name), Purpose.ADMINISTRATION)
        raise no_such_space(left.name)
    return present


def destroy_left(volume: Volume, left: Space, path: str, *, force: bool) -> None:
    """Remove what the volume at a path still has of a queue space; `force` although it holds messages."""

    def sweep(unit: Unit) -> None:
        found = unit.spaces.find(left.name)
        if found is not None and found.is_same_as(left):
            if not force:
                refuse_left(unit, left.name, path)
            unit.spaces.remove(found.id)

    volume.write(sweep, Purpose.ADMINISTRATION)


def clear_memory(unit: Unit, opened: OpenSpace, *, force: bool) -> None:
    """Give up the non-persistent messages of a queue space.

    `force`: although processes are attached, or a prepared transaction has some.
    """
    found = opened.definitions(unit).space
    if not force:
        in_doubt.refuse_loss(unit, found, "the removal of the memory", in_memory=True)
        _refuse_attached(unit, found)
    memory = unit.memory(found.id)
    if memory is not None:
        memory.clear(found.id, unit.queues.of_space(found.id))
        thresholds.note_memory_lost(unit, opened)


def in_memory(unit: Unit, of: Space) -> int:
    """Return how many non-persistent messages a queue space holds, as far as its memory is open."""
    memory = unit.memory(of.id)
    return memory.counters.level(of.id).messages if memory is not None else 0


def find(unit: Unit, name: str) -> Space:
    """Return the queue space of that name, or refuse."""
    found = unit.spaces.find(name)
    if found is None:
        raise no_such_space(name)
    return found


def path_of(unit: Unit, name: str) -> str:
    """Return the path of the device list entry that a queue space's first extent is cut from, or refuse."""
    paths = {entry.index: entry.path for entry in unit.device.entries()}
    for extent in unit.device.extents():
        if extent.space == name:
            return _path_in(paths, extent)
    raise no_such_space(name)


def _path_in(paths: Mapping[int, str], extent: Extent) -> str:
    if extent.entry in paths:
        return paths[extent.entry]
    raise SystemFailureError(
        f"the device list is damaged: it has no entry {extent.entry!r}, where queue space {extent.space!r} has pages",
        hint="Restore the device from a backup.",
        space=extent.space,
    )


def names(unit: Unit) -> list[str]:
    """Return the names of the queue spaces of the device."""
    return sorted({extent.space for extent in unit.device.extents()})


def places(unit: Unit) -> list[tuple[str, str]]:
    """Return the names of the queue spaces of the device, each with the path of the device list that it is on."""
    paths = {entry.index: entry.path for entry in unit.device.entries()}
    any_of = {extent.space: extent for extent in unit.device.extents()}
    return [(name, _path_in(paths, any_of[name])) for name in sorted(any_of)]


def on_path(unit: Unit, path: str) -> tuple[str, ...]:
    """Return the names of the queue spaces on a path of the device list; for a damaged list too."""
    indexes = {entry.index for entry in unit.device.entries() if entry.path == path}
    return tuple(sorted({extent.space for extent in unit.device.extents() if extent.entry in indexes}))


def usage(unit: Unit, of: Space) -> SpaceUsage:
    """Return how much of each limit of a queue space is in use, and was at most."""
    level, memory = unit.counters.level(of.id), unit.memory(of.id)
    in_memory = memory.counters.level(of.id) if memory is not None else Use(0, 0, 0)
    limited = {
        "queues": len(unit.queues.versions(of.id)) + unit.imports.promised_queues(of.id),
        "transactions": unit.transactions.count(of.id),
        "processes": len(unit.owners.of_space(of.id)),
        "messages": level.messages + in_memory.messages,
        "actions": sum(waits - 1 for waits in unit.waits.of_space(of.id).values()),
    }
    noted = dict(unit.highest.of_space(of.id))
    noted["messages"] = max(
        noted.get("messages", 0), *(store.counters.most_messages(of.id) for store in stores(unit, of.id))
    )
    return SpaceUsage(
        **limited,
        pages=level.pages,
        memory=in_memory.pages * unit.device.info().page_size,
        highest=HighestUse(**{limit: max(used, noted.get(limit, 0)) for limit, used in limited.items()}),
    )


class _Plan(NamedTuple):
    """Where a queue space gets its pages; `is_listed`: a creation that was cut short has listed them already."""

    path: str
    extents: list[Extent]
    is_listed: bool


def _planned(main: Volume, volume_of: VolumeOf, wanted: SpaceDefinition, choice: Choice) -> _Plan:
    plan = main.read(lambda unit: _plan(unit, wanted, choice))
    if plan.is_listed:
        if volume_of(plan.path).read(lambda unit: unit.spaces.find(wanted.name)) is not None:
            raise _exists(wanted.name)
        pages = sum(extent.pages for extent in plan.extents)
        if pages != wanted.pages:
            raise InvalidArgumentError(
                f"the creation of queue space {wanted.name!r} with {pages} pages was cut short",
                hint="Create it with as many pages, or remove it with qspacedestroy.",
                space=wanted.name,
            )
        if choice.path not in {None, plan.path}:
            raise InvalidArgumentError(
                f"the creation of queue space {wanted.name!r} on {plan.path!r} was cut short",
                hint="Create it there, or remove it with qspacedestroy.",
                space=wanted.name,
            )
    return plan


def _plan(unit: Unit, wanted: SpaceDefinition, choice: Choice) -> _Plan:
    entries, extents = unit.device.entries(), unit.device.extents()
    if not entries:
        raise InvalidArgumentError("the device list is empty", hint="Create its first entry with crdl.")
    listed = [extent for extent in extents if extent.space == wanted.name]
    chosen = listed or _allocated(wanted, choice, entries, extents)
    paths = {entry.index: entry.path for entry in entries}
    return _Plan(paths[chosen[0].entry], chosen, bool(listed))


def _allocated(
    wanted: SpaceDefinition, choice: Choice, entries: Sequence[DeviceEntry], extents: Sequence[Extent]
) -> list[Extent]:
    try:
        return device.allocate(wanted.name, wanted.pages, choice.among(entries), extents, path=choice.path)
    except NoSpaceError as error:
        if not choice.missing:
            raise
        missing = ", ".join(map(repr, sorted(choice.missing)))
        raise in_other_words(error, hint=f"{error.hint} Not counted, because missing: {missing}.") from error


def room_for(unit: Unit, name: str, choice: Choice) -> int:
    """Return how many pages a queue space that is to be created can have; those that its creation listed, if any."""
    extents = unit.device.extents()
    listed = sum(extent.pages for extent in extents if extent.space == name)
    entries = [entry for entry in choice.among(unit.device.entries()) if choice.path in {None, entry.path}]
    return listed or device.most_free(entries, extents)[1]


def _left_empty(unit: Unit, name: str, path: str) -> Space | None:
    """Return what a volume still has of a queue space, or refuse where that holds messages."""
    refuse_left(unit, name, path)
    return unit.spaces.find(name)


def _exists(name: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"queue space {name!r} exists already", space=name)


def refuse_in_use(unit: Unit, found: Space, me: Owner | None = None) -> None:
    """Refuse a queue space that has prepared transactions, others than `me` have open, or that holds messages."""
    in_doubt.refuse_loss(unit, found, "its destruction", in_memory=False)
    _refuse_attached(unit, found, me)
    _refuse_full(unit, found)


def _refuse_attached(unit: Unit, found: Space, me: Owner | None = None) -> None:
    owners = [owner for owner in unit.owners.of_space(found.id) if me is None or owner.id != me.id]
    if owners:
        who = ", ".join(f"{owner.role} {owner.pid}" for owner in owners[:5])
        raise InUseError(
            f"queue space {found.name!r} has {len(owners)} attached"
            f" {'process' if len(owners) == 1 else 'processes'}: {who}",
            hint="End them, or force it with -f.",
            space=found.name,
        )


def _refuse_full(unit: Unit, found: Space) -> None:
    sweep_alone(unit, found.id)
    held = messages(unit, found)
    if held:
        raise InUseError(
            f"queue space {found.name!r} holds {held} {'message' if held == 1 else 'messages'}",
            hint="Dequeue them, or force it with -f.",
            space=found.name,
        )


def messages(unit: Unit, found: Space) -> int:
    """Return how many messages a queue space holds, with those in its memory as far as that is open."""
    memory = unit.memory(found.id)
    return unit.counters.level(found.id).messages + (
        memory.counters.level(found.id).messages if memory is not None else 0
    )
