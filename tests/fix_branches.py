"""Prepared branches of distributed transactions."""

import pytest

from tests.fix_store import make_queue

XID = (7, b"global", b"branch")
TEXT = "7:676c6f62616c:6272616e6368"


@pytest.fixture
def branch(space):
    """A prepared branch of this thread that has taken `first` and brings `reply`; `second` is left."""
    make_queue(space, "OUT")
    space.enqueue_many("Q", ["first", "second"])
    space.tpc_begin(XID)
    assert space.dequeue("Q").text == "first"
    space.enqueue("OUT", "reply")
    assert space.tpc_prepare() is True
    return space.xid(*XID)
