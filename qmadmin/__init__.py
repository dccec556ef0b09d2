"""qmadmin: a transactional, persistent message queue manager.

    import qmadmin

    with qmadmin.open_device("QUE") as device, device.open_space("QSPACE") as space:
        msgid = space.enqueue("STRING", "this is a q example", reply_queue="RPLYQ")
        reply = space.dequeue("RPLYQ", corrid=msgid, wait=10)

Each part is loaded when it is first used, so that importing the package takes next to no time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from qmadmin.version import __version__

if TYPE_CHECKING:
    from qmadmin.device import Device
    from qmadmin.opening import create_device, open_device, restore_device
    from qmadmin.space import QueueSpace
    from qmadmin.transacting import Transaction
    from qmcore.errors import (
        AbortedError,
        BadMessageIdError,
        BadQueueError,
        BadResourceError,
        InUseError,
        InvalidArgumentError,
        InvalidHandleError,
        NoMessageError,
        NoSpaceError,
        NotOpenError,
        OperatingSystemError,
        OutcomeUnknownError,
        ProtocolError,
        QueueError,
        ReleaseError,
        Resource,
        ShareError,
        SystemFailureError,
        TransactionStartError,
    )
    from qmcore.message import Message, MessageInfo, Origin, Reason, State
    from qmcore.queue import Delivery, QueueDefinition, QueueUsage
    from qmcore.space import HighestUse, SpaceDefinition, SpaceUsage

_HOME = {
    "qmcore.message": ("Message", "MessageInfo", "Origin", "Reason", "State"),
    "qmcore.queue": ("Delivery", "QueueDefinition", "QueueUsage"),
    "qmcore.space": ("HighestUse", "SpaceDefinition", "SpaceUsage"),
    "qmadmin.device": ("Device",),
    "qmadmin.opening": ("create_device", "open_device", "restore_device"),
    "qmadmin.space": ("QueueSpace",),
    "qmadmin.transacting": ("Transaction",),
}
# What is not named there is an error.
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "AbortedError", "BadMessageIdError", "BadQueueError", "BadResourceError", "Delivery", "Device", "HighestUse",
    "InUseError", "InvalidArgumentError", "InvalidHandleError", "Message", "MessageInfo", "NoMessageError",
    "NoSpaceError", "NotOpenError", "OperatingSystemError", "Origin", "OutcomeUnknownError", "ProtocolError",
    "QueueDefinition", "QueueError", "QueueSpace", "QueueUsage", "Reason", "ReleaseError", "Resource", "ShareError",
    "SpaceDefinition", "SpaceUsage", "State", "SystemFailureError", "Transaction", "TransactionStartError",
    "__version__", "create_device", "open_device", "restore_device",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "mib":
        return importlib.import_module("qmadmin.mib")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF.get(name, "qmcore.errors")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "mib"})
