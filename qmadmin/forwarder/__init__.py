"""The daemon tmqforward, which calls services with the messages of queues and queues their replies.

A service in Python that returns more than a body returns a `Reply`; it raises a `Failure`, `Snooze` or `Park` to put
its request off, or `Unavailable` if it cannot work at present. Messages that it enqueues with `enqueue` belong to the
transaction in which its request was dequeued:

    from qmadmin.forwarder import Reply, enqueue

    def balance(request):
        enqueue("AUDIT", request.body)
        return Reply(b"1200.50", urcode=7)

So do rows that it writes on the connection of a database that it has made part of it with `join`.
"""

from qmadmin.consumers import Failure, Park, Reply, Snooze, Unavailable
from qmadmin.consumers.current import enqueue, space
from qmadmin.joining_databases import join

__all__ = ["Failure", "Park", "Reply", "Snooze", "Unavailable", "enqueue", "join", "space"]


STOPS = "the forwarder stops"
"""The reason of a call that `stop_calls` has ended."""


class StartError(Exception):
    """The forwarder cannot start; the text is one sentence without a full stop, and `hint` says what to do."""

    def __init__(self, sentence: str, hint: str = "") -> None:
        super().__init__(sentence)
        self.hint = hint


class UsageError(StartError):
    """An argument is missing, or has no meaning."""
