"""What forwarders tell of their work on queues: told, seen by others, and gone with who told it and with the queue."""

from __future__ import annotations

import dataclasses
import os

import pytest

from qmadmin.opening import open_device, restore_device
from qmcore.errors import NotOpenError, OperatingSystemError
from qmcore.findings import Severity
from qmcore.purpose import Purpose
from qmcore.records import Forwarding
from qmstorage.schema import forwarding
from tests.fix_postgres import but_for_this_server
from tests.fix_store import Work, attachment_of, count_rows, make_queue

FULL = Forwarding(
    queue="Q",
    calls=12,
    successes=7,
    failures=3,
    retries=2,
    refused=1,
    dropped_replies=4,
    in_flight=5,
    workers=8,
    rate=2**40,
    p50_us=1_500,
    p95_us=20_000,
    p99_us=2**40,
    last_error="ValueError: no such account",
    last_error_us=1_800_000_000_000_000,
    paused_until_us=1_800_000_030_000_000,
    trouble="QMENOSPACE: no room",
    changed_us=1_800_000_000_000_001,
)

WELL = dataclasses.replace(FULL, paused_until_us=None, trouble="")


def told(space):
    return [each for _, each in space.forwardings()]


def of_queue(name, **figures):
    return Forwarding(queue=name, **figures)


class TestTelling:
    def test_nobody_tells_anything_at_first(self, store, space):
        assert space.forwardings() == []
        assert store.device.forwardings("SPACE") == []

    def test_all_that_is_told_is_seen_and_by_whom(self, store, space, clock):
        space.report_forwarding([FULL])
        ((process, figures),) = space.forwardings()
        assert figures == FULL
        assert (process.pid, process.host, process.alive) == (os.getpid(), os.uname().nodename, True)
        assert (process.role, process.since_us) == ("application", clock.now())
        assert store.device.forwardings("SPACE") == space.forwardings()

    def test_each_field_is_a_column(self):
        columns = set(forwarding.columns.keys()) - {"owner_id", "queue_id"}
        assert columns == {field.name for field in dataclasses.fields(Forwarding)} - {"queue"}

    def test_what_was_not_told_is_nothing(self, space):
        space.report_forwarding([of_queue("Q")])
        assert told(space) == [of_queue("Q")]

    def test_what_is_told_later_replaces_what_was_told_before(self, space):
        space.report_forwarding([FULL])
        space.report_forwarding([of_queue("Q", calls=13)])
        assert told(space) == [of_queue("Q", calls=13)]

    def test_queues_are_told_of_one_by_one_or_together_and_listed_by_their_names(self, space):
        for name in ("B", "a", "C"):
            make_queue(space, name)
        space.report_forwarding([of_queue("C", calls=1), of_queue("Q", calls=1)])
        space.report_forwarding([of_queue("a", calls=2), of_queue("C", calls=2), of_queue("B", calls=2)])
        assert [(each.queue, each.calls) for each in told(space)] == [("B", 2), ("C", 2), ("Q", 1), ("a", 2)]

    def test_what_is_told_as_a_whole_takes_back_what_this_process_has_told_of_other_queues(self, shared_store):
        space = shared_store.space()
        for name in ("A", "B", "Q"):
            make_queue(space, name)
        other = shared_store.another().open_space("SPACE", role="tmqforward")
        other.report_forwarding([of_queue("A", calls=5)])
        space.report_forwarding([of_queue("A"), of_queue("B"), of_queue("Q")])
        space.report_forwarding([of_queue("B", calls=1)], whole=True)
        assert [(each.queue, each.calls) for each in told(space)] == [("A", 5), ("B", 1)]
        space.report_forwarding([], whole=True)
        assert [(each.queue, each.calls) for each in told(space)] == [("A", 5)]

    def test_a_queue_that_is_not_there_is_passed_over(self, space):
        space.report_forwarding([of_queue("GONE"), of_queue("Q")])
        space.report_forwarding([])
        assert told(space) == [of_queue("Q")]

    def test_a_text_is_kept_without_passwords_without_what_no_store_can_keep_and_not_too_long(self, space):
        error = "no \0 in \udcff, password=secret " + "x" * 2000
        space.report_forwarding([of_queue("Q", last_error=error, trouble="postgresql://ann:secret@host/db")])
        (figures,) = told(space)
        assert figures.last_error.startswith("no \\x00 in \\udcff, password=*** xxx")
        assert (len(figures.last_error), figures.last_error[-4:]) == (Forwarding.TEXT_MAX, "x...")
        assert figures.trouble == "postgresql://***@host/db"

    def test_several_who_forward_one_queue_are_told_apart(self, shared_store, clock):
        space = shared_store.space()
        make_queue(space)
        clock.advance(5)
        other = shared_store.another().open_space("SPACE", role="tmqforward")
        other.report_forwarding([of_queue("Q", calls=2)])
        space.report_forwarding([of_queue("Q", calls=1)])
        assert [(process.role, each.calls) for process, each in space.forwardings()] == [
            ("application", 1),
            ("tmqforward", 2),
        ]

    def test_another_queue_space_has_its_own(self, store, space):
        other = store.space("OTHER")
        make_queue(other)
        space.report_forwarding([of_queue("Q", calls=1)])
        other.report_forwarding([of_queue("Q", calls=2)])
        assert ([each.calls for each in told(space)], [each.calls for each in told(other)]) == ([1], [2])

    def test_threads_of_one_process_may_tell_at_the_same_time(self, space):
        def tell(number):
            for calls in range(5):
                space.report_forwarding([of_queue("Q", calls=number * 10 + calls)])

        assert Work(*(lambda number=number: tell(number) for number in range(4))).results() == [None] * 4
        assert [each.calls % 10 for each in told(space)] == [4]


class TestTheEnd:
    def test_it_is_gone_when_its_process_leaves(self, shared_store):
        space = shared_store.space()
        make_queue(space)
        with shared_store.another().open_space("SPACE") as other:
            other.report_forwarding([FULL])
            assert told(space) == [FULL]
        assert (space.forwardings(), count_rows(space, "forwarding")) == ([], (0,))

    def test_it_is_gone_with_its_queue_and_not_seen_of_another_of_the_same_name(self, store, space):
        make_queue(space, "P")
        space.report_forwarding([FULL, of_queue("P")])
        space.destroy_queue("Q")
        assert (told(space), count_rows(space, "forwarding")) == ([of_queue("P")], (1,))
        make_queue(space, "Q")
        assert told(space) == [of_queue("P")]
        space.report_forwarding([of_queue("Q", calls=1)])
        assert told(space) == [of_queue("P"), of_queue("Q", calls=1)]

    def test_it_is_gone_with_its_queue_space(self, store, space):
        kept = store.space("OTHER")
        make_queue(kept)
        kept.report_forwarding([FULL])
        space.report_forwarding([FULL])
        store.device.destroy_space("SPACE", force=True)
        assert count_rows(kept, "forwarding") == (1,)
        with pytest.raises(NotOpenError):
            space.close()
            space.report_forwarding([FULL])

    def test_whoever_was_taken_for_dead_attaches_again_and_tells_it_once_more(self, store, space):
        before = attachment_of(space).owner.id
        space.report_forwarding([FULL])
        attachment_of(space).volume.write(lambda unit: unit.owners.remove(before), Purpose.HOLDING)
        assert count_rows(space, "forwarding") == (0,)
        space.report_forwarding([of_queue("Q", calls=13)])
        assert (told(space), count_rows(space, "forwarding", "owner")) == ([of_queue("Q", calls=13)], (1, 1))
        assert attachment_of(space).owner.id != before

    def test_a_store_takes_nothing_of_an_owner_who_was_given_up(self, store, space):
        volume = attachment_of(space).volume
        assert (
            volume.write(lambda unit: unit.owners.forwardings.report(77, {1: FULL}, whole=False), Purpose.HOLDING)
            is False
        )
        assert count_rows(space, "forwarding") == (0,)

    def test_a_process_that_died_is_told_as_dead_until_somebody_looks_after_it(self, real_device, start):
        child = start(
            "from qmcore.records import Forwarding\n"
            "space = open_device(sys.argv[1]).open_space('SPACE', role='tmqforward')\n"
            "space.report_forwarding([Forwarding(queue='Q', calls=3)])\n"
            "say('told')\n"
            "heard()\n",
            real_device.path,
        )
        child.expect("told")
        ((process, figures),) = real_device.forwardings("SPACE")
        assert (process.alive, process.pid, str(process).split(" on ")[0]) == (
            True,
            child.pid,
            f"tmqforward {child.pid}",
        )
        child.kill()
        ((process, again),) = real_device.forwardings("SPACE")
        assert (process.alive, again) == (False, figures)
        with real_device.open_space("SPACE") as space:
            assert (space.forwardings(), count_rows(space, "forwarding")) == ([], (0,))

    def test_a_restored_backup_has_nobody_who_forwards(self, file_store, tmp_path):
        space = file_store.space()
        make_queue(space)
        space.report_forwarding([FULL])
        file_store.device.backup(tmp_path / "backup")
        file_store.device.close()
        restore_device(tmp_path / "backup", tmp_path / "RESTORED")
        with open_device(tmp_path / "RESTORED", clock=file_store.clock) as device, device.open_space("SPACE") as found:
            assert (device.forwardings("SPACE"), count_rows(found, "forwarding")) == ([], (0,))


class TestReadingOnly:
    def test_whoever_may_only_read_sees_it_and_tells_nothing(self, file_store, monkeypatch):
        space = file_store.space()
        make_queue(space)
        space.report_forwarding([FULL])
        monkeypatch.setattr("qmstorage.sqlite.opening.os.access", lambda path, mode: mode == os.R_OK)
        reader = file_store.another()
        ((process, figures),) = reader.forwardings("SPACE")
        assert (figures, process.alive) == (FULL, True)
        with reader.open_space("SPACE") as seen, pytest.raises(OperatingSystemError):
            assert told(seen) == [FULL]
            seen.report_forwarding([of_queue("Q")])


class TestTheDoctor:
    @pytest.mark.parametrize(
        "statement",
        ["UPDATE forwarding SET owner_id = 77", "UPDATE forwarding SET queue_id = 77",
         "UPDATE forwarding SET queue_id = 77, owner_id = 77"],
    )  # fmt: skip
    def test_figures_of_a_forwarder_or_a_queue_that_is_gone_are_found(self, shared_store, statement):
        space = shared_store.space()
        make_queue(space, retries=1)
        space.report_forwarding([WELL])
        assert self.faults(shared_store.device) == []
        shared_store.by_hand(statement)
        assert self.faults(shared_store.another()) == [
            "figures of a forwarder, or of a queue, that is not there: 1 rows"
        ]

    def test_figures_of_forwarders_at_work_are_well(self, store, space):
        other = store.space("OTHER")
        make_queue(other, retries=1)
        for each in (space, other):
            each.report_forwarding([WELL])
        assert self.faults(store.device) == []

    def test_a_queue_that_its_forwarder_does_not_serve_is_told_with_the_reason(self, store, space, clock):
        now = clock.now()
        paused = of_queue("Q", paused_until_us=now + 1, trouble="service 'Q' cannot be loaded")
        space.report_forwarding([paused])
        assert self.faults(store.device) == [
            f"application {os.getpid()} on {os.uname().nodename} does not serve it now: service 'Q' cannot be loaded"
        ]
        space.report_forwarding([of_queue("Q")])
        assert self.faults(store.device) == []

    def faults(self, device):
        return [
            finding.sentence for finding in but_for_this_server(device.check()) if finding.severity is not Severity.OK
        ]
