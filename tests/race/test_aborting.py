"""An administrator aborts transactions of another process while that is at work."""

import contextlib

import pytest

from qmcore.errors import InvalidArgumentError
from tests.fix_store import drain, eventually, make_queue, queue_definition

HOLD = """
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
transaction = space.transaction()
transaction.join_context()
say(space.dequeue("Q").text)
heard()
try:
    if sys.argv[2] == "commit":
        transaction.commit()
    else:
        space.dequeue("Q")
except AbortedError as error:
    say("refused")
transaction.leave_context()
with space.transaction():
    say(space.dequeue("Q").text)
"""

WORK = """
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
done, refused, is_first = 0, 0, True
while done < int(sys.argv[2]):
    try:
        with space.transaction():
            for _ in range(3):
                message = space.dequeue("Q", wait=60)
                if is_first:
                    is_first = False
                    say("holds")
                    heard()
                space.enqueue("OUT", message.text)
    except AbortedError:
        refused += 1
    else:
        done += 3
say(done, refused)
"""


@pytest.mark.parametrize("end", ["commit", "dequeue"])
def test_a_process_finds_its_transaction_aborted_and_goes_on(real_device, start, end):
    with real_device.open_space("SPACE") as space:
        space.enqueue("Q", "x")
        child = start(HOLD, real_device.path, end)
        child.expect("x")
        (info,) = space.transactions()
        assert (info.owner.pid, info.owner.alive, info.dequeued) == (child.pid, True, 1)
        space.abort_transaction(info.id)
        assert space.transactions() == []
        child.say()
        child.expect("refused", "x")
        child.finish()
        assert drain(space) == []


def test_each_transaction_is_either_committed_or_aborted_and_no_message_is_lost_or_doubled(real_device, start):
    count = 300
    with real_device.open_space("SPACE") as space:
        make_queue(space, "OUT")
        space.change_queue(queue_definition("Q", retries=10_000))
        space.enqueue_many("Q", [str(number) for number in range(count)])
        child = start(WORK, real_device.path, count)
        child.expect("holds")
        # However late we look after this, one is aborted.
        aborted = [info.id for info in space.transactions()]
        space.abort_transaction(*aborted)
        child.say()

        def done() -> bool:
            for _ in range(50):
                for info in space.transactions() if len(aborted) < 100 else []:
                    # It may have ended between the look and the act, and then it says so.
                    with contextlib.suppress(InvalidArgumentError):
                        space.abort_transaction(info.id)
                        aborted.append(info.id)
            return space.usage("OUT").messages >= count

        eventually(done, "all messages are worked on")
        child.expect(f"{count} {len(aborted)}")
        assert sorted(map(int, drain(space, "OUT"))) == list(range(count))
        assert drain(space) == []
        assert len(set(aborted)) == len(aborted) > 0
