"""Transactions of the package `transaction` with a queue space in them."""

import transaction

from qmadmin.zope import join
from tests.fix_store import drain, make_queue


class Other:
    """Another data manager of the transaction, which fails where it is told to, and notes what it is asked."""

    transaction_manager = transaction.manager

    def __init__(self, fails="", key="~"):
        self.fails, self.key, self.asked = fails, key, []
        transaction.get().join(self)

    def sortKey(self):  # noqa: N802 - the package's name
        return self.key

    def savepoint(self):
        return self

    def note(self, what):
        self.asked.append(what)
        if what == self.fails:
            raise ValueError(f"{what} fails")

    def tpc_begin(self, _its):
        self.note("tpc_begin")

    def commit(self, _its):
        self.note("commit")

    def tpc_vote(self, _its):
        self.note("tpc_vote")

    def tpc_finish(self, _its):
        self.note("tpc_finish")

    def tpc_abort(self, _its):
        self.asked.append("tpc_abort")

    def abort(self, _its):
        self.asked.append("abort")


def space_with_request(store):
    """Return a queue space with a request in Q, which has 3 retries, and OUT for the answer."""
    opened = store.space()
    make_queue(opened, "Q", retries=3)
    make_queue(opened, "OUT")
    opened.enqueue("Q", "request")
    return opened


def answer(space):
    """Join, take the request and answer it."""
    join(space)
    space.enqueue("OUT", space.dequeue("Q").text.upper())


def there(space, store=None):
    """Return what stands in both queues, and how often the first of Q was tried."""
    assert (space.transactions(), space.tpc_recover()) == ([], [])
    tries = [message.retries for message in space.messages("Q")]
    return drain(space), drain(space, "OUT"), *tries


DONE = [], ["REQUEST"]
UNDONE = ["request"], [], 1
