"""Telling those who wait that messages have come."""

from __future__ import annotations

import contextlib
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import psycopg

from qmcore.probe import Point, Probe
from qmstorage.postgres import keys
from qmstorage.postgres.tables import quoted

if TYPE_CHECKING:
    from qmstorage.postgres.sessions import Session


def tell(session: Session, schema: str, arrivals: AbstractSet[int], probe: Probe) -> None:
    """Have the server tell those who wait for the queues that got messages.

    After the commit: what is told within a transaction is told at its end, under a lock that lets one commit through at
    a time, the disk included; and who begins to wait between a look before the commit and the commit would be told
    nothing.
    """
    if not arrivals:
        return
    if probe.actions:
        probe.reach(Point.BEFORE_WAKE_UP, arrivals)
    waiter = f"{quoted(schema)}.waiter"
    channels = "), (".join(f"'{keys.channel(schema, queue)}', {queue}" for queue in sorted(arrivals))
    with contextlib.suppress(psycopg.Error):
        session.run(
            f"SELECT pg_notify(channel, '') FROM (VALUES ({channels})) AS got (channel, queue_id)"  # noqa: S608 - ours
            f" WHERE EXISTS (SELECT FROM {waiter} WHERE waiter.queue_id = got.queue_id)"
        )
    if probe.actions:
        probe.reach(Point.AFTER_WAKE_UP, arrivals)
