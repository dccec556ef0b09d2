"""Journeys to the server: what is sent together, with its commit where nothing of it is lost.

One message that comes, and most commits of transactions, are sent with their commit. Where the connection is lost
before the answer, a row that only this session writes says whether it was done, and under which number. Those who wait
are told in the same journey, once it is known that there are any. All else is committed when what came of it is here: a
message that nobody has seen must not be gone. The transaction begins with the first call of a function.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg

from qmcore.probe import Point
from qmcore.purpose import WrongPurposeError
from qmcore.refusals import STALE, Refused
from qmcore.transitions import Admit, Claim, Commit, Committed, Empty, Enqueue, Enqueued
from qmstorage.postgres import arriving, claiming, committing, keys, own_marks, settling, translate, wakeup_notify
from qmstorage.postgres.arriving import Kind
from qmstorage.postgres.claiming import Found
from qmstorage.postgres.committing import Again
from qmstorage.postgres.pipeline import BEGIN, Call, Pipeline, Prepared, Step
from qmstorage.postgres.transitions import asks_first, asks_only, refused_by
from qmstorage.postgres.unit import ours
from qmstorage.refused import RefusedError
from qmstorage.statements import Row, Texts

if TYPE_CHECKING:
    from qmcore.purpose import Purpose
    from qmcore.transitions import Command, Result
    from qmstorage.postgres.sessions import Session
    from qmstorage.postgres.unit import PostgresUnit
    from qmstorage.postgres.volume import PostgresVolume


class Journeys:
    """The journeys of one volume; `lock` is the key of its lock."""

    def __init__(self, volume: PostgresVolume, schema: str, texts: Texts, lock: int) -> None:
        self._volume = volume
        self._schema = schema
        self._lock = Prepared("qm_lock", own_marks.LOCK, texts).step({"key": lock})
        self._mark = Prepared("qm_mark", own_marks.MARK, texts)
        self._tell = Prepared("qm_tell", own_marks.TELL, texts)
        self._enqueue = arriving.call_of(schema, Kind.ALONE)
        self._enqueue_for_all = arriving.call_of(schema, Kind.FOR_ALL)

    def run(self, commands: Sequence[Command], purpose: Purpose) -> Sequence[Result] | Refused:
        """Execute commands, all or none, and commit them."""
        self._volume.check_place()
        done, actions = self._volume.tried(partial(self._run, commands, purpose))
        for action in actions:
            action()
        return done

    def look(self, commands: Sequence[Command]) -> Sequence[Result]:
        """Execute commands that change nothing."""
        for command in commands:
            if not isinstance(command, Admit):
                raise WrongPurposeError(None)
            if command.before or command.guard.memory_pages:
                # By several statements, which have to see the same.
                return self._volume.read(lambda unit: ours(unit).execute(commands))
        self._volume.check_place()
        return self._volume.tried(partial(self._look, commands))

    def _look(self, commands: Sequence[Command], session: Session) -> Sequence[Result]:
        try:
            return self._volume.unit_on(session.cursor, session.slot).execute(commands)
        except psycopg.Error as error:
            raise self._volume.before_commit(error, session) from error

    def _run(self, commands: Sequence[Command], purpose: Purpose, session: Session) -> _Done:
        if len(commands) == 1:
            (command,) = commands
            if isinstance(command, Claim):
                if claiming.is_one_call(command):
                    return self._claimed(session, command, purpose), ()
            elif purpose.settles:
                if isinstance(command, Enqueue) and arriving.is_small(command):
                    return self._enqueued(session, command), ()
                if isinstance(command, Commit) and settling.is_whole(command):
                    return self._committed(session, command), ()
        return self._asked(session, commands, purpose)

    def _enqueued(self, session: Session, command: Enqueue) -> Sequence[Result] | Refused:
        """Let one message arrive, in the journey of its commit."""
        guard, route, arrivals, _ = command
        if route.consumers:
            return self._enqueued_for_all(session, command)
        sent_for = session.sent_for
        if sent_for is None or sent_for[0] is not guard or sent_for[1] is not route:
            sent_for = guard, route, arriving.values_for(command, session, session.mark)
            session.sent_for = sent_for
        step = Step(self._enqueue, arriving.values_of(command, sent_for[2], self._volume.clock.now()))
        number = self.sent(session, step, guard.space_id, guard.incarnation, (route.queue_id,), arriving.answer_of_one)
        if isinstance(number, Refused):
            return number
        return [Enqueued((arrivals[0].sequence or number,))]

    def _enqueued_for_all(self, session: Session, command: Enqueue) -> Sequence[Result] | Refused:
        """Let one message arrive for several consumers likewise; who waits for one of them is told after that."""
        guard, route, arrivals, _ = command
        values = arriving.values_for_all(command, session, session.mark, self._volume.clock.now())
        step, is_awaited = self._enqueue_for_all.step(values), False

        def read(sent: Sequence[bytes | None]) -> tuple[int, Sequence[bool]] | Refused:
            nonlocal is_awaited
            found = arriving.answer_of_one(sent)
            if isinstance(found, Refused):
                return found
            number, (is_awaited,) = found
            return number, ()

        number = self.sent(session, step, guard.space_id, guard.incarnation, (), read)
        if isinstance(number, Refused):
            return number
        if is_awaited:
            wakeup_notify.tell(session, self._schema, set(route.consumers), self._volume.probe)
        return [Enqueued((arrivals[0].sequence or number,))]

    def _committed(self, session: Session, command: Commit) -> Sequence[Result] | Refused:
        """Commit a transaction in one journey."""
        guard, now = command.guard, self._volume.clock.now()
        call, values = settling.asked(command, [], session, session.mark, now)
        tells = [route.queue_id for route, _ in command.brings]
        its = guard.space_id, guard.incarnation, tells, settling.answer_of
        number = self.sent(session, call.step(values), *its)
        return number if isinstance(number, Refused) else [Committed()]

    def _claimed(self, session: Session, command: Claim, purpose: Purpose) -> Sequence[Result] | Refused:
        """Take messages, and commit that when they are here."""
        volume, probe, pipeline = self._volume, self._volume.probe, session.pipeline
        call, values = claiming.asked(command, session, volume.clock.now(), purpose)
        try:
            if probe.actions:
                probe.reach(Point.BEFORE_WRITE, 1)
            with pipeline:
                pipeline.send(BEGIN, call.step(values))
                pipeline.sync()
                pipeline.wait()
            found = claiming.read(command.source.queue_id, pipeline.rows(0))
            its = claiming.result_of(command, found, partial(volume.unit_of, session, purpose))
            if isinstance(its, Refused):
                return its
            if probe.actions:
                probe.reach(Point.AFTER_WRITE, 1)
        except psycopg.Error as error:
            raise volume.before_commit(error, session) from error
        number = str(found.transaction_number) if isinstance(found, Found) else ""
        committing.commit(volume, session, pipeline.commit, number, is_repeatable=isinstance(its, Empty))
        return [its]

    def _asked(self, session: Session, commands: Sequence[Command], purpose: Purpose) -> _Done:
        """Execute commands, and commit them when all that came of them is here."""
        volume, probe = self._volume, self._volume.probe
        unit = volume.unit_of(session, purpose)
        conversation = _Conversation(session)
        unit.ask = conversation.ask  # type: ignore[method-assign]
        try:
            if probe.actions:
                probe.reach(Point.BEFORE_WRITE, 1)
            if not asks_first(commands[0]):
                volume.lock.begin(session, unit, is_durable=volume.is_durable)
            elif len(commands) > 1:
                asked = [asks_only(unit, command) for command in commands]
                if None not in asked:
                    conversation.send([each for each in asked if each is not None])
            results = unit.execute(commands)
            if probe.actions:
                probe.reach(Point.AFTER_WRITE, 1)
        except RefusedError as error:
            return error.refused, ()
        except psycopg.Error as error:
            raise volume.before_commit(error, session) from error
        is_repeatable = purpose.again or isinstance(results[0], Empty)
        number = unit.heard[-1] if unit.heard else ""
        committing.commit(volume, session, session.pipeline.commit, number, is_repeatable=is_repeatable)
        if unit.notifications.queues:
            self._tell_waiters(session, unit)
        return results, unit.actions

    def _tell_waiters(self, session: Session, unit: PostgresUnit) -> None:
        """Notify those who wait for queues that messages have come to."""
        came = unit.notifications.queues
        for queue_id in came & unit.awaited.keys():
            self.note_awaited(session, queue_id, is_awaited=unit.awaited[queue_id])
        wakeup_notify.tell(session, self._schema, came - unit.awaited.keys(), self._volume.probe)

    @contextlib.contextmanager
    def pipeline(self, session: Session) -> Iterator[Pipeline]:
        """Give a pipeline in which nothing is done before a commit that is asked for."""
        try:
            with session.pipeline as pipeline:
                yield pipeline
        except psycopg.Error as error:
            raise self._volume.before_commit(error, session) from error

    def sent(
        self,
        session: Session,
        step: Step,
        space_id: int,
        incarnation: str,
        tells: Sequence[int],
        read: Callable[[list[bytes | None]], tuple[int, Sequence[bool]] | Refused],
    ) -> int | Refused:
        """Call a function that gives a number, and commit it, or return why nothing was done.

        `read` tells of its answer which number it is, and whether anybody waits for the queues that are told.
        """
        probe = self._volume.probe
        # Not known again before this is done: it may be given up in the middle.
        before = self.take_last_number(session, space_id, incarnation)
        if before is None:
            return STALE
        told = session.awaited.intersection(tells)
        pipeline = session.pipeline
        try:
            with pipeline:
                if probe.actions:
                    probe.reach(Point.BEFORE_COMMIT, 1)
                pipeline.send(step)
                pipeline.sync()
                for queue_id in told:
                    # After the commit, for the reasons of `wakeup_notify`.
                    self._tell_of(pipeline, queue_id)
                pipeline.wait()
                if probe.actions:
                    probe.reach(Point.AFTER_COMMIT, 1)
                    if told:
                        probe.reach(Point.AFTER_WAKE_UP, told)
        except psycopg.Error as error:
            refused = refused_by(error)
            if refused is not None:
                session.numbers[incarnation] = before
                return refused
            if not pipeline.is_past_first_sync:
                return self._number_after(error, session, space_id, before)
        found = read(pipeline.values(0))
        if isinstance(found, Refused):
            session.numbers[incarnation] = before
            return found
        number, awaited = found
        session.numbers[incarnation] = number
        for queue_id, is_awaited in zip(tells, awaited, strict=True):
            if is_awaited is not (queue_id in told):
                self.note_awaited(session, queue_id, is_awaited=is_awaited)
        return number

    def take_last_number(self, session: Session, space_id: int, incarnation: str) -> int | None:
        """Return the last number that the session's own row tells of, and have the row tell whose it is; None: gone."""
        if incarnation in session.numbers:
            return session.numbers.pop(incarnation)
        with self.pipeline(session) as pipeline:
            mark = self._mark.step({"space_id": space_id, "slot": session.slot, "session": session.mark})
            pipeline.send(self._lock, mark)
            pipeline.sync()
            pipeline.wait()
            found = pipeline.rows(1)
        return int(found[0][0]) if found else None

    def note_awaited(self, session: Session, queue_id: int, *, is_awaited: bool) -> None:
        """Tell those who have come to wait for a queue; from then on they are told in the same journey."""
        if not is_awaited:
            session.awaited.discard(queue_id)
            return
        session.awaited.add(queue_id)
        with contextlib.suppress(psycopg.Error), session.pipeline as pipeline:
            self._tell_of(pipeline, queue_id)
            pipeline.wait()
            self._reach(Point.AFTER_WAKE_UP, {queue_id})

    def _tell_of(self, pipeline: Pipeline, queue_id: int) -> None:
        self._reach(Point.BEFORE_WAKE_UP, {queue_id})
        values = {"channel": keys.channel(self._schema, queue_id), "of_queue": queue_id}
        pipeline.send(self._tell.step(values))
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


_Done = tuple[Sequence["Result"] | Refused, Sequence[Callable[[], None]]]


class _Conversation:
    """Calls of functions in a transaction of a session, which begins with the first of them, if not before."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._answers: deque[list[Row]] = deque()

    def send(self, asked: Sequence[tuple[Call, dict[str, Any]]]) -> None:
        """Send calls together; what they give is returned when it is asked for, in the same order."""
        steps = [call.step(values) for call, values in asked]
        session = self._session
        # Seen before it is in the mode for pipelines, in which it is not idle.
        sent = (BEGIN, *steps) if session.is_idle else steps
        with session.pipeline as pipeline:
            pipeline.send(*sent)
            pipeline.sync()
            try:
                pipeline.wait()
            except psycopg.Error as error:
                refused = refused_by(error)
                if refused is None:
                    raise
                raise RefusedError(refused._replace(command=pipeline.answered)) from error
            self._answers.extend(map(pipeline.rows, range(len(steps))))

    def ask(self, call: Call, values: dict[str, Any]) -> list[Row]:
        """Return the rows that a function gives."""
        if not self._answers:
            self.send([(call, values)])
        return self._answers.popleft()
