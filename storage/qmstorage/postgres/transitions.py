"""What a store does to messages, in a transaction of one session beside those of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from qmcore.purpose import WrongPurposeError
from qmcore.records import Use
from qmcore.transitions import (
    STALE,
    Admit,
    Admitted,
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
    Reason,
    Refused,
    Result,
)
from qmstorage import claiming, disposing, settling
from qmstorage.postgres import arriving, keys
from qmstorage.postgres.arrivals import SharedArrivals
from qmstorage.postgres.row_arrays import Packed
from qmstorage.refused import RefusedError
from qmstorage.unit import SqlUnit


class Transitions(SharedArrivals, SqlUnit):
    """What a store does to messages: one function of the server for each transition, whoever asks."""

    schema: str
    slot: int
    row_type: int
    heard: list[str]
    awaited: set[int]
    """The queues of those that messages have come to for which somebody waits."""

    def execute(self, commands: Sequence[Command]) -> Sequence[Result]:
        """Execute commands, and return what came of each.

        Raises RefusedError where one is refused: the caller undoes the others.
        """
        results: list[Result] = []
        for command in commands:
            result: Result | Refused = _VERBS[type(command)](self, command)
            if isinstance(result, Refused):
                raise RefusedError(result._replace(command=len(results)))
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
        """Let messages arrive in a queue."""
        if command.holder is not None:
            return settling.spill(self, command)
        if not self.purpose.settles:
            raise WrongPurposeError(self.purpose, "lets messages arrive")
        space_id, queue_id = command.guard.space_id, command.route.queue_id
        lock, has_memory = keys.key(self.schema, keys.Kind.VOLUME, 0), self.memory(space_id) is not None
        caller = arriving.Caller(self.schema, lock, self.slot, self.row_type, has_memory)

        def keep_apart(arrival: Arrival, number: int) -> None:
            store = self.memory(space_id) if arrival.terms.memory else self
            assert store is not None  # noqa: S101 - the message is there
            store.put_body(number, arrival.body)

        result = arriving.enqueue(command, caller, self.clock.now(), self.call, keep_apart)
        if isinstance(result, Refused):
            return result
        enqueued, answer = result
        self.heard.append(answer.transaction_number)
        self.notifications.came(queue_id)
        if answer.is_awaited:
            self.awaited.add(queue_id)
        return enqueued

    def admit(self, command: Admit) -> Admitted | Refused:
        """Say whether there is room for what a transaction enqueues, and give it numbers."""
        return settling.admit(self, command)

    def commit_transaction(self, command: Commit) -> Committed | Refused:
        """Commit a transaction: what it holds goes, and what it brings arrives."""
        if not self.purpose.settles:
            raise WrongPurposeError(self.purpose, "commits a transaction")
        guard = command.guard
        if self.generation(guard.space_id) != guard.generation:
            return STALE
        # First, so that others who end it wait.
        reason = settling.end(self, command)
        if reason is None and command.spilled and settling.lacks_spilled(self, command):
            reason = Reason.LOST
        if reason is not None:
            return Refused(reason)
        now, stores = self.clock.now(), claiming.stores_of(self, guard)
        for store in stores:
            count = sum(settling.consume(self, command, store, source, now) for source in command.sources)
            if store is self and count < command.holds.messages:
                return Refused(Reason.LOST)
            if command.locks:
                settling.give_back_locked(command, store, now)
        settling.rearm_levels(self, command)
        brings = settling.keep_with_spilled(self, command)
        refused = settling.overflow_of_spilled(self, command, _NOTHING, _NOTHING) if command.stored else None
        if refused is not None:
            return refused
        reached: list[Reached] = []
        # What stands in the store already comes first.
        for route in command.stored:
            reached += settling.stand_spilled(self, command, route, now)
        for route, arrivals in brings:
            result = self.enqueue(Enqueue(guard, route, arrivals))
            if isinstance(result, Refused):
                return result
            reached += result.reached
        return Committed(reached)

    def dispose(self, command: Dispose) -> Disposed | Refused:
        """Dispose of messages of a queue that were looked at just now."""
        return disposing.dispose(self, command, self.clock.now())

    def follow(self, command: Commit) -> Sequence[Reached]:
        """Do in memory what a commit meant that the disk has seen alone; return the capacity commands to start."""
        return settling.follow(self, command, self.clock.now())

    def call(self, kind: arriving.Kind, values: Mapping[str, Any]) -> list[int] | None:
        """Call the function that lets messages arrive."""
        rows = {name: Packed(values[name]) for name in ("arrival", "arrivals")}
        self._cursor.execute(arriving.text_of(self.schema, kind), {**values, **rows})
        found: list[int] | None = self._cursor.fetchone()[0]
        return found


_NOTHING: Final = Use(0, 0, 0)
_VERBS: Final[dict[type, Callable[[Transitions, Any], Result | Refused]]] = {
    Enqueue: Transitions.enqueue,
    Claim: Transitions.claim,
    Admit: Transitions.admit,
    Commit: Transitions.commit_transaction,
    Dispose: Transitions.dispose,
}
