"""All that the end of a transaction takes stands in the store: another process ends it by its number and its owner."""

import json

import pytest

from qmcore.acts import rolling_back
from qmcore.acts.commit import commit
from qmcore.acts.returning import Cause, Ending
from qmcore.acts.transaction_part import Branch
from tests.fix_store import attachment_of, drain, make_queue

HOLDING = """
import json

_, path = sys.argv
LARGE = bytes(9 << 20)

with open_device(path) as device, device.open_space("SPACE") as space:
    with space.transaction():
        space.dequeue("Q")
        space.lock("Q")
        space.enqueue("LARGE", LARGE)
        space.enqueue("LARGE", b"after it")
        space.enqueue("LARGE", LARGE)
        say(json.dumps([its.id for its in space.transactions()]))
        sys.stdin.read()
        os._exit(0)
"""


@pytest.fixture
def space(real_device):
    with real_device.open_space("SPACE") as opened:
        make_queue(opened, "LARGE", retries=3)
        opened.enqueue_many("Q", ["first", "second", "third"])
        yield opened


@pytest.fixture
def branch(real_device, space, start):
    """Return the part of a transaction of another process, of which nothing is known but its number and its owner."""
    process = start(HOLDING, real_device.config)
    (name,) = json.loads(process.line())
    opened, volume = attachment_of(space).opened, attachment_of(space).volume
    (record,) = volume.read(lambda unit: unit.transactions.of_space(opened.space.id))
    assert f"{record.id:016x}" == name
    owner = next(
        each for each in volume.read(lambda unit: unit.owners.of_space(opened.space.id)) if each.id == record.owner_id
    )
    queue_ids = set(volume.read(opened.definitions).by_id)
    its = {"recorded": True, "may_hold": True, "may_lock": True, "may_spill": True}
    return Branch(
        opened,
        owner,
        record.started_us,
        record.deadline_us,
        id=record.id,
        queue_ids=queue_ids,
        spilled_to=queue_ids,
        **its,
    )


def test_another_process_commits_what_was_held_locked_and_spilled(space, branch):
    commit(attachment_of(space).volume, [branch])
    assert drain(space) == ["second", "third"]
    assert [message.size for message in space.messages("LARGE")] == [9 << 20, 8, 9 << 20]
    assert not space.transactions()


def test_another_process_rolls_back_what_was_held_locked_and_spilled(space, branch):
    volume = attachment_of(space).volume
    rolling_back.roll_back(volume, branch, volume.clock.now(), Ending(Cause.ROLLBACK))
    assert [(message.retries, message.size) for message in space.messages("Q")] == [(1, 5), (0, 6), (0, 5)]
    assert not list(space.messages("LARGE"))
    assert not space.transactions()
