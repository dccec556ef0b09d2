"""The short way of a volume on PostgreSQL: one message comes in one journey to the server, and goes in two.

What comes is sent with its commit, and with what tells those who wait. Where the connection is lost before the answer,
a row that only this session writes says whether it was done, and under which number. What goes is seen before the
commit is asked for: a message that nobody has seen must not be gone. The commit of a transaction is one journey, and
is told by that row too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import psycopg

from qmcore import message_rows, numbers
from qmcore.probe import Point
from qmcore.purpose import Purpose
from qmcore.records import Role, Use
from qmcore.shortcut import PlainEnd
from qmcore.transitions import STALE, Claim, Claimed, Command, Empty, Enqueue, Enqueued, Holder, Refused, Result, Taken
from qmstorage import bodies, rows
from qmstorage.positions import position_of
from qmstorage.postgres import arriving, committing, keys, plain, plain_transactions, translate
from qmstorage.postgres.arriving import Caller, Kind, Values
from qmstorage.postgres.committing import Again
from qmstorage.postgres.pipeline import BEGIN, COMMIT, ROLLBACK, Call, Pipeline, Prepared, Step
from qmstorage.postgres.states import EXPIRE_NO_LONGER
from qmstorage.postgres.tables import quoted
from qmstorage.refused import RefusedError
from qmstorage.schema import message
from qmstorage.statements import Texts

if TYPE_CHECKING:
    from qmstorage.postgres.sessions import Session
    from qmstorage.postgres.volume import PostgresVolume

T = TypeVar("T")
_Row: TypeAlias = tuple[Any, ...]

_SECOND: Final = 1
"""Behind the statement that takes the lock comes the one that is meant."""

_THIRD: Final = 2
"""Behind that, where it has taken nothing, the one that says whether there is anything."""

_TRUE: Final = b"\1"
_BEHIND_RETRIES: Final = message_rows.BODY + 2
_EXPECTED: Final = _BEHIND_RETRIES + 1

_NO_MESSAGE: Final[dict[str, Any]] = dict.fromkeys((*message.columns.keys(), "key_head", "inverting"))
_MOST: Final = 2**62
"""More than there is room for."""

_INVERTED: Final = -1
"""What turns a number around, bit by bit."""


class PostgresShortcut:
    """The short way of one volume."""

    spares_journeys = True

    def __init__(self, volume: PostgresVolume, schema: str, texts: Texts, lock: int) -> None:
        self._volume = volume
        self._schema = schema
        self._sequences = f"{quoted(schema)}.sequence_"
        self._lock = Prepared("qm_lock", plain.LOCK, texts).step(key=lock)
        self._lock_relaxed = Prepared("qm_lock_relaxed", plain.LOCK_RELAXED, texts).step(key=lock)
        self._lock_key = lock
        self._enqueue = {kind: Call(*its) for kind, its in arriving.calls(schema).items()}
        self._claim = Prepared("qm_claim", plain.CLAIM, texts)
        self._tell = Prepared("qm_tell", plain.TELL, texts)
        self._depart = Prepared("qm_depart", plain.DEPART, texts)
        self._depart_together = Prepared("qm_depart_together", plain.DEPART_TOGETHER, texts)
        self._expire_no_longer = Prepared("qm_expire_no_longer", EXPIRE_NO_LONGER, texts)
        self._empty = Prepared("qm_empty", plain.EMPTY, texts)
        self._level = Prepared("qm_level", plain_transactions.LEVEL, texts)
        self._hold = Prepared("qm_hold", plain_transactions.HOLD, texts)
        self._end = Prepared("qm_end", plain_transactions.END, texts)

    def run(self, commands: Sequence[Command]) -> Sequence[Result] | Refused | None:
        """Execute commands, all or none; None: nothing was done, because one takes more than one statement."""
        command = commands[0]
        if len(commands) > 1:
            is_arrival = all(isinstance(each, Enqueue) for each in commands)
            return self._tried(partial(self._run, commands)) if is_arrival else None
        if isinstance(command, Claim):
            claimed = self.claim(command)
            return None if claimed is None else [claimed]
        if arriving.is_small(command):
            return self._tried(partial(self._run_small, command))
        return self._tried(partial(self._run, commands))

    def _run_small(self, command: Enqueue, fresh: bool) -> Sequence[Result] | Refused:
        """Let one message arrive, in the journey of its commit."""
        guard, route, arrivals = command
        with self._volume.session(fresh=fresh) as session:
            sent_for = session.sent_for
            if sent_for is None or sent_for[0] is not guard or sent_for[1] is not route:
                caller = Caller(self._schema, self._lock_key, session.slot, session.row_type, has_memory=False)
                sent_for = guard, route, arriving.values_for(command, caller, session.mark)
                session.sent_for = sent_for
            values = arriving.values_of(command, sent_for[2], self._volume.clock.now())
            steps = (Step(self._enqueue[Kind.ALONE], values),)
            its = session, steps, guard.space_id, guard.incarnation, route.queue_id
            number = self._sent(*its, arriving.answer_of_one)
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
                self._note_awaited(session, queue_id, is_awaited=queue_id in unit.awaited)
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

    def claim(self, command: Claim) -> Claimed | Empty | None:
        """Take messages out of a queue; None: nothing was done, because it takes more than one statement."""
        guard, source, choices, limit, body, _, holder = command
        if guard.memory_pages or source.grouping or source.retains or source.levels or choices or not body:
            return None
        values = self._values_of(command)
        if holder is not None:
            is_first = not (holder.recorded or holder.locks) and holder.role == Role.DEQUEUED
            return self._hold_first(command, holder, values) if is_first and limit == 1 else None
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

    def _hold_first(self, command: Claim, holder: Holder, values: dict[str, Any]) -> Claimed | Empty | None:
        """Record a transaction and let it hold a message.

        One that would be more than there ever were at one time goes by the unit, where that is noted.
        """
        values |= {
            "of_owner": holder.owner_id,
            "most_transactions": min(holder.transactions, holder.highest),
            "trans_id": holder.transaction_id,
            "started_at": holder.started_us,
            "deadline": holder.deadline_us,
            "sequence": f"{self._sequences}{command.guard.space_id}",
            "numbers": holder.numbers,
        }

        def held(found: list[_Row]) -> Claimed | None:
            claimed = _claimed(found)
            sequences, *level = found[0][_BEHIND_RETRIES:-1]
            return claimed and claimed._replace(sequences=sorted(sequences), level=Use(*level))

        return self._tried(lambda fresh: self._taken(self._hold, values, held, fresh=fresh, durable=False))

    def level(self, space_id: int) -> tuple[int, Use]:
        """Return the generation of a queue space, -1 where it is gone, and how much it holds."""

        def asked(fresh: bool) -> tuple[int, Use]:
            with self._volume.session(fresh=fresh) as session, self._pipeline(session) as pipeline:
                pipeline.send(self._level.step(space_id=space_id))
                pipeline.sync()
                pipeline.wait()
                ((generation, *use),) = pipeline.rows(0)
                return -1 if generation is None else generation, Use(*use)

        return self._tried(asked)

    def end(self, end: PlainEnd) -> bool:
        """Commit a transaction, durably; False: nothing was done."""
        brings = end.brings
        if brings is not None and brings.arrivals[0].size > bodies.IN_ROW_MAX:
            return False
        values = _values_of_end(end, self._volume.clock.now(), self._sequences)
        return self._tried(partial(self._ended, end, values))

    def _ended(self, end: PlainEnd, values: dict[str, Any], fresh: bool) -> bool:
        tells = None if end.brings is None else end.brings.route.queue_id
        with self._volume.session(fresh=fresh) as session:
            steps = self._lock, self._end.step(slot=session.slot, session=session.mark, **values)
            its = session, steps, end.space.id, end.space.incarnation
            return not isinstance(self._sent(*its, tells, _number_and_awaited), Refused)

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

    # ---- what is sent with its commit --------------------------------------------------------------------------------

    def _sent(
        self,
        session: Session,
        steps: Sequence[Step],
        space_id: int,
        incarnation: str,
        tells: int | None,
        read: Callable[[list[bytes | None]], tuple[int, bool] | Refused],
    ) -> int | Refused:
        """Run statements of which the last gives a number, and commit them, or return why nothing was done.

        `read` tells of what the last gives which number it is, and whether anybody waits for the queue that is told.
        """
        probe = self._volume.probe
        # Not known again before this is done: it may be given up in the middle.
        before = self._take_last_number(session, space_id, incarnation)
        if before is None:
            return STALE
        is_told = tells in session.awaited
        pipeline = Pipeline(session.connection, session.prepared)
        try:
            with pipeline:
                if probe.actions:
                    probe.reach(Point.BEFORE_COMMIT, 1)
                pipeline.send(*steps)
                pipeline.sync()
                if tells is not None and is_told:
                    # After the commit, for the reasons of `telling`.
                    self._tell_of(pipeline, tells)
                pipeline.wait()
                if probe.actions:
                    probe.reach(Point.AFTER_COMMIT, 1)
                    if tells is not None and is_told:
                        probe.reach(Point.AFTER_WAKE_UP, {tells})
        except psycopg.Error as error:
            if not pipeline.is_past_first_sync:
                return self._number_after(error, session, space_id, before)
        found = read(pipeline.values(len(steps) - 1))
        if isinstance(found, Refused):
            session.numbers[incarnation] = before
            return found
        number, is_awaited = found
        session.numbers[incarnation] = number
        if tells is not None and is_awaited is not is_told:
            self._note_awaited(session, tells, is_awaited=is_awaited)
        return number

    def _take_last_number(self, session: Session, space_id: int, incarnation: str) -> int | None:
        """Return the last number that the session's own row tells of, and have the row tell whose it is; None: gone."""
        if incarnation in session.numbers:
            return session.numbers.pop(incarnation)
        with self._pipeline(session) as pipeline:
            claim = self._claim.step(space_id=space_id, slot=session.slot, session=session.mark)
            pipeline.send(self._lock, claim)
            pipeline.sync()
            pipeline.wait()
            found = pipeline.rows(_SECOND)
        return int(found[0][0]) if found else None

    def _note_awaited(self, session: Session, queue_id: int, *, is_awaited: bool) -> None:
        """Tell those who have come to wait for a queue; from then on they are told in the same journey."""
        if not is_awaited:
            session.awaited.discard(queue_id)
            return
        session.awaited.add(queue_id)
        with contextlib.suppress(psycopg.Error), Pipeline(session.connection, session.prepared) as pipeline:
            self._tell_of(pipeline, queue_id)
            pipeline.wait()
            self._reach(Point.AFTER_WAKE_UP, {queue_id})

    def _tell_of(self, pipeline: Pipeline, queue_id: int) -> None:
        self._reach(Point.BEFORE_WAKE_UP, {queue_id})
        pipeline.send(self._tell.step(channel=keys.channel(self._schema, queue_id), of_queue=queue_id))
        pipeline.sync()

    def _reach(self, point: Point, fact: object) -> None:
        if self._volume.probe.actions:
            self._volume.probe.reach(point, fact)

    def _number_after(self, error: psycopg.Error, session: Session, space_id: int, before: int) -> int:
        """Return the number that was given in a session that is lost; raise where it has to be done again."""
        if not session.is_lost and not translate.is_connection_lost(error):
            raise self._volume.before_commit(error, session) from error
        last = committing.last_number(self._volume.connected_hastily, session, self._schema, space_id)
        if last is None:
            raise translate.outcome_unknown(error, self._volume.path) from error
        # Less than before, where the server itself has lost what it had committed.
        if last <= before:
            raise Again(error, is_lost=True) from error
        return last

    # ---- departure ---------------------------------------------------------------------------------------------------

    def _taken(
        self,
        statement: Prepared,
        values: dict[str, Any],
        read: Callable[[list[_Row]], T | None],
        follow: Callable[[list[_Row]], Sequence[Step]] | None = None,
        *,
        fresh: bool,
        durable: bool = True,
    ) -> T | Empty | None:
        """Run a statement that takes messages, and commit it when they are here and were read.

        Where there is none, it is seen why before the end: the queue is empty, or nothing was done for another reason.
        Where `read` returns None all is undone. What is to `follow` them is done in the same transaction.
        """
        with self._volume.session(fresh=fresh) as session, self._pipeline(session) as pipeline:
            lock = self._lock if durable or not self._volume.is_durable else self._lock_relaxed
            # With BEGIN the server ends the session of one that stops here, and so gives back what it has locked.
            pipeline.send(BEGIN, lock, statement.step(slot=session.slot, session=session.mark, **values))
            pipeline.sync()
            pipeline.wait()
            found = pipeline.rows(_SECOND)
            taken = read(found) if found else None
            if found and taken is None:
                pipeline.send(ROLLBACK)
                pipeline.sync()
                pipeline.wait()
                return None
            if not found:
                pipeline.send(self._empty.step(**values))
            elif follow is not None:
                pipeline.send(*follow(found))
            pipeline.send(COMMIT)
            pipeline.sync()
            committing.commit(
                self._volume, session, pipeline.wait, found[0][-1] if found else "", is_repeatable=not found
            )
            return taken if found else _empty(values["of_queue"], pipeline.rows(_THIRD))

    def _expire_those(self, gone: list[_Row]) -> Sequence[Step]:
        """Return the step that forgets when messages expire, where any of them do."""
        expiring = [row for row in gone if row[message_rows.EXPIRES] is not None]
        if not expiring:
            return ()
        its = {
            "each_expires_at": [row[message_rows.EXPIRES] for row in expiring],
            "each_message_id": [row[message_rows.ID] for row in expiring],
        }
        return (self._expire_no_longer.step(of_queue=expiring[0][message_rows.QUEUE], **its),)

    # ---- steps -------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _pipeline(self, session: Session) -> Iterator[Pipeline]:
        """Give a pipeline in which nothing is done before a commit that is asked for."""
        try:
            with Pipeline(session.connection, session.prepared) as pipeline:
                yield pipeline
        except psycopg.Error as error:
            raise self._volume.before_commit(error, session) from error


def _number_and_awaited(sent: list[bytes | None]) -> tuple[int, bool] | Refused:
    """Return what a statement gives that gives a number; without one something is not as it was known."""
    number, is_awaited = sent or (None, None)
    return STALE if number is None else (int.from_bytes(number), is_awaited == _TRUE)


def _empty(queue_id: int, rows_of: list[_Row]) -> Empty | None:
    """Return that a queue has no message, by the row that says so; None where there is no such row."""
    return Empty(queue_id, rows_of[0][0], rows_of[0][1]) if rows_of else None


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


def _values_of_end(end: PlainEnd, now: int, sequences: str) -> dict[str, Any]:
    """Return the values of END: what changes in the queue space, in the queue that messages go from, and in another.

    `sequences` is what the names of sequences begin with.
    """
    space_id, holds, brings = end.space.id, end.holds, end.brings
    values: dict[str, Any] = _NO_MESSAGE | {"queue_id": end.queue_id, "most_messages": _MOST, "most_pages": _MOST}
    brought = Use(0, 0, 0)
    if brings is not None:
        values |= _values_of_arrival(brings, now)
        brought = Use(1, brings.arrivals[0].pages, brings.arrivals[0].size)
    gone = Use(-holds.messages, -holds.pages, -holds.size)
    has_other = brings is not None and brings.route.queue_id != end.queue_id
    whole = gone.plus(brought)
    for place, change in (("whole", whole), ("from", gone if has_other else whole), ("to", brought)):
        values.update(zip(plain_transactions.CHANGES[place], change, strict=True))
    return values | {
        "trans_id": end.transaction_id,
        "of_owner": end.owner_id,
        "of_queue": end.queue_id,
        "space_id": space_id,
        "known": end.generation,
        "sequence": f"{sequences}{space_id}",
        "held_messages": holds.messages,
        "held_pages": holds.pages,
        "held_size": holds.size,
        "brings": brought.messages,
        "from_enqueued": 0 if has_other else brought.messages,
        "has_other": int(has_other),
    }


def _values_of_arrival(brings: Enqueue, now: int) -> dict[str, Any]:
    guard, route, (arrival,) = brings
    available, expires, head, descends = position_of(route, arrival.terms, now)
    first = guard.space_id << numbers.SEQUENCE_BITS
    row = rows.full_row(first | arrival.sequence, route.queue_id, b"", now, available, expires, None, arrival)
    limits = {"most_messages": guard.messages, "most_pages": guard.pages}
    return row | limits | {"key_head": head, "inverting": _INVERTED if descends else 0}
