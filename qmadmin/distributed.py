"""Transactions over several queue spaces, of one device or of several, on whatever machines they are."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Self, TypeAlias

from qmadmin.attachment import attachment_of
from qmadmin.device import Device
from qmadmin.space import QueueSpace
from qmadmin.transacting import Transaction, join, refuse_nesting
from qmadmin.volume_makers import MEMORY
from qmcore.acts import deciding
from qmcore.acts.deciding import Answer, Decider, Question
from qmcore.acts.returning import Cause, Ending
from qmcore.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from qmadmin.attachment import Attachment

Resource: TypeAlias = QueueSpace | Device


class _OverResources(Transaction):
    """A transaction that the calls on several queue spaces belong to."""

    def __init__(
        self,
        resources: Sequence[Resource],
        timeout: float | timedelta | None,
        decider: QueueSpace | None,
        *,
        completes: bool,
    ) -> None:
        super().__init__(_device_of(resources[0]), timeout)
        self._covers = list(map(_covered, resources))
        self._decider = None if decider is None else _attachment_of(decider)
        self._completes = completes

    def __enter__(self) -> Self:
        for device, space in self._covers:
            refuse_nesting(device, space)
        for device, space in self._covers:
            join(self, weakref.ref(self), device, space)
        return self

    def join_context(self) -> None:
        """Make the calls of this thread on its queue spaces belong to the transaction from now on."""
        for device, space in self._covers:
            join(self, lambda: self, device, space)


def transaction(
    *resources: Resource,
    timeout: float | timedelta | None = None,
    complete: bool = False,
    decider: QueueSpace | None = None,
) -> Transaction:
    """Return a transaction over several queue spaces, to be used as `with qmadmin.transaction(orders, bills) as tx:`.

    The resources are queue spaces of any devices; a device stands for all that it has. Calls of the thread on them
    belong to the transaction, which commits all that they did together, or nothing of it, also where a process or a
    machine fails at any moment. Queue spaces on one volume are committed in one database transaction. Of several
    volumes one decides, by its own commit, which has to be on the disk: `decider`, else one that has given a message,
    else the first. What has changed nothing takes no part in this.

    After the decision nothing refuses: a volume that cannot be reached then follows by itself, and `tx.complete` is
    False. With `complete` the commit waits for all of them, at most until `timeout` seconds are
    over, after which a transaction that is not decided is rolled back.

    Raises InvalidArgumentError for what is no resource, or is named twice, and ProtocolError inside another transaction
    on one of the queue spaces. The commit raises what that of a queue space does, and OutcomeUnknownError where it
    cannot be known whether it is decided: `outcome` tells that later, and the queue spaces wait for it by themselves.
    """
    _check(resources)
    if decider is not None and not any(_covers(resource, decider) for resource in resources):
        raise InvalidArgumentError(
            f"the decider {decider!r} is none of the resources of the transaction",
            hint="Name one of its queue spaces.",
        )
    if decider is not None and not _attachment_of(decider).is_durable:
        raise InvalidArgumentError(
            f"queue space {decider.name!r} cannot decide, because its device is relaxed: its commits need not be on the"
            " disk",
            hint="Name a queue space of a device with full durability.",
        )
    return _OverResources(resources, timeout, decider, completes=complete)


def outcome(decider: QueueSpace, gtrid: str) -> bool | None:
    """Return whether a transaction is committed of which OutcomeUnknownError has told the `gtrid` (`error.facts`).

    None where that is not decided yet, or cannot be known any more, because an earlier state of the queue space was
    restored. Ask within a day: after that what was committed may be forgotten, and counts as rolled back. Raises
    InvalidArgumentError for a text that is no such identifier, or is not of this queue space.
    """
    try:
        identifier, era, decisions = gtrid.split("-")
        asked = bytes.fromhex(identifier)
        its = int(era, 16), int(decisions, 16)
    except (AttributeError, ValueError):
        raise InvalidArgumentError(f"{gtrid!r} is not the identifier of a transaction over several resources") from None
    attachment = _attachment_of(decider)
    if not deciding.has_begun(attachment.opened.space, asked):
        raise InvalidArgumentError(
            f"queue space {decider.name!r} does not decide on transaction {gtrid}",
            hint="Ask the one that the error has named.",
        )
    question = Question(asked, Decider(attachment.place, attachment.volume.instance, *its))
    answers = deciding.ask(attachment.volume, attachment.opened, [question], Ending(Cause.DEATH))
    return {Answer.COMMITTED: True, Answer.ROLLED_BACK: False}.get(answers[asked])


def _check(resources: Sequence[Resource]) -> None:
    if not resources:
        raise InvalidArgumentError("a transaction over several resources needs at least one")
    for resource in resources:
        if not isinstance(resource, QueueSpace | Device):
            raise InvalidArgumentError(
                f"a resource of a transaction is a queue space or a device, got {resource!r}",
                hint="Work of the application in the database of a queue space joins by connection=.",
            )
    all_of_them = list(map(_covered, resources))
    for at, (device, name) in enumerate(all_of_them):
        for other, its_name in all_of_them[:at]:
            if (name is None or its_name is None or name == its_name) and _is_same(device, other):
                raise InvalidArgumentError(f"{resources[at]!r} takes part in the transaction twice")
    first = all_of_them[0][0]
    if any(device is not first and MEMORY in (device.path, first.path) for device, _ in all_of_them):
        raise InvalidArgumentError(
            "a device in memory takes no part in a transaction with other devices, as it is gone with its process",
            hint="Use a device on a file.",
        )


def _attachment_of(space: QueueSpace) -> Attachment:
    return attachment_of(space)


def _device_of(resource: Resource) -> Device:
    return resource.device if isinstance(resource, QueueSpace) else resource


def _covered(resource: Resource) -> tuple[Device, str | None]:
    return (resource.device, resource.name) if isinstance(resource, QueueSpace) else (resource, None)


def _covers(resource: Resource, other: Resource) -> bool:
    (device, name), (its_device, its_name) = _covered(resource), _covered(other)
    return name in (None, its_name) and _is_same(device, its_device)


def _is_same(device: Device, other: Device) -> bool:
    return device is other or (device.path == other.path and device.path != MEMORY)
