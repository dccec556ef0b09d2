"""Notifying waiters of new messages."""

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
    """Make the server notify the waiters of queues that got messages.

    After the commit: a NOTIFY within a transaction takes effect at its end, under a lock that serializes commits,
    including their syncs; and a waiter that begins between a check before the commit and the commit would miss it.
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
