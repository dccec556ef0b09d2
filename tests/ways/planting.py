"""Rules that tests plant where the engine builds what it asks of a store.

A rule is called with the transition and the name of the queue that it is about, and refuses by raising. It is planted
in the functions that say of each transition what the queue grants; wherever they are named, as `from` imports copy
names. `test_planted_rules` shows that nothing goes by without asking them.

A rule about each message that arrives is called with the name of its queue and its size, where messages are looked at
one by one.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from qmcore.errors import InvalidArgumentError
from tests.ways.transitions import ARRIVE, CLAIM, MOVE, SETTLE, Transition

Rule: TypeAlias = Callable[[Transition, str], None]
MessageRule: TypeAlias = Callable[[str, int], None]
Place: TypeAlias = tuple[Callable[..., Any], Callable[..., Any]]
"""A function of the engine, and what stands in its place while a rule is planted."""

WORDS = "the planted rule refuses this"


def refusing(transition: Transition, queue: str) -> Rule:
    """Return the rule that refuses a transition of the messages of a queue."""

    def rule(asked: Transition, name: str) -> None:
        if (asked, name) == (transition, queue):
            raise InvalidArgumentError(WORDS)

    return rule


def refusing_larger(most: int, queue: str) -> MessageRule:
    """Return the rule that refuses messages of a queue above a size."""

    def rule(name: str, size: int) -> None:
        if name == queue and size > most:
            raise InvalidArgumentError(WORDS)

    return rule


def plant(rule: Rule) -> Callable[[], None]:
    """Have a rule asked from now on, and return what takes it away again."""
    return _plant(_places(rule))


def plant_on_messages(rule: MessageRule) -> Callable[[], None]:
    """Have a rule asked about each message that arrives from now on, and return what takes it away again."""
    return _plant(_places_of_messages(rule))


def _plant(places: Iterator[Place]) -> Callable[[], None]:
    changed = []
    for function, planted in places:
        for module in [found for name, found in sys.modules.items() if name.startswith("qmcore.")]:
            for name, value in list(vars(module).items()):
                if value is function:
                    setattr(module, name, planted)
                    changed.append((module, name, function))

    def take_away() -> None:
        for module, name, function in changed:
            setattr(module, name, function)

    return take_away


def _asking(function: Callable[..., Any], ask: Callable[..., None]) -> Place:
    @functools.wraps(function)
    def planted(*values: Any, **more: Any) -> Any:
        ask(*values)
        return function(*values, **more)

    return function, planted


def _places(rule: Rule) -> Iterator[Place]:
    """Yield the functions that build what is asked of a store, each with one that asks the rule first."""
    from qmcore.acts import commit, dequeue, enqueue, manage_messages

    yield _asking(enqueue.route_to, lambda _known, name: rule(ARRIVE, name))
    yield _asking(dequeue.source_from, lambda _known, name: rule(CLAIM, name))
    yield _asking(commit.consumed_from, lambda _known, queue: rule(SETTLE, queue.name))
    yield _asking(manage_messages.choose, lambda _volume, _opened, queue, *_: rule(MOVE, queue))


def _places_of_messages(rule: MessageRule) -> Iterator[Place]:
    """Yield the functions that look at each message that arrives, likewise."""
    from qmcore.acts import enqueue, importing
    from qmcore.bulk_rows import SIZE

    def sent(outgoing: Sequence[enqueue.Outgoing]) -> None:
        for item in outgoing:
            rule(item.queue, item.size)

    def imported(job: importing.ImportJob, groups: Sequence[importing.Group]) -> None:
        names = {planned.key: planned.name for planned in job.plan.queues}
        for source, _, _, rows in groups:
            for row in rows:
                rule(names[source], row[SIZE])

    yield _asking(enqueue.commands_for, lambda _opened, _known, outgoing: sent(outgoing))
    yield _asking(enqueue.accepted, lambda _known, outgoing, *_: sent(outgoing))
    yield _asking(importing.load_batch, lambda _volume, job, _batch, groups: imported(job, groups))
