"""The short way of a volume on PostgreSQL: one message comes in one journey to the server, and goes in two.

What comes is sent with its commit, and with what tells those who wait. Where the connection is lost before the answer,
a row that only this session writes says whether it was done, and under which number. What goes is seen before the
commit is asked for: a message that nobody has seen must not be gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import psycopg

from qmcore import numbers
from qmcore.message import Message, State
from qmcore.queue import Delivery
from qmcore.shortcut import PlainArrival, PlainDeparture
from qmstorage import bodies, rows
from qmstorage.postgres import committing, keys, plain, translate
from qmstorage.postgres.committing import Again
from qmstorage.postgres.pipeline import Pipeline, Prepared
from qmstorage.postgres.tables import quoted
from qmstorage.runner import Texts
from qmstorage.schema import message

if TYPE_CHECKING:
    from qmstorage.postgres.sessions import Session
    from qmstorage.postgres.volume import PostgresVolume

_INVERTED: Final = -1
"""What turns a number around, bit by bit."""

_SECOND: Final = 1
"""Behind the statement that takes the lock comes the one that is meant."""

_FACTS: Final = message.columns.keys().index("body_id")


class PostgresShortcut:
    """The short way of one volume."""

    def __init__(self, volume: PostgresVolume, schema: str, texts: Texts, lock: int) -> None:
        self._volume = volume
        self._schema = schema
        self._lock = Prepared("qm_lock", plain.LOCK, texts).step(key=lock)
        self._arrive = Prepared("qm_arrive", plain.ARRIVE, texts)
        self._tell = Prepared("qm_tell", plain.TELL, texts)
        self._depart = Prepared("qm_depart", plain.DEPART, texts)
        self._claim = Prepared("qm_claim", plain.CLAIM, texts)

    def arrive(self, arrival: PlainArrival) -> int | None:
        """Enqueue a message, durably, and return its sequence number; None: nothing was done."""
        new, space_id = arrival.new, arrival.space.id
        if new.size > bodies.IN_ROW_MAX:
            return None
        values = rows.to_row(new) | {
            "of_queue": new.queue_id,
            "space_id": space_id,
            "known": arrival.generation,
            "most_messages": arrival.most_messages,
            "most_pages": arrival.most_pages,
            "sequence": f"{quoted(self._schema)}.sequence_{space_id}",
            "first": numbers.number(space_id, 0),
            "key_head": arrival.key_head,
            "inverting": _INVERTED if arrival.descends else 0,
        }
        return self._volume.tried(lambda fresh: self._arrived(space_id, values, fresh=fresh))

    def depart(self, departure: PlainDeparture) -> Message | None:
        """Dequeue a message for good and return it; None: nothing was done, or there is none."""
        values = {
            "of_queue": departure.queue_id,
            "space_id": departure.space.id,
            "known": departure.generation,
            "now": departure.now_us,
        }
        row = self._volume.tried(lambda fresh: self._departed(values, fresh=fresh))
        if row is None:
            return None
        facts = rows.facts(row[:_FACTS], departure.space, departure.queue_name, Delivery.PERSIST)
        *_, body, retries, _number = row
        return rows.to_message(facts, body, retries, State.HELD)

    # ---- arrival -----------------------------------------------------------------------------------------------------

    def _arrived(self, space_id: int, values: dict[str, Any], *, fresh: bool) -> int | None:
        queue_id: int = values["of_queue"]
        with self._volume.session(fresh=fresh) as session:
            arrive = self._arrive.step(slot=session.slot, session=session.mark, **values)
            tell = self._tell.step(channel=keys.channel(self._schema, queue_id), of_queue=queue_id)
            # Not known again before this is done: it may be given up in the middle.
            before = self._take_last_arrival(session, space_id)
            pipeline = Pipeline(session.connection, session.prepared)
            try:
                with pipeline:
                    pipeline.send(self._lock, arrive)
                    pipeline.sync()
                    # After the commit, for the reasons of `telling`.
                    pipeline.send(tell)
                    pipeline.sync()
                    pipeline.wait()
            except psycopg.Error as error:
                if not pipeline.is_past_first_sync:
                    return self._number_after(error, session, space_id, before)
            found = pipeline.rows(_SECOND)
            number = int(found[0][0]) if found else None
            session.arrivals[space_id] = before if number is None else number
            return number

    def _take_last_arrival(self, session: Session, space_id: int) -> int:
        """Return the last number that the session's own row tells of, and have the row tell whose it is."""
        if space_id in session.arrivals:
            return session.arrivals.pop(space_id)
        with self._pipeline(session) as pipeline:
            pipeline.send(self._lock, self._claim.step(space_id=space_id, slot=session.slot, session=session.mark))
            pipeline.sync()
            pipeline.wait()
            ((last,),) = pipeline.rows(_SECOND)
        return int(last)

    def _number_after(self, error: psycopg.Error, session: Session, space_id: int, before: int) -> int:
        """Return the number of an arrival whose session was lost; raise where it has to be done again, or cannot be."""
        if not session.is_lost and not translate.is_connection_lost(error):
            raise self._volume.before_commit(error, session) from error
        last = committing.last_arrival(self._volume.connected_hastily, session, self._schema, space_id)
        if last is None:
            raise translate.outcome_unknown(error, self._volume.path) from error
        if last == before:
            raise Again(error, is_lost=True) from error
        return last

    # ---- departure ---------------------------------------------------------------------------------------------------

    def _departed(self, values: dict[str, Any], *, fresh: bool) -> tuple[Any, ...] | None:
        with self._volume.session(fresh=fresh) as session, self._pipeline(session) as pipeline:
            # Begun by words, so that the server gives up on us where we stop in the middle.
            pipeline.say(b"BEGIN")
            pipeline.send(self._lock, self._depart.step(slot=session.slot, session=session.mark, **values))
            pipeline.sync()
            pipeline.wait()
            found = pipeline.rows(_SECOND)
            row: tuple[Any, ...] | None = found[0] if found else None
            pipeline.say(b"COMMIT")
            pipeline.sync()
            self._volume.committed(session, pipeline.wait, row[-1] if row else "", is_repeatable=row is None)
            return row

    @contextlib.contextmanager
    def _pipeline(self, session: Session) -> Iterator[Pipeline]:
        """Give a pipeline in which nothing is done before a commit that is asked for."""
        try:
            with Pipeline(session.connection, session.prepared) as pipeline:
                yield pipeline
        except psycopg.Error as error:
            raise self._volume.before_commit(error, session) from error
