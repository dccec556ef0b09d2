"""What a store does to messages, in the statements that take SQLite the least time.

There is one writer at a time, so that what was looked up is still so when it is changed. Nothing is changed before it
is known that all can be: whoever is refused has done nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from qmcore.purpose import WrongPurposeError
from qmcore.refusals import STALE, Reason, Refused
from qmcore.transitions import (
    Admit,
    Arrival,
    Claim,
    Claimed,
    Command,
    Commit,
    Committed,
    Dispose,
    Disposed,
    Empty,
    Enqueue,
    Enqueued,
    Reached,
    Result,
    Terms,
)
from qmcore.two_phase import Begin, Decide, Prepare
from qmstorage import disposing
from qmstorage.decisions import decide
from qmstorage.refused import RefusedError
from qmstorage.settling import begin, follow, prepare, spill
from qmstorage.sqlite import claiming, settling
from qmstorage.sqlite.counters import COUNT, MAIN, ExclusiveCounters
from qmstorage.sqlite.holdings import ExclusiveHoldings
from qmstorage.sqlite.messages import ExclusiveMessages
from qmstorage.sqlite.states import ExclusiveStates
from qmstorage.statements import Row
from qmstorage.unit import SqlUnit
from qmstorage.unit_part import LastingPartOf


class Transitions(SqlUnit):
    """What a store does to messages: one function for each transition, whoever asks."""

    counters = LastingPartOf(ExclusiveCounters)
    states = LastingPartOf(ExclusiveStates)
    messages = LastingPartOf(ExclusiveMessages)
    holdings = LastingPartOf(ExclusiveHoldings)

    def execute(self, commands: Sequence[Command]) -> Sequence[Result] | Refused:
        """Execute commands, and return what came of each; where the first is refused, nothing was done.

        Raises RefusedError where a later one is refused, or one that had begun: the caller undoes all.
        """
        results: list[Result] = []
        for command in commands:
            result: Result | Refused = VERBS[type(command)](self, command)
            if isinstance(result, Refused):
                if results or result.reason is Reason.GONE:
                    raise RefusedError(result._replace(command=len(results)))
                return result
            results.append(result)
        return results

    # Each refusal is a return, and another call would cost each message.
    def enqueue(self, command: Enqueue) -> Enqueued | Refused:  # noqa: PLR0911, PLR0912 - see above
        """Let messages arrive in a queue."""
        guard, route, arrivals, holder = command
        if holder is not None:
            return spill(self, command, claiming.begin_holding)
        if not self.purpose.settles:
            raise WrongPurposeError(self.purpose, "lets messages arrive")
        space_id, count = guard.space_id, len(arrivals)
        execute, texts = self.cursor.execute, self.texts.in_order
        main: Row | None = execute(texts[MAIN], (space_id,)).fetchone()
        if main is None or main[0] != guard.generation:
            return STALE
        _, last, messages, pages_before, _ = main
        if guard.memory_pages:
            messages += self.memory_level(space_id).messages
        before: dict[Terms, bytes] = {}
        if count == 1:
            ((_, size, pages, terms, _),) = arrivals
            its_terms = [terms]
        else:
            _, sizes, all_pages, terms_of, _ = zip(*arrivals, strict=True)
            its_terms, size, pages = list(dict.fromkeys(terms_of)), sum(sizes), sum(all_pages)
        in_memory = False
        for terms in its_terms:
            in_memory = in_memory or terms.memory
            if terms.before:
                place = self.place_of(space_id, route.queue_id, terms.before)
                if place is None:
                    return Refused(Reason.NO_SUCH_MESSAGE, route.queue_id, wanted=terms.before[0])
                before[terms] = place
        if messages + count > guard.messages:
            return Refused(Reason.MESSAGES, messages, guard.messages, count)
        if in_memory:
            return _enqueue_in_memory(self, command, main, before)
        if pages_before + pages > guard.pages:
            return Refused(Reason.PAGES, pages_before, guard.pages, pages)
        sequences = range(last + 1, last + count + 1)
        execute(texts[COUNT], (count, count, pages, size, count, 0, space_id, 0))
        execute(texts[COUNT], (count, count, pages, size, count, 0, space_id, route.queue_id))
        if route.consumers:
            self.counters.come_to_places(space_id, route.consumers, count=count, pages=pages, size=size)
        now = self.clock.now()
        self.states.stand(guard, route, sequences, arrivals, now, before)
        reached = _reached(self, command, now) if route.levels else ()
        # The numbers of their identifiers may have been given before.
        return Enqueued([each.sequence for each in arrivals] if arrivals[0].sequence else sequences, reached)

    def claim(self, command: Claim) -> Claimed | Empty | Refused:
        """Take messages out of a queue: they go for good, or a transaction holds them."""
        return claiming.claim(self, command)

    def settle(self, command: Commit) -> Committed | Refused:
        """Commit a transaction: what it holds goes, and what it brings arrives."""
        return settling.commit(self, command)

    def dispose(self, command: Dispose) -> Disposed | Refused:
        """Dispose of messages of a queue that were looked at just now."""
        return disposing.dispose(self, command, self.clock.now())

    def follow(self, command: Commit) -> Sequence[Reached]:
        """Do in memory what a commit meant that the disk has seen alone; return the capacity commands to start."""
        return follow(self, command, self.clock.now())


VERBS: Final[dict[type, Callable[[Transitions, Any], Result | Refused]]] = {
    Enqueue: Transitions.enqueue,
    Claim: claiming.claim,
    Admit: settling.admit,
    Commit: settling.commit,
    Dispose: Transitions.dispose,
    Begin: begin,
    Prepare: prepare,
    Decide: decide,
}
"""What executes a command, by its type."""


def _apart(sequences: Sequence[int], arrivals: Sequence[Arrival], *, memory: bool) -> dict[int, Arrival]:
    """Return the messages that go to one of the stores, by their sequence numbers."""
    return {
        sequence: arrival
        for sequence, arrival in zip(sequences, arrivals, strict=True)
        if arrival.terms.memory is memory
    }


def _enqueue_in_memory(
    unit: Transitions, command: Enqueue, main: Row, before: dict[Terms, bytes]
) -> Enqueued | Refused:
    """Let messages arrive of which some, or all, are not persistent."""
    guard, route, arrivals, _ = command
    space_id = guard.space_id
    memory = unit.memory(space_id)
    if memory is None:
        return Refused(Reason.NO_MEMORY)
    _, last, _, pages_before, _ = main
    sequences = range(last + 1, last + len(arrivals) + 1)
    ours, its = _apart(sequences, arrivals, memory=False), _apart(sequences, arrivals, memory=True)
    pages, size = (sum(getattr(arrival, what) for arrival in ours.values()) for what in ("pages", "size"))
    if ours and pages_before + pages > guard.pages:
        return Refused(Reason.PAGES, pages_before, guard.pages, pages)
    used, wanted = memory.counters.level(space_id).pages, sum(arrival.pages for arrival in its.values())
    if used + wanted > guard.memory_pages:
        return Refused(Reason.MEMORY, used, guard.memory_pages, wanted)
    now, states = unit.clock.now(), memory.states
    assert isinstance(states, ExclusiveStates)  # noqa: S101 - `memory_of` made it
    # Numbers are given by the store on disk alone: one that was used is not used again, whatever becomes of memory.
    unit.counters.reserve(space_id, len(its))
    bytes_wanted = sum(arrival.size for arrival in its.values())
    memory.counters.arrive(space_id, route.queue_id, count=len(its), pages=wanted, size=bytes_wanted)
    states.stand(guard, route, list(its), list(its.values()), now, before)
    if ours:
        for queue_id in (0, route.queue_id):
            change = len(ours), len(ours), pages, size, len(ours), 0
            unit.run_in_order(COUNT, *change, space_id, queue_id)
        unit.states.stand(guard, route, list(ours), list(ours.values()), now, before)
    reached = _reached(unit, command, now) if route.levels else ()
    return Enqueued([each.sequence for each in arrivals] if arrivals[0].sequence else sequences, reached)


def _reached(unit: Transitions, command: Enqueue, now: int) -> Sequence[Reached]:
    stores = {arrival.terms.memory for arrival in command.arrivals}
    on_disk, in_memory = False in stores, True in stores
    commands = unit.capacity_commands
    return commands.claim_reached(command.guard, command.route, now, on_disk=on_disk, in_memory=in_memory)
