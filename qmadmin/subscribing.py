"""The calls for queues with several consumers: who subscribes gets each message, whatever others do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmadmin.attachment import SpaceHandle
from qmadmin.audit import destructive
from qmcore import names, times
from qmcore.acts import subscriptions
from qmcore.queue import Subscription

if TYPE_CHECKING:
    from qmcore.definitions import OpenSpace
    from qmcore.port import Unit
    from qmcore.queue import Queue


class Subscribing(SpaceHandle):
    """Calls about the consumers of queues for several."""

    def subscribe(self, queue: str, name: str) -> Subscription:
        """Let a consumer subscribe to a queue for several; from now on each message of it is for that one, too.

        It belongs to no transaction: what is enqueued once the call has returned, by anybody, is for the consumer, and
        what was stored before is not. One that has subscribed already is as it was, so that an application subscribes
        when it starts. Several processes may take messages by one name; each gets others.

        Raises InvalidArgumentError if the queue is for one consumer, or where `queue:name` is the name of another one,
        BadQueueError if there is no such queue, NoSpaceError at more than 1,024 subscriptions of a queue.
        """
        checked = names.subscription_name(name)
        return _subscription(queue, self._write(subscriptions.subscribe, queue, checked, self._now))

    @destructive("subscription {handle.name}/{queue}:{name}")
    def unsubscribe(self, queue: str, name: str) -> None:
        """End a subscription: nobody takes a message by that name from now on, and no message is for it.

        What stood there for it goes by itself, a thousand messages at a time; a transaction that holds some of it may
        still commit. The name can be subscribed anew at once, and has nothing then. Raises BadQueueError if there is no
        such subscription.
        """
        self._write(subscriptions.unsubscribe, queue, names.subscription_name(name))

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
    return Subscription(queue, consumer.name.removeprefix(f"{queue}:"), times.to_datetime(consumer.since_us))
