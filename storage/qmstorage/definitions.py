"""Queue spaces and queues in SQL."""

from __future__ import annotations

import dataclasses
import secrets
from collections import defaultdict
from typing import Any

from sqlalchemy import (
    bindparam,
    delete,
    func,
    insert,
    literal,
    select,
    union_all,
    update,
)

from qmcore import numbers
from qmcore.attributes import made
from qmcore.bulk_rows import Adopted
from qmcore.errors import InvalidArgumentError, SystemFailureError
from qmcore.purpose import alone
from qmcore.queue import Queue, QueueDefinition
from qmcore.space import Space, SpaceDefinition
from qmstorage.counters import Counters
from qmstorage.schema import (
    VERSION,
    adopted,
    chunk,
    counter,
    due,
    expiring,
    forwarding,
    held,
    highest,
    history,
    import_batch,
    import_job,
    message,
    owner,
    queue,
    ready,
    space,
    threshold,
    trans,
    waiter,
)
from qmstorage.statements import Row, given, insert_into

_PIECE = (adopted.c.incarnation, adopted.c.first_sequence, adopted.c.last_sequence, adopted.c.shift)
_ADOPTED = select(*_PIECE).where(given(adopted.c.space_id, "space_id"))
_ALL_ADOPTED = select(adopted.c.space_id, *_PIECE)
_ADOPT = insert_into(adopted)
_SPACES = select(space).order_by(space.c.name)
_SPACE = select(space).where(given(space.c.name, "name"))
_FREE_SPACE_ID = select(func.coalesce(func.max(space.c.id), 0) + 1)
_ADD_SPACE = insert_into(space)
_CHANGE_SPACE = (
    update(space)
    .where(given(space.c.id, "of_space"))
    .values({field.name: bindparam(f"new_{field.name}") for field in dataclasses.fields(SpaceDefinition)})
)
_SUCCEED = update(space).where(given(space.c.id, "of_space")).values(incarnation=bindparam("new_incarnation"))
_SET_INITIALIZED = update(space).where(given(space.c.id, "space_id")).values(initialized=literal(True))
_REMOVE_SPACE = delete(space).where(given(space.c.id, "space_id"))
_IS_MAIN = (given(counter.c.space_id, "space_id"), counter.c.queue_id == 0, counter.c.slot == 0)
_GENERATION = select(counter.c.generation).where(*_IS_MAIN)
_CHANGE_GENERATION = update(counter).where(*_IS_MAIN).values(generation=bindparam("new_generation"))
_QUEUES = (
    select(queue)
    .where(given(queue.c.space_id, "space_id"), given(queue.c.import_id, "of_import"))
    .order_by(queue.c.name)
)
_QUEUE = select(queue).where(given(queue.c.id, "of_queue"))
_VERSIONS = select(queue.c.id, queue.c.version).where(
    given(queue.c.space_id, "space_id"), queue.c.import_id == literal(0)
)
_QUEUE_IDS = select(queue.c.id).where(given(queue.c.space_id, "space_id"))
_ADD_QUEUE = (
    insert(queue).values({c.name: bindparam(c.name) for c in queue.columns if c.name != "id"}).returning(queue.c.id)
)
_CHANGE_QUEUE = (
    update(queue)
    .where(given(queue.c.id, "of_queue"))
    .values(
        {
            column.name: bindparam(f"new_{column.name}")
            for column in queue.columns
            if column.name not in ("id", "space_id", "created_at", "import_id")
        }
    )
)
_REMOVE_QUEUE = delete(queue).where(given(queue.c.id, "queue_id"))
_REMOVE_SPACE_QUEUES = delete(queue).where(given(queue.c.space_id, "space_id"))
_STATES = (ready, due, held, history)
_MESSAGES = union_all(*(select(table.c.message_id).where(given(table.c.queue_id, "queue_id")) for table in _STATES))
_EMPTY_QUEUE = [
    delete(chunk).where(chunk.c.body_id.in_(select(message.c.body_id).where(message.c.id.in_(_MESSAGES)))),
    delete(message).where(message.c.id.in_(_MESSAGES)),
    *(
        delete(table).where(given(table.c.queue_id, "queue_id"))
        for table in (*_STATES, expiring, waiter, threshold, forwarding)
    ),
]
_REMOVE_SPACE_BODIES = delete(chunk).where(chunk.c.body_id.between(bindparam("low"), bindparam("high")))
_REMOVE_SPACE_MESSAGES = delete(message).where(message.c.id.between(bindparam("low"), bindparam("high")))
_ITS_IMPORTS = select(import_job.c.id).where(given(import_job.c.space_id, "space_id"))
_EMPTY_SPACE = [
    delete(import_batch).where(import_batch.c.import_id.in_(_ITS_IMPORTS)),
    *(
        delete(table).where(given(table.c.space_id, "space_id"))
        for table in (trans, owner, adopted, import_job, counter, highest)
    ),
]


class Definitions(Counters):
    """Queue spaces and queues."""

    _generations: dict[int, int]
    schema_version = VERSION
    """That of all volumes of this kind: one of another version is not opened."""

    def space(self, name: str) -> Space | None:
        """Return the queue space of that name."""
        row = self.one(_SPACE, name=name)
        if row is None:
            return None
        return _space(row, tuple(Adopted(*piece) for piece in self.all(_ADOPTED, space_id=row[0])))

    def spaces(self) -> list[Space]:
        """Return all queue spaces of the volume by name."""
        pieces: defaultdict[int, list[Adopted]] = defaultdict(list)
        for space_id, *piece in self.all(_ALL_ADOPTED):
            pieces[space_id].append(Adopted(*piece))
        return [_space(row, tuple(pieces[row[0]])) for row in self.all(_SPACES)]

    @alone
    def add_space(self, definition: SpaceDefinition, incarnation: str, created_us: int) -> Space:
        """Record a queue space, its counters at zero."""
        row = self.one(_FREE_SPACE_ID)
        assert row is not None  # noqa: S101 - an aggregate always has a row
        values = dataclasses.asdict(definition)
        new = Space(row[0], incarnation, definition, initialized=False, created_at=created_us)
        self.run(_ADD_SPACE, id=new.id, incarnation=incarnation, initialized=False, created_at=created_us, **values)
        self.add_counters(new.id, 0)
        return new

    def change_space(self, changed: Space) -> None:
        """Record the new definition of a queue space, and change the generation."""
        values = dataclasses.asdict(changed.definition)
        self.run(_CHANGE_SPACE, of_space=changed.id, **{f"new_{name}": value for name, value in values.items()})
        self.change_generation(changed.id)

    def succeed(self, space_id: int, incarnation: str) -> None:
        """Set the incarnation of a queue space, and change the generation."""
        self.run(_SUCCEED, of_space=space_id, new_incarnation=incarnation)
        self.change_generation(space_id)

    @alone
    def set_initialized(self, space_id: int) -> None:
        """Record that the disk of the queue space has been allocated."""
        self.run(_SET_INITIALIZED, space_id=space_id)

    @alone
    def remove_space(self, space_id: int) -> None:
        """Remove a queue space with everything in it."""
        self._generations.clear()
        low = numbers.number(space_id, 0)
        for (queue_id,) in self.all(_QUEUE_IDS, space_id=space_id):
            for statement in _EMPTY_QUEUE:
                self.run(statement, queue_id=queue_id)
        for removal in (_REMOVE_SPACE_MESSAGES, _REMOVE_SPACE_BODIES):
            self.run(removal, low=low, high=numbers.number(space_id + 1, 0) - 1)
        self.run(_REMOVE_SPACE_QUEUES, space_id=space_id)
        for statement in _EMPTY_SPACE:
            self.run(statement, space_id=space_id)
        self.run(_REMOVE_SPACE, space_id=space_id)

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
        self.change_generation(space_id)

    def generation(self, space_id: int) -> int | None:
        """Return a number that changes with each change of a definition; None where the queue space is gone."""
        known = self._generations.get(space_id)
        if known is None:
            row = self._main_row(space_id)
            if row is None:
                return None
            known = self._generations[space_id] = int(row[0])
        return known

    def _main_row(self, space_id: int) -> Row | None:
        """Return the row of the counters that begins with the generation of a queue space."""
        return self.one(_GENERATION, space_id=space_id)

    def queues(self, space_id: int) -> list[Queue]:
        """Return the queues of a queue space by name."""
        return [_sound_queue(row) for row in self.all(_QUEUES, space_id=space_id, of_import=0)]

    def queue_versions(self, space_id: int) -> dict[int, int]:
        """Return for each queue of a queue space, by its number, a number that changes with each change of it."""
        return dict(self.all(_VERSIONS, space_id=space_id))

    def queue(self, queue_id: int) -> Queue:
        """Return a queue that exists, by its number."""
        return queue_of(self.all(_QUEUE, of_queue=queue_id)[0])

    def add_queue(self, space_id: int, definition: QueueDefinition, created_us: int) -> Queue:
        """Record a queue, its counters at zero, and change the generation."""
        new = self.add_hidden_queue(Queue(0, space_id, definition), created_us, 0)
        self.change_generation(space_id)
        return new

    def add_hidden_queue(self, new: Queue, created_us: int, import_id: int) -> Queue:
        """Record a hidden queue of an import, its counters at zero."""
        own = {"space_id": new.space_id, "created_at": created_us, "import_id": import_id}
        row = self.one(_ADD_QUEUE, **own, **queue_values(new))
        assert row is not None  # noqa: S101 - RETURNING gives the row
        self.add_counters(new.space_id, row[0])
        return dataclasses.replace(new, id=row[0])

    def change_queue(self, changed: Queue) -> None:
        """Record the new definition of a queue, and change the generation."""
        self.run(
            _CHANGE_QUEUE,
            of_queue=changed.id,
            **{f"new_{name}": value for name, value in queue_values(changed).items()},
        )
        self.change_generation(changed.space_id)

    def remove_queue(self, old: Queue) -> None:
        """Remove a queue with the messages and counters that it has, and change the generation."""
        for statement in _EMPTY_QUEUE:
            self.run(statement, queue_id=old.id)
        self.remove_counters(old.space_id, old.id)
        self.run(_REMOVE_QUEUE, queue_id=old.id)
        self.change_generation(old.space_id)

    @alone
    def change_generation(self, space_id: int) -> None:
        """Change the generation, so that every process reads the definitions of a queue space again."""
        # At random, not by counting: a number that was used in a transaction which then failed must not be reused, nor
        # one of a destroyed queue space whose own number is reused.
        self.run(_CHANGE_GENERATION, space_id=space_id, new_generation=secrets.randbits(62))
        self._generations.clear()


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


def _sound_queue(row: Row) -> Queue:
    try:
        return queue_of(row)
    except (InvalidArgumentError, TypeError, ValueError) as error:
        name = row[queue.columns.keys().index("name")]
        raise damaged(f"definition of queue {name!r} is damaged: {error}") from error


def queue_of(row: Row) -> Queue:
    """Return the queue of a row of its table."""
    values = dict(zip(queue.columns.keys(), row, strict=True))
    values |= {"order": values["ordering"], "error_queue": values["error_queue"] or ""}
    return Queue(
        values["id"],
        values["space_id"],
        made(QueueDefinition, values),
        enqueue_enabled=bool(values["enqueue_enabled"]),
        dequeue_enabled=bool(values["dequeue_enabled"]),
    )


def queue_values(of: Queue) -> dict[str, Any]:
    """Return the column values of a queue but for its numbers, with a new version."""
    values = of.attributes
    order, error_queue = values.pop("order"), values.pop("error_queue") or None
    return {**values, "ordering": order, "error_queue": error_queue, "version": secrets.randbits(62)}
