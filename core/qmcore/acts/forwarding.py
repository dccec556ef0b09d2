"""The acts of telling, as a forwarder, what becomes of the messages of its queues, and of listening to that."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from qmcore.acts.outstanding import process_of
from qmcore.definitions import OpenSpace
from qmcore.errors import AbortedError
from qmcore.names import storable
from qmcore.port import Unit, Volume
from qmcore.records import Forwarding, Owner
from qmcore.redacted import redacted

if TYPE_CHECKING:
    from qmcore.attached import AttachedProcess


def report(unit: Unit, opened: OpenSpace, owner: Owner, told: Sequence[Forwarding], *, whole: bool) -> None:
    """Record what an owner tells of its queues; one that is not there, or no longer, is passed over.

    `whole`: it forwards no others, and what it has told of others is forgotten.
    Raises AbortedError where the owner was given up: what it told went with it, and it has to attach again to be seen.
    """
    queues = opened.definitions(unit).queues
    kept = {queues[each.queue].id: _kept(each) for each in told if each.queue in queues}
    if not unit.owners.forwardings.report(owner.id, kept, whole=whole):
        raise AbortedError(
            f"this process was taken for dead, and is no longer attached to queue space {opened.space.name!r}",
            space=opened.space.name,
        )


def forwardings(volume: Volume, space_id: int) -> list[tuple[AttachedProcess, Forwarding]]:
    """Return who forwards the queues of a queue space, and what it tells of each, by the names of the queues."""
    owners, told = volume.read(
        lambda unit: (unit.owners.of_space(space_id), unit.owners.forwardings.of_space(space_id))
    )
    living = volume.liveness.living(owners)
    processes = {owner.id: process_of(owner, living) for owner in owners}
    return [(processes[owner_id], each) for owner_id, each in told]


def _kept(told: Forwarding) -> Forwarding:
    return dataclasses.replace(told, last_error=_text(told.last_error), trouble=_text(told.trouble))


def _text(text: str) -> str:
    """Return a text as it can be kept, without passwords."""
    text = storable(redacted(text))
    return text if len(text) <= Forwarding.TEXT_MAX else text[: Forwarding.TEXT_MAX - 3] + "..."
