"""Exhaustive exploration of a model: all states that its steps reach, breadth first, so that a trace is the shortest.

A model has frozen states, and functions that yield what may follow one: the name of a step, and the state after it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=Hashable)


class Explored(NamedTuple, Generic[S]):
    """All states that were visited; what is wrong with the last of them, if anything, and the shortest way to it."""

    states: Mapping[S, tuple[S, str] | None]
    wrong: str | None = None
    trace: str = ""


def explore(start: S, steps: Callable[[S], Iterable[tuple[str, S]]], wrong: Callable[[S], str | None]) -> Explored[S]:
    """Visit all states, until one is wrong. Each is noted with the state and the step that it was first reached by."""
    reached: dict[S, tuple[S, str] | None] = {start: None}
    frontier = [start]
    while frontier:
        following: list[S] = []
        for state in frontier:
            for step, after in steps(state):
                if after not in reached:
                    reached[after] = (state, step)
                    following.append(after)
                    if (sentence := wrong(after)) is not None:
                        return Explored(reached, sentence, trace(reached, after))
        frontier = following
    return Explored(reached)


def without_an_end(
    states: Iterable[S], steps: Callable[[S], Iterable[tuple[str, S]]], ended: Callable[[S], bool]
) -> S | None:
    """Return the first state from which these steps lead to no state that is an end; None if there is none.

    The steps may be fewer than those that were explored: what is to come to an end without the help of the others.
    """
    known = list(states)
    before: dict[S, list[S]] = {}
    for state in known:
        for _, after in steps(state):
            before.setdefault(after, []).append(state)
    found = [state for state in known if ended(state)]
    leads_to_an_end = set(found)
    while found:
        found = [state for after in found for state in before.get(after, ()) if state not in leads_to_an_end]
        leads_to_an_end.update(found)
    return next((state for state in known if state not in leads_to_an_end), None)


def trace(reached: Mapping[S, tuple[S, str] | None], state: S) -> str:
    """Return the shortest way to a state: each step, and below it what there is then."""
    lines: list[str] = []
    at = state
    while (origin := reached[at]) is not None:
        lines.append(f"{origin[1]}\n        {at}")
        at = origin[0]
    lines.append(f"in the beginning\n        {at}")
    return "\n".join(f"{number:4}  {line}" for number, line in enumerate(reversed(lines)))
