"""How many Python calls of ours an operation makes, and in how many files: a layer that creeps in is seen.

A figure here may fall. One that rises has made every message slower, and needs a reason. A process of its own counts:
what other tests have left in this one, such as a library that traces, makes calls too.
"""

import json

import pytest

from tests.fix_store import make_queue

COUNTING = """
import json

_, path = sys.argv
OURS = tuple(os.sep + package + os.sep for package in ("qmadmin", "qmcore", "qmstorage"))
calls, files = 0, set()

def note(frame, event, _):
    global calls
    file = frame.f_code.co_filename
    if event == "call" and any(package in file for package in OURS):
        calls += 1
        files.add(file)

def fewest(call, before=lambda: None, rounds=9):
    "Return the fewest calls, and the fewest files, of some rounds: a look that is due each second is not in them."
    global calls
    found = []
    for _ in range(rounds):
        before()
        calls = 0
        files.clear()
        sys.setprofile(note)
        call()
        sys.setprofile(None)
        found.append((calls, len(files)))
    return min(found)

with open_device(path) as device, device.open_space("SPACE") as space:
    def put():
        space.enqueue("Q", b"message")

    def answer():
        with space.transaction():
            request = space.dequeue("Q")
            space.enqueue("R", b"reply", corrid=request.msgid)

    put()
    # The first one ever takes another way.
    answer()
    say(json.dumps({
        "enqueue": fewest(put),
        "dequeue": fewest(lambda: space.dequeue("Q"), put),
        "transaction": fewest(answer, put),
        "delayed": fewest(lambda: space.enqueue("Q", b"message", delay=3600)),
    }))
"""

MOST = {
    "sqlite": {"enqueue": (35, 18), "delayed": (45, 20), "dequeue": (42, 17), "transaction": (122, 32)},
    "postgresql": {"enqueue": (47, 16), "delayed": (56, 17), "dequeue": (64, 15), "transaction": (169, 31)},
}
"""The calls and the files of each. Aims: 25 and 14 of one message, 90 and 22 of a transaction, on both stores."""


@pytest.mark.parametrize("operation", MOST["sqlite"])
def test_an_operation_makes_no_more_calls_than_it_did(real_device, start, operation):
    with real_device.open_space("SPACE") as space:
        make_queue(space, "R")
    counted = json.loads(start(COUNTING, real_device.config).line())
    for found, most in zip(counted[operation], MOST[real_device.kind][operation], strict=True):
        assert found <= most, counted
