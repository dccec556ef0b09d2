"""What a store does to messages, in a transaction of one session beside those of others."""

from __future__ import annotations

from collections.abc import Sequence

from qmcore.purpose import WrongPurposeError
from qmcore.transitions import (
    STALE,
    Arrival,
    Claim,
    Claimed,
    Command,
    Empty,
    Enqueue,
    Enqueued,
    Guard,
    Reached,
    Reason,
    Refused,
    Result,
    Route,
    Terms,
)
from qmstorage import claiming
from qmstorage.levels import claim_reached
from qmstorage.postgres.arrivals import SharedArrivals
from qmstorage.postgres.counters import SharedCounters
from qmstorage.refused import RefusedError
from qmstorage.unit import SqlUnit


class Transitions(SharedArrivals, SqlUnit):
    """What a store does to messages: one function for each transition, whoever asks."""

    def execute(self, commands: Sequence[Command]) -> Sequence[Result]:
        """Execute commands, and return what came of each.

        Raises RefusedError where one is refused: the caller undoes the others.
        """
        results = []
        for command in commands:
            result: Result | Refused = self.claim(command) if isinstance(command, Claim) else self.enqueue(command)
            if isinstance(result, Refused):
                raise RefusedError(result)
            results.append(result)
        return results

    def claim(self, command: Claim) -> Claimed | Empty | Refused:
        """Take messages out of a queue: they go for good, or a transaction holds them."""
        guard, source, _, _, body, is_tidy, holder = command
        if self.generation(guard.space_id) != guard.generation:
            return STALE
        if source.grouping:
            # Two that take of one group would each wait for what the other has; so that nothing is taken before this.
            self.take_alone(source.queue_id)
        now = self.clock.now()
        if not is_tidy and claiming.is_untidy(self, command, now):
            return Empty(source.queue_id, None, held=False, is_untidy=True)
        parts = claiming.choose(self, command)
        if not parts:
            return claiming.nothing(self, command)
        taken = claiming.read(parts, source, body=body)
        if isinstance(taken, Refused):
            return taken
        if holder is None:
            return claiming.consume(self, command, taken, now)
        return claiming.hold(self, command, holder, taken, claiming.begin_holding)

    def enqueue(self, command: Enqueue) -> Enqueued | Refused:
        """Let messages arrive in a queue; where they are refused, what was changed before is to be undone."""
        if not self.purpose.settles:
            raise WrongPurposeError(self.purpose, "lets messages arrive")
        guard, route, arrivals = command
        if self.generation(guard.space_id) != guard.generation:
            return STALE
        before: dict[Terms, bytes] = {}
        for terms in dict.fromkeys(arrival.terms for arrival in arrivals):
            if terms.before and not self.finds_place(guard.space_id, route, terms, before):
                return Refused(Reason.NO_SUCH_MESSAGE, route.queue_id, wanted=terms.before[0])
        ours = [arrival for arrival in arrivals if not arrival.terms.memory]
        its = [arrival for arrival in arrivals if arrival.terms.memory] if len(ours) < len(arrivals) else []
        given = dict(zip(map(id, arrivals), self.reserve(guard.space_id, len(arrivals)), strict=True)) if its else {}
        now = self.clock.now()
        sequences: list[int] = []
        for store, part in ((self, ours), (self.memory(guard.space_id) if its else None, its)):
            if not part:
                continue
            if store is None:
                return Refused(Reason.NO_MEMORY)
            assert isinstance(store, SharedArrivals)  # noqa: S101 - `memory_of` made it
            assert isinstance(store, SharedCounters)  # noqa: S101
            found = self._count_in(store, guard, route, part, memory=part is its)
            if isinstance(found, Refused):
                return found
            # Those that go to memory have the places that they take among the others.
            sequences = [given[id(arrival)] for arrival in part] if its else list(found)
            store.stand(guard, route, sequences, part, now, before)
        reached: Sequence[Reached] = ()
        if route.levels:
            reached = claim_reached(self, guard, route, now, on_disk=bool(ours), in_memory=bool(its))
        if arrivals[0].sequence:
            return Enqueued([arrival.sequence for arrival in arrivals], reached)
        return Enqueued(list(given.values()) if its else sequences, reached)

    def _count_in(
        self, store: SharedCounters, guard: Guard, route: Route, arrivals: Sequence[Arrival], *, memory: bool
    ) -> Sequence[int] | Refused:
        """Count messages in, and return their sequence numbers, or that there is no room for them."""
        space_id, count = guard.space_id, len(arrivals)
        pages, size = sum(arrival.pages for arrival in arrivals), sum(arrival.size for arrival in arrivals)
        counted = store.arrive(space_id, route.queue_id, count=count, pages=pages, size=size)
        messages = counted.space.messages
        if guard.memory_pages:
            messages += (self.level(space_id) if memory else self.memory_level(space_id)).messages
        if messages > guard.messages:
            return Refused(Reason.MESSAGES, messages - count, guard.messages, count)
        reason, most = (Reason.MEMORY, guard.memory_pages) if memory else (Reason.PAGES, guard.pages)
        if counted.space.pages > most:
            return Refused(reason, counted.space.pages - pages, most, pages)
        return counted.sequences
