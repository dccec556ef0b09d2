"""Several processes read one snapshot of a queue space, whatever others write while they begin."""

import pytest

from qmadmin.transfer import Processes
from qmadmin.transfer.snapshot import snapshot_of
from tests import snapshot_reader
from tests.fix_store import eventually, make_queue, space_definition

MESSAGES = 4_000
READERS = 3
QUEUES = ("A", "B", "MEMORY")
MOVE = """
import time
from qmcore.message import EnqueueControl
from qmcore.queue import Delivery
device = open_device(sys.argv[1])
space = device.open_space("BUSY")
source, target = sys.argv[2:4]
stopped = threading.Event()
threading.Thread(target=lambda: (heard(), stopped.set()), daemon=True).start()
moved, longest = 0, 0.0
say("ready")
while not stopped.is_set():
    begun = time.monotonic()
    with space.transaction():
        messages = space.dequeue_many(source, 7)
        control = EnqueueControl(delivery=Delivery.NONPERSIST if target == "MEMORY" else Delivery.PERSIST)
        space.enqueue_many(target, [message.body for message in messages], control)
    moved += len(messages)
    longest = max(longest, time.monotonic() - begun)
    if not messages:
        stopped.wait(0.001)
say(moved)
say(f"{longest:.3f}")
"""


@pytest.fixture
def busy(real_device, monkeypatch, tmp_path):
    """A queue space in which all messages stand in one queue, to be moved around."""
    monkeypatch.setenv("QM_SHM_DIR", str(tmp_path))
    limits = {"pages": 10 * MESSAGES // 4, "messages": 4 * MESSAGES, "memory": 4096 * MESSAGES * 2}
    real_device.create_space(space_definition("BUSY", ipc_key=41_000, **limits))
    with real_device.open_space("BUSY") as space:
        for name in QUEUES:
            make_queue(space, name, retries=1_000_000)
        for first in range(0, MESSAGES, 1_000):
            space.enqueue_many("A", [str(number) for number in range(first, min(first + 1_000, MESSAGES))])
        yield space


def test_all_readers_have_each_message_once_while_others_move_them(real_device, busy, start, record_property):
    ways = [("A", "B"), ("B", "MEMORY"), ("MEMORY", "A")]
    movers = [start(MOVE, real_device.path, *way) for way in ways]
    for mover in movers:
        mover.expect("ready")
    eventually(lambda: busy.usage("MEMORY").enqueued > 0, "messages are in memory")
    with snapshot_of(real_device, ["BUSY"], Processes(READERS)) as (own, crew, _moment):
        mine = snapshot_reader.seen(own, "BUSY")
        assert [number for number, *_ in mine] == list(range(MESSAGES))
        # Each message that was moved has another number, so that what is the same is of one moment.
        assert all(theirs == mine for theirs in crew.each(snapshot_reader.seen, "BUSY"))
    for mover in movers:
        mover.say()
    moved, pauses = zip(*[(int(mover.line()), float(mover.line())) for mover in movers], strict=True)
    record_property("moved", moved)
    record_property("longest pause", max(pauses))
    assert all(moved)
