"""Exports and imports beside others at work: an archive is one moment, and nothing of others is lost or doubled."""

from __future__ import annotations

import contextlib

import pytest

from qmadmin.archive.reading import open_archive
from qmadmin.archive.rows import rows_of
from qmadmin.opening import create_device
from qmadmin.transfer import Local, Processes
from qmadmin.transfer.comparing import compare
from qmadmin.transfer.exporting import ExportOptions, export
from qmadmin.transfer.import_planning import Existing, ImportOptions
from qmadmin.transfer.importing import load_archive
from qmadmin.transfer.selecting import Outstanding
from qmcore import bulk_rows
from qmcore.errors import InUseError, InvalidArgumentError
from tests.fix_store import drain, make_queue, space_definition

TOKENS = [f"token {number}" for number in range(60)]

BESIDE = """
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
done, turn = 0, threading.Condition()

def answer():
    "Say when something was begun and ended since we were asked."
    while True:
        heard()
        with turn:
            wanted = done + 2
            turn.wait_for(lambda: done >= wanted)
        say("done")

threading.Thread(target=answer, daemon=True).start()
say("there")
while not os.path.exists(sys.argv[2]):
    act()
    with turn:
        done += 1
        turn.notify_all()
"""
"""A process that does something again and again until there is a file, and tells that it has done so."""

MOVER = """
def act():
    one, other = ("A", "B") if done % 2 else ("B", "A")
    with space.transaction():
        for _ in range(2):
            message = space.dequeue(one)
            if message is not None:
                space.enqueue(other, message.body)
"""

TRADER = """
texts = []

def act():
    space.enqueue("Q", f"live {done}")
    message = space.dequeue("Q")
    if message is not None:
        texts.append(message.text)
"""


class Beside:
    """Another process at work until the block ends."""

    def __init__(self, child):
        self._child = child

    def does_something(self, *_):
        """Wait until it has done something, from the beginning to the end."""
        self._child.say()
        self.expect("done")

    def expect(self, word):
        assert self._child.line() == word


@pytest.fixture
def beside(start, real_device, tmp_path):
    @contextlib.contextmanager
    def at_work(acting, ending="say('end')"):
        until = tmp_path / "enough"
        body = BESIDE.replace('say("there")', acting + '\nsay("there")')
        child = start(body + "\n" + ending, real_device.path, until)
        other = Beside(child)
        other.expect("there")
        other.lines = child.lines_left
        try:
            yield other
        finally:
            until.touch()

    return at_work


@pytest.fixture
def space(real_device):
    with real_device.open_space("SPACE") as opened:
        yield opened


def bodies(directory):
    """Return the bodies of the messages of each queue of an archive."""
    archive, found = open_archive(directory), {}
    for entry in archive.manifest.parts:
        for _, batch in archive.batches(entry):
            for (_, queue, *_), rows in rows_of(batch):
                found.setdefault(queue, []).extend(row[bulk_rows.BODY].decode() for row in rows)
    return found


class TestExport:
    @pytest.fixture
    def tokens(self, space):
        for queue in ("A", "B"):
            make_queue(space, queue)
        space.enqueue_many("A", TOKENS)
        # What there is much of is exported while the others change.
        space.enqueue_many("Q", ["much"] * 4_000)

    @pytest.mark.usefixtures("tokens")
    @pytest.mark.parametrize("outstanding", [Outstanding.ROLLED_BACK, Outstanding.LEAVE_OUT])
    def test_what_transactions_move_between_queues_is_in_one_of_them_at_each_moment(
        self, real_device, beside, tmp_path, outstanding
    ):
        with beside(MOVER) as mover:
            for number in range(3):
                directory = tmp_path / f"archive-{number}"
                options = ExportOptions(outstanding=outstanding)
                export(real_device.config, directory, options, executor=Local(), progress=mover.does_something)
                found = bodies(directory)
                tokens = [*found.get("A", []), *found.get("B", [])]
                left_out = open_archive(directory).manifest.spaces[0].left_out
                assert len(set(tokens)) == len(tokens)
                assert len(tokens) + left_out.held == len(TOKENS)
                assert set(tokens) <= set(TOKENS)
                assert left_out.pending in (0, 1, 2)

    @pytest.mark.usefixtures("tokens")
    def test_several_processes_see_the_same_moment(self, real_device, beside, tmp_path):
        with beside(MOVER) as mover:
            options = ExportOptions(outstanding=Outstanding.ROLLED_BACK)
            directory = tmp_path / "archive"
            export(real_device.config, directory, options, executor=Processes(2), progress=mover.does_something)
            found = bodies(directory)
        assert sorted([*found.get("A", []), *found.get("B", [])]) == sorted(TOKENS)
        assert len(found["Q"]) == 4_000


class TestImport:
    @pytest.fixture
    def archive(self, tmp_path):
        """An archive with a queue of 4,200 messages in two parts."""
        with create_device(tmp_path / "SOURCE", 20_000) as device:
            device.create_space(space_definition(pages=10_000, messages=10_000))
            with device.open_space("SPACE") as space:
                make_queue(space, "Q", retries=3)
                space.enqueue_many("Q", [f"{number:05d}" for number in range(2_200)])
            export(device.config, tmp_path / "archive", executor=Local())
        return tmp_path / "archive"

    def test_live_messages_and_appended_ones_come_once_and_in_their_order(
        self, real_device, space, beside, archive, monkeypatch
    ):
        asked = ImportOptions(existing=Existing.APPEND)
        ending = "say('end')\nfor text in texts:\n    say(text)"
        with beside(TRADER, ending) as trader:
            load_archive(archive, real_device.config, asked, executor=Local(), progress=trader.does_something)
            trader.does_something()
        lines = trader.lines()
        taken = lines[lines.index("end") + 1 :]
        taken += [message.text for message in space.dequeue_many("Q", 5_000)]
        imported = [text for text in taken if not text.startswith("live")]
        live = [int(text.removeprefix("live ")) for text in taken if text.startswith("live")]
        assert imported == [f"{number:05d}" for number in range(2_200)]
        assert live == list(range(len(live)))

    def test_live_messages_of_other_queues_go_on_beside_an_import(self, real_device, space, beside, archive):
        make_queue(space, "OTHER")
        ending = "say('end')\nfor text in texts:\n    say(text)"
        asked = ImportOptions(queues={"Q": "NEW"}, start=True)
        with beside(TRADER, ending) as trader:
            load_archive(archive, real_device.config, asked, executor=Local(), progress=trader.does_something)
        lines = trader.lines()
        taken = lines[lines.index("end") + 1 :]
        assert [*taken, *drain(space)] == [f"live {number}" for number in range(len(taken))]
        assert compare(archive, real_device.config, queues={"Q": "NEW"}).differences == ()

    def test_of_two_imports_of_the_same_archive_at_once_everything_is_there_once(
        self, real_device, space, archive, start
    ):
        child = start(
            """
from pathlib import Path
from qmadmin.transfer.import_planning import ImportOptions
from qmadmin.transfer.importing import load_archive
from qmadmin.transfer import Local

def step(what, reached, total):
    if what == "Importing":
        say(reached)
        heard()

try:
    load_archive(Path(sys.argv[1]), sys.argv[2], ImportOptions(queues={"Q": "NEW"}), executor=Local(), progress=step)
    say("imported")
except QueueError as error:
    say(error.name)
""",
            archive,
            real_device.config,
        )
        asked = ImportOptions(queues={"Q": "NEW"})
        child.expect("0")
        child.say()
        child.line()
        # Both are at it now, and we come to the end of it first.
        assert load_archive(archive, real_device.config, asked, executor=Local()).spaces[0].resumed
        said = []
        while not said or said[-1].isdigit():
            child.say()
            said.append(child.line())
        assert said[-1] in ("imported", "QMEABORTED")
        assert compare(archive, real_device.config, queues={"Q": "NEW"}).differences == ()
        with pytest.raises((InvalidArgumentError, InUseError)):
            load_archive(archive, real_device.config, asked)
