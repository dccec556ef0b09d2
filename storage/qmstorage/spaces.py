"""Queue spaces in SQL."""

from __future__ import annotations

import dataclasses
from collections import defaultdict

from qmcore import numbers
from qmcore.bulk_rows import Adopted
from qmcore.errors import InvalidArgumentError, SystemFailureError
from qmcore.purpose import alone
from qmcore.space import Space, SpaceDefinition
from qmstorage import rows
from qmstorage.schema import (
    adopted,
    chunk,
    counter,
    decision,
    era,
    heuristic,
    highest,
    import_batch,
    import_job,
    message,
    owner,
    queue,
    schedule,
    share,
    space,
    spent,
    trans,
)
from qmstorage.sql import (
    bindparam,
    delete,
    func,
    literal,
    select,
    update,
)
from qmstorage.statements import Row, given, insert_into
from qmstorage.unit_part import UnitPart

_PIECE = (adopted.c.incarnation, adopted.c.first_sequence, adopted.c.last_sequence, adopted.c.shift)
_ADOPTED = select(*_PIECE).where(given(adopted.c.space_id, "space_id"))
_ALL_ADOPTED = select(adopted.c.space_id, *_PIECE)
_ADOPT = insert_into(adopted)
_ALL = select(space).order_by(space.c.name)
_FIND = select(space).where(given(space.c.name, "name"))
_FREE_ID = select(func.coalesce(func.max(space.c.id), 0) + 1)
_ADD = insert_into(space)
_CHANGE = (
    update(space)
    .where(given(space.c.id, "of_space"))
    .values({field.name: bindparam(f"new_{field.name}") for field in dataclasses.fields(SpaceDefinition)})
)
_SUCCEED = update(space).where(given(space.c.id, "of_space")).values(incarnation=bindparam("new_incarnation"))
_SET_INITIALIZED = update(space).where(given(space.c.id, "space_id")).values(initialized=literal(True))
_REMOVE = delete(space).where(given(space.c.id, "space_id"))
_QUEUE_IDS = select(queue.c.id).where(given(queue.c.space_id, "space_id"))
_REMOVE_QUEUES = delete(queue).where(given(queue.c.space_id, "space_id"))
_REMOVE_BODIES = delete(chunk).where(chunk.c.body_id.between(bindparam("low"), bindparam("high")))
_REMOVE_MESSAGES = rows.forgetting(message.c.id.between(bindparam("low"), bindparam("high")))
_REMOVE_SHARES, _REMOVE_SPENT = (
    delete(table).where(table.c.message_id.between(bindparam("low"), bindparam("high"))) for table in (share, spent)
)
_ITS_IMPORTS = select(import_job.c.id).where(given(import_job.c.space_id, "space_id"))
_EMPTY = [
    delete(import_batch).where(import_batch.c.import_id.in_(_ITS_IMPORTS)),
    *(
        delete(table).where(given(table.c.space_id, "space_id"))
        for table in (trans, heuristic, decision, era, owner, adopted, import_job, counter, highest, schedule)
    ),
]


class Spaces(UnitPart):
    """Queue spaces as administrators define them."""

    def find(self, name: str) -> Space | None:
        """Return the queue space of that name."""
        row = self.one(_FIND, name=name)
        if row is None:
            return None
        return _space(row, tuple(Adopted(*piece) for piece in self.all(_ADOPTED, space_id=row[0])))

    def listed(self) -> list[Space]:
        """Return all queue spaces of the volume by name."""
        pieces: defaultdict[int, list[Adopted]] = defaultdict(list)
        for space_id, *piece in self.all(_ALL_ADOPTED):
            pieces[space_id].append(Adopted(*piece))
        return [_space(row, tuple(pieces[row[0]])) for row in self.all(_ALL)]

    @alone
    def add(self, definition: SpaceDefinition, incarnation: str, created_us: int) -> Space:
        """Record a queue space, its counters at zero."""
        row = self.one(_FREE_ID)
        assert row is not None  # noqa: S101 - an aggregate always has a row
        values = dataclasses.asdict(definition)
        new = Space(row[0], incarnation, definition, initialized=False, created_at=created_us)
        self.run(_ADD, id=new.id, incarnation=incarnation, initialized=False, created_at=created_us, **values)
        self.unit.counters.add(new.id, 0)
        return new

    def change(self, changed: Space) -> None:
        """Record the new definition of a queue space, and change the generation."""
        values = dataclasses.asdict(changed.definition)
        self.run(_CHANGE, of_space=changed.id, **{f"new_{name}": value for name, value in values.items()})
        self.unit.change_generation(changed.id)

    def succeed(self, space_id: int, incarnation: str) -> None:
        """Set the incarnation of a queue space, and change the generation."""
        self.run(_SUCCEED, of_space=space_id, new_incarnation=incarnation)
        self.unit.change_generation(space_id)

    @alone
    def set_initialized(self, space_id: int) -> None:
        """Record that the disk of the queue space has been allocated."""
        self.run(_SET_INITIALIZED, space_id=space_id)

    @alone
    def remove(self, space_id: int) -> None:
        """Remove a queue space with everything in it."""
        self.unit.note_changes()
        low = numbers.number(space_id, 0)
        for (queue_id,) in self.all(_QUEUE_IDS, space_id=space_id):
            self.unit.queues.empty(queue_id)
        for removal in (_REMOVE_MESSAGES, _REMOVE_BODIES, _REMOVE_SHARES, _REMOVE_SPENT):
            self.run(removal, low=low, high=numbers.number(space_id + 1, 0) - 1)
        self.run(_REMOVE_QUEUES, space_id=space_id)
        for statement in _EMPTY:
            self.run(statement, space_id=space_id)
        self.run(_REMOVE, space_id=space_id)

    def adopt(self, space_id: int, piece: Adopted) -> None:
        """Make message ids of another queue space valid in this one, and change the generation."""
        self.run(
            _ADOPT,
            space_id=space_id,
            incarnation=piece.incarnation,
            first_sequence=piece.first,
            last_sequence=piece.last,
            shift=piece.shift,
        )
        self.unit.change_generation(space_id)


def _space(row: Row, pieces: tuple[Adopted, ...]) -> Space:
    values = dict(zip(space.columns.keys(), row, strict=True))
    number, incarnation = values.pop("id"), values.pop("incarnation")
    initialized, created_at = bool(values.pop("initialized")), values.pop("created_at")
    try:
        if not isinstance(incarnation, str) or not isinstance(number, int) or not isinstance(created_at, int):
            raise TypeError("its number, its incarnation or its time is of another kind")
        return Space(number, incarnation, SpaceDefinition(**values), initialized, created_at, pieces)
    except (InvalidArgumentError, TypeError) as error:
        raise damaged(f"definition of queue space {values['name']!r} is damaged: {error}") from error


def damaged(what: str) -> SystemFailureError:
    """Return the diagnostic for a definition that is damaged."""
    return SystemFailureError(f"the {what}", hint="Restore the device from a backup.")
