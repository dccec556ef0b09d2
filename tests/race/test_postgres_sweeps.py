"""Processes that sweep after consumers on PostgreSQL: two at once, one that is killed, one that stands still."""

import contextlib
import signal

import psycopg
import pytest

from qmcore.findings import Severity
from tests.fix_postgres import database_of
from tests.fix_store import attachment_of, count_rows, drain, eventually, make_queue

pytestmark = pytest.mark.parametrize("real_device", ["postgres"], indirect=True)

TAKE = """
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
name, most = sys.argv[2], int(sys.argv[3])
say("ready")
heard()
taken = 0
while taken < most:
    taken += space.dequeue("TOPIC", consumer=name) is not None
say(taken)
"""

LOOK = """
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
say("ready")
heard()
looks = 0
while space.usage("TOPIC").messages:
    looks += 1
say("none")
"""

DOOMED = """
from pathlib import Path
from tests.doom import Doom, meet
import signal

_, path, mark, event, number = sys.argv
device = open_device(path)
space = device.open_space("SPACE")
say("ready")
heard()
meet(Doom("qmcore.acts.sweeping:_step", event, number=int(number)), Path(mark))
space.usage("TOPIC")
"""

COUNT = 300


@pytest.fixture
def space(real_device):
    with real_device.open_space("SPACE") as opened:
        make_queue(opened, "TOPIC", multiple_consumers=True, retries=1)
        for name in ("one", "two"):
            opened.subscribe("TOPIC", name)
        yield opened


@pytest.fixture
def over(real_device, space):
    """Return the space, which has messages that nobody has a place of, and that were not swept yet."""
    space.enqueue_many("TOPIC", [f"{number}" for number in range(COUNT)])
    database, _ = database_of(real_device.path)
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(contextlib.closing(psycopg.connect(database))) for _ in range(2)]
        for name, connection in zip(("one", "two"), connections, strict=True):
            assert len(space.dequeue_many("TOPIC", COUNT, consumer=name, connection=connection)) == COUNT
        for connection in connections:
            connection.commit()
    assert count_rows(space, "share", "spent") == (COUNT, 2 * COUNT)
    return space


def nothing_is_left(device, space):
    """Prove that all was taken, and that what is stored and what is counted agree."""
    assert (space.usage("TOPIC").messages, space.usage("TOPIC").dequeued) == (0, COUNT)
    assert count_rows(space, "message", "ready", "share", "spent") == (0, 0, 0, 0)
    assert [each.sentence for each in device.check("SPACE") if each.severity is Severity.ERROR] == []


def test_the_last_consumers_take_the_same_messages_while_others_sweep(real_device, space, start):
    space.enqueue_many("TOPIC", [f"{number}" for number in range(COUNT)])
    children = [start(TAKE, real_device.path, name, COUNT) for name in ("one", "two")]
    children += [start(LOOK, real_device.path) for _ in range(2)]
    for child in children:
        child.expect("ready")
    for child in children:
        child.say()
    assert [child.line() for child in children] == [str(COUNT), str(COUNT), "none", "none"]
    for child in children:
        child.finish()
    nothing_is_left(real_device, space)


@pytest.mark.parametrize("event", ["call", "return"])
def test_one_that_is_killed_leaves_all_to_the_next(real_device, over, start, tmp_path, event):
    child = start(DOOMED, real_device.path, str(tmp_path / "mark"), event, int(signal.SIGKILL))
    child.expect("ready")
    child.say()
    eventually((tmp_path / "mark").exists, "it is killed")
    child.kill()
    nothing_is_left(real_device, over)


def test_one_that_stands_still_delays_nobody_but_what_it_has(real_device, over, start, tmp_path):
    child = start(DOOMED, real_device.path, str(tmp_path / "mark"), "return", int(signal.SIGSTOP))
    child.expect("ready")
    child.say()
    eventually(lambda: database_waits(real_device.path), "it has swept, and not committed")
    over.enqueue("TOPIC", "more")
    assert drain(over, "TOPIC:one") == drain(over, "TOPIC:two") == ["more"]
    assert over.usage("TOPIC").messages == COUNT
    child.kill()
    eventually(lambda: over.usage("TOPIC").messages == 0, "the next one sweeps")
    assert count_rows(over, "message", "share", "spent") == (0, 0, 0)
    assert attachment_of(over).volume.sweeps


def database_waits(url):
    """Return whether a session is in a transaction in which it has changed something, and does nothing."""
    with psycopg.connect(database_of(url)[0], autocommit=True) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND state = 'idle in transaction' AND backend_xid IS NOT NULL"
        ).fetchone()
    return found == (1,)
