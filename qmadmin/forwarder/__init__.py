"""The daemon tmqforward, which calls services with the messages of queues and queues their replies.

A service in Python that returns more than a body returns a `Reply`; it raises a `Failure`, or `Unavailable` if it
cannot work at present. Messages that it enqueues with `enqueue` belong to the transaction in which its request was
dequeued:

    from qmadmin.forwarder import Reply, enqueue

    def balance(request):
        enqueue("AUDIT", request.body)
        return Reply(b"1200.50", urcode=7)
"""

from qmadmin.consumers.current import enqueue, space
from qmadmin.consumers.handler import Failure, Reply, Unavailable

__all__ = ["Failure", "Reply", "Unavailable", "enqueue", "space"]
