"""What all operations on an open queue space stand on."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from qmcore import names
from qmcore.acts import housekeeping
from qmcore.errors import NotOpenError

if TYPE_CHECKING:
    from collections.abc import Callable

    from qmadmin.device import Attachment, Device
    from qmcore.port import Unit

T = TypeVar("T")


class SpaceHandle:
    """A queue space that is open until the handle, or its device, is closed."""

    def __init__(self, device: Device, name: str, role: str) -> None:
        self._device = device
        self.probe = device.probe
        self._role = role
        self._closed = False
        self.name = names.space_name(name)
        device.use(self.name, role)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self._device.path!r}{' closed' if self._closed else ''}>"

    def close(self) -> None:
        """Close the queue space; the process detaches from it when nothing in the process has it open any more."""
        if not self._closed:
            self._closed = True
            self._device.drop(self.name)

    @property
    def _attachment(self) -> Attachment:
        if self._closed:
            self._check_open()
        return self._device.attachment(self.name, self._role)

    def _read(self, work: Callable[[Unit], T]) -> T:
        return self._attachment.volume.read(work)

    def _freshen(self, queue: str) -> None:
        """Do what is due in the queue, so that what is told of it holds now."""
        attachment = self._attachment
        attachment.look_after(now=True)
        housekeeping.freshen_now(attachment.volume, attachment.opened, queue, self._device.clock.now())

    def _check_open(self) -> None:
        if self._closed:
            raise NotOpenError(f"queue space {self.name!r} is closed", space=self.name)
