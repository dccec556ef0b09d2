"""What a volume records about itself, and why one is not the volume that the device list names.

The device list has for each entry the identifier of its volume, and the number that the volume had when it was last
opened for writing with nobody attached. The volume has the same two; its number is written first. So a volume with a
number behind the list is an older copy, and one ahead of it is what a crash between the two writes leaves.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from qmcore.device import DeviceEntry
from qmcore.errors import Alternative, BadResourceError, QueueError
from qmcore.values import dataclass

_GIVE_UP = "If it will never come back, give up its queue spaces with qspacedestroy -L, and then its entry with dsdl."
IF_MISSING = "Put it back, for example from a backup, or set its new path with chdl."
"""What to do about a volume of the device list that is missing."""

_IF_REPLACED = (
    f"Move away what is there and put it back, for example from a backup, or set its new path with chdl. {_GIVE_UP}"
)
_AT_RENAME = "Name the path that it has now, or will have."


@dataclass(frozen=True, slots=True)
class VolumeRecord:
    """What a volume says of itself: the identifier of its `device`, and its own one, `volume`.

    `main` is set in the volume that QMCONFIG names. `opened` is a number that grows with its openings; it may stay for
    several.
    """

    device: str
    volume: str
    main: bool
    opened: int


PRESENT = "present"
"""The state of a volume that is there; that of a missing one says why."""

Accept: TypeAlias = Callable[[VolumeRecord], None]
"""Raises QueueError for a volume that is not the wanted one; it is asked before anything is written to the volume."""


class Why(enum.Enum):
    """Why the volume that the device list names is missing.

    `state` is that in a word; `sentence` says so of a `path`, a `device`, and a number of openings that it is `behind`;
    `advice` says what to do.
    `taken` says what it means if chdl takes the volume nevertheless; empty where it never does.
    """

    ABSENT = "missing", "there is no device {path!r}", f"{IF_MISSING} {_GIVE_UP}"
    EMPTY = (
        "empty",
        "{path!r} is empty",
        _IF_REPLACED,
        "make a new volume there: the queue spaces of the entry are gone, and are created again or given up",
    )
    NOT_A_VOLUME = "not-a-volume", "{path!r} is not a qmadmin device", _IF_REPLACED
    OTHER_DEVICE = (
        "other-device",
        "{path!r} belongs to another device than {device!r}",
        _IF_REPLACED,
        "take it from the other device, which loses it: its queue spaces can be taken back with qspacecreate -r",
    )
    OTHER_VOLUME = (
        "other-volume",
        "{path!r} is another volume of device {device!r}",
        _IF_REPLACED,
        "use that volume for the entry: queue spaces of the entry that are not in it are gone",
    )
    LISTED = (
        "listed",
        "{path!r} is a volume of device {device!r} that another entry of its list names, or a copy of it",
        _IF_REPLACED,
    )
    DEVICE_ITSELF = "device-itself", "{path!r} is device {device!r} itself, or a copy of it", _IF_REPLACED
    OLDER = (
        "older-copy",
        "{path!r} is an older copy of the volume, {behind}",
        (
            "Move it away and put the newest one back, or set the path of that with chdl. If there is none, take this"
            " one with chdl -f, which says what that means."
        ),
        "take the older copy, {behind}: what was enqueued since is lost, and what was dequeued since comes again",
    )
    UNREADABLE = "unreadable", "{path!r} cannot be read", ""

    def __init__(self, state: str, sentence: str, advice: str, taken: str = "") -> None:
        self.state = state
        self.sentence = sentence
        self.advice = advice
        self.taken = taken

    @property
    def lost(self) -> bool:
        """Whether the volume is not there: it may never come back."""
        return self is not Why.UNREADABLE


class VolumeMissingError(BadResourceError):
    """What is at a path is not the volume that the device list names, or would name."""

    def __init__(self, message: str, **known: Any) -> None:
        super().__init__(message, **known)
        self.why: Why = self.facts["why"]
        """What it is instead."""
        self.behind: int = self.facts.get("behind", 0)
        """By how many openings it is older."""

    @property
    def taken(self) -> str:
        """What it means to take it nevertheless; empty where that is never done."""
        return self.why.taken.format(behind=_openings(self.behind))


@dataclass(frozen=True, slots=True)
class MissingVolume:
    """A file or schema of the device list that cannot be opened, the queue spaces on it, why, and what to do.

    `lost` is set where its volume is not there, whatever is in its place: it may never come back.
    """

    path: str
    spaces: tuple[str, ...]
    reason: str
    advice: str
    why: Why = Why.UNREADABLE

    @property
    def lost(self) -> bool:
        """Whether it may never come back."""
        return self.why.lost

    @property
    def state(self) -> str:
        """Why it is missing, in a word: missing, empty, older-copy, unreadable and others."""
        return self.why.state

    def __str__(self) -> str:
        return f"{_with_spaces(self)} cannot be opened: {self.reason}"


def state_of(path: str, missing: Iterable[MissingVolume]) -> str:
    """Return the state of the volume at a path of the device list."""
    return next((volume.state for volume in missing if volume.path == path), PRESENT)


def missing(why: Why, path: str, device: str, behind: int = 0) -> VolumeMissingError:
    """Return the refusal of what is at a path, as a volume of the device."""
    sentence = why.sentence.format(path=path, device=device, behind=_openings(behind))
    return VolumeMissingError(sentence, hint=_AT_RENAME, path=path, why=why, behind=behind)


def named(error: VolumeMissingError, path: str, device: str) -> VolumeMissingError:
    """Return the same refusal where the device list names the path."""
    return VolumeMissingError(
        f"{error.message}, though the device list of {device!r} names it",
        hint=error.why.advice,
        path=path,
        why=error.why,
        behind=error.behind,
    )


def refuse_missing(volumes: Sequence[MissingVolume], because: str, *, can_be: bool = True) -> None:
    """Raise BadResourceError if there are any, with their names after `because`; `can_be` left out if that is asked."""
    if not volumes:
        return
    raise BadResourceError(
        f"{because} {', '.join(f'{_with_spaces(volume)} ({volume.reason})' for volume in volumes)}",
        hint=f"qcheck says how to bring it back{'; or leave it out.' if can_be else '.'}",
        alternative=Alternative.LEAVE_OUT if can_be else None,
        path=volumes[0].path,
        spaces=tuple(name for volume in volumes for name in volume.spaces),
    )


def why_of(error: QueueError) -> Why:
    """Return why a volume is missing that could not be opened."""
    return error.why if isinstance(error, VolumeMissingError) else Why.UNREADABLE


def refuse_stranger(record: VolumeRecord, entry: DeviceEntry, path: str, info_id: str, device: str) -> None:
    """Raise VolumeMissingError where a volume at a path is not that of an entry of the device."""
    if record.device != info_id:
        raise missing(Why.OTHER_DEVICE, path, device)
    if record.main:
        raise missing(Why.DEVICE_ITSELF, path, device)
    if record.volume != entry.volume:
        raise missing(Why.OTHER_VOLUME, path, device)
    if record.opened < entry.opened:
        raise missing(Why.OLDER, path, device, entry.opened - record.opened)


def _with_spaces(volume: MissingVolume) -> str:
    there = f" with queue space{'s' * (len(volume.spaces) > 1)} {', '.join(volume.spaces)}" if volume.spaces else ""
    return f"{volume.path!r}{there}"


def _openings(count: int) -> str:
    return f"{count} {'opening' if count == 1 else 'openings'} behind"
