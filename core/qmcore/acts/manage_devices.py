"""Acts on the device list."""

from __future__ import annotations

import dataclasses

from qmcore import device, names
from qmcore.device import DeviceEntry, PageRange, TableEntry
from qmcore.errors import InUseError, InvalidArgumentError
from qmcore.port import Unit


def add_entry(unit: Unit, wanted: DeviceEntry) -> DeviceEntry:
    """Add a run of pages of a file to the device list, under the first index that is free."""
    present = unit.device.entries()
    taken = {entry.index for entry in present}
    index = next(number for number in range(len(present) + 1) if number not in taken)
    entry = device.checked_entry(dataclasses.replace(wanted, index=index), present)
    unit.device.add_entry(entry)
    return entry


def rename_entry(unit: Unit, index: int, path: str) -> DeviceEntry:
    """Give an entry another path, as when its file was moved; the pages in it are looked for there from now on."""
    renamed = dataclasses.replace(to_rename(unit, index, path), path=path)
    unit.device.rename_entry(index, path)
    return renamed


def to_rename(unit: Unit, index: int, path: str) -> DeviceEntry:
    """Return an entry that may get a path, or refuse."""
    entry = find_entry(unit, index)
    renamed = dataclasses.replace(entry, path=names.path(path))
    device.refuse_overlap(renamed, (other for other in unit.device.entries() if other.index != index))
    return entry


def replace_volume(unit: Unit, index: int, path: str, volume: str, opened: int) -> DeviceEntry:
    """Give an entry, and all that share its volume, the path, identifier and number of another volume."""
    before = find_entry(unit, index)
    for entry in unit.device.entries():
        if entry.volume == before.volume:
            unit.device.rename_entry(entry.index, path)
            unit.device.set_volume(entry.index, volume, opened)
    return find_entry(unit, index)


def remove_entry(unit: Unit, index: int) -> DeviceEntry:
    """Remove an entry that no queue space uses; the first one only when it is the last that is left."""
    entry = refuse_used(unit, index)
    unit.device.remove_entry(index)
    return entry


def refuse_used(unit: Unit, index: int) -> DeviceEntry:
    """Return the entry of that index if it can be removed, or refuse."""
    entry = find_entry(unit, index)
    users = users_of(unit, index)
    if users:
        raise InUseError(
            f"entry {index} ({entry.path!r}) of the device list is in use by queue space {users[0]!r}",
            hint="Destroy the queue space with qspacedestroy first.",
            entry=index,
            spaces=users,
        )
    others = len(unit.device.entries()) - 1
    if index == 0 and others:
        raise InUseError(
            f"entry 0 ({entry.path!r}) of the device list holds the list itself, which has {others} other"
            f" {'entry' if others == 1 else 'entries'}",
            hint="Remove the other entries first.",
            entry=index,
        )
    return entry


def users_of(unit: Unit, index: int) -> list[str]:
    """Return the names of the queue spaces that have pages of an entry."""
    return sorted({extent.space for extent in unit.device.extents() if extent.entry == index})


def find_entry(unit: Unit, index: int) -> DeviceEntry:
    """Return the entry with that index, or refuse."""
    entries = unit.device.entries()
    for entry in entries:
        if entry.index == index:
            return entry
    known = f"0 to {entries[-1].index}" if entries else "none"
    raise InvalidArgumentError(f"the device list has no entry {index}; its entries are {known}")


def free_ranges(unit: Unit, index: int) -> list[PageRange]:
    """Return the runs of pages of an entry that are free."""
    return device.free_ranges(find_entry(unit, index), unit.device.extents())


def table_of_contents(unit: Unit) -> list[TableEntry]:
    """Return the rows of the table of contents; a device without entries has none."""
    return device.table_of_contents(unit.device.extents()) if unit.device.entries() else []
