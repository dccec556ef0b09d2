"""The daemon tmqforward: it calls services with the messages of queues, and queues their replies.

A service in Python that has more to say than a body returns a `Reply`, and raises a `Failure`, or `Unavailable` where
it cannot work at present. What it enqueues with `enqueue` belongs to the transaction in which its request is taken:

    from qmadmin.forwarder import Reply, enqueue

    def balance(request):
        enqueue("AUDIT", request.body)
        return Reply(b"1200.50", urcode=7)
"""

from qmadmin.forwarder.current import enqueue, space
from qmadmin.forwarder.service import Failure, Reply, Unavailable

__all__ = ["Failure", "Reply", "Unavailable", "enqueue", "space"]
