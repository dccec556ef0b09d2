"""Imports that are not at their end: what the doctor, a backup and the end of their queue space make of them."""

import dataclasses

import pytest

from qmadmin.opening import open_device, restore_device
from qmcore.acts.importing import Mode
from qmcore.findings import Severity
from qmcore.message import State, message_id
from tests.fix_postgres import but_for_this_server
from tests.fix_store import count_rows, drain, make_queue, queue_definition
from tests.importer import ARCHIVE, FOREIGN, Importer, carried_row, faults_of, plan_of, planned, rows_of

TABLES = ("import_job", "import_batch", "adopted", "queue", "message", "ready", "history", "chunk", "counter")


@pytest.fixture
def space(store):
    opened = store.space(error_queue="ERRORS", memory=1_000_000, pages=10_000)
    for name in ("ERRORS", "OLD", "MORE"):
        make_queue(opened, name)
    opened.enqueue("OLD", "it will be replaced")
    opened.enqueue("MORE", "it was there first")
    return opened


class EverythingAtOnce(Importer):
    """An import that creates, replaces and appends to queues, with messages of all kinds."""

    def __init__(self, space):
        super().__init__(space)
        self.new, self.old, self.more = rows_of("abc"), rows_of("d", first=120), rows_of("ef", first=130)
        self.kept = [carried_row(140, b"was consumed", consumed_at=1, consumer="somebody")]
        self.fleeting = rows_of("gh", first=150, expires_at=2_000_000_000_000_000)

    def begin_all(self):
        def queue(name, rows, mode=Mode.CREATE, **others):
            definition = queue_definition(name, retention=60 if others else 0)
            return planned(rows, definition, source=name, mode=mode, **others)

        self.begin(
            plan_of(
                queue("NEW", self.new, retained=self.kept, memory=self.fleeting),
                queue("OLD", self.old, Mode.REPLACE),
                queue("MORE", self.more, Mode.APPEND),
            )
        )

    def load_new(self):
        self.load_groups(
            [
                (("THERE", "NEW"), State.READY, False, self.new),
                (("THERE", "NEW"), State.CONSUMED, False, self.kept),
                (("THERE", "NEW"), State.READY, True, self.fleeting),
            ],
            ("part-0", 0),
        )

    def load_others(self):
        others = [
            (("THERE", name), State.READY, False, rows) for name, rows in (("OLD", self.old), ("MORE", self.more))
        ]
        self.load_groups(others, ("part-1", 0))


def told(device):
    """Return how bad it is and what is said of imports; beyond that the doctor finds that messages are old."""
    found = [finding for finding in but_for_this_server(device.check()) if finding.severity is not Severity.OK]
    assert {finding.check for finding in found} <= {"import-unfinished", "message-waits"}
    return [(finding.severity, finding.sentence) for finding in found if finding.check == "import-unfinished"]


class TestTheDoctor:
    def test_says_how_far_an_import_is_and_sees_no_damage_on_its_way(self, store, space):
        importer = EverythingAtOnce(space)
        assert told(store.device) == []
        importer.begin_all()
        for step in (importer.load_new, importer.load_others, lambda: None):
            ((severity, sentence),) = told(store.device)
            assert severity is Severity.INFO
            assert f"an import of archive {ARCHIVE}, begun" in sentence
            assert sentence.endswith("is not complete, and nobody sees its queues (NEW, OLD, MORE)")
            assert faults_of(space) == []
            step()
        importer.publish()
        left = 5
        while left:
            ((_, sentence),) = told(store.device)
            assert "not all of its messages are in their queues" in sentence
            assert faults_of(space) == []
            left = importer.merge(1)
        assert told(store.device) == []
        assert faults_of(space) == []
        assert [drain(space, name) for name in ("NEW", "OLD", "MORE")] == [
            ["a", "b", "c", "g", "h"],
            ["d"],
            ["it was there first", "e", "f"],
        ]

    def test_sees_no_damage_while_one_is_given_up(self, store, space):
        importer = EverythingAtOnce(space)
        importer.begin_all()
        importer.load_new()
        while importer.abandon(1):
            ((_, sentence),) = told(store.device)
            assert "was given up, and what it had loaded still takes room" in sentence
            assert faults_of(space) == []
        assert told(store.device) == []
        assert faults_of(space) == []

    def test_warns_of_one_that_nobody_has_gone_on_with_for_long(self, store, space, clock):
        EverythingAtOnce(space).begin_all()
        clock.advance(3_600)
        assert told(store.device)[0][0] is Severity.INFO
        clock.advance(1)
        assert told(store.device)[0][0] is Severity.WARNING

    def test_says_of_one_of_no_queues_too_that_it_is_not_at_its_end(self, store, space):
        Importer(space).begin(plan_of())
        ((_, sentence),) = told(store.device)
        assert sentence.endswith("is not complete, and nobody sees its queues")


@pytest.mark.parametrize("stage", ["loading", "merging", "done"])
def test_a_queue_space_takes_its_imports_with_it(store, space, stage):
    other = store.space("OTHER", ipc_key=41_000)
    before = count_rows(other, *TABLES)
    space.close()
    store.device.destroy_space("SPACE", force=True)
    alone = count_rows(other, *TABLES)
    assert alone < before
    again = store.space(pages=10_000, memory=1_000_000)
    for name in ("OLD", "MORE"):
        make_queue(again, name)
    importer = EverythingAtOnce(again)
    importer.new[0] = carried_row(101, bytes(3_000_000))
    importer.begin_all()
    importer.load_new()
    if stage != "loading":
        importer.load_others()
        importer.publish()
    if stage == "done":
        assert importer.merge() == 0
    again.close()
    store.device.destroy_space("SPACE", force=True)
    assert count_rows(other, *TABLES) == alone


def test_a_restored_device_knows_the_identifiers_and_goes_on_with_the_import(file_store, tmp_path):
    space = file_store.space()
    done = Importer(space)
    done.all_of(rows_of("ab"), queue_definition("DONE"))
    importer = Importer(space)
    new = rows_of("cd", first=300)
    plan = dataclasses.replace(plan_of(planned(new, queue_definition("NEW")), first=300, last=301), archive="b" * 32)
    importer.begin(plan)
    importer.load(new[:1])
    report = file_store.device.backup(tmp_path / "BACKUP")
    assert report.faults == ()
    restore_device(tmp_path / "BACKUP", tmp_path / "NEW")
    with (
        open_device(str(tmp_path / "NEW"), clock=file_store.clock) as device,
        device.open_space("SPACE") as again,
    ):
        assert again.peek("DONE", msgid=message_id(FOREIGN, 102)).text == "b"
        going_on = Importer(again)
        assert going_on.begin(plan).id == importer.at_work.id
        assert going_on.loaded() == {("part-0", 0)}
        going_on.load(new[1:], batch=("part-0", 1))
        going_on.publish()
        assert drain(again, "NEW") == ["c", "d"]
        assert faults_of(again) == []
