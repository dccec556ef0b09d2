"""What holds on one kind of store and not on another: the whole list, and the only place that a test branches on.

The section "Backends" of qmadmin-queue(7) tells users of each difference; test_differences.py sees that it does.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from tests.fix_store import Store


@dataclasses.dataclass(frozen=True)
class Difference:
    """What holds on SQLite, what holds on PostgreSQL, and why.

    `words` are words by which the manual page is known to speak of it, in this order, whatever stands between them.
    """

    sqlite: str
    postgres: str
    why: str
    words: tuple[str, ...]


DIFFERENCES: Final = {
    "order": Difference(
        "Messages stand in the order of the commits that brought them.",
        "Messages of transactions that commit at the same time stand in the order of their sequence numbers, which may"
        " be another one than that of the commits.",
        "Sessions commit beside each other, each with numbers of its own, and nobody waits for another's number.",
        ("order", "sequence number"),
    ),
    "numbers": Difference(
        "The numbers of a batch follow each other.",
        "Those of other sessions may lie between the numbers of a batch, and numbers of what was rolled back stay"
        " unused.",
        "A sequence of the database gives them out without a lock.",
        ("sequence number", "batch"),
    ),
    "limits": Difference(
        "A limit of a queue space is never exceeded, and the highest use is exact.",
        "A limit can be exceeded by what other sessions have under way at that moment, one operation or batch each, and"
        " the highest use be less by as much.",
        "Each session counts in a row of its own, so that no row is waited for; what is not committed is not seen.",
        ("limit", "session"),
    ),
    "empty": Difference(
        "A dequeue finds nothing only where no message can be had.",
        "A dequeue that does not wait may find nothing while others take all that was there when it began, although"
        " more came meanwhile.",
        "What others are taking is passed over, not waited for, and the look is at one moment.",
        ("dequeue", "passed over"),
    ),
    "thresholds": Difference(
        "The command of a threshold is claimed by the operation that reaches the level.",
        "Where two sessions cross the level at the same moment, neither may see it; the next arrival claims the"
        " command.",
        "What is not committed is not counted by others.",
        ("threshold", "next"),
    ),
    "liveness": Difference(
        "The operating system tells that a process has died; one that is stopped is alive.",
        "The connection of a process tells that it lives; one that says nothing for more than a minute, stopped or cut"
        " off, is given up, and its transactions are rolled back.",
        "The server knows of processes on other machines by their connections alone.",
        ("connection", "minute", "given up"),
    ),
    "memory": Difference(
        "Non-persistent messages are lost when the machine restarts.",
        "Non-persistent messages outlive a clean restart of the server, but neither its crash nor a failover.",
        "They stand in tables that are not logged.",
        ("non-persistent", "restart", "crash", "failover"),
    ),
    "memory in a transaction of the application": Difference(
        "With connection=, non-persistent queues are refused.",
        "With connection=, non-persistent queues may be used.",
        "Both kinds of tables are in one database, so that one transaction can be over both.",
        ("connection=", "non-persistent"),
    ),
    "memory files": Difference(
        "The memory of a queue space is in files with names and sizes.",
        "The non-persistent messages of all queue spaces of a volume are in one schema, which is named instead.",
        "Tables cost more to make than files.",
        ("schema", "_memory"),
    ),
    "backup": Difference(
        "qbackup and qrestore copy and bring back a device.",
        "qbackup and qrestore are refused: pg_dump and pg_restore do that.",
        "The database has programs of its own for it, which know roles and rights as well.",
        ("qbackup", "pg_dump"),
    ),
    "initialise": Difference(
        "initialise allocates the disk of a queue space.",
        "initialise allocates nothing: a full disk is found when it is written to.",
        "PostgreSQL takes its disk as it needs it, and cannot be made to keep some for a schema.",
        ("initiali", "disk"),
    ),
    "depth": Difference(
        "A message may be enqueued before one that was enqueued before another, to any depth.",
        "After some eight hundred messages, each enqueued before the last one, the next one is refused.",
        "The place of such a message is written down as the way to it, and an index takes some 2,700 bytes.",
        ("eight hundred", "before", "index"),
    ),
    "damage": Difference(
        "qcheck reads the whole file and finds what the disk has damaged.",
        "qcheck looks at what is stored and leaves the files to the server, and to pg_amcheck.",
        "A client does not see the files of the server.",
        ("qcheck", "pg_amcheck"),
    ),
}


def differs(store: Store, name: str) -> bool:
    """Return whether the store is the one on which what is named here is not as on SQLite."""
    assert name in DIFFERENCES, name
    return store.kind == "postgres"
