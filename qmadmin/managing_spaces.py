"""The calls of administrators on the queue spaces of a device."""

from __future__ import annotations

import contextlib
import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

from qmadmin import defaults
from qmadmin.audit import act, destructive, tell
from qmadmin.console import counted
from qmcore.acts import growing, housekeeping, looking, manage_spaces, manage_volumes, redefining
from qmcore.definitions import OpenSpace
from qmcore.device import DeviceEntry, DeviceInfo
from qmcore.errors import BadResourceError, InvalidArgumentError, OperatingSystemError, QueueError
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.queue import Queue, QueueDefinition, QueueUsage
from qmcore.space import Space, SpaceDefinition, SpaceUsage
from qmcore.volume_record import MissingVolume

if TYPE_CHECKING:
    from typing import Unpack

    from qmadmin.attachment import Attachment
    from qmadmin.defaults import SpaceAttributes
    from qmadmin.device_volumes import Volumes
    from qmadmin.maintenance import Maintenance
    from qmadmin.volume_makers import VolumeMaker
    from qmcore.times import Clock


class ManagingSpaces(ABC):
    """Calls that create, change and destroy the queue spaces of a device."""

    path: str
    readonly: bool
    clock: Clock
    info: DeviceInfo
    _maker: VolumeMaker
    _volumes: Volumes
    _attachments: dict[str, Attachment]
    _lock: contextlib.AbstractContextManager[bool]

    @property
    @abstractmethod
    def _main(self) -> Volume:
        """The volume that QMCONFIG names."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """The kind of store: "sqlite" or "postgresql"."""

    @abstractmethod
    def _check_ready(self) -> None:
        """Refuse a closed device; open the files again in a forked process."""

    @abstractmethod
    def entries(self) -> list[DeviceEntry]:
        """Return the entries of the device list."""

    @abstractmethod
    def volume_of(self, path: str, *, looks: bool = False) -> Volume:
        """Return the volume behind a path of the device list."""

    @abstractmethod
    def _choice(self, volume: str | os.PathLike[str] | int | None) -> manage_spaces.Choice:
        """Return which volumes a new queue space may be put on; refuse one that was named and is missing."""

    def spaces(self) -> list[Space]:
        """Return the queue spaces of the device by name.

        A queue space whose creation was interrupted, or whose volume is missing, is not among them. What is missing is
        what `missing_volumes` returns; the log has it once.
        """
        self._check_ready()
        missing = {name for volume in self._volumes.missing(logged=True) for name in volume.spaces}
        places = [(name, path) for name, path in self._main.read(manage_spaces.places) if name not in missing]
        found = [
            self.volume_of(path, looks=True).read(lambda unit, name=name: unit.spaces.find(name))  # type: ignore[misc]
            for name, path in places
        ]
        return [space for space in found if space is not None]

    def missing_volumes(self) -> list[MissingVolume]:
        """Return the files or schemas of the device list that cannot be opened, and the queue spaces on them.

        Everything else works without them.
        """
        self._check_ready()
        return self._volumes.missing()

    def space(self, name: str) -> Space:
        """Return the definition of a queue space, or raise BadResourceError."""
        return self._found(name, looks=True)[1]

    def queues(self, name: str) -> list[Queue]:
        """Return the queues of a queue space by name; no process is attached for this."""
        volume, found = self._found(name, looks=True)
        return volume.read(lambda unit: unit.queues.of_space(found.id))

    def queue_usages(self, name: str) -> list[tuple[Queue, QueueUsage]]:
        """Return the queues of a queue space by name, each with its usage; no process is attached for this."""
        volume, found = self._found(name, looks=True)
        now = self.clock.now()

        def look(unit: Unit) -> list[tuple[Queue, QueueUsage]]:
            queues = unit.queues.of_space(found.id)
            return list(zip(queues, looking.usages(unit, queues, now), strict=True))

        with self._memory(volume, found):
            return volume.read(look)

    def tidy_space(self, name: str) -> None:
        """Clean up after dead processes in a queue space: their transactions roll back."""
        volume, found = self._found(name)
        with self._memory(volume, found):
            housekeeping.end_what_was_left(volume, self._looked_at(found), self.clock)

    def space_usage(self, name: str) -> SpaceUsage:
        """Return how much of each limit of a queue space is in use."""
        volume, found = self._found(name, looks=True)
        with self._memory(volume, found):
            return volume.read(lambda unit: manage_spaces.usage(unit, manage_spaces.find(unit, name)))

    def create_space(
        self,
        definition: SpaceDefinition | str,
        *,
        volume: str | os.PathLike[str] | int | None = None,
        exist_ok: bool = False,
        initialize: bool = False,
        progress: Callable[[int], None] | None = None,
        **attributes: Unpack[SpaceAttributes],
    ) -> Space:
        """Create a queue space; its pages are rounded down to a multiple of four and cut from the device list.

        They all come from one file, or on PostgreSQL schema: `volume`, a path of the device list or the index of an
        entry, or without it the one with the most free pages of those that are there.

        It is given by its definition, which has Tuxedo's defaults, or by its name and keywords. Then its key is chosen,
        it gets up to 16 GiB of what the device has, 1,000 queues, transactions and processes, and 1,000,000 messages at
        a time; and its error queue, `errors` or what `error_queue` says, is created with it. With `exist_ok` a queue
        space of that name stays as it is and is returned.

        The same call again finishes a creation that was interrupted, as by a power failure. `initialize` allocates the
        disk space now and calls `progress` with the percentage done. Raises NoSpaceError if the device has too few free
        pages, InvalidArgumentError if the name is taken, InUseError if the file still holds messages of a queue space
        of that name that was given up, OperatingSystemError if the disk is full.
        """
        if exist_ok and (present := self._present(definition)) is not None:
            return present
        choice = self._choice(volume)
        queues: list[QueueDefinition] = []
        if isinstance(definition, SpaceDefinition):
            defaults.refuse_keywords(f"queue space {definition.name!r}", attributes)
        else:
            definition, queues = self._by_keywords(definition, attributes, choice)
        told = (progress or _ignore_progress) if initialize else None
        try:
            return manage_spaces.create(self._main, self.volume_of, definition, self.clock.now(), told, choice, queues)
        except InvalidArgumentError:
            if exist_ok and (present := self._present(definition)) is not None:
                return present
            raise

    def _present(self, definition: SpaceDefinition | str) -> Space | None:
        name = definition.name if isinstance(definition, SpaceDefinition) else definition
        return next((space for space in self.spaces() if space.name == name), None)

    def _by_keywords(
        self, name: str, attributes: SpaceAttributes, choice: manage_spaces.Choice
    ) -> tuple[SpaceDefinition, list[QueueDefinition]]:
        """Return the definition of a queue space by its name and keywords, and that of its error queue, if any."""
        keys = [space.definition.ipc_key for space in self.spaces()]
        room = self._main.read(lambda unit: manage_spaces.room_for(unit, name, choice))
        definition = defaults.space_definition(name, attributes, room, keys)
        return definition, [QueueDefinition(name=each) for each in [definition.error_queue] if each]

    def refuse_space(self, definition: SpaceDefinition, *, volume: str | os.PathLike[str] | int | None = None) -> None:
        """Raise what `create_space` would raise now if the name is taken or there is no room; nothing is created."""
        looked_at = functools.partial(self.volume_of, looks=True)
        manage_spaces.refuse(self._main, looked_at, definition, self._choice(volume))

    def extend_space(self, name: str, pages: int, *, progress: Callable[[int], None] | None = None) -> Space:
        """Give a queue space more pages: one more extent of its file, rounded down to a multiple of four.

        Other processes may use it meanwhile and lose nothing; they can use the pages from their next operation on. If
        the disk space of the queue space was allocated at its creation, that of the extent is allocated too, and
        `progress` is called with the percentage done. The pages can never be taken back.

        Raises NoSpaceError if the file that the queue space is in has too few free pages, or the table of contents is
        full; InvalidArgumentError for fewer than four pages; OperatingSystemError if the disk is full.
        """
        volume, found = self._found(name)
        return growing.extend(self._main, volume, self._looked_at(found), pages, progress or _ignore_progress)

    def change_space(
        self,
        definition: SpaceDefinition | str,
        *,
        initialize: bool = False,
        progress: Callable[[int], None] | None = None,
        **attributes: Unpack[SpaceAttributes],
    ) -> Space:
        """Change the definition of the queue space of that name; with `initialize`, allocate disk for its pages now.

        With a name, what the keywords give is changed.

        Limits, the error queue, the key and values that are only recorded can change while other processes work; they
        see the change at their next operation. The number of pages cannot change. Raises InUseError if a limit would be
        below what is in use, or if the memory for non-persistent messages would change, which loses those messages,
        while another process is attached or a transaction is open; InvalidArgumentError if the pages differ.
        """
        name = definition.name if isinstance(definition, SpaceDefinition) else definition
        volume, present = self._found(name)
        definition = defaults.changed(present.definition, definition, attributes)
        if present.definition.memory in (0, definition.memory):
            changed, _ = self._redefine(volume, present, definition)
        else:
            given = {"name": definition.name, "memory": definition.memory}
            target = f"memory of queue space {definition.name}: {definition.memory} bytes"
            with act(cast("Maintenance", self), target, "Device.change_space", given) as begun:
                changed, lost = self._redefine(volume, present, definition)
                begun.tell(f"removed with {counted(lost, 'non-persistent message')}")
        if initialize and not changed.initialized:
            return manage_spaces.initialize(volume, changed, progress or _ignore_progress)
        return changed

    def _redefine(self, volume: Volume, present: Space, definition: SpaceDefinition) -> tuple[Space, int]:
        """Change a definition; return it, and how many messages were in memory, which a change of the memory loses."""
        opened = self._looked_at(present)
        with self._lock:
            own = self._attachments.get(definition.name)
            me = own.opened.me if own is not None else None
            with self._memory(volume, present):
                housekeeping.end_what_was_left(volume, opened, self.clock)
                stored, changed = volume.write(
                    lambda unit: (
                        manage_spaces.in_memory(unit, present),
                        redefining.redefine(unit, opened, definition, me),
                    ),
                    Purpose.ADMINISTRATION,
                )
            if changed.definition.memory != present.definition.memory:
                self._follow_memory(volume, present, changed, attached=me is not None)
        return changed, stored

    def _follow_memory(self, volume: Volume, before: Space, changed: Space, *, attached: bool) -> None:
        """Create or remove the memory as the definition now says; no other process has it open."""
        if not changed.definition.memory:
            volume.memories.remove(before)
        elif attached and not before.definition.memory:
            volume.memories.attach(changed, volume.read(lambda unit: unit.queues.of_space(changed.id)))

    @destructive("queue space {name}")
    def destroy_space(self, name: str, *, force: bool = False, lost: bool = False, dry_run: bool = False) -> None:
        """Destroy a queue space with its queues and messages.

        Raises InUseError while processes are attached to it or messages are stored in it, unless `force`. If a file or
        schema that was given up as lost comes back, the call destroys what it still has of the queue space.

        Raises BadResourceError if its file or schema is missing. With `lost` the device forgets such a queue space, and
        its messages are lost; it then raises InvalidArgumentError if the file or schema is there, and BadResourceError
        if it is there and cannot be read. With `dry_run` nothing is destroyed; the call raises the error that it would
        raise otherwise, and this process may have it open.
        """
        missing = self.missing_volume_of(name)
        if lost:
            self._give_up(name, missing, dry_run=dry_run)
            return
        if missing is not None and missing.lost:
            manage_volumes.refuse_lost(name, missing)
        left = self._left(name)
        if left:
            for path, space in left.items():
                self._destroy_left(path, space, force=force, dry_run=dry_run)
            return
        volume = self.volume_of_space(name)
        present = volume.read(lambda unit: unit.spaces.find(name))
        # A queue space that an interrupted creation has listed but not created can be destroyed too.
        # The messages in its memory count, and are lost with it.
        with self._memory(volume, present):
            if present is not None:
                housekeeping.end_what_was_left(volume, self._looked_at(present), self.clock)
            if dry_run:
                self._refuse_in_use(volume, present, force=force)
                return
            self._destroy(volume, present, lambda: manage_spaces.destroy(self._main, volume, name, force=force))
        with self._lock:
            gone = self._attachments.pop(name, None)
        if gone is not None:
            gone.forget()

    def left_messages(self, name: str) -> int | None:
        """Return how many messages the files of the device still hold of a queue space that it does not list.

        It was given up while its file was lost, or its destruction was interrupted. None if they have none.
        """
        left = self._left(name)
        if not left:
            return None
        total = 0
        for path, space in left.items():
            volume = self.volume_of(path, looks=True)
            with self._memory(volume, space):
                total += volume.read(lambda unit, space=space: manage_spaces.messages(unit, space))  # type: ignore[misc]
        return total

    def take_back_space(self, name: str) -> Space:
        """List a queue space again that a file of the device still has with its messages, and return it.

        It was given up while the file was lost, or its destruction was interrupted, or the device was restored from a
        backup that is older than it. Its pages are cut from those that are free in the file.

        Raises BadResourceError if no file has such a queue space, InvalidArgumentError if the name is taken or several
        files have one, NoSpaceError if the file has too few free pages.
        """
        left = self._left(name)
        if len(left) > 1:
            raise InvalidArgumentError(
                f"several files have a queue space {name!r}: {', '.join(map(repr, left))}",
                hint="Move all but one away, and open the device again.",
                space=name,
            )
        for path, space in left.items():
            return manage_spaces.take_back(self._main, self.volume_of(path), space, path)
        if name in self._main.read(manage_spaces.names):
            raise InvalidArgumentError(f"queue space {name!r} is in the table of contents", space=name)
        raise BadResourceError(f"no file of the device has a queue space {name!r} that was given up", space=name)

    def _left(self, name: str) -> dict[str, Space]:
        """Return, by path, the remains of a queue space that the device does not list."""

        def volumes() -> dict[str, Volume]:
            paths = [entry.path for entry in self._choice(None).among(self.entries())]
            return {path: self.volume_of(path, looks=True) for path in paths}

        return manage_spaces.left(self._main, volumes, name)

    def _destroy_left(self, path: str, left: Space, *, force: bool, dry_run: bool) -> None:
        volume = self.volume_of(path)
        with self._memory(volume, left):
            if not force:
                volume.read(lambda unit: manage_spaces.refuse_left(unit, left.name, path))
            if dry_run:
                return
            self._destroy(volume, left, lambda: manage_spaces.destroy_left(volume, left, path, force=force))

    def _destroy(self, volume: Volume, present: Space | None, destroy: Callable[[], None]) -> None:
        """Destroy a queue space and its memory, and note what was lost, as far as that could be counted."""
        used = self._used(volume, present)
        destroy()
        if used is not None:
            tell(f"destroyed with {counted(used.queues, 'queue')} and {counted(used.messages, 'message')}")
        if present is not None and present.definition.memory:
            volume.memories.remove(present)

    def missing_volume_of(self, name: str) -> MissingVolume | None:
        """Return the file or schema that a queue space is on, if it is missing; None if it is there."""
        return next((volume for volume in self.missing_volumes() if name in volume.spaces), None)

    def _give_up(self, name: str, missing: MissingVolume | None, *, dry_run: bool) -> None:
        """Remove a queue space whose volume is lost from the table of contents."""
        if missing is None:
            self._main.read(lambda unit: manage_volumes.refuse_present(unit, name))
            return
        manage_volumes.refuse_unreadable(name, missing)
        if dry_run:
            return
        manage_volumes.give_up(self._main, name)
        tell(f"given up with all that was on {missing.path}: {missing.reason}")
        with self._lock:
            self._attachments.pop(name, None)
        self._volumes.forget(missing.path)

    def _used(self, volume: Volume, present: Space | None) -> SpaceUsage | None:
        """Return what a queue space holds, as far as that can be counted."""
        if present is not None:
            with contextlib.suppress(QueueError):
                return volume.read(lambda unit: manage_spaces.usage(unit, present))
        return None

    def _refuse_in_use(self, volume: Volume, present: Space | None, *, force: bool) -> None:
        if present is None or force:
            return
        ours = self._attachments.get(present.name)
        volume.read(lambda unit: manage_spaces.refuse_in_use(unit, present, ours.opened.me if ours else None))

    @destructive("memory of queue space {name}")
    def clear_memory(self, name: str, *, force: bool = False) -> None:
        """Give up the non-persistent messages of a queue space, and its memory; its highest use begins again.

        Raises InUseError while processes are attached to the queue space, unless `force`.
        """
        volume, found = self._found(name)
        opened = self._looked_at(found)
        if not found.definition.memory:
            housekeeping.end_what_was_left(volume, opened, self.clock)
            volume.write(lambda unit: manage_spaces.clear_memory(unit, opened, force=force), Purpose.ADMINISTRATION)
        else:
            self._remove_memory(volume, found, opened, force=force)
        volume.write(lambda unit: unit.highest.forget(found.id), Purpose.ADMINISTRATION)

    def _remove_memory(self, volume: Volume, found: Space, opened: OpenSpace, *, force: bool) -> None:
        try:
            with self._memory(volume, found):
                housekeeping.end_what_was_left(volume, opened, self.clock)
                used = self._used(volume, found)
                volume.write(lambda unit: manage_spaces.clear_memory(unit, opened, force=force), Purpose.ADMINISTRATION)
                if used is not None:
                    tell(f"removed with {used.memory} bytes of non-persistent messages")
        except OperatingSystemError:
            # A damaged one can only be removed.
            if volume.read(lambda unit: unit.owners.of_space(found.id)):
                raise
        volume.memories.remove(found, unused=True)

    def volume_of_space(self, name: str, *, looks: bool = False) -> Volume:
        """Return the volume that a queue space is on, or raise BadResourceError; `looks`: nothing will be written."""
        return self.volume_of(self._main.read(lambda unit: manage_spaces.path_of(unit, name)), looks=looks)

    def _found(self, name: str, *, looks: bool = False) -> tuple[Volume, Space]:
        volume = self.volume_of_space(name, looks=looks)
        return volume, volume.read(lambda unit: manage_spaces.find(unit, name))

    @contextlib.contextmanager
    def _memory(self, volume: Volume, found: Space | None) -> Iterator[None]:
        """Open the memory of a queue space, if there is one, for the time of a reading act."""
        # A missing one holds nothing, and reading must not create it.
        if found is None or not found.definition.memory or not volume.memories.files(found):
            yield
            return
        volume.memories.attach(found, volume.read(lambda unit: unit.queues.of_space(found.id)))
        try:
            yield
        finally:
            volume.memories.detach(found)

    def _looked_at(self, found: Space) -> OpenSpace:
        """Return a queue space for an act that does not attach this process."""
        return OpenSpace(found, page_size=self.info.page_size)


def _ignore_progress(_percent: int) -> None:
    pass
