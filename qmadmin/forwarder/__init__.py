"""The daemon tmqforward: it calls services with the messages of queues, and queues their replies.

A service in Python that has more to say than a body returns a `Reply`:

    from qmadmin.forwarder import Reply

    def balance(request):
        return Reply(b"1200.50", urcode=7)
"""

from qmadmin.forwarder.service import Failure, Reply

__all__ = ["Failure", "Reply"]
