"""What the probe of a device tells on every store, and where it lets a test stop what is under way."""

import math
import threading
from types import MappingProxyType

import pytest

from qmadmin.opening import open_device
from qmcore.acts import waiting
from qmcore.errors import OutcomeUnknownError
from qmcore.probe import Point, Probe
from tests.fix_store import Work, drain, make_queue

STEPS = (Point.BEFORE_WRITE, Point.AFTER_WRITE, Point.BEFORE_COMMIT, Point.AFTER_COMMIT)
SYNCS = (Point.BEFORE_SYNC, Point.AFTER_SYNC)


@pytest.fixture
def told(space):
    """The points that were reached, in their order."""
    reached = []
    for point in Point:
        space.probe.at(point, lambda _fact, point=point: reached.append(point))
    return reached


def commits(reached):
    return [point for point in reached if point in {Point.BEFORE_COMMIT, Point.AFTER_COMMIT}]


def test_an_open_queue_space_is_among_the_attachments_as_long_as_it_is_open(device, space):
    attachment = device.probe.attachments["SPACE"]
    assert attachment.volume is device.volume_of_space("SPACE")
    assert attachment.opened.space.name == "SPACE"
    assert attachment is space.probe.attachments["SPACE"]
    space.close()
    assert not device.probe.attachments


@pytest.mark.parametrize(
    "call",
    [
        lambda space: space.enqueue("Q", "x"),
        lambda space: space.enqueue("Q", "x", delay=5, headers={"a": "b"}),
        lambda space: space.enqueue_many("Q", ["x", "y"]),
        lambda space: space.dequeue("Q"),
        lambda space: space.dequeue("Q", wait=0.001),
        lambda space: space.dequeue_many("Q", 2),
        lambda space: make_queue(space, "NEW"),
        lambda space: space.purge("Q"),
    ],
    ids=["enqueue", "delayed", "enqueue_many", "dequeue", "dequeue_waiting", "dequeue_many", "create_queue", "purge"],
)
def test_each_call_that_changes_something_reaches_the_points_of_its_commit(space, told, call):
    for body in "abc":
        space.enqueue("Q", body)
    told.clear()
    call(space)
    assert commits(told)[:2] == [Point.BEFORE_COMMIT, Point.AFTER_COMMIT]
    assert len(commits(told)) % 2 == 0


def test_each_end_of_a_transaction_reaches_the_points_of_its_commit(space, told):
    space.enqueue("Q", "x")
    for end in ("commit", "rollback"):
        with space.transaction() as transaction:
            space.dequeue("Q")
            told.clear()
            if end == "rollback":
                transaction.rollback()
        assert commits(told)[:2] == [Point.BEFORE_COMMIT, Point.AFTER_COMMIT]
        space.enqueue("Q", "y")


def test_a_commit_on_a_file_is_written_committed_and_synced_in_this_order(file_store):
    space = file_store.space()
    make_queue(space)
    reached = []
    for point in (*STEPS, *SYNCS):
        space.probe.at(point, lambda fact, point=point: reached.append((point, fact)))
    space.enqueue("Q", "x")
    assert [point for point, _ in reached] == [*STEPS, *SYNCS]
    assert [fact for _, fact in reached[:4]] == [1] * 4
    assert reached[4][1] == reached[5][1]


def test_what_an_action_raises_before_a_commit_leaves_everything_as_it_was(space):
    def fails(_works):
        raise RuntimeError("before the commit")

    space.probe.at(Point.BEFORE_COMMIT, fails)
    with pytest.raises(RuntimeError, match="before the commit"):
        space.enqueue("Q", "x")
    space.probe.leave(Point.BEFORE_COMMIT)
    assert drain(space) == []
    space.enqueue("Q", "y")
    assert drain(space) == ["y"]


def test_what_it_raises_behind_a_commit_takes_nothing_back(space):
    def interrupts(_works):
        raise KeyboardInterrupt

    space.probe.at(Point.AFTER_COMMIT, interrupts)
    with pytest.raises(KeyboardInterrupt):
        space.enqueue("Q", "x")
    space.probe.leave(Point.AFTER_COMMIT)
    assert drain(space) == ["x"]


def test_a_disk_can_fail_before_a_sync(file_store):
    space = file_store.space()
    make_queue(space)

    def fails(_commit):
        raise OSError(5, "Input/output error")

    space.probe.at(Point.BEFORE_SYNC, fails)
    with pytest.raises(OutcomeUnknownError):
        space.enqueue("Q", "x")


def test_a_wait_and_a_wake_up_are_told(real_device, monkeypatch):
    # So that it is the wake-up that ends the wait, and no look of its own.
    monkeypatch.setattr(waiting, "CHECK_SECONDS", 1_000.0)
    asleep, woken, sent = threading.Event(), [], []
    with real_device.open_space("SPACE") as space, open_device(real_device.config) as other:
        # The first wait on PostgreSQL is short: nobody may be woken then.
        space.probe.at(Point.BEFORE_WAIT, lambda seconds: asleep.set() if seconds > 1 else None)
        space.probe.at(Point.AFTER_WAIT, woken.append)
        work = Work(lambda: space.dequeue("Q", wait=math.inf))
        assert asleep.wait(90)
        with other.open_space("SPACE") as bringing:
            bringing.probe.at(Point.AFTER_WAKE_UP, sent.append)
            bringing.enqueue("Q", "x")
        assert work.results()[0].text == "x"
    assert True in woken
    assert sent


def test_a_process_can_have_its_actions_before_it_opens_anything(file_device):
    reached = []

    class Early(Probe):
        actions = MappingProxyType({Point.AFTER_COMMIT: (reached.append,)})

    probe = Early()
    probe.reach(Point.AFTER_COMMIT, 3)
    probe.at(Point.AFTER_SYNC, reached.append)
    probe.reach(Point.AFTER_SYNC, 4)
    assert reached == [3, 4]
    assert Early.actions == {Point.AFTER_COMMIT: (reached.append,)}
    assert not Probe.actions
