"""Journeys to the server: statements that are sent together, with their commit where nothing of them is lost.

Where the connection is lost before the answer, a row that only this session writes says whether it was done, and under
which number. Those who wait are told in the same journey, once it is known that there are any.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import psycopg

from qmcore.probe import Point
from qmcore.transitions import STALE, Refused
from qmstorage.postgres import committing, keys, plain, translate
from qmstorage.postgres.committing import Again
from qmstorage.postgres.pipeline import Pipeline, Prepared, Step
from qmstorage.statements import Texts

if TYPE_CHECKING:
    from qmstorage.postgres.sessions import Session
    from qmstorage.postgres.volume import PostgresVolume

SECOND: Final = 1
"""Behind the statement that takes the lock comes the one that is meant."""


class Journeys:
    """The journeys of one volume. `lock` is the step that takes its lock together with others."""

    def __init__(self, volume: PostgresVolume, schema: str, texts: Texts, lock: int) -> None:
        self._volume = volume
        self._schema = schema
        self.lock = Prepared("qm_lock", plain.LOCK, texts).step(key=lock)
        self.lock_relaxed = Prepared("qm_lock_relaxed", plain.LOCK_RELAXED, texts).step(key=lock)
        self._claim = Prepared("qm_claim", plain.CLAIM, texts)
        self._tell = Prepared("qm_tell", plain.TELL, texts)

    @contextlib.contextmanager
    def pipeline(self, session: Session) -> Iterator[Pipeline]:
        """Give a pipeline in which nothing is done before a commit that is asked for."""
        try:
            with Pipeline(session.connection, session.prepared) as pipeline:
                yield pipeline
        except psycopg.Error as error:
            raise self._volume.before_commit(error, session) from error

    def sent(
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
        before = self.take_last_number(session, space_id, incarnation)
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
            self.note_awaited(session, tells, is_awaited=is_awaited)
        return number

    def take_last_number(self, session: Session, space_id: int, incarnation: str) -> int | None:
        """Return the last number that the session's own row tells of, and have the row tell whose it is; None: gone."""
        if incarnation in session.numbers:
            return session.numbers.pop(incarnation)
        with self.pipeline(session) as pipeline:
            claim = self._claim.step(space_id=space_id, slot=session.slot, session=session.mark)
            pipeline.send(self.lock, claim)
            pipeline.sync()
            pipeline.wait()
            found = pipeline.rows(SECOND)
        return int(found[0][0]) if found else None

    def note_awaited(self, session: Session, queue_id: int, *, is_awaited: bool) -> None:
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
