"""Commands on subscriptions: the consumers of queues for several."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from qmadmin.console import counted
from qmadmin.console.results import Column, Line, Moment, Outcome, Table, Value
from qmadmin.shell.declare import Confirmation, Group, Needs, Positional
from qmadmin.shell.kinds import Candidate, Given, Kind, QueueName
from qmcore import names, times
from qmcore.errors import BadQueueError

if TYPE_CHECKING:
    from qmadmin.shell.session import Session
    from qmadmin.space import QueueSpace
    from qmcore.queue import QueueUsage, Subscription

SUBSCRIPTIONS = Group("Subscriptions", "consumers", needs=Needs.OPEN_SPACE, extension=True)


class SubscriptionName(Kind[str]):
    """The name of a subscription, which need not exist."""

    def read(self, text: str, _given: Given, /) -> str:
        """Return the name."""
        return names.subscription_name(text)

    def candidates(self, session: Session, _begun: str, /) -> Iterable[Candidate]:
        """Return the subscriptions to all queues of the open queue space, each once."""
        if session.space is None:
            return []
        queues: dict[str, list[str]] = {}
        for found in session.space.subscriptions():
            queues.setdefault(found.name, []).append(found.queue)
        return [Candidate(name, f"of {', '.join(queues[name])}") for name in sorted(queues)]


_QUEUE = Positional("queue_name", QueueName(), "The queue, which is for several consumers.", "Queue name: ")
_COLUMNS = (
    Column("queue", "Queue"),
    Column("consumer", "Consumer"),
    Column("since", "Since"),
    Column("messages", "Messages", right=True),
    Column("ready", "Ready", right=True),
    Column("delayed", "Delayed", right=True),
    Column("held", "Held", right=True),
)


@SUBSCRIPTIONS.command(
    "qsubscribe",
    _QUEUE,
    Positional("subscription_name", SubscriptionName(), "Its name: 1 to 127 bytes.", "Subscription name: "),
    short="qsub",
)
def qsubscribe(session: Session, queue_name: str, subscription_name: str) -> Outcome:
    """Let a consumer subscribe to a queue of the open queue space that was created with qcreate -m.

    What is enqueued from now on is for the consumer too; what was stored before is not. queue:consumer in place of a
    queue's name means what stands there for the consumer. One that has subscribed already stays as it is.

        qsubscribe orders billing
        qget orders:billing
    """
    made = session.opened().subscribe(queue_name, subscription_name)
    return Line(
        f"Consumer '{made.name}' has subscribed to queue '{made.queue}'",
        {"queue": made.queue, "consumer": made.name, "since": _moment(made)},
    )


@SUBSCRIPTIONS.command(
    "qsublist",
    Positional("queue_name", QueueName(), "The queue; without it, all queues."),
    short="qsubl",
    shows_only=True,
)
def qsublist(session: Session, queue_name: str | None) -> Outcome:
    """List the subscriptions to one queue or to all queues of the open queue space.

    It shows since when each has subscribed, how many messages stand there for it, and how many of them are ready,
    delayed (not available yet) and held by transactions.

        qsublist
        qsublist orders
    """
    space = session.opened()
    rows: list[tuple[Value, ...]] = [
        (each.queue, each.name, _moment(each), use.messages, use.ready, use.delayed, use.held)
        for each, use in _usages(space, space.subscriptions(queue_name))
    ]
    if rows:
        return Table(_COLUMNS, rows)
    where = f"queue space '{space.name}'" if queue_name is None else f"queue '{queue_name}'"
    return session.nothing(f"Nobody has subscribed to {'a queue of ' * (queue_name is None)}{where}", _COLUMNS)


def _moment(found: Subscription) -> Moment:
    return Moment(times.from_datetime(found.since))


def _usages(space: QueueSpace, found: Iterable[Subscription]) -> Iterator[tuple[Subscription, QueueUsage]]:
    """Yield subscriptions, each with what stands there for it."""
    for each in found:
        # It may have ended meanwhile.
        with contextlib.suppress(BadQueueError):
            yield each, space.usage(f"{each.queue}:{each.name}")


def _end(session: Session, given: Given) -> str:
    queue, name = given["queue_name"], given["subscription_name"]
    count = session.opened().usage(f"{queue}:{name}").messages
    what = f"End subscription '{name}' to queue '{queue}'"
    return what + (f" with {counted(count, 'message')}" if count else "")


def _refuse(session: Session, given: Given) -> None:
    queue, name = given["queue_name"], given["subscription_name"]
    session.opened().subscriptions(queue)
    session.opened().queue(f"{queue}:{name}")


@SUBSCRIPTIONS.command(
    "qunsubscribe",
    _QUEUE,
    Positional("subscription_name", SubscriptionName(), "The subscription to end.", "Subscription name: "),
    short="qunsub",
    confirm=Confirmation(_end, "Subscription '{subscription_name}' not ended", _refuse),
)
def qunsubscribe(session: Session, queue_name: str, subscription_name: str) -> Outcome:
    """End a subscription: its consumer takes no message any more, and none is for it.

    What stood there for it goes, in steps, while others work; other consumers keep theirs. The name can be subscribed
    anew at once, and has nothing then.

        qunsubscribe -n orders billing
        qunsubscribe -y orders billing
    """
    session.opened().unsubscribe(queue_name, subscription_name)
    if session.queue == f"{queue_name}:{subscription_name}":
        session.queue = None
    return Line(
        f"Subscription '{subscription_name}' to queue '{queue_name}' ended",
        {"queue": queue_name, "consumer": subscription_name},
    )
