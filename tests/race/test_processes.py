"""Several processes at one device: at work together, stopped in the middle, and forked."""

import signal
from collections import Counter

from qmadmin.opening import open_device
from tests.fix_store import attachment_of, bodies_held, drain, make_queue

PRODUCE = """
with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space:
    say("ready")
    heard()
    for number in range(int(sys.argv[3])):
        if number % 7:
            space.enqueue("Q", f"{sys.argv[2]}-{number}")
        else:
            with space.transaction():
                space.enqueue("Q", f"{sys.argv[2]}-{number}")
"""

CONSUME = """
with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space:
    say("ready")
    heard()
    while True:
        with space.transaction() as transaction:
            message = space.dequeue("Q", wait=30)
            if message.text == "end":
                break
            if message.retries == 0 and message.text.endswith("3"):
                transaction.rollback()
                continue
        say(message.text)
"""


def test_what_two_processes_enqueue_two_others_dequeue_once(real_device, start):
    each = 1_000
    producers = [start(PRODUCE, real_device.path, who, each) for who in "ab"]
    consumers = [start(CONSUME, real_device.path) for _ in range(2)]
    for child in (*producers, *consumers):
        child.expect("ready")
    for child in (*producers, *consumers):
        child.say()
    for child in producers:
        child.finish()
    with real_device.open_space("SPACE") as space:
        for _ in consumers:
            space.enqueue("Q", "end")
        seen = Counter(line for child in consumers for line in child.lines_left())
        for child in consumers:
            child.finish()
        assert seen == Counter(f"{who}-{number}" for who in "ab" for number in range(each))
        usage = space.usage("Q")
        assert (usage.messages, usage.enqueued, usage.dequeued) == (0, 2 * each + 2, 2 * each + 2)
        assert (usage.moved, usage.discarded, usage.pages) == (0, 0, 0)


STOPPED = """
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
from qmcore.errors import AbortedError
transaction = space.transaction(timeout=float(sys.argv[2]))
transaction.join_context()
text = space.dequeue("Q").text
space.enqueue("OUT", "never")
say(text)
heard()
try:
    transaction.commit()
except AbortedError as error:
    say(error.name)
transaction.leave_context()
say(space.enqueue("OUT", "afterwards"))
"""


def test_a_process_that_was_stopped_until_its_time_was_over_cannot_commit(real_device, start):
    with real_device.open_space("SPACE") as space:
        make_queue(space, "OUT")
        space.enqueue("Q", "x")
        child = start(STOPPED, real_device.path, 3)
        child.expect("x")
        child.freeze()
        message = space.dequeue("Q", wait=60)
        assert (message.text, message.retries) == ("x", 1)
        child.say()
        child.signal(signal.SIGCONT)
        child.expect("QMEABORTED")
        child.line()
        child.finish()
        assert drain(space, "OUT") == ["afterwards"]
        usage = space.usage("Q")
        assert (usage.messages, usage.dequeued) == (0, 1)


def test_a_process_that_is_stopped_and_has_time_keeps_its_messages(real_device, start):
    with real_device.open_space("SPACE") as space:
        make_queue(space, "OUT")
        space.enqueue("Q", "x")
        child = start(STOPPED, real_device.path, 1_000)
        child.expect("x")
        child.freeze()
        assert space.dequeue("Q", wait=0.05) is None
        assert bodies_held(space) == (0, 0, 1)
        child.signal(signal.SIGCONT)
        child.say()
        child.line()
        child.finish()
        assert drain(space, "OUT") == ["never", "afterwards"]


def test_a_process_that_was_taken_for_dead_cannot_commit(file_device, start):
    """Its lock is gone although it lives, as when somebody tidied the directory of locks away."""
    from pathlib import Path

    with file_device.open_space("SPACE") as space:
        make_queue(space, "OUT")
        space.enqueue("Q", "x")
        attachment = attachment_of(space)
        child = start(STOPPED, file_device.path, 1_000)
        child.expect("x")
        owners = attachment.volume.read(lambda unit: unit.owners.of_space(attachment.opened.space.id))
        (its,) = (owner for owner in owners if owner.pid == child.pid)
        Path(f"{file_device.path}-run", its.lock).unlink()
        assert space.dequeue("Q").text == "x"
        child.say()
        child.expect("QMEABORTED")
        assert drain(space, "OUT") in ([], ["afterwards"])


FORK = """
device = open_device(sys.argv[1])
space = device.open_space("SPACE")

def in_child(act):
    "Run in a forked process; return what it says, or the error's name."
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                said = str(act())
            except QueueError as error:
                said = error.name
            os.write(write, said.encode())
        finally:
            os._exit(0)
    os.close(write)
    said = os.read(read, 10_000).decode()
    os.close(read)
    os.waitpid(child, 0)
    return said

"""


class TestFork:
    def test_the_child_opens_the_device_afresh_and_both_go_on(self, real_device, start):
        child = start(
            FORK + "space.enqueue('Q', 'a')\n"
            "say(in_child(lambda: (space.dequeue('Q').text, space.enqueue('Q', 'b'))[0]))\n"
            "say(space.dequeue('Q').text)\n"
            "say(device.space_usage('SPACE').processes)\n",
            real_device.path,
        )
        child.expect("a", "b")
        child.line()
        child.finish()

    def test_a_transaction_of_the_parent_is_refused_in_the_child_and_goes_on_in_the_parent(self, real_device, start):
        child = start(
            FORK + "space.enqueue('Q', 'a')\n"
            "with space.transaction() as transaction:\n"
            "    say(space.dequeue('Q').text)\n"
            "    say(in_child(lambda: space.dequeue('Q')))\n"
            "    say(in_child(lambda: space.enqueue('Q', 'never')))\n"
            "    say(in_child(transaction.commit))\n"
            "    say(in_child(transaction.rollback))\n"
            "    say(in_child(lambda: space.enqueue('Q', 'outside', transactional=False) and 'taken'))\n"
            "say(space.dequeue('Q').text)\n"
            "say(space.dequeue('Q'))\n",
            real_device.path,
        )
        child.expect("a", *["QMEPROTO"] * 4, "taken", "outside", "None")
        child.finish()

    def test_what_the_parent_holds_is_its_own_although_the_child_has_come_and_gone(self, real_device, start):
        child = start(
            FORK + "space.enqueue('Q', 'a')\n"
            "with space.transaction() as transaction:\n"
            "    space.dequeue('Q')\n"
            "    in_child(lambda: space.usage('Q'))\n"
            "    in_child(lambda: (space.close(), device.close()))\n"
            "    say('holds')\n"
            "    heard()\n"
            "say('committed')\n",
            real_device.path,
        )
        child.expect("holds")
        with real_device.open_space("SPACE") as space:
            assert space.dequeue("Q") is None
            assert bodies_held(space) == (0, 0, 1)
            child.say()
            child.expect("committed")
            child.finish()
            assert bodies_held(space) == (0, 0, 0)

    def test_a_child_that_a_signal_handler_forks_in_the_midst_of_a_call_is_refused(self, file_device, start):
        """The call goes on in the child, where the volume is the parent's."""
        child = start(
            FORK + "from qmcore.probe import Point\n"
            "forked = None\n"
            "def fork_once(_queued):\n"
            "    global forked\n"
            "    if forked is None:\n"
            "        forked = os.fork()\n"
            "space.probe.at(Point.QUEUED, fork_once)\n"
            "try:\n"
            "    space.enqueue('Q', 'once')\n"
            "except QueueError as error:\n"
            "    os._exit(7 if error.name == 'QMENOTOPEN' else 8)\n"
            "say('child', os.waitpid(forked, 0)[1] >> 8)\n",
            file_device.path,
        )
        child.expect("child 7")
        child.finish()
        with file_device.open_space("SPACE") as space:
            assert drain(space) == ["once"]

    def test_a_child_that_is_alive_does_not_keep_a_dead_parent_alive(self, real_device, start):
        child = start(
            FORK + "space.enqueue('Q', 'a')\n"
            "transaction = space.transaction()\n"
            "transaction.join_context()\n"
            "space.dequeue('Q')\n"
            "read, write = os.pipe()\n"
            "if os.fork() == 0:\n"
            "    say('child', os.getpid())\n"
            "    signal.pause()\n"
            "heard()\n",
            real_device.path,
        )
        import os

        orphan = int(child.line().split()[1])
        try:
            child.process.kill()
            child.process.wait(90)
            with real_device.open_space("SPACE") as space:
                assert space.dequeue("Q").text == "a"
        finally:
            os.kill(orphan, signal.SIGKILL)

    def test_what_the_child_is_acknowledged_is_there_although_the_parent_has_closed_the_device(
        self, real_device, start
    ):
        """A fork copies SQLite's memory of locks; a child that trusts it loses its log when the parent closes."""
        path = real_device.path
        real_device.close()
        child = start(
            FORK + "if os.fork() == 0:\n"
            "    space.enqueue('Q', 'one')\n"
            "    say('first')\n"
            "    heard()\n"
            "    space.enqueue('Q', 'two')\n"
            "    say('second')\n"
            "    os._exit(0)\n"
            "from tests.fix_store import eventually\n"
            "eventually(lambda: space.usage('Q').enqueued == 1, 'the child is at work')\n"
            "device.close()\n"
            "say('closed')\n"
            "os.wait()\n",
            path,
        )
        child.expect_in_any_order("first", "closed")
        with open_device(path) as device, device.open_space("SPACE") as space:
            assert bodies_held(space) == (1, 0, 0)
        child.say()
        child.expect("second")
        child.finish()
        with open_device(path) as device, device.open_space("SPACE") as space:
            assert drain(space) == ["one", "two"]

    def test_a_child_may_open_the_device_for_itself(self, real_device, start):
        path = real_device.path
        real_device.close()
        child = start(
            FORK + "if os.fork() == 0:\n"
            "    with open_device(sys.argv[1]) as mine, mine.open_space('SPACE') as its:\n"
            "        say('open')\n"
            "        heard()\n"
            "        its.enqueue('Q', 'from the child')\n"
            "    say('done')\n"
            "    os._exit(0)\n"
            "from tests.fix_store import eventually\n"
            "eventually(lambda: device.space_usage('SPACE').processes == 2, 'the child is attached')\n"
            "device.close()\n"
            "say('closed')\n"
            "os.wait()\n",
            path,
        )
        child.expect_in_any_order("open", "closed")
        with open_device(path) as device, device.open_space("SPACE"):
            assert device.space_usage("SPACE").processes == 2
        child.say()
        child.expect("done")
        child.finish()
        with open_device(path) as device, device.open_space("SPACE") as space:
            assert drain(space) == ["from the child"]

    def test_two_handles_in_the_child_are_counted_as_two(self, real_device, start):
        child = start(
            FORK + "again = device.open_space('SPACE')\n"
            "space.enqueue('Q', 'a')\n"
            "def act():\n"
            "    with again.transaction():\n"
            "        text = again.dequeue('Q').text\n"
            "        space.close()\n"
            "        again.enqueue('Q', 'b')\n"
            "    return text\n"
            "say(in_child(act))\n"
            "say(space.dequeue('Q').text)\n",
            real_device.path,
        )
        child.expect("a", "b")
        child.finish()

    def test_a_device_in_memory_stays_with_its_process(self, start):
        child = start(
            "from tests.fix_store import *\n"
            "sys.argv[1:] = []\n"
            "device = create_device(':memory:', 5000)\n"
            "device.create_space(space_definition())\n"
            "space = device.open_space('SPACE')\n"
            "make_queue(space)\n"
            "space.enqueue('Q', 'a')\n"
            + FORK[FORK.index("def in_child") :]
            + "say(in_child(lambda: space.dequeue('Q')))\n"
            "say(in_child(device.entries))\n"
            "say(space.dequeue('Q').text)\n"
        )
        child.expect("QMENOTOPEN", "QMENOTOPEN", "a")
        child.finish()

    def test_threads_may_fork_while_others_work(self, real_device, start):
        child = start(
            FORK.replace(
                "read, write = os.pipe()", "import warnings; warnings.simplefilter('ignore'); read, write = os.pipe()"
            )
            + "def fork():\n"
            "    for _ in range(25):\n"
            "        said = in_child(lambda: space.enqueue('Q', 'child') and 'taken')\n"
            "        assert said == 'taken', said\n"
            "def work():\n"
            "    for _ in range(200):\n"
            "        space.enqueue('Q', 'thread')\n"
            "threads = [threading.Thread(target=act) for act in (fork, fork, fork, work, work)]\n"
            "for thread in threads: thread.start()\n"
            "for thread in threads: thread.join()\n"
            "say(space.usage('Q').enqueued)\n",
            real_device.path,
        )
        child.expect(str(3 * 25 + 2 * 200))
        child.finish()
