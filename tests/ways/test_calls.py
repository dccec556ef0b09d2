"""How many Python calls of ours an operation makes, and in how many files: a layer that creeps in is seen.

A figure here may fall. One that rises has made every message slower, and needs a reason.
"""

import os
import sys

import pytest

from tests.fix_store import Store, device_path, make_queue

OURS = tuple(os.sep + package + os.sep for package in ("qmadmin", "qmcore", "qmstorage"))


class Calls:
    """Counts the calls of functions of ours that are made in this thread while it is open."""

    def __init__(self):
        self.count = 0
        self.files = set()

    def __enter__(self):
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def _note(self, frame, event, _):
        file = frame.f_code.co_filename
        if event == "call" and any(package in file for package in OURS) and os.sep + "tests" + os.sep not in file:
            self.count += 1
            self.files.add(file)


@pytest.fixture(params=["file", "postgres"])
def kind(request):
    return request.param


@pytest.fixture
def space(kind, request, tmp_path, clock, monkeypatch):
    # An application that traces makes more of them, and another test may have been one.
    monkeypatch.delitem(sys.modules, "opentelemetry.trace", raising=False)
    made = Store(kind, device_path(kind, request, tmp_path), clock)
    opened = made.space(error_queue="ERRORS")
    for name in ("Q", "R", "ERRORS"):
        make_queue(opened, name, retries=3)
    yield opened
    made.close()


def fewest(call, before=lambda: None, rounds=5):
    """Return the fewest calls, and the fewest files, of some rounds: a look that is due each second is not in them."""
    found = []
    for _ in range(rounds):
        before()
        with Calls() as calls:
            call()
        found.append((calls.count, len(calls.files)))
    return min(found)


def answer(space):
    with space.transaction():
        request = space.dequeue("Q")
        space.enqueue("R", b"reply", corrid=request.msgid)


MOST = {
    ("enqueue", "file"): (70, 25),
    ("delayed", "file"): (126, 35),
    ("dequeue", "file"): (72, 23),
    ("transaction", "file"): (231, 42),
    ("enqueue", "postgres"): (60, 15),
    ("delayed", "postgres"): (126, 32),
    ("dequeue", "postgres"): (72, 14),
    ("transaction", "postgres"): (256, 30),
}
"""The calls and the files of each. Aims: 25 and 14 of one message, 90 and 22 of a transaction, on both stores."""


@pytest.mark.parametrize("operation", ["enqueue", "delayed", "dequeue", "transaction"])
def test_an_operation_makes_no_more_calls_than_it_did(space, kind, operation):
    def put():
        space.enqueue("Q", b"message")

    found = {
        "enqueue": lambda: fewest(put),
        "delayed": lambda: fewest(lambda: space.enqueue("Q", b"message", delay=10)),
        "dequeue": lambda: fewest(lambda: space.dequeue("Q"), put),
        "transaction": lambda: fewest(lambda: answer(space), put),
    }[operation]()
    most = MOST[operation, kind]
    assert found[0] <= most[0]
    assert found[1] <= most[1]
