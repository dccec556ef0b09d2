"""The client of a queue that others wrote: what it does is put and take, and a reply is a commit of its own."""

from __future__ import annotations

import abc

from benchmarks.subject import WARM_UP, GoesOn


class PeerClient(abc.ABC):
    """One that puts a message, and takes one for good."""

    @abc.abstractmethod
    def put(self, queue: str) -> None:
        """Enqueue a message."""

    @abc.abstractmethod
    def take(self, queue: str) -> bool:
        """Dequeue a message, so that it is gone for good; return whether there was one."""

    def produce(self, queue: str, goes_on: GoesOn) -> None:
        """Enqueue messages."""
        while goes_on(True):
            self.put(queue)

    def consume(self, queue: str, goes_on: GoesOn) -> None:
        """Dequeue messages."""
        found = True
        while goes_on(found):
            found = self.take(queue)

    def answer(self, queue: str, goes_on: GoesOn) -> None:
        """Dequeue a message, then enqueue another."""
        found = True
        while goes_on(found):
            found = self.take(queue)
            if found:
                self.put(WARM_UP)
