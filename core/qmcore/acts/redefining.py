"""The act of changing what is defined about a queue space, while others may work with it."""

from __future__ import annotations

import dataclasses

from qmcore.acts import in_doubt, manage_spaces
from qmcore.acts.manage_queues import refuse_error_queue
from qmcore.definitions import OpenSpace
from qmcore.errors import InUseError, InvalidArgumentError, Resource
from qmcore.port import Unit
from qmcore.records import Owner
from qmcore.space import Space, SpaceDefinition, SpaceUsage


def redefine(unit: Unit, opened: OpenSpace, definition: SpaceDefinition, me: Owner | None) -> Space:
    """Give a queue space other limits, error queue, key and recorded values; its pages stay.

    A limit cannot be lowered below what is in use. The memory for non-persistent messages changes only where nobody
    but `me` is attached, and loses them.
    """
    known = opened.definitions(unit)
    present = known.space
    _refuse_pages(present, definition)
    refuse_error_queue(known, definition, f"queue space {present.name!r}")
    usage = manage_spaces.usage(unit, present)
    _refuse_below_use(present, definition, usage)
    resized = definition.memory != present.definition.memory
    if resized:
        _refuse_others(unit, present, me)
        # The memory goes, and with it what it has counted.
        opened.note_use(unit, "messages", usage.highest.messages)
        manage_spaces.clear_memory(unit, opened, force=True)
    changed = dataclasses.replace(present, definition=definition)
    if changed != present:
        unit.spaces.change(changed)
    return changed


def _refuse_pages(present: Space, definition: SpaceDefinition) -> None:
    if definition.pages != present.definition.pages:
        raise InvalidArgumentError(
            f"queue space {present.name!r} has {present.definition.pages} pages, which cannot be changed to"
            f" {definition.pages}",
            hint="Pages can be added with qaddext, but not removed.",
            space=present.name,
        )


def _refuse_below_use(present: Space, definition: SpaceDefinition, usage: SpaceUsage) -> None:
    for field, resource in _LIMITED.items():
        was, wanted, used = (int(getattr(values, field)) for values in (present.definition, definition, usage))
        if wanted < used and wanted < was:
            raise InUseError(
                f"queue space {present.name!r} has {used} of {was} {resource.value} in use, and their number cannot be"
                f" lowered to {wanted}",
                space=present.name,
                resource=resource,
                used=used,
                limit=was,
                wanted=wanted,
            )
    if usage.pages > definition.capacity and definition.queues > present.definition.queues:
        raise InUseError(
            f"queue space {present.name!r} has {usage.pages} of {present.definition.capacity} pages for messages in"
            f" use, and with {definition.queues} queues it would have {definition.capacity}",
            hint="Each queue takes a page. Give the queue space more pages with qaddext.",
            space=present.name,
            resource=Resource.PAGES,
            used=usage.pages,
            limit=present.definition.capacity,
            wanted=definition.capacity,
        )


def _refuse_others(unit: Unit, present: Space, me: Owner | None) -> None:
    others = [owner for owner in unit.owners.of_space(present.id) if me is None or owner.id != me.id]
    if others:
        raise InUseError(
            f"the memory of queue space {present.name!r} cannot be changed while {others[0]} is attached to it",
            hint="End it; everything else about the queue space can be changed meanwhile.",
            space=present.name,
        )
    prepared = in_doubt.prepared(unit, present.id)
    if prepared:
        xid = str(prepared[0].xid)
        raise InUseError(
            f"the memory of queue space {present.name!r} cannot be changed while transaction {xid} is prepared",
            hint="Have its coordinator end it, or end it with qcommittrans or qaborttrans.",
            space=present.name,
            xid=xid,
        )
    if unit.transactions.count(present.id):
        raise InUseError(
            f"the memory of queue space {present.name!r} cannot be changed while a transaction is open on it",
            hint="End the transaction.",
            space=present.name,
        )


_LIMITED = {
    "queues": Resource.QUEUES,
    "transactions": Resource.TRANSACTIONS,
    "processes": Resource.PROCESSES,
    "messages": Resource.MESSAGES,
    "actions": Resource.ACTIONS,
}
