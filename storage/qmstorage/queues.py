"""Queues in SQL."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from qmcore.attributes import made
from qmcore.errors import InvalidArgumentError
from qmcore.numbers import random_number
from qmcore.queue import ConsumerRecord, Queue, QueueDefinition
from qmstorage import rows
from qmstorage.schema import (
    chunk,
    due,
    forwarding,
    held,
    history,
    message,
    queue,
    ready,
    share,
    spent,
    threshold,
    waiter,
)
from qmstorage.spaces import damaged
from qmstorage.sql import (
    bindparam,
    delete,
    exists,
    insert,
    literal,
    or_,
    select,
    true,
    update,
)
from qmstorage.statements import Row, given
from qmstorage.unit_part import UnitPart

_OF_CONSUMER: Final = {"parent_id": 0, "going": False, "rule": "", "topics": "", "ended_in": None}
"""What says of a consumer how it subscribes, and what a queue has there."""

IS_QUEUE: Final = queue.c.parent_id == literal(0)
"""It is no consumer of one."""
_OF_SPACE = (
    select(queue)
    .where(given(queue.c.space_id, "space_id"), given(queue.c.import_id, "of_import"), IS_QUEUE)
    .order_by(queue.c.name)
)
_FIND = select(queue).where(given(queue.c.id, "of_queue"))
_VERSIONS = select(queue.c.id, queue.c.version).where(
    given(queue.c.space_id, "space_id"), queue.c.import_id == literal(0), IS_QUEUE
)
_ADD = insert(queue).values({c.name: bindparam(c.name) for c in queue.columns if c.name != "id"}).returning(queue.c.id)
_CHANGE = (
    update(queue)
    .where(given(queue.c.id, "of_queue"))
    .values(
        {
            column.name: bindparam(f"new_{column.name}")
            for column in queue.columns
            if column.name not in ("id", "space_id", "created_at", "import_id", *_OF_CONSUMER)
        }
    )
)
_REMOVE = delete(queue).where(given(queue.c.id, "queue_id"))
_EMPTY = rows.emptying((ready, due, held, history), waiter, threshold, forwarding, of_several=True)
_STANDS = select(queue.c.id).where(
    given(queue.c.id, "of_queue"),
    # In one statement: between two of them a message may come back from where the second looks to where the first did.
    or_(*(exists().where(given(table.c.queue_id, "of_queue")) for table in (ready, due, held))),
)
_LEAVE = [delete(table).where(given(table.c.queue_id, "of_queue")) for table in (waiter, threshold, forwarding)]
"""Deletes what there is for a consumer but messages: they are those of others too."""
_OVER = (given(message.c.queue_id, "of_queue"), message.c.id.in_(select(spent.c.message_id)))
_REMOVE_OVER = [
    delete(chunk).where(chunk.c.body_id.in_(select(message.c.body_id).where(*_OVER))),
    rows.forgetting(*_OVER),
    *(delete(table).where(~exists().where(message.c.id == table.c.message_id)) for table in (share, spent)),
]
"""Deletes the messages of a queue for several which nobody has a place of, and which were not swept yet."""

_CONSUMERS = (
    select(
        queue.c.id,
        queue.c.parent_id,
        queue.c.name,
        queue.c.created_at,
        queue.c.going,
        queue.c.rule,
        queue.c.topics,
    )
    .where(given(queue.c.space_id, "space_id"), queue.c.parent_id > literal(0))
    .order_by(queue.c.id)
)
_END_SUBSCRIPTION = (
    update(queue)
    .where(given(queue.c.id, "of_queue"))
    .values(name=bindparam("new_name"), going=true(), version=bindparam("new_version"))
)
_CHANGE_SUBSCRIPTION = (
    update(queue)
    .where(given(queue.c.id, "of_queue"))
    .values(rule=bindparam("new_rule"), topics=bindparam("new_topics"), version=bindparam("new_version"))
)


class Queues(UnitPart):
    """Queues as administrators define them."""

    @property
    def subscriptions(self) -> Subscriptions:
        """Consumers of queues for several."""
        return Subscriptions(self.unit)

    def of_space(self, space_id: int) -> list[Queue]:
        """Return the queues of a queue space by name."""
        return [_sound_queue(row) for row in self.all(_OF_SPACE, space_id=space_id, of_import=0)]

    def versions(self, space_id: int) -> dict[int, int]:
        """Return for each queue of a queue space, by its number, a number that changes with each change of it."""
        return dict(self.all(_VERSIONS, space_id=space_id))

    def find(self, queue_id: int) -> Queue:
        """Return a queue that exists, by its number."""
        return queue_of(self.all(_FIND, of_queue=queue_id)[0])

    def add(self, space_id: int, definition: QueueDefinition, created_us: int) -> Queue:
        """Record a queue, its counters at zero, and change the generation."""
        new = self.record(Queue(0, space_id, definition), created_us)
        self.unit.change_generation(space_id)
        return new

    def record(self, new: Queue, created_us: int, import_id: int = 0) -> Queue:
        """Record a queue, of an import if it is hidden, its counters at zero."""
        values = {**queue_values(new), "import_id": import_id}
        return dataclasses.replace(new, id=self.add_row(new.space_id, values, created_us))

    def add_row(self, space_id: int, values: Mapping[str, Any], created_us: int) -> int:
        """Record a queue, or a consumer, by these values, its counters at zero; return its number."""
        own: dict[str, Any] = {"import_id": 0, **_OF_CONSUMER, **values}
        row = self.one(_ADD, **own, space_id=space_id, created_at=created_us)
        assert row is not None  # noqa: S101 - RETURNING gives the row
        self.unit.counters.add(space_id, row[0])
        return int(row[0])

    def change(self, changed: Queue) -> None:
        """Record the new definition of a queue, and change the generation."""
        self.run(
            _CHANGE,
            of_queue=changed.id,
            **{f"new_{name}": value for name, value in queue_values(changed).items()},
        )
        self.unit.change_generation(changed.space_id)

    def remove(self, old: Queue) -> None:
        """Remove a queue with the messages and counters that it has, and change the generation."""
        self.empty(old.id)
        if old.definition.multiple_consumers:
            for statement in _REMOVE_OVER:
                self.run(statement, of_queue=old.id)
        self.unit.counters.remove(old.space_id, old.id)
        self.run(_REMOVE, queue_id=old.id)
        self.unit.change_generation(old.space_id)

    def empty(self, queue_id: int) -> None:
        """Delete all that stands in a queue, or for a consumer, with the messages: other consumers lose theirs too."""
        for statement in _EMPTY:
            self.run(statement, of_queue=queue_id)


class Subscriptions(UnitPart):
    """Consumers of queues for several."""

    def of_space(self, space_id: int) -> list[ConsumerRecord]:
        """Return the subscriptions of a queue space, those which have ended too until nothing is left of them."""
        return [_record_of(row) for row in self.all(_CONSUMERS, space_id=space_id)]

    def add(self, of: Queue, full_name: str, now_us: int, rule: str = "", topics: Sequence[str] = ()) -> ConsumerRecord:
        """Record a consumer of a queue, its counters at zero, and change the generation."""
        # Its definition is that of the queue, whenever it is read.
        values = queue_values(of) | {"name": full_name, "multiple_consumers": False, "parent_id": of.id}
        values |= {"rule": rule, "topics": _written(topics)}
        number = self.unit.queues.add_row(of.space_id, values, now_us)
        self.unit.change_generation(of.space_id)
        return ConsumerRecord(number, of.id, full_name, now_us, rule=rule, topics=tuple(topics))

    def change(self, consumer: Queue, rule: str, topics: Sequence[str]) -> None:
        """Record what a consumer wants from now on, and change the generation."""
        new = {"new_rule": rule, "new_topics": _written(topics), "new_version": random_number()}
        self.run(_CHANGE_SUBSCRIPTION, of_queue=consumer.id, **new)
        self.unit.change_generation(consumer.space_id)

    def end(self, consumer: Queue) -> None:
        """Record that a consumer has unsubscribed, whose name is free then, and change the generation."""
        # No name of a queue has a character that cannot be printed.
        self.run(_END_SUBSCRIPTION, of_queue=consumer.id, new_name=f"\x7f{consumer.id}", new_version=random_number())
        self.unit.change_generation(consumer.space_id)

    def is_over(self, consumer: Queue) -> bool:
        """Return whether nothing stands for a consumer that has unsubscribed, and nothing more can come.

        What an open transaction has taken stands there until that is committed.
        """
        return self.one(_STANDS, of_queue=consumer.id) is None

    def remove(self, consumer: Queue) -> None:
        """Remove a consumer for which nothing stands, with its counters, and change the generation."""
        for statement in _LEAVE:
            self.run(statement, of_queue=consumer.id)
        self.unit.counters.forget(consumer.space_id, consumer.id)
        self.run(_REMOVE, queue_id=consumer.id)
        self.unit.change_generation(consumer.space_id)


def _written(topics: Sequence[str]) -> str:
    return json.dumps(topics) if topics else ""


def _record_of(row: Row) -> ConsumerRecord:
    number, parent, name, since, going, rule, topics = row
    try:
        patterns = tuple(map(str, json.loads(topics))) if topics else ()
    except (TypeError, ValueError) as error:
        raise damaged(f"topics of subscription {name!r} are damaged: {error}") from error
    return ConsumerRecord(number, parent, name, since, bool(going), rule, patterns)


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
    return {**values, "ordering": order, "error_queue": error_queue, "version": random_number()}
