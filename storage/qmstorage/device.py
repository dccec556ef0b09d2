"""The device in SQL: what it records about itself, the device list and the table of contents."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable

from qmcore.device import DeviceEntry, DeviceInfo, Extent
from qmcore.errors import BadResourceError
from qmcore.purpose import alone
from qmcore.volume_record import VolumeRecord
from qmstorage.schema import device, entry, extent
from qmstorage.spaces import damaged
from qmstorage.sql import bindparam, delete, select, update
from qmstorage.statements import Row, given, insert_into
from qmstorage.unit_part import UnitPart

_DEVICE = select(device)
_ADD_DEVICE = insert_into(device)
_SET_OPENED = update(device).where(device.c.opened < bindparam("new_opened")).values(opened=bindparam("new_opened"))
_JOIN_DEVICE = update(device).values(
    id=bindparam("new_id"),
    main=bindparam("new_main"),
    durability=bindparam("new_durability"),
    commands=bindparam("new_commands"),
    volume=bindparam("new_volume"),
)
_SET_COMMANDS = update(device).values(commands=bindparam("new_commands"))
_ENTRIES = select(entry).order_by(entry.c.dlindex)
_ADD_ENTRY = insert_into(entry)
_RENAME_ENTRY = update(entry).where(given(entry.c.dlindex, "at")).values(path=bindparam("new_path"))
_SET_VOLUME = (
    update(entry)
    .where(given(entry.c.dlindex, "at"))
    .values(volume=bindparam("new_volume"), opened=bindparam("new_opened"))
)
_RAISE_ENTRIES = (
    update(entry)
    .where(given(entry.c.volume, "of_volume"), entry.c.opened < bindparam("new_opened"))
    .values(opened=bindparam("new_opened"))
)
_REMOVE_ENTRY = delete(entry).where(given(entry.c.dlindex, "at"))
_EXTENTS = select(extent).order_by(extent.c.space, extent.c.number)
_ADD_EXTENT = insert_into(extent)
_REMOVE_EXTENTS = delete(extent).where(given(extent.c.space, "name"))
_REMOVE_EXTENT = delete(extent).where(
    given(extent.c.space, "of_space"),
    given(extent.c.number, "of_number"),
    given(extent.c.dlindex, "at_index"),
    given(extent.c.first_page, "at_page"),
)


class Device(UnitPart):
    """The device: only the volume that QMCONFIG names has more of it than its record."""

    def info(self) -> DeviceInfo:
        """Return what the device records about itself."""
        row = self.one(_DEVICE)
        if row is None:
            raise BadResourceError("the file has no device record")
        if row[2].__class__ is not int or row[2] < 1:
            raise damaged(f"record of the device says that a page has {row[2]!r} bytes")
        return DeviceInfo(
            id=row[0],
            page_size=row[2],
            durability=row[3],
            group=row[4],
            commands=bool(row[5]),
            created_at=row[6],
            partitions=row[7],
            schema_version=self.unit.schema_version,
        )

    def volume(self) -> VolumeRecord:
        """Return what the volume itself records about itself."""
        row = self.one(_DEVICE)
        if row is None:
            raise BadResourceError("the file has no device record")
        return VolumeRecord(device=row[0], volume=row[9], main=bool(row[1]), opened=row[10])

    def set_opened(self, opened: int) -> None:
        """Set the number of the volume itself, where it is lower."""
        self.run(_SET_OPENED, new_opened=opened)

    @alone
    def join_device(self, info: DeviceInfo) -> None:
        """Make the volume itself one of another device, under an identifier that nobody else knows."""
        self.run(
            _JOIN_DEVICE,
            new_id=info.id,
            new_main=False,
            new_durability=info.durability,
            new_commands=info.commands,
            new_volume=new_volume_id(),
        )

    def record(self, info: DeviceInfo, *, first: DeviceEntry | None) -> None:
        """Record the device in a new volume, in that which QMCONFIG names with the `first` entry of its list."""
        volume = new_volume_id()
        self.run(
            _ADD_DEVICE,
            id=info.id,
            main=first is not None,
            page_size=info.page_size,
            durability=info.durability,
            group_name=info.group,
            commands=info.commands,
            created_at=info.created_at,
            partitions=info.partitions,
            home=None,
            volume=volume,
            opened=0,
        )
        if first is not None:
            self.add_entry(dataclasses.replace(first, volume=volume))

    @alone
    def set_commands(self, *, enabled: bool) -> None:
        """Record whether capacity commands run."""
        self.run(_SET_COMMANDS, new_commands=enabled)

    def entries(self) -> list[DeviceEntry]:
        """Return the device list in the order of its indexes."""
        return [DeviceEntry(*row) for row in _with_numbers(self.all(_ENTRIES), "device list", texts=2)]

    @alone
    def add_entry(self, new: DeviceEntry) -> None:
        """Add an entry to the device list."""
        self.run(
            _ADD_ENTRY,
            dlindex=new.index,
            path=new.path,
            first_page=new.offset,
            pages=new.pages,
            volume=new.volume,
            opened=new.opened,
        )

    @alone
    def rename_entry(self, index: int, path: str) -> None:
        """Set the path of an entry of the device list."""
        self.run(_RENAME_ENTRY, at=index, new_path=path)

    @alone
    def remove_entry(self, index: int) -> None:
        """Remove an entry from the device list."""
        self.run(_REMOVE_ENTRY, at=index)

    @alone
    def set_volume(self, index: int, volume: str, opened: int) -> None:
        """Set the identifier and the number of the volume of an entry."""
        self.run(_SET_VOLUME, at=index, new_volume=volume, new_opened=opened)

    def raise_entries(self, volume: str, opened: int) -> None:
        """Set the number of all entries of a volume, where it is lower."""
        self.run(_RAISE_ENTRIES, of_volume=volume, new_opened=opened)

    def extents(self) -> list[Extent]:
        """Return the table of contents."""
        return [Extent(*row) for row in _with_numbers(self.all(_EXTENTS), "table of contents")]

    @alone
    def add_extents(self, extents: Iterable[Extent]) -> None:
        """Add rows to the table of contents."""
        for new in extents:
            self.run(
                _ADD_EXTENT,
                space=new.space,
                number=new.number,
                dlindex=new.entry,
                first_page=new.first,
                pages=new.pages,
            )

    @alone
    def remove_extents(self, name: str) -> None:
        """Remove the rows of a queue space from the table of contents."""
        self.run(_REMOVE_EXTENTS, name=name)

    @alone
    def remove_extent(self, old: Extent) -> None:
        """Remove one row from the table of contents, if it is still there as it was."""
        self.run(_REMOVE_EXTENT, of_space=old.space, of_number=old.number, at_index=old.entry, at_page=old.first)


def new_volume_id() -> str:
    """Return an identifier for a volume that no other has."""
    return os.urandom(8).hex()


def _with_numbers(rows: list[Row], of: str, texts: int = 1) -> list[Row]:
    """Return rows that have so many texts each; refuse rows in which another value is not a number."""
    for row in rows:
        if sum(isinstance(value, int) for value in row) != len(row) - texts:
            raise damaged(f"{of} is damaged: a number in it is not one")
    return rows
