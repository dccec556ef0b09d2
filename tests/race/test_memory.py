"""Non-persistent messages and processes: shared, survived, killed at every step, and never half of a transaction."""

import contextlib
import itertools
import os
import shutil
import signal
import sqlite3
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import text

from qmadmin.opening import create_device, open_device
from qmcore.errors import AbortedError, QueueError, SystemFailureError
from qmcore.probe import Point
from qmcore.purpose import Purpose
from tests.fix_postgres import login_of
from tests.fix_store import (
    attachment_of,
    device_path,
    drain,
    make_queue,
    maker_of_devices,
    rows_of,
    space_definition,
    truth,
)

PAGE = 4096


@pytest.fixture
def device(tmp_path, memory_dir):
    """A device on a file with a queue space that has memory, and in it the queues Q and OUT."""
    yield from laid_out(tmp_path / "QUE", create_device)


@pytest.fixture(params=["file", "postgres"])
def any_device(request, tmp_path, memory_dir, monkeypatch):
    """The same on each kind of store that several processes share."""
    path = device_path(request.param, request, tmp_path)
    if request.param == "postgres":
        for name, value in login_of(path).items():
            monkeypatch.setenv(name, value)
    yield from laid_out(path, maker_of_devices(request.param, request))


def laid_out(path, make):
    with make(path, 50_000) as made:
        made.create_space(space_definition(pages=20_000, messages=20_000, memory=8_000 * PAGE, error_queue="ERRORS"))
        with made.open_space("SPACE") as opened:
            for name in ("Q", "OUT", "ERRORS"):
                make_queue(opened, name, retries=50)
        yield made


def put(space, texts, queue="Q"):
    """Enqueue each text: in memory where it is written in capitals."""
    return [space.enqueue(queue, text, persistent=text.islower()) for text in texts]


def count(space, table, schema="main"):
    opened = attachment_of(space).opened.space
    return attachment_of(space).volume.read(
        lambda unit: rows_of(unit if schema == "main" else unit.memory(opened.id), table)
    )


def nothing_is_left(device, space, *queues):
    """No transaction is open or waits for memory, and the counters of both stores say what is there."""
    attachment_of(space).do_housekeeping(now=True)
    assert [count(space, table) for table in ("trans", "held")] == [0, 0]
    assert count(space, "held", "memory") == 0
    kept = [truth(space, queue) for queue in queues]
    assert count(space, "message", "memory") == sum(len(lost) for _, lost in kept)
    usage = device.space_usage(space.name)
    assert usage.messages == sum(len(kept) + len(lost) for kept, lost in kept)
    assert usage.memory == PAGE * sum(space.usage(queue).memory_pages for queue in queues)
    assert usage.transactions == 0


WORK = """
space = open_device(sys.argv[1]).open_space("SPACE")
say(*[space.dequeue("Q").text for _ in range(2)])
say(*[space.enqueue("Q", text, persistent=False) for text in ("C", "D")])
heard()
"""


class TestShared:
    def test_several_processes_share_it(self, any_device, start):
        with any_device.open_space("SPACE") as space:
            put(space, "AB")
            child = start(WORK, any_device.path)
            child.expect("A B")
            ids = child.line().split()
            assert truth(space)[1] == ids
            assert drain(space) == ["C", "D"]
            child.say()
            child.finish()

    def test_it_survives_the_end_of_all_processes(self, any_device, start):
        with any_device.open_space("SPACE") as space:
            ids = put(space, "AbC")
        any_device.close()
        start("space = open_device(sys.argv[1]).open_space('SPACE')\nsay(len(list(space.messages('Q'))))",
              any_device.path).expect("3")  # fmt: skip
        with open_device(any_device.path) as again, again.open_space("SPACE") as space:
            assert [message.msgid for message in space.browse("Q")] == ids

    def test_it_survives_the_kill_of_all_processes(self, any_device, start):
        any_device.close()
        child = start(
            "space = open_device(sys.argv[1]).open_space('SPACE')\n"
            "say(*[space.enqueue('Q', text, persistent=False) for text in 'ABC'])\nheard()\n",
            any_device.path,
        )
        ids = child.line().split()
        child.kill()
        with open_device(any_device.path) as again, again.open_space("SPACE") as space:
            assert [message.msgid for message in space.browse("Q")] == ids
            nothing_is_left(again, space, "Q")

    def test_processes_with_different_directories_find_the_same(self, device, start, tmp_path, monkeypatch):
        with device.open_space("SPACE") as space:
            put(space, "AB")
            elsewhere = tmp_path / "elsewhere"
            elsewhere.mkdir()
            monkeypatch.setenv("QM_SHM_DIR", str(elsewhere))
            child = start(WORK, device.path)
            child.expect("A B")
            child.line()
            assert drain(space) == ["C", "D"]
            assert list(elsewhere.iterdir()) == []

    def test_a_waiter_in_another_process_is_woken(self, any_device, start):
        from tests.fix_store import eventually, waiting_for

        child = start(
            "from qmcore.acts import waiting\nwaiting.CHECK_SECONDS = 1000.0\n"
            "space = open_device(sys.argv[1]).open_space('SPACE')\n"
            "for _ in range(2): say(space.dequeue('Q', wait=60).text)\n",
            any_device.path,
        )
        with any_device.open_space("SPACE") as space:
            eventually(lambda: waiting_for(any_device.path) == 1, "the other waits")
            space.enqueue("Q", "A", persistent=False)
            child.expect("A")
            eventually(lambda: waiting_for(any_device.path) == 1, "the other waits")
            with space.transaction():
                space.enqueue("Q", "B", persistent=False)
            child.expect("B")

    def test_a_queue_that_another_process_creates_or_destroys_is_known(self, any_device, start):
        with any_device.open_space("SPACE") as space:
            child = start(
                "from tests.fix_store import *\nimport sys\n"
                "space = open_device(sys.argv[1]).open_space('SPACE')\n"
                "make_queue(space, 'NEW')\n"
                "space.enqueue('NEW', 'A', persistent=False)\n"
                "say('created')\nheard()\n"
                "space.destroy_queue('NEW', force=True)\nsay('destroyed')\n",
                any_device.path,
            )
            child.expect("created")
            put(space, "B", "NEW")
            assert space.usage("NEW").nonpersistent == 2
            child.say()
            child.expect("destroyed")
            make_queue(space, "NEW")
            put(space, "C", "NEW")
            assert drain(space, "NEW") == ["C"]
            nothing_is_left(any_device, space, "Q", "NEW")

    def test_a_fork_shares_it_and_leaves_the_parent_its_own(self, any_device, start):
        from tests.race.test_processes import FORK

        child = start(
            FORK + "space.enqueue('Q', 'A', persistent=False)\n"
            "with space.transaction():\n"
            "    say(space.dequeue('Q').text)\n"
            "    say(in_child(lambda: space.enqueue('OUT', 'B', persistent=False, transactional=False) and 'taken'))\n"
            "    say(in_child(lambda: space.dequeue('Q', transactional=False)))\n"
            "    space.enqueue('OUT', 'C', persistent=False)\n"
            "say(*[message.text for message in space.dequeue_many('OUT', 9)])\n"
            "say(in_child(lambda: space.dequeue('Q')))\n",
            any_device.path,
        )
        child.expect("A", "taken", "None", "B C", "None")
        child.finish()
        with any_device.open_space("SPACE") as space:
            nothing_is_left(any_device, space, "Q", "OUT")

    def test_a_fork_in_a_transaction_with_spilled_messages_leaves_them_to_the_parent(self, any_device, start):
        from tests.race.test_processes import FORK

        child = start(
            FORK + "transaction = space.transaction()\n"
            "transaction.join_context()\n"
            "for at in range(10):\n"
            "    space.enqueue('Q', bytes(1_000_000), persistent=bool(at % 2))\n"
            "say(in_child(transaction.commit))\n"
            "say(in_child(lambda: space.usage('Q').messages))\n"
            "transaction.commit()\n"
            "say(space.usage('Q').messages)\n",
            any_device.path,
        )
        child.expect("QMEPROTO", "0", "10")
        child.finish()
        with any_device.open_space("SPACE") as space:
            nothing_is_left(any_device, space, "Q")


class TestLost:
    """It is lost when the machine restarts, and by ipcrm, and never otherwise."""

    def restart(self, device, memory_dir):
        """Let the memory be that of an earlier start of the machine."""
        (file,) = memory_dir.glob("*/memory")
        with contextlib.closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("UPDATE residence SET boot = 'an earlier one'")

    def test_by_a_restart_of_the_machine(self, device, memory_dir):
        with device.open_space("SPACE") as space:
            put(space, "aBcD")
        device.close()
        self.restart(device, memory_dir)
        with open_device(device.path) as again, again.open_space("SPACE") as space:
            assert drain(space) == ["a", "c"]
            nothing_is_left(again, space, "Q")
            put(space, "E")
            assert drain(space) == ["E"]

    def test_a_transaction_that_the_restart_cut_short_is_rolled_back_on_disk_and_is_no_try(
        self, device, memory_dir, start
    ):
        with device.open_space("SPACE") as space:
            put(space, "aB")
        device.close()
        child = start(
            "space = open_device(sys.argv[1]).open_space('SPACE')\n"
            "transaction = space.transaction()\ntransaction.join_context()\n"
            "say(*[message.text for message in space.dequeue_many('Q', 2)])\nheard()\n",
            device.path,
        )
        child.expect("a B")
        child.kill()
        self.restart(device, memory_dir)
        with contextlib.closing(sqlite3.connect(device.path)) as connection, connection:
            connection.execute("UPDATE owner SET boot = 'an earlier one'")
        with open_device(device.path) as again, again.open_space("SPACE") as space:
            message = space.dequeue("Q")
            assert (message.text, message.retries) == ("a", 0)
            assert space.dequeue("Q") is None
            nothing_is_left(again, space, "Q")

    def test_by_a_restart_that_takes_the_directory_with_it(self, device, memory_dir):
        with device.open_space("SPACE") as space:
            put(space, "aB")
        device.close()
        for directory in memory_dir.iterdir():
            shutil.rmtree(directory)
        with open_device(device.path) as again, again.open_space("SPACE") as space:
            assert drain(space) == ["a"]
            put(space, "C")
            nothing_is_left(again, space, "Q")

    def test_by_ipcrm_also_where_another_process_had_it_open_before(self, any_device, memory_dir, start):
        child = start(
            "device = open_device(sys.argv[1])\n"
            "device.open_space('SPACE').close()\nsay('closed')\nheard()\n"
            "space = device.open_space('SPACE')\n"
            "say(space.enqueue('Q', 'A', persistent=False))\nheard()\n",
            any_device.path,
        )
        child.expect("closed")
        with any_device.open_space("SPACE") as space:
            put(space, "aB")
        any_device.clear_memory("SPACE")
        assert list(memory_dir.iterdir()) == []
        child.say()
        msgid = child.line()
        with any_device.open_space("SPACE") as space:
            assert truth(space)[1] == [msgid]
            with pytest.raises(QueueError, match="attached"):
                any_device.clear_memory("SPACE")
            any_device.clear_memory("SPACE", force=True)
            assert drain(space) == ["a"]

    def test_not_by_destroying_another_queue_space_of_the_same_device(self, any_device, memory_dir):
        any_device.create_space(space_definition("OTHER", pages=1_000, memory=10 * PAGE))
        with any_device.open_space("OTHER") as other:
            make_queue(other, "Q")
            put(other, "X")
        with any_device.open_space("SPACE") as space:
            put(space, "A")
            any_device.destroy_space("OTHER", force=True)
            assert drain(space) == ["A"]
            assert count(space, "message", "memory") == 0
        assert len(list(memory_dir.iterdir())) == (1 if "://" not in any_device.path else 0)

    def test_not_by_moving_the_device_with_or_without_what_stands_beside_it(self, device, memory_dir, tmp_path):
        with device.open_space("SPACE") as space:
            put(space, "AB")
        device.close()
        for number, beside in enumerate((True, False)):
            old = Path(device.path) if number == 0 else tmp_path / "moved0" / "QUE"
            new = tmp_path / f"moved{number}" / "QUE"
            new.parent.mkdir()
            old.rename(new)
            if beside:
                Path(f"{old}-run").rename(f"{new}-run")
            with open_device(new) as moved:
                moved.rename_entry(0, new)
                with moved.open_space("SPACE") as space:
                    assert space.dequeue("Q").text == "AB"[number]
        assert len(list(memory_dir.iterdir())) == 1

    def test_a_copy_of_the_device_has_a_memory_of_its_own(self, device, memory_dir, tmp_path):
        with device.open_space("SPACE") as space:
            put(space, "aB")
        device.close()
        copy = tmp_path / "copy" / "QUE"
        copy.parent.mkdir()
        shutil.copy(device.path, copy)
        shutil.copytree(f"{device.path}-run", f"{copy}-run", symlinks=True)
        with open_device(device.path) as original, original.open_space("SPACE") as space:
            with open_device(copy) as copied:
                copied.rename_entry(0, copy)
                with copied.open_space("SPACE") as other:
                    assert drain(other) == ["a"]
                    put(other, "C")
            assert drain(space) == ["a", "B"]


def test_a_queue_space_made_again_under_the_same_number_by_another_process_gets_no_leftovers(any_device, start):
    with any_device.open_space("SPACE") as space:
        put(space, "A")
        child = start(
            "from tests.fix_store import *\nimport sys\n"
            "with open_device(sys.argv[1]) as device:\n"
            "    device.destroy_space('SPACE', force=True)\n"
            "    device.create_space(space_definition(memory=100 * 4096))\n"
            "    with device.open_space('SPACE') as space:\n"
            "        make_queue(space)\n"
            "        say(device.space('SPACE').id)\n"
            "        space.enqueue('Q', 'B', persistent=False)\n",
            any_device.path,
        )
        number = attachment_of(space).opened.space.id
        child.expect(str(number))
        child.finish()
        with pytest.raises(QueueError):
            space.dequeue("Q")
        with pytest.raises(QueueError):
            put(space, "C")
    with any_device.open_space("SPACE") as space:
        assert drain(space) == ["B"]


class TestMany:
    def test_more_than_ten_memories_at_once_are_refused_with_a_clear_sentence(self, device):
        opened = []
        for number in range(9):
            device.create_space(space_definition(f"S{number}", pages=100, memory=10 * PAGE))
            opened.append(device.open_space(f"S{number}"))
        device.create_space(space_definition("LAST", pages=100, memory=10 * PAGE))
        device.create_space(space_definition("PLAIN", pages=100))
        space = device.open_space("SPACE")
        with pytest.raises(SystemFailureError, match=r"10 queue spaces .* cannot open queue space 'LAST'") as refusal:
            device.open_space("LAST")
        assert (refusal.value.facts["used"], refusal.value.facts["limit"]) == (10, 10)
        assert "Close one" in refusal.value.hint
        assert device.space_usage("SPACE").processes == 1
        device.open_space("PLAIN").close()
        opened.pop().close()
        last = device.open_space("LAST")
        make_queue(last, "Q")
        put(last, "A")
        assert drain(last) == ["A"]
        assert drain(space) == []

    def test_any_number_can_be_used_one_after_the_other(self, device):
        for number in range(15):
            device.create_space(space_definition(f"S{number}", pages=100, memory=10 * PAGE))
            with device.open_space(f"S{number}") as space:
                make_queue(space, "Q")
                put(space, "A")
        assert [device.space_usage(f"S{number}").memory for number in range(15)] == [PAGE] * 15


# ---- killed at every step -------------------------------------------------------------------------------------------

KILLED = """
from qmstorage.sqlite import files

opened = files.open_for_writing

class Cursor:
    "A cursor that kills its process before or after the step that is asked for."
    def __init__(self, real, steps, at, side):
        self.real, self.steps, self.at, self.side = real, steps, at, side
    def __getattr__(self, name):
        return getattr(self.real, name)
    def _step(self, act, *arguments):
        self.steps.append(arguments[0])
        if len(self.steps) == self.at and self.side == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = act(*arguments)
        if len(self.steps) == self.at and self.side == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    def execute(self, *arguments):
        return self._step(self.real.execute, *arguments)
    def executemany(self, *arguments):
        return self._step(self.real.executemany, *arguments)

class Connection:
    def __init__(self, real, *how):
        self.real, self.how = real, how
    def __getattr__(self, name):
        return getattr(self.real, name)
    def cursor(self):
        return Cursor(self.real.cursor(), *self.how)

def work(at, side):
    steps = []
    files.open_for_writing = lambda *given: Connection(opened(*given), steps, at, side)
    space = open_device(sys.argv[1]).open_space("SPACE")
    steps.clear()
    with space.transaction():
        for _ in range(2):
            space.dequeue("Q")
        space.enqueue("OUT", "c")
        space.enqueue("OUT", "D", persistent=False)
    return len(steps)

while True:
    at, side = heard().split()
    child = os.fork()
    if child == 0:
        try:
            say(work(int(at), side))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    say("over")
"""


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_process_that_is_killed_at_any_statement_leaves_all_of_its_transaction_or_nothing(device, start, side):
    """The process moves `a` and `B` from Q to OUT as `c` and `D`; a forked one of it each time.

    Before each third and after each second of four statements: before one is after the one that it follows.
    """
    child = start(KILLED, device.path)
    outcomes = []
    with device.open_space("SPACE") as space:
        for at in itertools.count(3 if side == "before" else 2, 4):
            put(space, "aB")
            child.say(f"{at} {side}")
            said = child.line()
            if said != "over":
                break
            left, came = _texts(space, "Q"), _texts(space, "OUT")
            assert (left, came) in ((["a", "B"], []), ([], ["c", "D"])), at
            nothing_is_left(device, space, "Q", "OUT")
            outcomes.append(bool(came))
            drain(space)
            drain(space, "OUT")
    assert outcomes == sorted(outcomes), "the commit is one moment"
    assert (outcomes[0], outcomes[-1]) == (False, True)


def _texts(space, queue):
    attachment_of(space).do_housekeeping(now=True)
    return [message.text for message in space.browse(queue)]


class TestBetweenTheTwoCommits:
    """The disk has committed and memory has not: what memory was before the commit is put back by hand."""

    def snapshot(self, memory_dir):
        (file,) = memory_dir.glob("*/memory")
        with contextlib.closing(sqlite3.connect(file)) as connection:
            return file, {
                name: connection.execute(f"SELECT * FROM {name}").fetchall()
                for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            }

    def restore(self, snapshot):
        file, tables = snapshot
        with contextlib.closing(sqlite3.connect(file)) as connection, connection:
            for name, rows in tables.items():
                connection.execute(f"DELETE FROM {name}")
                for row in rows:
                    connection.execute(f"INSERT INTO {name} VALUES ({','.join('?' * len(row))})", row)

    def commit_on_disk_alone(self, space, memory_dir, transaction):
        """Commit, and put memory back to where it was when the transaction had left its messages there."""
        states = []
        space.probe.at(Point.AFTER_COMMIT, lambda _: states.append(self.snapshot(memory_dir)))
        transaction.commit()
        space.probe.leave(Point.AFTER_COMMIT)
        self.restore(states[0])

    def test_memory_does_what_the_commit_meant(self, device, memory_dir):
        with device.open_space("SPACE") as space:
            put(space, "aB")
            transaction = space.transaction()
            transaction.join_context()
            drain(space)
            put(space, "cD", "OUT")
            self.commit_on_disk_alone(space, memory_dir, transaction)
            transaction.leave_context()
            assert count(space, "trans") == 1
            assert _texts(space, "OUT") == ["c", "D"]
            assert _texts(space, "Q") == []
            nothing_is_left(device, space, "Q", "OUT")

    def test_also_when_whoever_lets_it_follow_is_killed_between_the_two_commits_of_that(self, device, memory_dir):
        with device.open_space("SPACE") as space:
            put(space, "aB")
            transaction = space.transaction()
            transaction.join_context()
            drain(space)
            put(space, "cD", "OUT")
            self.commit_on_disk_alone(space, memory_dir, transaction)
            transaction.leave_context()
            volume, opened = attachment_of(space).volume, attachment_of(space).opened
            for _ in range(3):
                from qmcore.acts import following

                before = self.snapshot(memory_dir)
                volume.write(
                    lambda unit: following.let_memory_follow(unit, opened, device.clock.now()), Purpose.FOLLOWING
                )
                self.restore(before)
            assert _texts(space, "OUT") == ["c", "D"]
            nothing_is_left(device, space, "Q", "OUT")

    def test_a_rollback_that_memory_did_not_see_is_made_up_for(self, device, memory_dir):
        with device.open_space("SPACE") as space:
            put(space, "aB")
            with space.transaction() as transaction:
                drain(space)
                before = self.snapshot(memory_dir)
                transaction.rollback()
            self.restore(before)
            assert _texts(space, "Q") == ["a", "B"]
            nothing_is_left(device, space, "Q")

    def test_a_queue_that_memory_did_not_see_created_or_destroyed_is_made_up_for(self, device, memory_dir):
        with device.open_space("SPACE") as space:
            before = self.snapshot(memory_dir)
            make_queue(space, "NEW")
            self.restore(before)
            attachment_of(space).do_housekeeping(now=True)
            put(space, "A", "NEW")
            before = self.snapshot(memory_dir)
            space.destroy_queue("NEW", force=True)
            self.restore(before)
            attachment_of(space).do_housekeeping(now=True)
            nothing_is_left(device, space, "Q")


RANDOM = """
space = open_device(sys.argv[1]).open_space("SPACE")
say("ready")
while True:
    with space.transaction():
        messages = space.dequeue_many("Q", 2)
        if not messages:
            break
        for message in messages:
            space.enqueue("OUT", message.body, persistent=message.delivery.value == "persist")
    say("done")
say("empty")
"""


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1,))])
def test_workers_that_are_killed_at_random_lose_and_double_nothing_in_either_store(any_device, start, seed):
    import random
    import select

    chance = random.Random(seed)
    texts = [chr(ord("aA"[at % 2]) + at % 26) + str(at) for at in range(80)]
    with any_device.open_space("SPACE") as space:
        for text in texts:
            space.enqueue("Q", text, persistent=text[0].islower())
        for _ in range(4):
            child = start(RANDOM, any_device.path)
            child.expect("ready")
            # Not a whole number of transactions: that would be killed at the same place each time.
            select.select([], [], [], chance.random() / 50)
            child.kill()
        child = start(RANDOM, any_device.path)
        while child.line() != "empty":
            pass
        child.finish()
        assert Counter(_texts(space, "OUT")) == Counter(texts)
        nothing_is_left(any_device, space, "Q", "OUT")


# ---- suspended, and taken for dead ----------------------------------------------------------------------------------

SUSPENDED = """
from qmcore.errors import AbortedError
space = open_device(sys.argv[1]).open_space("SPACE")
transaction = space.transaction(timeout=float(sys.argv[2]))
transaction.join_context()
say(*[message.text for message in space.dequeue_many("Q", 2)])
space.enqueue("OUT", "NEVER", persistent=False)
for at in range(int(sys.argv[3])):
    space.enqueue("OUT", bytes(1_000_000), persistent=bool(at % 2))
say("holds")
heard()
try:
    transaction.commit()
except AbortedError as error:
    say(error.name)
transaction.leave_context()
say(space.enqueue("OUT", "afterwards", persistent=False))
"""


@pytest.mark.parametrize("spilled", [0, 12])
class TestSuspended:
    def test_an_owner_that_is_stopped_until_its_time_is_over_cannot_commit(self, any_device, start, spilled):
        with any_device.open_space("SPACE") as space:
            put(space, "aB")
            child = start(SUSPENDED, any_device.path, 2, spilled)
            child.expect("a B", "holds")
            child.freeze()
            assert [space.dequeue("Q", wait=60).text for _ in range(2)] == ["a", "B"]
            nothing_is_left(any_device, space, "Q", "OUT")
            child.say()
            child.signal(signal.SIGCONT)
            child.expect("QMEABORTED")
            child.line()
            child.finish()
            assert drain(space, "OUT") == ["afterwards"]
            nothing_is_left(any_device, space, "Q", "OUT")

    def test_one_that_was_taken_for_dead_cannot_commit(self, device, start, spilled):
        with device.open_space("SPACE") as space:
            put(space, "aB")
            child = start(SUSPENDED, device.path, 1_000, spilled)
            child.expect("a B", "holds")
            attachment = attachment_of(space)
            owners = attachment.volume.read(lambda unit: unit.owners.of_space(attachment.opened.space.id))
            (its,) = (owner for owner in owners if owner.pid == child.pid)
            Path(f"{device.path}-run", its.lock).unlink()
            assert [message.retries for message in (space.dequeue("Q"), space.dequeue("Q"))] == [1, 1]
            child.say()
            child.expect("QMEABORTED")
            child.line()
            child.finish()
            assert drain(space, "OUT") == ["afterwards"]
            nothing_is_left(device, space, "Q", "OUT")

    def test_a_process_that_got_its_number_is_not_taken_for_it(self, device, start, spilled):
        with device.open_space("SPACE") as space:
            put(space, "aB")
            child = start(SUSPENDED, device.path, 1_000, spilled)
            child.expect("a B", "holds")
            child.kill()
            attachment_of(space).volume.write(
                lambda unit: unit.run(
                    text("UPDATE owner SET pid = :pid, process = :pid || '-1' WHERE pid != :pid"), pid=os.getpid()
                ),
                Purpose.ADMINISTRATION,
            )
            assert drain(space) == ["a", "B"]
            nothing_is_left(device, space, "Q", "OUT")


def test_a_commit_that_others_let_follow_is_refused_to_nobody(device, memory_dir):
    """Its record is still there when it is asked for again: that is no transaction to give up."""
    with device.open_space("SPACE") as space:
        put(space, "A")
        with space.transaction() as transaction:
            drain(space)
        with pytest.raises(QueueError):
            transaction.commit()
        with contextlib.suppress(AbortedError):
            attachment_of(space).do_housekeeping(now=True)
        nothing_is_left(device, space, "Q")
