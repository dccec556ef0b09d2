"""Acts on the volumes of a device, beside the device list."""

from __future__ import annotations

from typing import Final

from qmcore.acts.manage_spaces import path_of
from qmcore.device import DeviceEntry
from qmcore.errors import BadResourceError, InvalidArgumentError
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.records import Owner
from qmcore.volume_record import MissingVolume, VolumeRecord

_PATIENCE_SECONDS: Final = 0.5
"""How long others may write to the device list before the number of a volume is left as it is."""


def raise_number(main: Volume, volume: Volume, entry: DeviceEntry) -> bool:
    """Raise the number of a volume where no living process is attached to a queue space on it; return whether it was.

    From then on a copy that was made before is behind the device list, of which `entry` is one of the volume. The
    volume is written first, and is on the disk before the list is: one that is ahead is right, after a crash too.
    Where the list cannot be written now, this is left to the next who opens the volume.
    """
    if main.readonly or volume.readonly or main.is_joined() or volume.is_joined():
        return False

    def found(unit: Unit) -> tuple[list[Owner], VolumeRecord]:
        owners = [owner for space in unit.spaces.listed() for owner in unit.owners.of_space(space.id)]
        return owners, unit.device.volume()

    owners, record = volume.read(found)
    if volume.liveness.living(owners) or not main.comes_free(_PATIENCE_SECONDS):
        return False
    # Of two that do this at the same time, each writes the same.
    number = max(entry.opened, record.opened) + 1
    volume.write(lambda unit: unit.device.set_opened(number), Purpose.MESSAGES)
    volume.sync(others=True)
    main.write(lambda unit: unit.device.raise_entries(entry.volume, number), Purpose.MESSAGES)
    return True


def give_up(main: Volume, name: str) -> None:
    """Take a queue space whose volume is lost out of the table of contents.

    Where the volume comes back all the same, what it has of that name is nobody's, until it is destroyed.
    """
    main.write(lambda unit: unit.device.remove_extents(name), Purpose.ADMINISTRATION)


def refuse_lost(name: str, volume: MissingVolume) -> None:
    """Refuse a queue space whose volume is lost."""
    raise BadResourceError(
        f"queue space {name!r} is on a volume that is lost: {volume.reason}",
        hint=volume.advice,
        path=volume.path,
        space=name,
    )


def refuse_present(unit: Unit, name: str) -> None:
    """Refuse to give up a queue space whose volume is there."""
    path = path_of(unit, name)
    raise InvalidArgumentError(
        f"queue space {name!r} is not given up: its volume {path!r} is there",
        hint="Without -L it is destroyed with all that it holds.",
        space=name,
        path=path,
    )


def refuse_unreadable(name: str, volume: MissingVolume) -> None:
    """Refuse to give up a queue space if its volume may only be out of reach."""
    if not volume.lost:
        raise BadResourceError(
            f"queue space {name!r} is not given up: {volume.reason}",
            hint=volume.advice or "Its volume is there: make it readable.",
            path=volume.path,
            space=name,
        )
