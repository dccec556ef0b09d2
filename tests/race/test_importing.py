"""Imports by several processes, beside others at work, and by processes that are killed."""

from __future__ import annotations

import pytest

from qmcore.acts.importing import Mode, Stage
from tests.fix_store import count_rows, drain, queue_definition
from tests.importer import Importer, faults_of, plan_of, planned, rows_of

BATCHES, ROWS = 12, 10
TEXTS = [f"{number:05d}" for number in range(BATCHES * ROWS)]

LOADER = """
from qmcore.acts import importing
from qmcore.acts.importing import Mode
from tests.fix_store import queue_definition
from tests.importer import Importer, plan_of, planned, rows_of

def batches():
    rows = rows_of([f"{number:05d}" for number in range(int(sys.argv[2]) * int(sys.argv[3]))])
    size = int(sys.argv[3])
    return rows, [(("part", at), rows[at:at + size]) for at in range(0, len(rows), size)]

rows, pieces = batches()
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
importer = Importer(space)
plan = plan_of(
    planned(rows, queue_definition(sys.argv[4]), mode=Mode(sys.argv[5])), first=101, last=100 + len(rows)
)
"""


def the_plan(name, mode):
    rows = rows_of(TEXTS)
    return rows, plan_of(planned(rows, queue_definition(name), mode=mode), first=101, last=100 + len(rows))


@pytest.fixture
def child(start, real_device):
    def started(source, name="NEW", mode=Mode.CREATE):
        return start(LOADER + source, real_device.path, BATCHES, ROWS, name, mode.value)

    return started


@pytest.fixture
def space(real_device):
    with real_device.open_space("SPACE") as opened:
        yield opened


def finish(space, name, mode):
    """Import in this process what others have begun, to its end."""
    rows, plan = the_plan(name, mode)
    importer = Importer(space)
    importer.begin(plan)
    there = importer.loaded() if importer.at_work.state is Stage.LOADING else None
    for at in range(0, len(rows), ROWS) if there is not None else ():
        assert importer.load(rows[at : at + ROWS], batch=("part", at)) is (("part", at) not in there)
    importer.publish()
    while importer.merge(limit=30):
        pass
    return importer


def taken(space, name="Q"):
    """Dequeue all that there is in one transaction, which takes a fraction of the time."""
    with space.transaction():
        return drain(space, name)


class TestTwins:
    def test_two_loaders_of_the_same_batches_load_each_once(self, child, space):
        source = """
importer.begin(plan)
say("there")
heard()
say(sum(importer.load(rows, batch=batch) for batch, rows in pieces))
"""
        twins = [child(source) for _ in range(2)]
        for twin in twins:
            twin.expect("there")
        for twin in twins:
            twin.say()
        assert sum(int(twin.line()) for twin in twins) == BATCHES
        finish(space, "NEW", Mode.CREATE)
        assert faults_of(space) == []
        assert taken(space, "NEW") == TEXTS

    def test_a_twin_that_is_killed_leaves_its_batch_to_the_other(self, child, space):
        source = """
importer.begin(plan)
for batch, rows in pieces:
    importer.load(rows, batch=batch)
    say("loaded")
"""
        one, other = child(source), child(source)
        one.expect("loaded")
        one.kill()
        other.finish()
        finish(space, "NEW", Mode.CREATE)
        assert taken(space, "NEW") == TEXTS
        assert faults_of(space) == []


class TestBesideOthers:
    def test_messages_are_merged_each_once_while_others_enqueue_and_dequeue(self, child, space):
        other = child(
            """
say("there")
heard()
texts, waits = [], 0
for number in range(60):
    space.enqueue("Q", f"live {number}")
    for _ in range(4):
        message = space.dequeue("Q")
        if message is not None:
            texts.append(message.text)
say(len(texts))
for text in texts:
    say(text)
""",
            "Q",
            Mode.APPEND,
        )
        other.expect("there")
        other.say()
        rows, plan = the_plan("Q", Mode.APPEND)
        importer = Importer(space)
        importer.begin(plan)
        for at in range(0, len(rows), ROWS):
            importer.load(rows[at : at + ROWS], batch=("part", at))
        importer.publish()
        while importer.merge(limit=7):
            pass
        texts = [other.line() for _ in range(int(other.line()))]
        texts += taken(space)
        imported = [text for text in texts if not text.startswith("live")]
        live = [text for text in texts if text.startswith("live")]
        assert sorted(imported) == TEXTS
        assert sorted(live) == sorted(f"live {number}" for number in range(60))
        assert faults_of(space) == []

    def test_what_others_enqueue_meanwhile_has_other_numbers(self, child, space):
        other = child("""
importer.begin(plan)
for batch, rows in pieces:
    importer.load(rows, batch=batch)
    say("loaded")
""")
        ids = []
        while len(ids) < 60:
            ids.append(space.enqueue("Q", b""))
        other.finish()
        finish(space, "NEW", Mode.CREATE)
        ids += [info.msgid for info in space.messages("NEW")]
        assert len(set(ids)) == 60 + len(TEXTS)
        assert count_rows(space, "message") == (60 + len(TEXTS),)


WHOLE = """
importer.begin(plan)
say("begun")
for batch, rows in pieces:
    importer.load(rows, batch=batch)
    say("loaded")
importer.publish()
say("published")
while importer.merge(limit=10):
    say("merged")
say("done")
"""


class TestKilled:
    @pytest.mark.matrix
    @pytest.mark.parametrize(
        ("mode", "lines"),
        [
            (Mode.CREATE, 1),
            (Mode.CREATE, BATCHES // 2),
            (Mode.CREATE, BATCHES + 1),
            (Mode.CREATE, BATCHES + 2),
            (Mode.APPEND, BATCHES + 1),
            (Mode.APPEND, BATCHES + 2),
            (Mode.APPEND, BATCHES + 9),
            (Mode.REPLACE, BATCHES + 2),
            (Mode.REPLACE, BATCHES + 4),
        ],
    )
    def test_an_import_that_was_killed_goes_on_and_each_message_is_there_once(self, child, space, mode, lines):
        name = "NEW" if mode is Mode.CREATE else "Q"
        for _ in range(30 if mode is Mode.REPLACE else 1):
            space.enqueue("Q", b"old")
        one = child(WHOLE, name, mode)
        for _ in range(lines):
            one.line()
        one.kill()
        # On a busy machine it comes further than was read before it is killed.
        said = lines + len(one.lines_left())
        if said <= BATCHES and mode is Mode.CREATE:
            assert "NEW" not in {queue.name for queue in space.queues()}
        if space.queue("Q") and not any(job.state is Stage.DONE for job in Importer(space).jobs()):
            finish(space, name, mode)
        assert faults_of(space) == []
        old = ["old"] if mode is Mode.APPEND else []
        assert taken(space, name) == old + TEXTS
        assert count_rows(space, "import_batch") == (0,)
        assert all(job.state is Stage.DONE for job in Importer(space).jobs())

    @pytest.mark.matrix
    @pytest.mark.parametrize("lines", [1, 3, 8])
    def test_one_that_was_being_given_up_can_be_given_up_to_its_end(self, child, space, lines):
        before = count_rows(space, *_TABLES)
        one = child("""
importer.begin(plan)
for batch, rows in pieces:
    importer.load(rows, batch=batch)
say("loaded")
while importer.abandon(limit=15):
    say("removed")
""")
        for _ in range(lines):
            one.line()
        one.kill()
        importer = Importer(space)
        for job in importer.jobs():
            importer.job = job
            while importer.abandon(limit=15):
                pass
        assert count_rows(space, *_TABLES) == before
        assert faults_of(space) == []
        assert space.usage("Q").messages == 0


_TABLES = ("message", "ready", "queue", "import_job", "import_batch")
