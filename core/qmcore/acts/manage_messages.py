"""What administrators do to messages that no transaction holds: change their priority and times, or move them.

Which messages are meant is settled first; then they are changed a step at a time, so that others are not held up. A
message that is gone or held by the time its turn comes is passed over.
"""

from __future__ import annotations

import dataclasses
import logging
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from qmcore.acts import looking
from qmcore.acts.disposing import back, by_its_terms, dispose, to_queue
from qmcore.acts.stores import stores
from qmcore.condition import Condition
from qmcore.definitions import Definitions, OpenSpace
from qmcore.errors import InvalidArgumentError, NoRecipientsError
from qmcore.message import PARKED_UNTIL, State
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.queue import Delivery, Queue
from qmcore.records import Changeable, Cursor
from qmcore.store import Store
from qmcore.transitions import Disposition
from qmcore.values import dataclass

logger = logging.getLogger("qmadmin.engine")

Progress = Callable[[int], None]
"""Is told how many messages have been changed."""
_STEP = 1000
_SETTLED_AT_ONCE = 10_000
CHANGEABLE = (State.READY, State.DELAYED, State.PARKED)
"""The states of messages that no transaction holds."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The messages of a queue that are meant, by their numbers in each store."""

    queue: str
    by_store: tuple[array[int], ...]

    def __len__(self) -> int:
        return sum(map(len, self.by_store))


class Changed(NamedTuple):
    """How many messages were changed, and how many of them have no expiry any more because it was over."""

    messages: int = 0
    outlived: int = 0


_Act: TypeAlias = Callable[[Definitions, Queue, Store, Changeable], tuple[Disposition, bool] | None]
"""Says what becomes of a message, and whether its expiry is over; None where it stays as it is."""


def choose(
    volume: Volume,
    opened: OpenSpace,
    name: str,
    condition: Condition | None,
    delivery: Delivery | None,
    states: Sequence[State] = CHANGEABLE,
) -> Chosen:
    """Return the messages of a queue in these states, in which no transaction holds them, that fulfil a condition."""
    by_store = []
    for store_number, kind in enumerate((Delivery.PERSIST, Delivery.NONPERSIST)):
        wanted = delivery is None or delivery is kind
        found = _numbers(volume, opened, name, store_number, condition, states) if wanted else ()
        by_store.append(array("q", found))
    return Chosen(name, tuple(by_store))


def change(
    volume: Volume,
    opened: OpenSpace,
    chosen: Chosen,
    terms: Callable[[Changeable], Changeable],
    progress: Progress,
) -> int:
    """Give the chosen messages other terms, and the places that these give them; return how many it was."""

    def changed(known: Definitions, queue: Queue, _: Store, found: Changeable) -> tuple[Disposition, bool]:
        return by_its_terms(known, queue, terms(found)), False

    return _in_steps(volume, opened, chosen, changed, progress).messages


def move_to(volume: Volume, opened: OpenSpace, chosen: Chosen, target: str, now: int, progress: Progress) -> Changed:
    """Move the chosen messages to another queue of the queue space.

    They keep their terms, get new identifiers and remember the old ones. In a queue for several those that nobody would
    get there stay where they are, and are not counted. Raises NoRecipientsError where that is so of all.
    """
    refused: NoRecipientsError | None = None
    if target == chosen.queue:
        raise InvalidArgumentError(f"the messages are in queue {target!r} already", queue=target)

    def moved(known: Definitions, queue: Queue, store: Store, found: Changeable) -> tuple[Disposition, bool] | None:
        nonlocal refused
        try:
            return to_queue(known, queue, known.queue(target), store, found, now)
        except NoRecipientsError as error:
            refused = error
            return None

    volume.read(lambda unit: opened.definitions(unit).queue(target))
    total = _in_steps(volume, opened, chosen, moved, progress)
    if refused is not None and not total.messages:
        raise refused
    return total


def requeue(volume: Volume, opened: OpenSpace, chosen: Chosen, now: int, progress: Progress) -> Changed:
    """Move the chosen messages back to the queues that they came from.

    Those that came from nowhere, or from a queue that is gone or where nobody would get them, stay where they are, and
    are not counted.
    """

    def moved(known: Definitions, queue: Queue, store: Store, found: Changeable) -> tuple[Disposition, bool] | None:
        name = found.origin_queue or ""
        origin = known.queues.get(name) or known.takers.get(name)
        if origin is None or origin == queue:
            return None
        try:
            return to_queue(known, queue, origin, store, found, now)
        except NoRecipientsError:
            return None

    return _in_steps(volume, opened, chosen, moved, progress)


def unpark(volume: Volume, opened: OpenSpace, chosen: Chosen, now: int, progress: Progress) -> int:
    """Make the chosen messages that are parked available where they stand; return how many it was.

    Of a queue that groups messages the rest of their groups comes with them: it waits for what was parked of it.
    """

    def freed(known: Definitions, queue: Queue, _: Store, found: Changeable) -> tuple[Disposition, bool] | None:
        if found.until_us != PARKED_UNTIL:
            return None
        if found.available_us != PARKED_UNTIL:
            return back(found.holding), False
        # It was its sender, or an administrator, who gave it no time.
        return by_its_terms(known, queue, dataclasses.replace(found, available_us=now, until_us=None)), False

    return _in_steps(volume, opened, chosen, freed, progress, with_groups=True).messages


def _numbers(
    volume: Volume,
    opened: OpenSpace,
    name: str,
    store_number: int,
    condition: Condition | None,
    states: Sequence[State],
) -> Iterator[int]:
    for state in states:
        cursor: Cursor | None = None
        while part := volume.read(
            lambda unit, at=cursor, of=state: looking.cursors(  # type: ignore[misc]
                unit, opened, store_number, name, of, at, _SETTLED_AT_ONCE, condition
            )
        ):
            yield from (message_id for _, message_id in part)
            cursor = part[-1]


def _in_steps(
    volume: Volume,
    opened: OpenSpace,
    chosen: Chosen,
    act: _Act,
    progress: Progress,
    *,
    with_groups: bool = False,
) -> Changed:
    total = Changed()
    for store_number, numbers in enumerate(chosen.by_store):
        for start in range(0, len(numbers), _STEP):
            step = numbers[start : start + _STEP]
            done = volume.write(
                lambda unit, ids=step, at=store_number: _one_step(  # type: ignore[misc]
                    unit, opened, chosen.queue, at, ids, act, with_groups=with_groups
                ),
                Purpose.ADMINISTRATION,
            )
            total = Changed(total.messages + done.messages, total.outlived + done.outlived)
            progress(total.messages)
    return total


def _one_step(
    unit: Unit,
    opened: OpenSpace,
    name: str,
    store_number: int,
    numbers: Sequence[int],
    act: _Act,
    *,
    with_groups: bool,
) -> Changed:
    known = opened.definitions(unit)
    queue = known.taker(name)
    store = stores(unit, queue.space_id)[store_number]
    if with_groups and queue.definition.grouping:
        numbers = store.listing.with_parked_of_groups(queue.id, numbers)
    # One that went from one state to the other meanwhile was chosen in both.
    found = [
        each for number in dict.fromkeys(numbers) if (each := store.states.changeable(queue.id, number)) is not None
    ]
    its = [becomes for each in found if (becomes := act(known, queue, store, each)) is not None]
    dispose(unit, opened, queue, store, [disposition for disposition, _ in its])
    outlived = sum(has_outlived for _, has_outlived in its)
    if outlived:
        unit.afterwards(lambda: _tell_outlived(opened, name, outlived))
    return Changed(len(its), outlived)


def _tell_outlived(opened: OpenSpace, name: str, count: int) -> None:
    what = "1 message has" if count == 1 else f"{count} messages have"
    logger.warning(
        "%s left queue %r of queue space %r without an expiry: its earlier one has passed",
        what,
        name,
        opened.space.name,
    )
