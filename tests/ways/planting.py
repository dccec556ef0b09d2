"""Rules that tests plant where the engine builds what it asks of a store.

A rule is called with the transition and the name of the queue that it is about, and refuses by raising. It is planted
in the functions that say of each transition what the queue grants; wherever they are named, as `from` imports copy
names. `test_planted_rules` shows that nothing goes by without asking them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from qmcore.errors import InvalidArgumentError
from tests.ways.transitions import ARRIVE, CLAIM, MOVE, SETTLE, Transition

Rule: TypeAlias = Callable[[Transition, str], None]
Place: TypeAlias = tuple[Callable[..., Any], Callable[..., Any]]
"""A function of the engine, and what stands in its place while a rule is planted."""

WORDS = "the planted rule refuses this"


def refusing(transition: Transition, queue: str) -> Rule:
    """Return the rule that refuses a transition of the messages of a queue."""

    def rule(asked: Transition, name: str) -> None:
        if (asked, name) == (transition, queue):
            raise InvalidArgumentError(WORDS)

    return rule


def plant(rule: Rule) -> Callable[[], None]:
    """Have a rule asked from now on, and return what takes it away again."""
    changed = []
    for function, planted in _places(rule):
        for module in [found for name, found in sys.modules.items() if name.startswith("qmcore.")]:
            for name, value in list(vars(module).items()):
                if value is function:
                    setattr(module, name, planted)
                    changed.append((module, name, function))

    def take_away() -> None:
        for module, name, function in changed:
            setattr(module, name, function)

    return take_away


def _places(rule: Rule) -> Iterator[Place]:
    """Yield the functions that build what is asked of a store, each with one that asks the rule first."""
    from qmcore.acts import commit, dequeue, enqueue, manage_messages

    def asking(function: Callable[..., Any], ask: Callable[..., None]) -> Place:
        @functools.wraps(function)
        def planted(*values: Any, **more: Any) -> Any:
            ask(*values)
            return function(*values, **more)

        return function, planted

    yield asking(enqueue.route_to, lambda _known, name: rule(ARRIVE, name))
    yield asking(dequeue.source_from, lambda _known, name: rule(CLAIM, name))
    yield asking(commit.consumed_from, lambda _known, queue: rule(SETTLE, queue.name))
    yield asking(manage_messages.choose, lambda _volume, _opened, queue, *_: rule(MOVE, queue))
