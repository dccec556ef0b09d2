"""The target of a worker: an archive, and the device that it loads it into or removes it from.

A device is opened when it is first needed, and stays open for the units that follow. The archive of a move records its
destination: messages that may have arrived in one place go to no other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Self

from qmadmin.archive.manifest import ArchivedSpace, Manifest
from qmadmin.archive.reading import Archive
from qmadmin.archive.rows import Standing
from qmadmin.attachment import Attachment
from qmadmin.device import Device
from qmadmin.opening import open_device
from qmadmin.transfer.import_planning import ImportOptions
from qmcore.acts import importing
from qmcore.acts.purging import CarriedMessage, remove_carried
from qmcore.errors import InvalidArgumentError
from qmcore.imports import ImportJob, Source
from qmcore.names import storable
from qmcore.port import Volume
from qmcore.purpose import Purpose
from qmcore.values import dataclass

ROLE = "import"
"""The name of a process that imports, as others see it."""


@contextlib.contextmanager
def attachment(device: Device, space: str) -> Iterator[Attachment]:
    """Open a queue space for the block, which gets this process's attachment to it."""
    with device.open_space(space, role=ROLE):
        yield device.attachment(space, ROLE)


@dataclass(frozen=True, slots=True)
class ImportTarget:
    """A queue space that an archive is imported into: its name, that in the archive, and the import."""

    name: str
    source: str
    job: ImportJob


@contextlib.contextmanager
def target_of(archive: Archive) -> Iterator[Target]:
    """Yield the target of an archive, whose devices are closed at the end of the block."""
    with contextlib.ExitStack() as stack:
        yield Target(archive, stack)


class Target:
    """An archive, and the device that it is loaded into or removed from."""

    def __init__(self, archive: Archive, stack: contextlib.ExitStack) -> None:
        self.archive = archive
        self._stack = stack
        self._loaders: dict[str, Loader] = {}
        self._removers: dict[str, Remover] = {}

    def loader(self, config: str, targets: Sequence[ImportTarget]) -> Loader:
        """Return a loader of the archive into queue spaces of a device."""
        if config not in self._loaders:
            device = self._stack.enter_context(open_device(config))
            for target in targets:
                if target.job.plan.memory_use.messages:
                    # An attached process has the memory of the queue space open.
                    self._stack.enter_context(device.open_space(target.name, role=ROLE))
            volumes = {target.source: device.volume_of_space(target.name) for target in targets}
            self._loaders[config] = Loader(volumes, targets)
        return self._loaders[config]

    def remover(self, config: str) -> Remover:
        """Return a remover of the messages of the archive from a device."""
        if config not in self._removers:
            device = self._stack.enter_context(open_device(config))
            attached = {}
            for name in (space.name for space in self.archive.manifest.spaces):
                attached[name] = self._stack.enter_context(attachment(device, name))
            self._removers[config] = Remover(self.archive, attached)
        return self._removers[config]


class Loader:
    """Loads parts of an archive into queue spaces of a device."""

    def __init__(self, volumes: Mapping[str, Volume], targets: Sequence[ImportTarget]) -> None:
        self._volumes = volumes
        self._targets = {target.source: target for target in targets}

    def wants(self, source: Source) -> bool:
        """Return whether a queue of the archive is imported."""
        target = self._targets.get(source[0])
        return target is not None and source in target.job.queues

    def load(self, space: str, batch: tuple[str, int], groups: Sequence[importing.Group]) -> None:
        """Load the messages of a queue space of the archive that are in a batch."""
        importing.load_batch(self._volumes[space], self._targets[space].job, batch, groups)


class Remover:
    """Removes the messages of an archive from a device."""

    def __init__(self, archive: Archive, attached: Mapping[str, Attachment]) -> None:
        self._archive = archive
        self._attached = attached

    def remove(self, standing: Standing, carried: Sequence[CarriedMessage]) -> int:
        """Remove unchanged messages, and return their number."""
        space, queue, _, memory = standing
        its = self._attached[space]
        if self._archived(space).incarnation != its.opened.space.incarnation:
            return 0
        return its.volume.write(
            lambda unit: remove_carried(unit, its.opened, queue, carried, memory=memory), Purpose.MESSAGES
        )

    def _archived(self, name: str) -> ArchivedSpace:
        return next(space for space in self._archive.manifest.spaces if space.name == name)


# ---- the destination of a move ---------------------------------------------------------------------------------------


ASKED: Final = "move"
"""The name of the destination in the selection of a manifest."""

_GO_ON: Final = (
    "Go on with that; where qmspark verify finds that nothing has arrived there, start the queues here with qstart and"
    " move into another archive."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The device that queues are moved to, and the new names of queue spaces and queues there, by the old ones.

    `device` is its name for users; `device_id` is the same under any path.
    """

    device: str
    device_id: str
    spaces: Mapping[str, str]
    queues: Mapping[str, str]

    @classmethod
    def of(cls, config: str, landing: ImportOptions) -> Self:
        """Return the destination of an import; `config` is the value of QMCONFIG for the device."""
        with open_device(config) as device:
            return cls(
                device=storable(device.path),
                device_id=device.info.id,
                spaces=dict(landing.spaces),
                queues=dict(landing.queues),
            )

    def said(self) -> dict[str, Any]:
        """Return it in the form of a manifest."""
        names = {"spaces": self.spaces, "queues": self.queues}
        told = {"device": self.device, "device_id": self.device_id}
        return {ASKED: told | {name: dict(given) for name, given in names.items() if given}}

    def refuse_another(self, manifest: Manifest) -> None:
        """Refuse an archive that belongs to a move to another place, or to no move.

        Raises InvalidArgumentError.
        """
        before = manifest.selection.get(ASKED)
        if not isinstance(before, Mapping):
            raise InvalidArgumentError(
                "the archive is of an export that was not to move anything, so that there is no move to go on with",
                hint="Import it, compare it with qmspark verify, and remove from the source what it has with qmspark"
                " export --remove --resume; or move into another archive.",
            )
        if before.get("device_id") != self.device_id:
            raise InvalidArgumentError(
                f"the archive is of a move to device {before.get('device')!r}, which may have its messages, and not to"
                f" {self.device!r}",
                hint=_GO_ON,
                device=before.get("device"),
            )
        if (before.get("spaces", {}), before.get("queues", {})) != (dict(self.spaces), dict(self.queues)):
            raise InvalidArgumentError(
                f"the archive is of a move to device {self.device!r} under other names of queue spaces or queues",
                hint=_GO_ON,
                device=self.device,
            )
