"""The destination of a move, as its archive records it: messages that may have arrived in one place go to no other."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Self

from qmadmin.archive.manifest import Manifest
from qmadmin.opening import open_device
from qmadmin.transfer.import_planning import ImportOptions
from qmcore.errors import InvalidArgumentError
from qmcore.names import storable

ASKED: Final = "move"
"""The name of the destination in the selection of a manifest."""

_GO_ON: Final = (
    "Go on with that; where qmspark verify finds that nothing has arrived there, start the queues here with qstart and"
    " move into another archive."
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
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
