"""Processes that are killed, as by kill -9, at every step: what was acknowledged is there, and there once."""

import random
from collections import Counter

import pytest

from qmadmin.opening import open_device
from qmcore.message import Reason
from qmcore.probe import Point
from qmcore.purpose import Purpose
from qmstorage.schema import owner
from qmstorage.sql import update
from tests.fix_store import attachment_of, bodies_held, count_rows, drain, make_queue, queue_definition

PRODUCE = """
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
how = sys.argv[2]
say("ready")
for number in range(100_000):
    if how == "alone":
        say(space.enqueue("Q", str(number)))
    else:
        with space.transaction():
            ids = [space.enqueue("Q", str(number)) for _ in range(3)]
        say(*ids)
"""

HOLD = """
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
transaction = space.transaction()
transaction.join_context()
for name in sys.argv[2:]:
    say(space.dequeue(name).text)
heard()
"""

WORK = """
import random
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
say("ready")
while True:
    with space.transaction():
        message = space.dequeue("Q")
        if message is None:
            break
        say("holds")
        space.enqueue("OUT", message.text)
        say("asked")
    say("done")
say("empty")
"""


@pytest.mark.matrix
@pytest.mark.parametrize("how", ["alone", "in transactions"])
@pytest.mark.parametrize("acknowledged", [1, 2, 37, 150])
def test_all_that_a_producer_was_acknowledged_before_it_was_killed_is_there(real_device, start, how, acknowledged):
    child = start(PRODUCE, real_device.path, how)
    child.expect("ready")
    said = [child.line() for _ in range(acknowledged)]
    child.kill()
    said += child.lines_left()
    wanted = [msgid for line in said if len(line.split()) == len(said[0].split()) for msgid in line.split()]
    with real_device.open_space("SPACE") as space:
        there = [info.msgid for info in space.messages("Q")]
        usage = space.usage("Q")
    assert len(wanted) >= acknowledged
    assert there[: len(wanted)] == wanted
    assert len(there) - len(wanted) <= (1 if how == "alone" else 3), "at most what was not acknowledged yet"
    assert (usage.messages, usage.enqueued) == (len(there), len(there))


def test_what_was_acknowledged_is_there_when_the_last_process_was_killed(real_device, start):
    real_device.close()
    child = start(PRODUCE, real_device.path, "alone")
    child.expect("ready")
    said = [child.line() for _ in range(50)]
    child.kill()
    with open_device(real_device.path) as device, device.open_space("SPACE") as space:
        assert [info.msgid for info in space.messages("Q")][:50] == said


DIE = """
from pathlib import Path
from tests.doom import Doom, meet

_, path, act, place, mark = sys.argv
with open_device(path) as device, device.open_space("SPACE") as space:
    # So that the definitions are known, and no transaction is the first one ever.
    with space.transaction():
        space.enqueue("ERRORS", "known")
    with space.transaction():
        space.enqueue("OUT", space.dequeue("ERRORS").text)
    assert space.dequeue("OUT")
    if act == "enqueue":
        meet(Doom(place), Path(mark))
        space.enqueue("OUT", "x")
    else:
        with space.transaction():
            space.enqueue("OUT", space.dequeue("Q").text)
            meet(Doom(place), Path(mark))
    say("done")
"""
"""Brings a message, or takes one and answers it, and dies at a point of the commit of that."""

DONE_BEFORE = {"AFTER_COMMIT", "BEFORE_SYNC", "AFTER_SYNC"}
"""Points behind what decides."""

CELLS = [
    (kind, point.name)
    for kind, ends in (("file", ("WRITE", "COMMIT", "SYNC")), ("postgres", ("COMMIT",)))
    for point in Point
    if point.name.endswith(ends)
]
"""The points that there are on each store: on PostgreSQL one journey to the server writes, commits and syncs."""


@pytest.mark.matrix(together=2, apart=True)
@pytest.mark.parametrize("act", ["enqueue", "answer"])
@pytest.mark.parametrize(("real_device", "place"), CELLS, indirect=["real_device"])
def test_a_death_at_any_point_of_a_commit_leaves_all_of_it_or_nothing(real_device, start, tmp_path, act, place):
    with real_device.open_space("SPACE") as space:
        make_queue(space, "OUT")
        space.enqueue("Q", "x")
        assert start(DIE, real_device.path, act, place, tmp_path / "mark").lines_left() == []
        is_done = place in DONE_BEFORE
        assert drain(space, "OUT") == (["x"] if is_done else [])
        left = space.dequeue("Q")
        if act == "enqueue":
            assert (left.text, left.retries) == ("x", 0)
        elif is_done:
            assert left is None
        else:
            assert (left.text, left.retries) == ("x", 1)


class TestConsumer:
    """A process that holds messages is killed."""

    def hold_and_die(self, device, start, *names):
        child = start(HOLD, device.path, *names)
        texts = [child.line() for _ in names]
        child.kill()
        return texts

    def test_its_message_is_back_at_once_and_has_one_try_less(self, real_device, start):
        with real_device.open_space("SPACE") as space:
            space.enqueue("Q", "x")
            assert self.hold_and_die(real_device, start, "Q") == ["x"]
            message = space.dequeue("Q")
            assert (message.text, message.retries) == ("x", 1)
            assert real_device.space_usage("SPACE").transactions == 0
            assert real_device.space_usage("SPACE").processes == 1

    def test_as_long_as_it_lives_its_message_is_its_own(self, real_device, start):
        with real_device.open_space("SPACE") as space:
            space.enqueue("Q", "x")
            child = start(HOLD, real_device.path, "Q")
            child.expect("x")
            for _ in range(20):
                assert space.dequeue("Q") is None
            assert bodies_held(space) == (0, 0, 1)
            child.kill()
            assert space.dequeue("Q").text == "x"

    def test_somebody_who_waits_gets_its_message(self, real_device, start):
        with real_device.open_space("SPACE") as space:
            space.enqueue("Q", "x")
            self.hold_and_die(real_device, start, "Q")
            assert space.dequeue("Q", wait=60).text == "x"

    def test_messages_that_kill_their_consumers_reach_the_error_queue(self, real_device, start):
        with real_device.open_space("SPACE") as space:
            msgid = space.enqueue("Q", "poison")
            for tries in range(4):
                assert bodies_held(space) == (1, 0, 0)
                assert [info.retries for info in space.messages("Q")] == [tries]
                self.hold_and_die(real_device, start, "Q")
            assert bodies_held(space) == (0, 0, 0)
            message = space.dequeue("ERRORS")
            assert (message.text, message.origin.msgid, message.origin.reason) == ("poison", msgid, Reason.RETRIES)
            assert message.origin.error == "its process died"

    def test_without_an_error_queue_they_stay_and_it_is_logged(self, real_device, start, caplog):
        from tests.fix_store import space_definition

        real_device.create_space(space_definition("BARE", pages=1_000))
        with real_device.open_space("BARE") as space:
            make_queue(space, "Q", retries=0)
            space.enqueue("Q", "x")
            for tries in (1, 2, 3):
                child = start(HOLD.replace("SPACE", "BARE"), real_device.path, "Q")
                child.expect("x")
                child.kill()
                assert bodies_held(space) == (1, 0, 0)
                assert [info.retries for info in space.messages("Q")] == [tries]
            assert space.usage("Q").discarded == 0
        assert sum("and stays because its process died" in text for text in caplog.messages) == 3
        assert sum("died while it was attached to queue space 'BARE'" in text for text in caplog.messages) == 3

    def test_a_retry_delay_holds_for_its_messages_too(self, real_device, start):
        with real_device.open_space("SPACE") as space:
            make_queue(space, "SLOW", retries=3, retry_delay=1_000)
            space.enqueue("SLOW", "x")
            self.hold_and_die(real_device, start, "SLOW")
            assert bodies_held(space, "SLOW") == (0, 1, 0)

    def test_everything_that_it_held_of_several_queues_is_back(self, real_device, start):
        with real_device.open_space("SPACE") as space:
            make_queue(space, "R", retries=3)
            for text in "ab":
                space.enqueue("Q", text)
                space.enqueue("R", text)
            self.hold_and_die(real_device, start, "Q", "Q", "R")
            assert (drain(space), drain(space, "R")) == (["a", "b"], ["a", "b"])

    def test_its_place_among_the_attached_processes_is_free(self, real_device, start):
        from pathlib import Path

        from tests.fix_store import space_definition

        real_device.create_space(space_definition("TIGHT", pages=1_000, processes=1))
        for _ in range(3):
            child = start(HOLD.replace("SPACE", "TIGHT"), real_device.path)
            child.say()
            child.finish()
            child = start(HOLD.replace("SPACE", "TIGHT").replace("heard()", "say('in'); heard()"), real_device.path)
            child.expect("in")
            child.kill()
        real_device.open_space("TIGHT").close()
        assert len(list(Path(f"{real_device.path}-run").glob("*.lock"))) == 0

    def test_a_restart_of_the_machine_does_not_count_as_a_try(self, real_device, start, monkeypatch):
        if "://" in real_device.path:
            # The server may have been started a moment ago, and who was there before would be waited for.
            monkeypatch.setattr("qmstorage.postgres.liveness_queries.GRACE_SECONDS", 0.0)
        with real_device.open_space("SPACE") as space:
            space.enqueue("Q", "x")
            self.hold_and_die(real_device, start, "Q")
            restarted = update(owner).where(owner.c.pid != _own_pid()).values(boot="before")
            attachment_of(space).volume.write(lambda unit: unit.run(restarted), Purpose.ADMINISTRATION)
            assert space.dequeue("Q").retries == 0

    def test_a_process_that_got_its_number_is_not_taken_for_it(self, real_device, start):
        """Its process number is given to another process, here to this one, which lives."""
        with real_device.open_space("SPACE") as space:
            space.enqueue("Q", "x")
            self.hold_and_die(real_device, start, "Q")
            pid = _own_pid()
            given_away = update(owner).where(owner.c.pid != pid).values(pid=pid, process=f"{pid}-1")
            attachment_of(space).volume.write(lambda unit: unit.run(given_away), Purpose.ADMINISTRATION)
            assert space.dequeue("Q").text == "x"

    def test_a_lock_file_that_somebody_removed_does_not_keep_it_alive(self, file_device, start):
        from pathlib import Path

        with file_device.open_space("SPACE") as space:
            space.enqueue("Q", "x")
            child = start(HOLD, file_device.path, "Q")
            child.expect("x")
            mine = {each.lock for each in self.owners(space) if each.pid == _own_pid()}
            child.kill()
            for lock in Path(f"{file_device.path}-run").glob("*.lock"):
                if lock.name not in mine:
                    lock.unlink()
            assert space.dequeue("Q").text == "x"

    def owners(self, space):
        attachment = attachment_of(space)
        return attachment.volume.read(lambda unit: unit.owners.of_space(attachment.opened.space.id))


def _own_pid():
    import os

    return os.getpid()


@pytest.mark.matrix
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_workers_that_are_killed_at_random_lose_and_double_nothing(real_device, start, seed):
    chance = random.Random(seed)
    real_device.open_space("SPACE").create_queue(queue_definition("OUT"))
    with real_device.open_space("SPACE") as space:
        space.destroy_queue("Q")
        make_queue(space, "Q", retries=1_000)
        for at in range(60):
            space.enqueue("Q", str(at))
        kills = 0
        while True:
            child = start(WORK, real_device.path)
            child.expect("ready")
            steps = chance.randrange(1, 50) if kills < 8 else 10**9
            line = ""
            for _ in range(steps):
                line = child.line()
                if line == "empty":
                    break
            if line == "empty":
                break
            child.kill()
            kills += 1
        assert Counter(drain(space, "OUT")) == Counter(str(at) for at in range(60))
        usage = space.usage("Q")
        assert (usage.messages, usage.dequeued, usage.moved, usage.discarded) == (0, 60, 0, 0)
        assert real_device.space_usage("SPACE").transactions == 0


SPILL = """
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
transaction = space.transaction()
transaction.join_context()
space.dequeue("IN")
for number in range(12):
    space.enqueue("Q", bytes([number]) * 1_000_000)
space.enqueue("Q", b"x" * 9_000_000)
say("spilled")
heard()
transaction.commit()
say("committed")
heard()
"""


def tables(device, *names):
    with device.open_space("SPACE") as space:
        return list(count_rows(space, *names))


def test_what_a_transaction_has_spilled_goes_with_its_process(real_device, start):
    with real_device.open_space("SPACE") as space:
        make_queue(space, "IN", retries=1)
        space.enqueue("IN", "request")
    child = start(SPILL, real_device.path)
    child.expect("spilled")
    assert real_device.space_usage("SPACE").pages > 2000
    child.kill()
    with real_device.open_space("SPACE") as space:
        assert drain(space, "IN") == ["request"]
        assert space.usage("Q").messages == 0
    assert real_device.space_usage("SPACE").pages == 0
    assert tables(real_device, "message", "chunk", "held", "trans") == [0, 0, 0, 0]


def test_what_a_transaction_has_spilled_and_committed_survives_its_process(real_device, start):
    with real_device.open_space("SPACE") as space:
        make_queue(space, "IN", retries=1)
        space.enqueue("IN", "request")
    child = start(SPILL, real_device.path)
    child.expect("spilled")
    child.say()
    child.expect("committed")
    child.kill()
    with real_device.open_space("SPACE") as space:
        assert drain(space, "IN") == []
        assert [message.size for message in space.dequeue_many("Q", 100)] == [1_000_000] * 12 + [9_000_000]
    assert tables(real_device, "message", "chunk", "held", "trans") == [0, 0, 0, 0]
