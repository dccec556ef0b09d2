"""Commands on subscriptions: the consumers of queues for several."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from qmadmin.console import counted
from qmadmin.console.results import Column, Line, Moment, Outcome, Table, Value
from qmadmin.shell.declare import Confirmation, Group, Needs, Option, Positional
from qmadmin.shell.kinds import Candidate, Given, Kind, QueueName
from qmadmin.shell.notices import UsageError
from qmcore import names, times, topics
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


class Rule(Kind[str]):
    """A condition that is true of the messages that a consumer wants, or nothing."""

    def read(self, text: str, _given: Given, /) -> str:
        """Return the rule as it is kept."""
        from qmcore.subscription_rules import checked_rule

        return checked_rule(text or None)


class Topics(Kind[tuple[str, ...]]):
    """Patterns of topics with commas between, or nothing."""

    def read(self, text: str, _given: Given, /) -> tuple[str, ...]:
        """Return the patterns."""
        return topics.checked(text.split(",")) if text else ()


_QUEUE = Positional("queue_name", QueueName(), "The queue, which is for several consumers.", "Queue name: ")
_NAME = Positional("subscription_name", SubscriptionName(), "The subscription.", "Subscription name: ")
_RULE = Option(
    "-w rule",
    "rule",
    "The messages of which a condition is true, such as \"priority > 50 AND header.region = 'eu'\"; qmadmin-queue(7)"
    " has its grammar.",
    Rule(),
)
_TOPICS = Option(
    "-P topics",
    "patterns",
    "The messages whose topic fits one of these patterns, with commas between: words between dots, of which * is any"
    " one and # any number.",
    Topics(),
)
_COLUMNS = (
    Column("queue", "Queue"),
    Column("consumer", "Consumer"),
    Column("since", "Since"),
    Column("messages", "Messages", right=True),
    Column("ready", "Ready", right=True),
    Column("delayed", "Delayed", right=True),
    Column("held", "Held", right=True),
    Column("topics", "Topics", cut=True),
    Column("rule", "Rule", cut=True),
)


@SUBSCRIPTIONS.command(
    "qsubscribe",
    _RULE,
    _TOPICS,
    _QUEUE,
    Positional("subscription_name", SubscriptionName(), "Its name: 1 to 127 bytes.", "Subscription name: "),
    short="qsub",
)
def qsubscribe(
    session: Session, queue_name: str, subscription_name: str, rule: str | None, patterns: tuple[str, ...] | None
) -> Outcome:
    """Let a consumer subscribe to a queue of the open queue space that was created with qcreate -m.

    What is enqueued from now on is for the consumer too; what was stored before is not. queue:consumer in place of a
    queue's name means what stands there for the consumer. Subscribing again changes nothing; other terms are refused.

    With a rule or topics it gets only some of the messages; with both, those for which both hold.

        qsubscribe orders billing
        qget orders:billing
        qsubscribe -P order.#,*.deleted -w "priority > 9" orders audit
    """
    made = session.opened().subscribe(queue_name, subscription_name, rule=rule or None, topics=patterns or ())
    return Line(f"Consumer '{made.name}' has subscribed to queue '{made.queue}'", _terms(made))


@SUBSCRIPTIONS.command("qsubchange", _RULE, _TOPICS, _QUEUE, _NAME, short="qsubch")
def qsubchange(
    session: Session, queue_name: str, subscription_name: str, rule: str | None, patterns: tuple[str, ...] | None
) -> Outcome:
    """Change which messages of its queue a consumer gets.

    What is enqueued from now on is looked at by the new rule and topics; what stands there for the consumer stays. An
    option that is left out leaves that as it is, and an empty pair of quotes as its value removes it.

        qsubchange -w "priority > 50" orders billing
        qsubchange -w "" -P order.# orders billing
    """
    if rule is None and patterns is None:
        raise UsageError("Nothing is to be changed", hint="Give a rule (-w), topics (-P), or both.")
    made = session.opened().change_subscription(
        queue_name,
        subscription_name,
        rule=... if rule is None else rule or None,
        topics=... if patterns is None else patterns,
    )
    return Line(f"Subscription '{made.name}' to queue '{made.queue}' changed", _terms(made))


@SUBSCRIPTIONS.command(
    "qsublist",
    Positional("queue_name", QueueName(), "The queue; without it, all queues."),
    short="qsubl",
    shows_only=True,
)
def qsublist(session: Session, queue_name: str | None) -> Outcome:
    """List the subscriptions to one queue or to all queues of the open queue space.

    It shows since when each has subscribed, how many messages stand there for it, how many of them are ready, delayed
    (not available yet) and held by transactions, and which messages it gets.

        qsublist
        qsublist orders
    """
    space = session.opened()
    rows: list[tuple[Value, ...]] = [
        (
            each.queue,
            each.name,
            _moment(each),
            use.messages,
            use.ready,
            use.delayed,
            use.held,
            ",".join(each.topics) or None,
            each.rule,
        )
        for each, use in _usages(space, space.subscriptions(queue_name))
    ]
    if rows:
        return Table(_COLUMNS, rows)
    where = f"queue space '{space.name}'" if queue_name is None else f"queue '{queue_name}'"
    return session.nothing(f"Nobody has subscribed to {'a queue of ' * (queue_name is None)}{where}", _COLUMNS)


def _terms(made: Subscription) -> dict[str, Value]:
    """Return a subscription as programs get it."""
    its: dict[str, Value] = {"queue": made.queue, "consumer": made.name, "since": _moment(made)}
    return its | {"topics": ",".join(made.topics) or None, "rule": made.rule}


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
    session.forget_queue_if_gone()
    return Line(
        f"Subscription '{subscription_name}' to queue '{queue_name}' ended",
        {"queue": queue_name, "consumer": subscription_name},
    )
