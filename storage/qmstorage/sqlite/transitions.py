"""What a store does to messages, in the statements that take SQLite the least time.

There is one writer at a time, so that what was looked up is still so when it is changed. Nothing is changed before it
is known that all can be: whoever is refused has done nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import add, attrgetter
from typing import Any, Final, TypeAlias

from qmcore.message_rows import BODY_ID, ID, fault_in
from qmcore.purpose import WrongPurposeError
from qmcore.records import Outcome, Role, Use
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
    Guard,
    Holder,
    Reached,
    Reason,
    Refused,
    Result,
    Route,
    Source,
    Terms,
)
from qmstorage import claiming, disposing, settling
from qmstorage.counters import MOST, OF_SPACE, adding
from qmstorage.refused import RefusedError
from qmstorage.schema import counter, owner, trans
from qmstorage.sql import Integer, bindparam, exists, func, insert, select
from qmstorage.sqlite import traffic
from qmstorage.sqlite.undecoded import Undecoded
from qmstorage.statements import Row, given
from qmstorage.states import PENDING_WORK
from qmstorage.transactions import END, written_state
from qmstorage.unit import SqlUnit

MAIN: Final = select(
    counter.c.generation, counter.c.sequence, counter.c.messages, counter.c.pages, counter.c.size
).where(*OF_SPACE)
_MAIN_OF_QUEUE: Final = MAIN.add_columns(*PENDING_WORK.selected_columns)
"""The same, and whether something is due or has expired in a queue."""
_COUNT: Final = adding("sequence", "messages", "pages", "size", "enqueued", "dequeued").where(
    given(counter.c.space_id, "space_id"), given(counter.c.queue_id, "of_queue")
)


_DEQUEUED: Final = Role.DEQUEUED
_HELD: Final = traffic.HELD[_DEQUEUED]
_COUNT_OUT: Final = (
    adding("sequence", "messages", "pages", "size", "enqueued", "dequeued").where(*OF_SPACE).values(MOST)
)
"""Of the queue space as a whole, where messages leave it, be there others that come."""

_OF_TRANSACTION: Final = ("id", "space_id", "owner_id", "started_at", "deadline")
_OPEN: Final = (
    select(func.count())
    .select_from(trans)
    .where(given(trans.c.space_id, "of_space"), trans.c.state != written_state(Outcome.COMMITTED))
)
_MAY_BEGIN: Final = (
    exists().where(given(owner.c.id, "of_owner")),
    _OPEN.scalar_subquery() < bindparam("most", type_=Integer()),
)
_RECORD: Final = [bindparam(name, type_=trans.c[name].type) for name in _OF_TRANSACTION]
_BEGIN: Final = insert(trans).from_select(
    [*_OF_TRANSACTION, "state"], select(*_RECORD, written_state(Outcome.ACTIVE)).where(*_MAY_BEGIN)
)
"""Records an active transaction, where its owner was not given up and the queue space has fewer than `most`."""


_Gone: TypeAlias = tuple[Source, Sequence[Row], Use]
"""Messages that a transaction holds of a queue: the number, the pages and the size of each, and of all."""
_Coming: TypeAlias = tuple[Route, Sequence[Arrival]]
_levels_of: Final = attrgetter("levels")


class Transitions(traffic.Traffic, Undecoded, SqlUnit):
    """What a store does to messages: one function for each transition, whoever asks."""

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
    def enqueue(self, command: Enqueue) -> Enqueued | Refused:  # noqa: PLR0911 - see above
        """Let messages arrive in a queue."""
        guard, route, arrivals, holder = command
        if holder is not None:
            return settling.spill(self, command)
        if not self.purpose.settles:
            raise WrongPurposeError(self.purpose, "lets messages arrive")
        space_id, count = guard.space_id, len(arrivals)
        execute, texts = self._cursor.execute, self._texts.in_order
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
            if terms.before and not self.finds_place(space_id, route, terms, before):
                return Refused(Reason.NO_SUCH_MESSAGE, route.queue_id, wanted=terms.before[0])
        if messages + count > guard.messages:
            return Refused(Reason.MESSAGES, messages, guard.messages, count)
        if in_memory:
            return self._enqueue_in_memory(command, main, before)
        if pages_before + pages > guard.pages:
            return Refused(Reason.PAGES, pages_before, guard.pages, pages)
        sequences = range(last + 1, last + count + 1)
        execute(texts[_COUNT], (count, count, pages, size, count, 0, space_id, 0))
        execute(texts[_COUNT], (count, count, pages, size, count, 0, space_id, route.queue_id))
        now = self.clock.now()
        self.stand(guard, route, sequences, arrivals, now, before)
        reached = self._reached(command, now) if route.levels else ()
        # The numbers of their identifiers may have been given before.
        return Enqueued([each.sequence for each in arrivals] if arrivals[0].sequence else sequences, reached)

    def claim(self, command: Claim) -> Claimed | Empty | Refused:
        """Take messages out of a queue: they go for good, or a transaction holds them."""
        guard, source, choices, limit, body, is_tidy, holder = command
        space_id, queue_id, is_special = guard.space_id, source.queue_id, guard.memory_pages or source.retains
        execute, texts = self._cursor.execute, self._texts.in_order
        now = self.clock.now()
        # In the order of its text: both questions are for the queue and for the time.
        main: Row | None = execute(texts[_MAIN_OF_QUEUE], (queue_id, now, queue_id, now, space_id)).fetchone()
        if main is None or main[0] != guard.generation:
            return STALE
        _, _, *level, has_due, has_expired = main
        if not is_tidy and (has_due or has_expired or (is_special and claiming.is_untidy(self, command, now))):
            return Empty(queue_id, None, held=False, is_untidy=True)
        if choices or is_special or source.grouping or (holder is not None and holder.locks):
            taken = claiming.read(claiming.choose(self, command), source, body=body)
        else:
            taken = self.first(queue_id, limit, body=body)
        if isinstance(taken, Refused):
            return taken
        if not taken:
            return claiming.nothing(self, command)
        if holder is None:
            return claiming.consume(self, command, taken, now)
        return claiming.hold(self, command, holder, taken, Transitions.begin_holding, Use(*level))

    def first(self, queue_id: int, limit: int, *, body: bool) -> list[claiming.Read] | Refused:
        """Return what the first ready messages of a queue are, as `read` does."""
        statement = traffic.IN_ORDER if body else traffic.FACTS_IN_ORDER
        its = []
        for each in self._cursor.execute(self._texts.in_order[statement], (queue_id,)).fetchmany(limit):
            number, key, retries = each[:3]
            row: Row = each[3:]
            if row[ID] is None or row[BODY_ID] is not None:
                row, fault = self.whole(None if row[ID] is None else row, retries, body=body)
            else:
                fault = fault_in(row, retries)
            if fault is not None:
                return Refused(Reason.DAMAGED, queue_id, wanted=number, what=fault)
            its.append((key, retries, row))
        return [claiming.Read(self, its, False)] if its else []

    def begin_holding(self, guard: Guard, holder: Holder) -> int | Refused:
        """Make a transaction known, or see that it still is; return how many there are, where they are the most yet."""
        if not holder.recorded:
            transaction_id, owner_id, started_us, deadline_us, _, transactions, highest, *_ = holder
            its = transaction_id, guard.space_id, owner_id, started_us, deadline_us
            values = (*its, owner_id, guard.space_id, min(transactions, highest))
            if self._cursor.execute(self._texts.in_order[_BEGIN], values).rowcount:
                return 0
        return claiming.begin_holding(self, guard, holder)

    def admit(self, command: Admit) -> Admitted | Refused:
        """Say whether there is room for what a transaction enqueues, and give it numbers."""
        main: Row | None = self._cursor.execute(self._texts.in_order[MAIN], (command.guard.space_id,)).fetchone()
        if main is None or main[0] != command.guard.generation:
            return STALE
        _, _, *level = main
        return settling.admit(self, command, Use(*level))

    def commit_transaction(self, command: Commit) -> Committed | Refused:
        """Commit a transaction: what it holds goes, and what it brings arrives."""
        if not self.purpose.settles:
            raise WrongPurposeError(self.purpose, "commits a transaction")
        guard, transaction_id, _, _, sources, _, locks, stored, _, brings = command
        space_id, execute, texts = guard.space_id, self._cursor.execute, self._texts.in_order
        main: Row | None = execute(texts[MAIN], (space_id,)).fetchone()
        if main is None or main[0] != guard.generation:
            return STALE
        gone: list[_Gone] = []
        for source in sources:
            its = execute(texts[_HELD], (source.queue_id, transaction_id)).fetchall()
            if its:
                its_pages = its_size = 0
                for _, pages, size in its:
                    its_pages += pages
                    its_size += size
                gone.append((source, its, Use(len(its), its_pages, its_size)))
        coming: Sequence[_Coming] = brings
        refused = self._refusal(command, main, gone, coming)
        if refused is not None:
            return refused
        now, last = self.clock.now(), main[1]
        reached: list[Reached] = []
        changes = self._consume(command, gone, now)
        if guard.memory_pages or locks or stored or any(map(_levels_of, sources)):
            # What goes is counted before what comes: limits may be reached in between.
            self._count_all(space_id, changes)
            changes = {}
            coming = self._end_in_part(command, now, reached)
            last = self.last_sequence(space_id)
        for route, arrivals in coming:
            count, pages, size = len(arrivals), 0, 0
            for _, its_size, its_pages, _, _ in arrivals:
                pages += its_pages
                size += its_size
            queue_id, change = route.queue_id, [count, count, pages, size, count, 0]
            before = changes.get(queue_id)
            changes[queue_id] = change if before is None else list(map(add, before, change))
            self.stand(guard, route, range(last + 1, last + count + 1), arrivals, now)
            last += count
        self._count_all(space_id, changes)
        for route, _ in coming:
            if route.levels:
                commands = self.capacity_commands
                reached += commands.claim_reached(guard, route, now, on_disk=True, in_memory=False)
        return Committed(reached)

    def end_transaction(self, transaction_id: int, owner_id: int) -> bool:
        """Remove the transaction if that owner still has it; False means that it was given up, or is committed."""
        ended = self._cursor.execute(self._texts.in_order[END], (transaction_id, owner_id))
        return bool(ended.rowcount)

    def dispose(self, command: Dispose) -> Disposed | Refused:
        """Dispose of messages of a queue that were looked at just now."""
        return disposing.dispose(self, command, self.clock.now())

    def follow(self, command: Commit) -> Sequence[Reached]:
        """Do in memory what a commit meant that the disk has seen alone; return the capacity commands to start."""
        return settling.follow(self, command, self.clock.now())

    def _consume(self, command: Commit, gone: Sequence[_Gone], now: int) -> dict[int, list[int]]:
        """Consume what the transaction holds, and return what changes in the counters of each queue."""
        changes, transaction_id = {}, command.transaction_id
        for (queue_id, _, retains, _, _), its, (count, pages, size) in gone:
            if retains:
                self.history.retain_held(transaction_id, queue_id, now, command.guard.consumer)
                # The room of what is kept is given back when it is forgotten.
                changes[queue_id] = [0, -count, 0, -size, 0, count]
            else:
                self.delete_held(its, transaction_id, queue_id, _DEQUEUED)
                changes[queue_id] = [0, -count, -pages, -size, 0, count]
        return changes

    def _count_all(self, space_id: int, changes: Mapping[int, Sequence[int]]) -> None:
        """Count what changes in queues, and in the queue space as a whole."""
        execute, texts = self._cursor.execute, self._texts.in_order
        whole: Sequence[int] = ()
        for queue_id, change in changes.items():
            execute(texts[_COUNT], (*change, space_id, queue_id))
            whole = list(map(add, whole, change)) if whole else change
        if whole:
            execute(texts[_COUNT_OUT], (*whole, space_id))

    def _refusal(self, command: Commit, main: Row, gone: Sequence[_Gone], coming: Sequence[_Coming]) -> Refused | None:
        """Return why a transaction cannot be committed; None where it can, and its record is taken away."""
        guard, transaction_id, owner_id, _, _, holds, _, stored, spilled, _ = command
        count = pages = 0
        for source, its, (_, its_pages, _) in gone:
            count += len(its)
            pages += 0 if source.retains else its_pages
        if count < holds.messages or (spilled and settling.lacks_spilled(self, command)):
            is_active = self.is_active(transaction_id, owner_id)
            return Refused(Reason.LOST if is_active else Reason.GIVEN_UP)
        # With the room that is freed by then.
        messages, left = main[2] - count, main[3] - pages
        if (coming and guard.memory_pages) or stored:
            freed_in_memory = settling.held_in_memory(self, command)
            refused = settling.overflow_of_spilled(self, command, Use(count, pages, 0), freed_in_memory)
            if refused is not None:
                return refused
            messages += self.memory_level(guard.space_id).messages - freed_in_memory.messages
        wanted = wanted_pages = 0
        for _, arrivals in coming:
            wanted += len(arrivals)
            for _, _, its_pages, _, _ in arrivals:
                wanted_pages += its_pages
        if (coming or stored) and messages + wanted > guard.messages:
            return Refused(Reason.MESSAGES, messages, guard.messages, wanted)
        if wanted and left + wanted_pages > guard.pages:
            return Refused(Reason.PAGES, left, guard.pages, wanted_pages)
        reason = settling.end(self, command)
        return None if reason is None else Refused(reason)

    def _end_in_part(self, command: Commit, now: int, reached: list[Reached]) -> Sequence[_Coming]:
        """End what the transaction has in memory, has locked and has spilled; return what is still to come.

        What it held on disk has gone.
        """
        stores = claiming.stores_of(self, command.guard)
        for store in stores:
            if store is not self:
                for source in command.sources:
                    settling.consume_in_memory(command, store, source)
            if command.locks:
                settling.give_back_locked(command, store, now)
        settling.rearm_levels(self, command)
        if not command.stored:
            return command.brings
        # What stands in the store already comes first.
        brings = settling.keep_with_spilled(self, command, command.brings)
        for route in command.stored:
            reached += settling.stand_spilled(self, command, route, now)
        return brings

    def _enqueue_in_memory(self, command: Enqueue, main: Row, before: dict[Terms, bytes]) -> Enqueued | Refused:
        """Let messages arrive of which some, or all, are not persistent."""
        guard, route, arrivals, _ = command
        space_id = guard.space_id
        memory = self.memory(space_id)
        if memory is None:
            return Refused(Reason.NO_MEMORY)
        assert isinstance(memory, traffic.SqliteMemoryStore)  # noqa: S101 - `memory_of` made it
        _, last, _, pages_before, _ = main
        sequences = range(last + 1, last + len(arrivals) + 1)
        ours, its = _apart(sequences, arrivals, memory=False), _apart(sequences, arrivals, memory=True)
        pages, size = (sum(getattr(arrival, what) for arrival in ours.values()) for what in ("pages", "size"))
        if ours and pages_before + pages > guard.pages:
            return Refused(Reason.PAGES, pages_before, guard.pages, pages)
        used, wanted = memory.level(space_id).pages, sum(arrival.pages for arrival in its.values())
        if used + wanted > guard.memory_pages:
            return Refused(Reason.MEMORY, used, guard.memory_pages, wanted)
        now = self.clock.now()
        # Numbers are given by the store on disk alone: one that was used is not used again, whatever becomes of memory.
        self.reserve(space_id, len(its))
        bytes_wanted = sum(arrival.size for arrival in its.values())
        memory.arrive(space_id, route.queue_id, count=len(its), pages=wanted, size=bytes_wanted)
        memory.stand(guard, route, list(its), list(its.values()), now, before)
        if ours:
            self._count_all(space_id, {route.queue_id: [len(ours), len(ours), pages, size, len(ours), 0]})
            self.stand(guard, route, list(ours), list(ours.values()), now, before)
        reached = self._reached(command, now) if route.levels else ()
        return Enqueued([each.sequence for each in arrivals] if arrivals[0].sequence else sequences, reached)

    def _reached(self, command: Enqueue, now: int) -> Sequence[Reached]:
        stores = {arrival.terms.memory for arrival in command.arrivals}
        on_disk, in_memory = False in stores, True in stores
        commands = self.capacity_commands
        return commands.claim_reached(command.guard, command.route, now, on_disk=on_disk, in_memory=in_memory)


VERBS: Final[dict[type, Callable[[Transitions, Any], Result | Refused]]] = {
    Enqueue: Transitions.enqueue,
    Claim: Transitions.claim,
    Admit: Transitions.admit,
    Commit: Transitions.commit_transaction,
    Dispose: Transitions.dispose,
}
"""What executes a command, by its type."""


def _apart(sequences: Sequence[int], arrivals: Sequence[Arrival], *, memory: bool) -> dict[int, Arrival]:
    """Return the messages that go to one of the stores, by their sequence numbers."""
    return {
        sequence: arrival
        for sequence, arrival in zip(sequences, arrivals, strict=True)
        if arrival.terms.memory is memory
    }
