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
    from qmadmin.app import App, AppHandler
    from qmadmin.bodies import Body, Codec, decode
    from qmadmin.connections import ApplicationConnection, DatabaseConnection
    from qmadmin.consumers import Failure, Park, Reply, Snooze, Unavailable
    from qmadmin.consumers.handler_options import HandlerOptions, RunOptions
    from qmadmin.defaults import QueueAttributes, SpaceAttributes
    from qmadmin.device import Device
    from qmadmin.distributed import outcome, transaction
    from qmadmin.managing_messages import BrowseCursor
    from qmadmin.monitoring.prometheus import MetricsCollector
    from qmadmin.opening import create_decision_table, create_device, open_device, restore_device
    from qmadmin.queue_watch import QueueWatch, WatchResult
    from qmadmin.recovering_databases import recover
    from qmadmin.space import QueueSpace
    from qmadmin.transacting import Transaction
    from qmcore.attached import AttachedProcess, DeciderReach, DecisionInfo, MemoryFile, TransactionInfo
    from qmcore.audit import AuditEntry
    from qmcore.backoff import Backoff, Growth
    from qmcore.backup import BackupReport
    from qmcore.condition import Condition
    from qmcore.device import DeviceEntry, PageRange, TableEntry
    from qmcore.errors import (
        AbortedError,
        BadMessageIdError,
        BadQueueError,
        BadResourceError,
        BodyError,
        HeuristicError,
        InUseError,
        InvalidArgumentError,
        InvalidHandleError,
        NoMessageError,
        NoRecipientsError,
        NoSpaceError,
        NotOpenError,
        NotSuspendedError,
        OperatingSystemError,
        OutcomeUnknownError,
        ProtocolError,
        QueueError,
        ReleaseError,
        Resource,
        ShareError,
        SystemFailureError,
        TransactionStartError,
        UnknownXidError,
    )
    from qmcore.findings import Finding
    from qmcore.limits import Threshold
    from qmcore.message import ConsumedMessage, EnqueueControl, Message, MessageInfo, Origin, Reason, State
    from qmcore.order import OutOfOrder, QueueOrder
    from qmcore.queue import Delivery, Queue, QueueDefinition, QueueUsage, RetryPolicy, Subscription
    from qmcore.records import Forwarding
    from qmcore.schedule import Missed, Schedule
    from qmcore.space import HighestUse, Space, SpaceDefinition, SpaceUsage
    from qmcore.volume_record import MissingVolume
    from qmcore.xid import Xid

_HOME = {
    "qmcore.attached": ("AttachedProcess", "DeciderReach", "DecisionInfo", "MemoryFile", "TransactionInfo"),
    "qmcore.audit": ("AuditEntry",),
    "qmcore.backup": ("BackupReport",),
    "qmcore.backoff": ("Backoff", "Growth"),
    "qmcore.condition": ("Condition",),
    "qmcore.device": ("DeviceEntry", "PageRange", "TableEntry"),
    "qmcore.findings": ("Finding",),
    "qmcore.limits": ("Threshold",),
    "qmcore.message": ("ConsumedMessage", "EnqueueControl", "Message", "MessageInfo", "Origin", "Reason", "State"),
    "qmcore.order": ("OutOfOrder", "QueueOrder"),
    "qmcore.queue": ("Delivery", "Queue", "QueueDefinition", "QueueUsage", "RetryPolicy", "Subscription"),
    "qmcore.records": ("Forwarding",),
    "qmcore.schedule": ("Missed", "Schedule"),
    "qmcore.space": ("HighestUse", "Space", "SpaceDefinition", "SpaceUsage"),
    "qmcore.volume_record": ("MissingVolume",),
    "qmcore.xid": ("Xid",),
    "qmadmin.bodies": ("Body", "Codec", "decode"),
    "qmadmin.connections": ("ApplicationConnection", "DatabaseConnection"),
    "qmadmin.app": ("App", "AppHandler"),
    "qmadmin.consumers.handler_options": ("HandlerOptions", "RunOptions"),
    "qmadmin.defaults": ("QueueAttributes", "SpaceAttributes"),
    "qmadmin.consumers": ("Failure", "Park", "Reply", "Snooze", "Unavailable"),
    "qmadmin.device": ("Device",),
    "qmadmin.distributed": ("outcome", "transaction"),
    "qmadmin.managing_messages": ("BrowseCursor",),
    "qmadmin.monitoring.prometheus": ("MetricsCollector",),
    "qmadmin.opening": ("create_decision_table", "create_device", "open_device", "restore_device"),
    "qmadmin.recovering_databases": ("recover",),
    "qmadmin.queue_watch": ("QueueWatch", "WatchResult"),
    "qmadmin.space": ("QueueSpace",),
    "qmadmin.transacting": ("Transaction",),
}
# What is not named there is an error.
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "AbortedError", "App", "AppHandler", "ApplicationConnection", "AttachedProcess", "AuditEntry", "Backoff",
    "BackupReport", "BadMessageIdError", "BadQueueError", "BadResourceError", "Body", "BodyError", "BrowseCursor",
    "Codec", "Condition", "ConsumedMessage", "DatabaseConnection", "DeciderReach", "DecisionInfo", "Delivery",
    "Device", "DeviceEntry", "EnqueueControl", "Failure", "Finding", "Forwarding", "Growth", "HandlerOptions",
    "HeuristicError", "HighestUse", "InUseError", "InvalidArgumentError", "InvalidHandleError", "MemoryFile",
    "Message", "MessageInfo", "MetricsCollector", "Missed", "MissingVolume", "NoMessageError", "NoRecipientsError",
    "NoSpaceError",
    "NotOpenError", "NotSuspendedError", "OperatingSystemError", "Origin", "OutOfOrder", "OutcomeUnknownError",
    "PageRange", "Park", "ProtocolError", "Queue", "QueueAttributes", "QueueDefinition", "QueueError", "QueueOrder",
    "QueueSpace", "QueueUsage", "QueueWatch", "Reason", "ReleaseError", "Reply", "Resource", "RetryPolicy",
    "RunOptions", "Schedule", "ShareError", "Snooze", "Space", "SpaceAttributes", "SpaceDefinition", "SpaceUsage",
    "State", "Subscription", "SystemFailureError", "TableEntry", "Threshold", "Transaction", "TransactionInfo",
    "TransactionStartError", "Unavailable", "UnknownXidError", "WatchResult", "Xid", "__version__",
    "create_decision_table", "create_device", "decode", "open_device", "outcome", "recover", "restore_device",
    "transaction",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "mib":
        return importlib.import_module("qmadmin.mib")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF.get(name, "qmcore.errors")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "mib"})
