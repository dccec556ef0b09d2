"""The lock of a volume: work on messages shares it, all other work holds it exclusively.

It is two locks. In a transaction of an application the one for that is held together until the transaction ends, and
the other only while a call is at work. Whoever need not wait for such transactions asks for that one alone.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from psycopg.errors import LockNotAvailable

from qmstorage.postgres import keys, tables, translate
from qmstorage.postgres.sessions import WAIT_SECONDS

if TYPE_CHECKING:
    from qmcore.errors import QueueError
    from qmstorage.postgres.address import Address
    from qmstorage.postgres.sessions import Session
    from qmstorage.postgres.unit import PostgresUnit

_STEP_SECONDS: Final = 0.1
"""How long those that share the lock may have to wait behind one that wants it alone."""

_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 0.5
"""Seconds until the next attempt to have it alone, at first and at last."""


class VolumeLock:
    """The lock of a volume: held by many together, or by one alone."""

    def __init__(self, address: Address) -> None:
        self.key = keys.key(address.schema, keys.Kind.VOLUME, 0)
        self.key_of_joined = keys.key(address.schema, keys.Kind.JOINED, 0)
        self._path = address.shown
        self._generations = tables.generations(address.schema)
        self.together: Final = f"SELECT pg_catalog.pg_advisory_xact_lock_shared({self.key}::bigint)"
        """The statement that takes the lock together with others, until the transaction ends that it is run in."""
        self.together_joined: Final = (
            f"SELECT pg_catalog.pg_advisory_xact_lock_shared({self.key_of_joined}::bigint);"
            f" SELECT pg_catalog.pg_advisory_lock_shared({self.key}::bigint)"
        )
        """The statements that take it in a transaction of an application: the one until that ends, and the other."""
        self.release: Final = f"SELECT pg_catalog.pg_advisory_unlock_shared({self.key}::bigint)"
        """The statement that gives back the other."""

    def begin(self, session: Session, unit: PostgresUnit, *, is_durable: bool) -> None:
        """Begin the transaction of a unit, with the lock that its purpose asks for, and the durability.

        `is_durable`: commits of the session wait for the disk, unless they are told not to.
        """
        waits = unit.purpose.durable if is_durable else unit.purpose.always
        first = "" if waits is is_durable else f"SET LOCAL synchronous_commit = {'on' if waits else 'off'}; "
        if unit.purpose.alone:
            self.begin_alone(session, WAIT_SECONDS, first, beside_joined=unit.purpose.unhindered)
            found = session.run(self._generations)
        else:
            found = session.run(f"BEGIN; {first}{self.together}; {self._generations}")
        unit.know_generations(found)

    def begin_alone(self, session: Session, seconds: float, first: str = "", *, beside_joined: bool = False) -> None:
        """Begin a transaction that has the volume alone. Others go on between attempts, so that none waits long.

        `first` are statements to run in it first. `beside_joined`: transactions of applications may be open. Raises
        SystemFailureError, which is `blocked`, where others do not come to an end within the seconds.
        """
        end, pause = time.monotonic() + seconds, _PAUSE_SECONDS
        joined = "" if beside_joined else f" SELECT pg_advisory_xact_lock({self.key_of_joined});"
        while True:
            left = end - time.monotonic()
            step = max(min(_STEP_SECONDS, left), 0.001)
            try:
                session.run(
                    f"BEGIN; {first}SET LOCAL lock_timeout = {int(step * 1000) or 1};{joined}"
                    f" SELECT pg_advisory_xact_lock({self.key})"
                )
            except LockNotAvailable:
                session.roll_back()
                if left <= 0:
                    raise self._not_alone(session) from None
                time.sleep(min(pause, left))
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            else:
                session.run(f"SET LOCAL lock_timeout = {WAIT_SECONDS * 1000}")
                return

    def _not_alone(self, session: Session) -> QueueError:
        its = {each for key in (self.key, self.key_of_joined) for each in keys.holders(session.connection, key)}
        return translate.not_alone(sorted(its), self._path)
