"""How much memory a process needs for a large body: the body itself and little more, whatever it does with it."""

from qmcore.queue import FOREVER
from tests.fix_store import make_queue

MIB = 1024 * 1024
BODY = 24 * MIB
LARGEST = 64 * MIB
SLACK = 8 * MIB

PROGRAM = """
def resident(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))

import ctypes
give_back = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)

def measure(name, act):
    "Say how many bytes an act takes at its peak beyond what the process has before."
    # What was freed and not given back would hide what is taken now.
    give_back(0)
    with open("/proc/self/clear_refs", "w") as reset:
        reset.write("5")
    before = resident("VmRSS")
    act()
    say(name, resident("VmHWM") - before)

def within(act):
    "Return the same in a transaction."
    def acted():
        with space.transaction():
            act()
    return acted

device = open_device(sys.argv[1])
space = device.open_space("SPACE")

def ways(size, measure):
    body = os.urandom(1024) * (size // 1024)
    measure("in enqueue", lambda: space.enqueue("Q", body))
    measure("out peek", lambda: space.peek("Q"))
    measure("out browse", lambda: next(space.browse("Q")))
    measure("out lock", within(lambda: space.lock("Q")))
    measure("in listing", lambda: list(space.messages("Q")))
    measure("out dequeue", lambda: space.dequeue("Q"))
    measure("in enqueue of a view", lambda: space.enqueue("Q", memoryview(body)))
    measure("in removal", lambda: space.remove("Q"))
    measure("in enqueue in a transaction", within(lambda: space.enqueue("Q", body)))
    measure("out dequeue in a transaction", within(lambda: space.dequeue("Q")))
    measure("in enqueue of a view in a transaction", within(lambda: space.enqueue("Q", memoryview(body))))
    measure("out dequeue of many", lambda: space.dequeue_many("Q", 2))
    measure("in enqueue of many", lambda: space.enqueue_many("KEPT", [body]))
    measure("in retention", lambda: space.remove("KEPT"))
    msgid = next(space.history("KEPT")).info.msgid
    measure("out recall", lambda: space.recall("KEPT", msgid))
    measure("in forgetting", lambda: space.purge_history("KEPT"))
    space.enqueue("Q", body)
    measure("in purge", lambda: space.purge("Q"))

# What is loaded and compiled at the first time does not count.
ways(2 * 1024 * 1024, lambda name, act: act())
ways(int(sys.argv[2]), measure)
largest = os.urandom(1024) * (int(sys.argv[3]) // 1024)
measure("in enqueue of the largest", lambda: space.enqueue("Q", largest))
measure("out dequeue of the largest", lambda: space.dequeue("Q"))
space.close()
device.close()
"""


def test_every_way_in_and_out_takes_the_body_once_and_eight_mebibytes(file_store, start_fresh):
    space = file_store.space(pages=19_900)
    make_queue(space)
    make_queue(space, "KEPT", retention=FOREVER)
    space.close()
    child = start_fresh(PROGRAM, file_store.path, BODY, LARGEST)
    peaks = dict(line.rsplit(" ", 1) for line in child.lines_left())
    child.finish()
    assert len(peaks) == 19
    assert {way: peak for way, peak in peaks.items() if int(peak) - there(way) >= SLACK} == {}
    assert int(peaks["out dequeue of the largest"]) > LARGEST - MIB


def there(way):
    """Return the bytes of the body that a way brings; on the way in it is there before."""
    if way.startswith("in"):
        return 0
    return LARGEST if way.endswith("largest") else BODY
