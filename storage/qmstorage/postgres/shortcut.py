"""What a volume on PostgreSQL does in one statement: one message comes in one journey to the server, and goes in two.

What comes is sent with its commit, and with what tells those who wait. Where the connection is lost before the answer,
a row that only this session writes says whether it was done, and under which number. What goes is seen before the
commit is asked for: a message that nobody has seen must not be gone. The commit of a transaction is one journey, and
is told by that row too; with the claim of the next transaction it is two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import psycopg

from qmcore import message_rows
from qmcore.probe import Point
from qmcore.purpose import Purpose
from qmcore.records import Role, Use
from qmcore.transitions import (
    STALE,
    Admit,
    Admitted,
    Claim,
    Claimed,
    Command,
    Commit,
    Committed,
    Empty,
    Enqueue,
    Enqueued,
    Holder,
    Refused,
    Result,
    Taken,
)
from qmstorage import settling
from qmstorage.postgres import arriving, committing, plain, plain_transactions
from qmstorage.postgres.arriving import Caller, Kind, Values
from qmstorage.postgres.highest import RAISE
from qmstorage.postgres.journeys import SECOND, Journeys
from qmstorage.postgres.pipeline import BEGIN, COMMIT, ROLLBACK, Call, Pipeline, Prepared, Step
from qmstorage.postgres.states import EXPIRE_NO_LONGER
from qmstorage.postgres.tables import quoted
from qmstorage.refused import RefusedError
from qmstorage.statements import Texts

if TYPE_CHECKING:
    from qmstorage.postgres.sessions import Session
    from qmstorage.postgres.volume import PostgresVolume

T = TypeVar("T")
_Row: TypeAlias = tuple[Any, ...]

_THIRD: Final = 2
"""Behind that, where it has taken nothing, the one that says whether there is anything."""

_TRUE: Final = b"\1"
_BEHIND_RETRIES: Final = message_rows.BODY + 2
_EXPECTED: Final = _BEHIND_RETRIES + 1


_LOOKS: Final = 2
_MISSED: Final = Empty(0, None, held=False)
"""There is a message by now."""


class PostgresShortcut:
    """The short way of one volume."""

    def __init__(self, volume: PostgresVolume, schema: str, texts: Texts, lock: int) -> None:
        self._volume = volume
        self._schema = schema
        self._sequences = f"{quoted(schema)}.sequence_"
        self._journeys = Journeys(volume, schema, texts, lock)
        self._lock_key = lock
        self._enqueue = {kind: Call(*its) for kind, its in arriving.calls(schema).items()}
        self._depart = Prepared("qm_depart", plain.DEPART, texts)
        self._depart_together = Prepared("qm_depart_together", plain.DEPART_TOGETHER, texts)
        self._expire_no_longer = Prepared("qm_expire_no_longer", EXPIRE_NO_LONGER, texts)
        self._empty = Prepared("qm_empty", plain.EMPTY, texts)
        self._level = Prepared("qm_level", plain_transactions.LEVEL, texts)
        self._hold = Prepared("qm_hold", plain_transactions.HOLD, texts)
        self._raise = Prepared("qm_raise", RAISE, texts)
        self._end = Prepared("qm_end", plain_transactions.END, texts)
        self._verbs: dict[type, Callable[[Any], Sequence[Result] | Refused | None]] = {
            Claim: self.claim,
            Admit: self.admit,
            Commit: self.commit,
        }

    def run(self, commands: Sequence[Command]) -> Sequence[Result] | Refused | None:
        """Execute commands, all or none; None: nothing was done, because one takes more than one statement."""
        if len(commands) > 1:
            return self._run_together(commands)
        command = commands[0]
        if isinstance(command, Enqueue):
            if command.holder is not None:
                return None
            run = partial(self._run_small, command) if arriving.is_small(command) else partial(self._run, commands)
            return self._tried(run)
        verb = self._verbs.get(type(command))
        return None if verb is None else verb(command)

    def _run_together(self, commands: Sequence[Command]) -> Sequence[Result] | Refused | None:
        if all(isinstance(each, Enqueue) and each.holder is None for each in commands):
            return self._tried(partial(self._run, commands))
        first, second = commands[:2]
        if isinstance(first, Commit) and isinstance(second, Claim) and len(commands) == 2:
            return self._commit_and_claim(first, second)
        return None

    def _run_small(self, command: Enqueue, fresh: bool) -> Sequence[Result] | Refused:
        """Let one message arrive, in the journey of its commit."""
        guard, route, arrivals, _ = command
        with self._volume.session(fresh=fresh) as session:
            sent_for = session.sent_for
            if sent_for is None or sent_for[0] is not guard or sent_for[1] is not route:
                caller = Caller(self._schema, self._lock_key, session.slot, session.row_type, has_memory=False)
                sent_for = guard, route, arriving.values_for(command, caller, session.mark)
                session.sent_for = sent_for
            values = arriving.values_of(command, sent_for[2], self._volume.clock.now())
            steps = (Step(self._enqueue[Kind.ALONE], values),)
            its = session, steps, guard.space_id, guard.incarnation, route.queue_id
            number = self._journeys.sent(*its, arriving.answer_of_one)
            if isinstance(number, Refused):
                return number
            return [Enqueued((arrivals[0].sequence or number,))]

    def _run(self, commands: Sequence[Command], fresh: bool) -> Sequence[Result] | Refused:
        """Execute commands, and commit them when all that came of them is here.

        The session's row could tell one number alone later, and nothing else.
        """
        volume, probe = self._volume, self._volume.probe
        with volume.session(fresh=fresh) as session:
            unit = volume.unit_on(session.cursor, session.slot, row_type=session.row_type)
            unit.purpose = Purpose.MESSAGES
            unit.call = partial(self._call, session)  # type: ignore[method-assign]
            try:
                if probe.actions:
                    probe.reach(Point.BEFORE_WRITE, 1)
                results = unit.execute(commands)
                if probe.actions:
                    probe.reach(Point.AFTER_WRITE, 1)
            except RefusedError as error:
                return error.refused
            except psycopg.Error as error:
                raise volume.before_commit(error, session) from error
            number = unit.transaction_number
            committing.commit(volume, session, lambda: self._commit(session), number, is_repeatable=False)
            for queue_id in unit.notifications.queues:
                self._journeys.note_awaited(session, queue_id, is_awaited=queue_id in unit.awaited)
            return results

    def _call(self, session: Session, kind: Kind, values: Values) -> list[int] | None:
        """Let messages arrive, in the transaction of a session or in one that begins with it."""
        step = self._enqueue[kind].step(**values)
        steps = (BEGIN, step) if session.is_idle else (step,)
        with Pipeline(session.connection, session.prepared) as pipeline:
            pipeline.send(*steps)
            pipeline.sync()
            pipeline.wait()
            found: list[int] | None = pipeline.rows(0)[0][0]
            return found

    def _commit(self, session: Session) -> None:
        with Pipeline(session.connection, session.prepared) as pipeline:
            pipeline.send(COMMIT)
            pipeline.sync()
            pipeline.wait()

    def claim(self, command: Claim) -> Sequence[Result] | None:
        """Take messages out of a queue; None: nothing was done, because it takes more than one statement."""
        if not _is_of_first(command):
            return None
        for _ in range(_LOOKS):
            found = self._claim_first(command)
            # One that came after the look, or that another was about to take then, is looked for once more.
            if found is not _MISSED:
                return None if found is None else [found]
        return None

    def _claim_first(self, command: Claim) -> Claimed | Empty | None:
        holder, limit, values = command.holder, command.limit, self._values_of(command)
        if holder is not None:
            return self._hold_first(command, holder) if _begins(holder, limit) else None
        if limit == 1:
            return self._tried(lambda fresh: self._taken(self._depart, values, _claimed, fresh=fresh))
        return self._consume(values | {"most": limit})

    def _consume(self, values: dict[str, Any]) -> Claimed | Empty | None:
        def read(found: list[_Row]) -> Claimed | None:
            # Fewer than were taken: whoever looks at one by one tells which is damaged.
            if len(found) < found[0][_EXPECTED] or found[0][0] is None:
                return None
            return _claimed(sorted(found, key=itemgetter(_BEHIND_RETRIES)))

        return self._tried(
            lambda fresh: self._taken(self._depart_together, values, read, self._expire_those, fresh=fresh)
        )

    def _hold_first(self, command: Claim, holder: Holder) -> Claimed | Empty | None:
        """Record a transaction and let it hold a message."""
        values, read = self._values_of_hold(command, holder), partial(_held, holder)
        note = partial(self._note_most, command.guard.space_id)
        return self._tried(lambda fresh: self._taken(self._hold, values, read, note, fresh=fresh, durable=False))

    def _note_most(self, space_id: int, claimed: Claimed) -> Sequence[Step]:
        """Return the step that notes how many transactions there are, where that is more than there ever were."""
        if not claimed.transactions:
            return ()
        return (self._raise.step(of_space=space_id, of_resource="transactions", used=claimed.transactions),)

    def _values_of_hold(self, command: Claim, holder: Holder) -> dict[str, Any]:
        return self._values_of(command) | {
            "of_owner": holder.owner_id,
            "most_transactions": holder.transactions,
            "trans_id": holder.transaction_id,
            "started_at": holder.started_us,
            "deadline": holder.deadline_us,
            "sequence": f"{self._sequences}{command.guard.space_id}",
            "numbers": holder.numbers,
        }

    def _commit_and_claim(self, command: Commit, claim: Claim) -> Sequence[Result] | None:
        """Commit a transaction, and let the next one hold the first message of a queue; None: nothing was done."""
        now, holder = self._volume.clock.now(), claim.holder
        if not (plain_transactions.is_plain(command, now) and _is_of_first(claim)):
            return None
        if holder is None or not _begins(holder, claim.limit):
            return None
        ends = plain_transactions.values_of_end(command, now, self._sequences)
        holds = self._values_of_hold(claim, holder)
        return self._tried(partial(self._ended_and_held, command, ends, holder, holds))

    def _ended_and_held(
        self, command: Commit, ends: dict[str, Any], holder: Holder, holds: dict[str, Any], fresh: bool
    ) -> Sequence[Result] | None:
        its = command.guard.space_id, command.guard.incarnation
        with self._volume.session(fresh=fresh) as session:
            # Not known again before this is done: the row of the session tells of another number then.
            if self._journeys.take_last_number(session, *its) is None:
                return None
            with self._journeys.pipeline(session) as pipeline:
                end = self._end.step(slot=session.slot, session=session.mark, **ends)
                pipeline.send(BEGIN, self._journeys.lock, end, self._hold.step(**holds))
                pipeline.sync()
                pipeline.wait()
                ended, held = pipeline.rows(SECOND), pipeline.rows(_THIRD)
                claimed = _held(holder, held) if held else None
                if not ended or (held and claimed is None):
                    pipeline.send(ROLLBACK)
                    pipeline.sync()
                    pipeline.wait()
                    return None
                ((number, is_awaited, transaction),) = ended
                if claimed is not None:
                    pipeline.send(*self._note_most(command.guard.space_id, claimed))
                pipeline.send(COMMIT)
                pipeline.sync()
                committing.commit(self._volume, session, pipeline.wait, transaction, is_repeatable=False)
            session.numbers[command.guard.incarnation] = number
            for route, _ in command.brings:
                self._journeys.note_awaited(session, route.queue_id, is_awaited=is_awaited)
        # Where there was none, nobody has looked why.
        return [Committed(), claimed or Empty(holds["of_queue"], None, held=False, is_untidy=True)]

    def commit(self, command: Commit) -> Sequence[Result] | None:
        """Commit a transaction; None: nothing was done, because it takes more than one statement, or is refused."""
        now = self._volume.clock.now()
        if not plain_transactions.is_plain(command, now):
            return None
        values = plain_transactions.values_of_end(command, now, self._sequences)
        return [Committed()] if self._tried(partial(self._ended, command, values)) else None

    def _ended(self, command: Commit, values: dict[str, Any], fresh: bool) -> bool:
        tells = command.brings[0][0].queue_id if command.brings else None
        with self._volume.session(fresh=fresh) as session:
            steps = self._journeys.lock, self._end.step(slot=session.slot, session=session.mark, **values)
            its = session, steps, command.guard.space_id, command.guard.incarnation
            return not isinstance(self._journeys.sent(*its, tells, _number_and_awaited), Refused)

    def admit(self, command: Admit) -> Sequence[Result] | Refused | None:
        """Say whether there is room for what a transaction enqueues; None: it takes more than one statement."""
        if command.numbers or command.before or command.guard.memory_pages:
            return None
        generation, level = self._tried(partial(self._level_of, command.guard.space_id))
        if generation != command.guard.generation:
            return STALE
        refused = settling.overflow(command, level, Use(0, 0, 0))
        return [Admitted((), (), level)] if refused is None else refused

    def _level_of(self, space_id: int, fresh: bool) -> tuple[int | None, Use]:
        with self._volume.session(fresh=fresh) as session, self._journeys.pipeline(session) as pipeline:
            pipeline.send(self._level.step(space_id=space_id))
            pipeline.sync()
            pipeline.wait()
            ((generation, *use),) = pipeline.rows(0)
            return generation, Use(*use)

    def _values_of(self, command: Claim) -> dict[str, Any]:
        return {
            "of_queue": command.source.queue_id,
            "space_id": command.guard.space_id,
            "known": command.guard.generation,
            "now": self._volume.clock.now(),
        }

    def _tried(self, attempt: Callable[[bool], T]) -> T:
        self._volume.check_place()
        return self._volume.tried(attempt)

    # ---- departure ---------------------------------------------------------------------------------------------------

    def _taken(
        self,
        statement: Prepared,
        values: dict[str, Any],
        read: Callable[[list[_Row]], T | None],
        follow: Callable[[T], Sequence[Step]] | None = None,
        *,
        fresh: bool,
        durable: bool = True,
    ) -> T | Empty | None:
        """Run a statement that takes messages, and commit it when they are here and were read.

        Where there is none, it is seen why before the end: the queue is empty, or nothing was done for another reason.
        Where `read` returns None all is undone. What is to `follow` them is done in the same transaction.
        """
        with self._volume.session(fresh=fresh) as session, self._journeys.pipeline(session) as pipeline:
            lock = self._journeys.lock if durable or not self._volume.is_durable else self._journeys.lock_relaxed
            # With BEGIN the server ends the session of one that stops here, and so gives back what it has locked.
            pipeline.send(BEGIN, lock, statement.step(slot=session.slot, session=session.mark, **values))
            pipeline.sync()
            pipeline.wait()
            found = pipeline.rows(SECOND)
            taken = read(found) if found else None
            if found and taken is None:
                pipeline.send(ROLLBACK)
                pipeline.sync()
                pipeline.wait()
                return None
            if not found:
                pipeline.send(self._empty.step(**values))
            elif taken is not None and follow is not None:
                pipeline.send(*follow(taken))
            pipeline.send(COMMIT)
            pipeline.sync()
            committing.commit(
                self._volume, session, pipeline.wait, found[0][-1] if found else "", is_repeatable=not found
            )
            return taken if found else _empty(values["of_queue"], pipeline.rows(_THIRD))

    def _expire_those(self, gone: Claimed) -> Sequence[Step]:
        """Return the step that forgets when messages expire, where any of them do."""
        expiring = [row for row, *_ in gone.taken if row[message_rows.EXPIRES] is not None]
        if not expiring:
            return ()
        its = {
            "each_expires_at": [row[message_rows.EXPIRES] for row in expiring],
            "each_message_id": [row[message_rows.ID] for row in expiring],
        }
        return (self._expire_no_longer.step(of_queue=expiring[0][message_rows.QUEUE], **its),)


def _is_of_first(command: Claim) -> bool:
    """Return whether a claim is of the first messages of a queue, and nothing else is to be seen to."""
    guard, source, choices, _, body, _, _ = command
    return body and not (guard.memory_pages or source.grouping or source.retains or source.levels or choices)


def _begins(holder: Holder, limit: int) -> bool:
    """Return whether a transaction begins with one message, to consume it."""
    return limit == 1 and not (holder.recorded or holder.locks) and holder.role == Role.DEQUEUED


def _held(holder: Holder, found: Sequence[_Row]) -> Claimed | None:
    """Return the message that a transaction holds, by the row of HOLD; None where it takes more."""
    sequences, *level, others = found[0][_BEHIND_RETRIES:-1]
    claimed, count = _claimed(found), others + 1
    transactions = count if count > holder.highest else 0
    return claimed and claimed._replace(sequences=sorted(sequences), transactions=transactions, level=Use(*level))


def _number_and_awaited(sent: list[bytes | None]) -> tuple[int, bool] | Refused:
    """Return what a statement gives that gives a number; without one something is not as it was known."""
    number, is_awaited, *_ = sent or (None, None)
    return STALE if number is None else (int.from_bytes(number), is_awaited == _TRUE)


def _empty(queue_id: int, rows_of: list[_Row]) -> Empty | None:
    """Return that a queue has no message, by the row that says so; None where there is no such row."""
    if not rows_of:
        return None
    next_due, is_held, has_ready = rows_of[0]
    return _MISSED if has_ready else Empty(queue_id, next_due, is_held)


def _claimed(found: Sequence[_Row]) -> Claimed | None:
    """Return messages by their rows: the columns, the body last, and their retries; None where one takes more."""
    taken = []
    for row in found:
        its, retries = row[: message_rows.BODY + 1], row[message_rows.BODY + 1]
        # Whoever looks at one by one tells which is damaged.
        if its[message_rows.BODY_ID] is not None or message_rows.fault_in(its, retries) is not None:
            return None
        taken.append(Taken(its, retries, memory=False))
    return Claimed(taken)
