"""The calls for queues with several consumers: who subscribes gets each message, whatever others do with it."""

from __future__ import annotations

from types import EllipsisType
from typing import TYPE_CHECKING

from qmadmin.attachment import SpaceHandle
from qmadmin.audit import destructive
from qmcore import names, times
from qmcore import topics as topic_patterns
from qmcore.acts import subscriptions
from qmcore.queue import Subscription

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qmcore.definitions import OpenSpace
    from qmcore.port import Unit
    from qmcore.queue import Queue


class Subscribing(SpaceHandle):
    """Calls about the consumers of queues for several."""

    def subscribe(self, queue: str, name: str, *, rule: str | None = None, topics: Iterable[str] = ()) -> Subscription:
        """Let a consumer subscribe to a queue for several; from now on each message of it is for that one, too.

        With a `rule`, a condition, only those of which that is true are; with `topics`, patterns of words between dots
        of which `*` is any one and `#` any number, only those whose topic fits one of them; with both, both must hold.
        A message is looked at as it takes its place in the queue, one of a transaction when that commits or is
        prepared: `retries` is 0 then, and what the message does not have makes a comparison neither true nor false.

        It belongs to no transaction: what is enqueued once the call has returned, by anybody, is for the consumer, and
        what was stored before is not. One that has subscribed already is as it was, so that an application subscribes
        when it starts. Several processes may take messages by one name; each gets others.

        Raises InvalidArgumentError if the queue is for one consumer, where `queue:name` is the name of another one, or
        for a rule or a topic that cannot be read, InUseError if the consumer has subscribed with another rule or other
        topics, BadQueueError if there is no such queue, NoSpaceError at more than 1,024 subscriptions of a queue.
        """
        wanted, patterns = _rule(rule), topic_patterns.checked(topics)
        checked = names.subscription_name(name)
        return _subscription(
            queue, self._subscribe(subscriptions.subscribe, queue, checked, self._now, wanted, patterns)
        )

    def change_subscription(
        self,
        queue: str,
        name: str,
        *,
        rule: str | EllipsisType | None = ...,
        topics: Iterable[str] | EllipsisType = ...,
    ) -> Subscription:
        """Change the rule or the topics of a subscription; what is left out stays, None or () takes it away.

        What is enqueued once the call has returned is looked at by the new ones; what stands there for the consumer
        stays. Raises as `subscribe` does, and BadQueueError if there is no such subscription.
        """
        wanted = None if isinstance(rule, EllipsisType) else _rule(rule)
        patterns = None if isinstance(topics, EllipsisType) else topic_patterns.checked(topics)
        checked = names.subscription_name(name)
        return _subscription(queue, self._subscribe(subscriptions.change, queue, checked, wanted, patterns))

    @destructive("subscription {handle.name}/{queue}:{name}")
    def unsubscribe(self, queue: str, name: str) -> None:
        """End a subscription: nobody takes a message by that name from now on, and no message is for it.

        What stood there for it goes by itself, a thousand messages at a time; a transaction that holds some of it may
        still commit. The name can be subscribed anew at once, and has nothing then. Raises BadQueueError if there is no
        such subscription.
        """
        self._subscribe(subscriptions.unsubscribe, queue, names.subscription_name(name))

    def subscriptions(self, queue: str | None = None) -> list[Subscription]:
        """Return the subscriptions to a queue, or to all queues of the queue space, by queue and name."""

        def found(unit: Unit, opened: OpenSpace) -> list[Subscription]:
            known = opened.definitions(unit)
            queues = known.queues.values() if queue is None else [known.queue(queue)]
            return [_subscription(each.name, its) for each in queues for its in known.subscribed.get(each.id, ())]

        return sorted(self._read(found), key=lambda each: (each.queue, each.name))


def taken_by(queue: str, consumer: str) -> str:
    """Return the text by which a consumer of a queue takes messages; InvalidArgumentError for what is no name."""
    return f"{queue}:{names.subscription_name(consumer, 'name of a consumer')}"


def _subscription(queue: str, consumer: Queue) -> Subscription:
    name, since = consumer.name.removeprefix(f"{queue}:"), times.to_datetime(consumer.since_us)
    return Subscription(queue, name, since, consumer.rule or None, consumer.topics)


def _rule(rule: str | None) -> str:
    """Return a rule as it is kept."""
    from qmcore.subscription_rules import checked_rule

    return checked_rule(rule)
