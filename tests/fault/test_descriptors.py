"""Too few file descriptors: each refusal is an error of the queue manager, and leaves none open."""

from tests.fix_store import DESCRIPTORS

LIMITED = f"""
{DESCRIPTORS}
import resource

hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

def refused(act):
    try:
        act()
    except QueueError as error:
        return error.name
    return "done"

def at_each_limit(act):
    "Return what comes of an act, and how many descriptors it leaves open, while they come free one by one."
    before, found = descriptors(), set()
    for limit in range(3, 60):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        try:
            found.add(refused(act))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    return sorted(found), len(descriptors()) - len(before)
"""

OPENING = """
def opens():
    with open_device(sys.argv[1]) as device, device.open_space("SPACE"):
        pass

opens()
say(*at_each_limit(opens))
"""

WAITING = """
with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space:
    assert space.dequeue("Q", wait=0.001) is None
    say(*at_each_limit(lambda: space.dequeue("Q", wait=0.001)))
    say(space.enqueue("Q", "it works as before") and space.dequeue("Q").text)
"""


def test_an_opening_that_fails_leaves_no_descriptor_open(start, real_device):
    child = start(LIMITED + OPENING, real_device.path)
    names, left = child.line().rsplit(" ", 1)
    assert "QME" in names
    assert "'done'" in names
    assert int(left) <= 0
    child.finish()


def test_a_wait_that_finds_none_is_refused_and_leaves_none_open(start, real_device):
    child = start(LIMITED + WAITING, real_device.path)
    names, left = child.line().rsplit(" ", 1)
    assert "'done'" in names
    assert int(left) <= 0
    child.expect("it works as before")
    child.finish()
