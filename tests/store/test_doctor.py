"""The doctor: each finding, brought about for real, and nothing where all is well."""

import contextlib
import os
import sqlite3
from pathlib import Path

import pytest

from qmadmin.monitoring.doctor import Doctor
from qmadmin.opening import open_device
from qmcore import times
from qmcore.acts import diagnosis
from qmcore.device import Extent
from qmcore.errors import BadResourceError, InvalidArgumentError
from qmcore.findings import Severity
from qmcore.limits import Threshold, parse_high, parse_low
from qmcore.purpose import Purpose
from qmstorage.schema import ready
from qmstorage.sql import delete
from tests.fix_postgres import but_for_this_server
from tests.fix_store import Work, attachment_of, make_queue, queue_definition, space_definition


def findings(device, space=None):
    """Return what is not well: how bad, which check, what about."""
    return [
        (finding.severity.value, finding.check, finding.target)
        for finding in but_for_this_server(device.check(space))
        if finding.severity is not Severity.OK
    ]


def the_one(device, check, space=None):
    """Return the only thing that is not well."""
    (found,) = (finding for finding in but_for_this_server(device.check(space)) if finding.severity is not Severity.OK)
    assert (found.check, bool(found.advice)) == (check, True)
    return found


def threshold(high, command="echo full"):
    upper = parse_high(high)
    return Threshold(upper, parse_low("0", upper), command)


@pytest.fixture
def space(store):
    opened = store.space(error_queue="ERRORS")
    make_queue(opened, "ERRORS")
    make_queue(opened, "Q", retries=3)
    return opened


@pytest.fixture
def broken(shared_store):
    """Open a device with all that a queue space can hold, after it was changed by hand."""
    space = shared_store.space(error_queue="ERRORS", pages=10_000)
    make_queue(space, "ERRORS")
    make_queue(space, "Q", retries=3)
    make_queue(space, "KEPT", retention=1000)
    space.enqueue("Q", "ready")
    space.enqueue("Q", "later", delay=100, expires_in=500)
    space.enqueue("Q", b"x" * 3_000_000)
    space.enqueue("KEPT", "consumed")
    space.dequeue("KEPT")
    shared_store.device.close()

    def changed(*statements):
        shared_store.by_hand(*statements)
        return shared_store.another()

    return changed


HELD_BY_NOBODY = (
    "INSERT INTO held SELECT 77, message_id, queue_id, order_key, 0, 1, 5, NULL, 0, NULL, NULL, NULL FROM ready"
)


class TestAllIsWell:
    def test_what_is_sound_is_said_of_each_part(self, store, space, clock):
        for at in range(20):
            space.enqueue("Q", bytes(at * 100), delay=at % 3, expires_in=1000, corrid=str(at), headers={"ä": "ö"})
        space.enqueue("Q", bytes(3_000_000))
        store.space("OTHER", error_queue="")
        found = but_for_this_server(store.device.check())
        assert {finding.severity for finding in found} == {Severity.OK}
        # The server of the tests leaves something to be wished for, which is said instead of "device".
        assert [finding.target for finding in found] == [
            *(["device"] if store.kind != "postgres" else []),
            "queue space OTHER",
            "queue space SPACE",
            store.device.path if store.kind == "postgres" else f"file {store.device.path}",
        ]

    def test_it_is_well_in_the_midst_of_transactions_and_with_messages_in_memory(self, store, memory_dir):
        space = store.space(memory=1_000_000, error_queue="ERRORS", pages=10_000)
        make_queue(space, "ERRORS")
        make_queue(space, "KEPT", retries=1, retention=100)
        for body in "abcd":
            space.enqueue("KEPT", body)
            space.enqueue("KEPT", body, persistent=False, expires_in=1000)
        with space.transaction():
            space.dequeue("KEPT")
            space.dequeue("KEPT")
            space.lock("KEPT")
            space.enqueue("KEPT", bytes(5_000_000))
            space.enqueue("KEPT", bytes(5_000_000))
            assert findings(store.device) == []
        assert findings(store.device) == []

    def test_a_queue_space_can_be_looked_at_alone(self, store, space):
        store.space("OTHER", error_queue="GONE")
        assert findings(store.device, "SPACE") == []
        assert but_for_this_server(store.device.check("OTHER"))[0].target == "queue space OTHER"
        with pytest.raises(BadResourceError):
            list(store.device.check("NONE")) and store.device.space("NONE")
        with pytest.raises(InvalidArgumentError):
            list(store.device.check("x" * 200))

    def test_the_walk_tells_how_far_it_is(self, store, space):
        told = []
        assert list(store.device.check(progress=told.append))
        assert (told, told[-1]) == (sorted(told), 100)

    def test_whoever_may_only_read_is_told_the_same(self, file_store, monkeypatch):
        space = file_store.space(error_queue="ERRORS")
        make_queue(space, retries=1)
        monkeypatch.setattr("qmstorage.sqlite.opening.os.access", lambda path, mode: mode == os.R_OK)
        assert the_one(file_store.another(), "error-queue-missing").severity is Severity.ERROR


class TestErrorQueues:
    def test_the_queue_spaces_error_queue_is_named_and_missing(self, store):
        space = store.space(error_queue="ERRORS")
        make_queue(space, retries=3)
        found = the_one(store.device, "error-queue-missing")
        assert (found.severity, found.target) == (Severity.ERROR, "queue space SPACE")
        assert "qcreate ERRORS" in found.advice
        make_queue(space, "ERRORS")
        assert findings(store.device) == []

    def test_a_queues_own_error_queue_is_missing(self, store, space):
        make_queue(space, "P", retries=1, error_queue="OWN")
        found = the_one(store.device, "error-queue-missing")
        assert (found.severity, found.target) == (Severity.WARNING, "queue SPACE/P")
        assert "'ERRORS' is used instead" in found.sentence

    def test_a_queue_without_retries_and_error_queue_loses_messages(self, store):
        space = store.space()
        make_queue(space, "Q")
        assert the_one(store.device, "no-error-queue").target == "queue SPACE/Q"
        space.change_queue(queue_definition("Q", retries=1))
        assert findings(store.device) == []


@pytest.mark.usefixtures("trusted")
class TestThresholds:
    @pytest.mark.parametrize("high", ["1001m", "1980B", "8109057b"])
    def test_a_high_limit_above_what_the_queue_space_holds(self, store, space, high):
        make_queue(space, "P", retries=1, threshold=threshold(high))
        found = the_one(store.device, "threshold-never")
        assert (found.target, high in found.sentence) == ("queue SPACE/P", True)

    @pytest.mark.parametrize("high", ["1000m", "1979B", "8105728b", "100%"])
    def test_a_high_limit_that_can_be_reached(self, store, space, high):
        make_queue(space, "P", retries=1, threshold=threshold(high))
        assert findings(store.device) == []

    def test_a_limit_for_memory_that_the_queue_space_does_not_have(self, store, space):
        make_queue(space, "P", retries=1, memory_threshold=threshold("50%"))
        assert "has no memory" in the_one(store.device, "threshold-never").sentence

    @pytest.mark.parametrize("command", ["no-such-program x", "/nowhere/program", "A=b no-such-program", "'no such'"])
    def test_a_command_whose_program_is_not_there(self, store, space, command):
        make_queue(space, "P", retries=1, threshold=threshold("50%", command))
        assert the_one(store.device, "command-missing").target == "queue SPACE/P"

    def test_a_command_that_may_not_be_executed(self, store, space, tmp_path):
        script = tmp_path / "script"
        script.write_text("#!/bin/sh\n")
        make_queue(space, "P", retries=1, threshold=threshold("50%", f"{script} now"))
        assert the_one(store.device, "command-missing").severity is Severity.ERROR
        script.chmod(0o700)
        assert findings(store.device) == []

    @pytest.mark.parametrize("command", ["cd / && ls", "$PROGRAM", "sh -c 'x'; ls", "A=b ls", 'x "', "(ls)"])
    def test_what_only_a_shell_can_tell_is_left_to_it(self, store, space, command):
        make_queue(space, "P", retries=1, threshold=threshold("50%", command))
        assert findings(store.device) == []

    def test_commands_that_are_switched_off(self, store, space):
        store.device.set_commands(enabled=False)
        assert findings(store.device) == []
        make_queue(space, "P", retries=1, threshold=threshold("50%"))
        assert the_one(store.device, "commands-off").sentence.endswith("and P have some")


class TestUse:
    def test_a_queue_that_is_stopped(self, store, space):
        space.stop_queue("Q", enqueue=False)
        assert the_one(store.device, "queue-stopped").sentence == "dequeuing is stopped"
        space.stop_queue("Q")
        assert the_one(store.device, "queue-stopped").sentence == "enqueuing and dequeuing are stopped"

    def test_a_schedule_whose_queue_is_gone(self, store, space):
        space.create_schedule("tea", "Q", "every 10m")
        assert findings(store.device) == []
        space.destroy_queue("Q")
        found = the_one(store.device, "schedule-queue-missing")
        assert (found.severity, found.target) == (Severity.WARNING, "schedule SPACE/tea")
        assert found.sentence == "its queue 'Q' does not exist: no message of it can be enqueued"
        make_queue(space, "Q", retries=3)
        assert findings(store.device) == []

    def test_a_message_that_waits_for_more_than_a_day(self, store, space, clock):
        space.enqueue("Q", "x")
        clock.advance(86_400)
        assert findings(store.device) == []
        clock.advance(1)
        assert the_one(store.device, "message-waits").sentence.startswith("its oldest message has waited for 1 day")

    @pytest.mark.parametrize(("used", "severity"), [(8, None), (9, "warning"), (10, "error")])
    def test_messages_near_their_limit(self, store, used, severity):
        space = store.space(messages=10)
        make_queue(space, retries=1)
        for _ in range(used):
            space.enqueue("Q", "x")
        expected = [(severity, "limit-near", "queue space SPACE")] if severity else []
        assert findings(store.device) == expected

    def test_pages_queues_transactions_and_processes_near_their_limits(self, store):
        space = store.space(pages=12, queues=1, transactions=1, processes=1)
        make_queue(space, retries=1)
        space.enqueue("Q", bytes(9 * 4096))
        with space.transaction():
            space.dequeue("Q")
            found = but_for_this_server(store.device.check())
            said = [finding.sentence for finding in found if finding.severity is Severity.ERROR]
        assert [sentence.partition(" are")[0] for sentence in said] == [
            "10 of 10 pages",
            "1 of 1 queues",
            "1 of 1 transactions",
            "1 of 1 attached processes",
        ]

    def test_memory_near_its_limit(self, store, memory_dir):
        space = store.space(memory=4096 * 3)
        make_queue(space, retries=1)
        space.enqueue("Q", bytes(4096 * 3 - 300), persistent=False)
        assert "12288 of 12288 bytes of memory" in the_one(store.device, "limit-near").sentence

    def test_a_transaction_that_is_open_for_more_than_an_hour(self, store, space, clock):
        space.enqueue("Q", "x")
        with space.transaction():
            space.dequeue("Q")
            clock.advance(3_600)
            assert findings(store.device) == []
            clock.advance(1)
            found = the_one(store.device, "transaction-long")
            assert (found.target, "1 message" in found.sentence) == (f"transaction {space.transactions()[0].id}", True)

    def test_a_transaction_that_has_waited_for_its_coordinator_for_more_than_an_hour(self, shared_store):
        space, clock = shared_store.space(), shared_store.clock
        make_queue(space, retries=1)
        begun = clock.now()
        with shared_store.another().open_space("SPACE", role="coordinator") as other:
            other.tpc_begin((7, "g", "b"))
            other.enqueue("Q", "x")
            other.tpc_prepare()
        clock.advance(3_600)
        assert findings(shared_store.device) == []
        clock.advance(1)
        found = the_one(shared_store.device, "transaction-in-doubt")
        assert (found.severity, found.target) == (Severity.WARNING, "transaction 7:67:62")
        assert found.sentence.startswith(f"coordinator {os.getpid()} on ")
        assert found.sentence.endswith(
            f" prepared it, {times.show(begun)}, and is no longer attached; it waits for its coordinator; it has 1"
            " message in SPACE"
        )
        assert found.advice.endswith("type qcommittrans 7:67:62 or qaborttrans 7:67:62")

    def test_a_transaction_that_was_ended_without_its_coordinator_until_that_is_forgotten(self, store, space):
        def prepare():
            space.tpc_begin((7, "g", "b"))
            space.enqueue("Q", "x")
            space.tpc_prepare()

        assert Work(prepare).results() == [None]
        space.abort_transaction("7:67:62")
        found = the_one(store.device, "transaction-heuristic")
        assert (found.severity, found.target) == (Severity.WARNING, "transaction 7:67:62")
        assert "without the decision of its coordinator" in found.sentence
        assert found.sentence.endswith(": heuristic rollback in SPACE")
        assert found.advice.endswith("forget it with qforgettrans 7:67:62")
        space.tpc_forget("7:67:62")
        assert findings(store.device) == []

    def test_a_clock_that_is_behind(self, store, space, clock):
        space.enqueue("Q", "x")
        clock.set_back(1)
        assert findings(store.device) == []
        clock.set_back(1)
        assert the_one(store.device, "clock-behind").severity is Severity.WARNING

    def test_a_process_that_died_and_its_transaction(self, real_device, start):
        child = start(
            "device = open_device(sys.argv[1])\n"
            "space = device.open_space('SPACE')\n"
            "space.enqueue('Q', 'x')\n"
            "space.transaction().join_context()\n"
            "space.dequeue('Q')\n"
            "say('holds')\n"
            "heard()\n",
            real_device.path,
        )
        child.expect("holds")
        assert findings(real_device) == []
        child.kill()
        assert [check for _, check, _ in findings(real_device)] == ["owner-dead", "transaction-left"]
        with real_device.open_space("SPACE"):
            assert findings(real_device) == []


class TestFiles:
    @pytest.mark.parametrize("mode", [0o644, 0o660, 0o606])
    def test_rights_that_let_others_in(self, file_store, mode):
        Path(file_store.path).chmod(mode)
        found = the_one(file_store.device, "rights")
        assert (found.severity, found.advice) == (Severity.ERROR, f"chmod 0600 {file_store.path}")

    def test_a_file_of_the_device_that_is_gone(self, file_store, tmp_path):
        file_store.device.create_entry(tmp_path / "MORE", 0, 19_000)
        file_store.space("ONE", pages=19_900)
        file_store.space("TWO", pages=18_000)
        file_store.device.close()
        (tmp_path / "MORE").unlink()
        assert findings(file_store.another()) == [
            ("error", "volume-missing", f"file {tmp_path / 'MORE'}"),
        ]

    def test_a_log_that_does_not_stop_growing(self, file_store, monkeypatch):
        space = file_store.space(pages=10_000)
        make_queue(space, retries=1)
        monkeypatch.setattr("qmadmin.monitoring.doctor._LARGE_LOG", 2_000_000)
        assert findings(file_store.device) == []
        with contextlib.closing(sqlite3.connect(file_store.path)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM device").fetchall()
            for _ in range(3):
                space.enqueue("Q", bytes(1_000_000))
            assert the_one(file_store.device, "log-large").target == f"file {file_store.path}"

    def test_a_disk_that_is_too_small_for_what_was_promised(self, file_store, monkeypatch):
        file_store.device.create_entry(file_store.path, 20_000, 2**39)
        file_store.space(pages=2**31 - 4)
        assert "MiB more" in the_one(file_store.device, "disk-space").sentence

    def test_a_queue_space_whose_destruction_was_cut_short(self, shared_store):
        shared_store.space("ONE")
        shared_store.device.close()
        shared_store.by_hand("DELETE FROM extent")
        assert the_one(shared_store.another(), "space-left").severity is Severity.WARNING

    def test_a_queue_space_whose_creation_was_cut_short(self, shared_store):
        shared_store.device.close()
        shared_store.by_hand("INSERT INTO extent VALUES ('HALF', 0, 0, 100, 40)")
        assert the_one(shared_store.another(), "space-missing").target == "queue space HALF"

    def test_an_extension_that_was_cut_short_is_brought_to_its_end_by_the_next(self, shared_store):
        shared_store.space("ONE").close()
        shared_store.device.close()
        shared_store.by_hand("INSERT INTO extent SELECT space, 1, dlindex, first_page + pages, 8 FROM extent")
        device = shared_store.another()
        found = the_one(device, "extents")
        assert (found.severity, found.target) == (Severity.WARNING, "queue space ONE")
        assert "qaddext" in found.advice
        device.extend_space("ONE", 4)
        assert findings(device) == []

    def test_what_is_created_and_extended_while_the_doctor_looks_is_well(self, shared_store, monkeypatch):
        device, other = shared_store.device, shared_store.another()
        shared_store.space("ONE").close()
        locate = Doctor._locate

        def located_and_changed(*given):
            locate(*given)
            other.extend_space("ONE", 8)
            other.create_space(space_definition("TWO"))

        monkeypatch.setattr(Doctor, "_locate", located_and_changed)
        assert findings(device) == []

    def test_what_was_not_finished_at_the_first_look_is_looked_at_again(self, shared_store, monkeypatch):
        device = shared_store.device
        rows = [Extent("HALF", 0, 0, 100, 40)]
        shared_store.device.volume_of(shared_store.device.path).write(
            lambda unit: unit.device.add_extents(rows), Purpose.ADMINISTRATION
        )
        looked_at = diagnosis.extents

        def seen_and_finished(*given):
            found = list(looked_at(*given))
            device.volume_of(device.path).write(lambda unit: unit.device.remove_extents("HALF"), Purpose.ADMINISTRATION)
            return found

        monkeypatch.setattr(diagnosis, "extents", seen_and_finished)
        assert "space-missing" not in {check for _, check, _ in findings(device)}

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE extent SET pages = pages - 4",
            "UPDATE extent SET first_page = 19000",
            "UPDATE extent SET dlindex = 7",
            "INSERT INTO extent SELECT space, 1, dlindex, first_page + 4, 4 FROM extent",
        ],
    )
    def test_a_table_of_contents_that_cannot_be(self, shared_store, statement):
        shared_store.space("ONE").close()
        shared_store.device.close()
        shared_store.by_hand(statement)
        checks = {check for _, check, _ in findings(shared_store.another())}
        assert checks - {"space-unreadable", "unreadable"} == {"extents"}

    def test_a_file_that_is_damaged(self, file_store):
        space = file_store.space(pages=10_000)
        make_queue(space, retries=1)
        for at in range(200):
            space.enqueue("Q", bytes([at]) * 2000, corrid=str(at))
        file_store.device.close()
        file_store.by_hand("PRAGMA wal_checkpoint(TRUNCATE)")
        with Path(file_store.path).open("r+b") as file:
            file.seek(Path(file_store.path).stat().st_size // 8192 * 4096)
            file.write(b"\xff" * 4096 * 8)
        with open_device(file_store.path) as device:
            found = [finding for finding in but_for_this_server(device.check()) if finding.severity is Severity.ERROR]
        damage = [finding for finding in found if finding.check == "file-damaged"]
        assert {finding.check for finding in found} <= {"file-damaged", "unreadable"}
        assert 1 <= len(damage) <= 20


class TestStore:
    @pytest.mark.parametrize(
        ("statement", "sentence"),
        [
            ("DELETE FROM ready WHERE message_id % 65536 = 1", "1 message without a place in a queue"),
            (
                "INSERT INTO due SELECT queue_id, 1, message_id, order_key, 0, 0 FROM ready",
                "2 messages in more than one place",
            ),
            ("DELETE FROM message WHERE id % 65536 = 1", "1 message that a queue has a place for and that is"),
            ("UPDATE ready SET order_key = order_key || x'00'", "2 messages whose place is in another queue"),
            ("UPDATE message SET queue_id = queue_id - 1 WHERE id % 65536 = 1", "1 message whose place is in another"),
            ("DELETE FROM expiring", "1 message that would never expire"),
            ("UPDATE expiring SET expires_at = 5", "1 message that would expire although it should not"),
            ("UPDATE message SET body = x'00' WHERE id % 65536 = 1", "1 message whose body is not as long"),
            ("DELETE FROM chunk WHERE number = 1", "1 message whose large body is incomplete"),
            ("UPDATE chunk SET body_id = body_id + 1000", "1 message that is gone, and whose large body is"),
            ("UPDATE message SET pages = pages + 1 WHERE id % 65536 = 1", "1 message whose pages are not counted"),
            (
                HELD_BY_NOBODY,
                "2 messages that a transaction holds which is not there",
            ),
            ("UPDATE message SET queue_id = 77 WHERE id % 65536 = 1", "1 message of a queue that is not there"),
            ("UPDATE counter SET messages = messages + 1 WHERE queue_id > 0", "are counted"),
            ("UPDATE counter SET size = size + 1 WHERE queue_id = 0", "the queue space has 3 messages"),
            ("DELETE FROM counter WHERE queue_id = 2", "and none are counted"),
            (("INSERT INTO message SELECT id << 3, queue_id, order_key, priority, enqueued_at, NULL, NULL, pages, size,"
             " urcode, appkey, corrid, reply_queue, failure_queue, error_queue, delivery_asked, reply_delivery,"
             " client_id, type, subtype, group_id, origin_queue, origin_msgid, origin_reason, origin_error, moved_at,"
             " headers, body_id, body, NULL, NULL FROM message WHERE id % 65536 = 1"),
             "there is 1 message without a queue space"),
        ],
    )  # fmt: skip
    def test_what_does_not_fit_together_is_told(self, broken, statement, sentence):
        device = broken(statement)
        found = [finding for finding in but_for_this_server(device.check()) if finding.severity is not Severity.OK]
        checks = {(finding.severity, finding.check) for finding in found}
        assert checks - {(Severity.ERROR, "unreadable")} == {(Severity.ERROR, "store-fault")}
        assert any(sentence in finding.sentence for finding in found), [finding.sentence for finding in found]

    def test_an_order_key_that_the_queue_does_not_know(self, broken):
        device = broken("UPDATE ready SET order_key = x'7777'  WHERE message_id % 65536 = 1",
                        "UPDATE message SET order_key = x'7777' WHERE id % 65536 = 1")  # fmt: skip
        found = the_one(device, "store-fault")
        assert found.sentence == "1 message at a position that the order of the queue does not know"

    def test_a_record_of_destructive_acts_that_cannot_be_read(self, shared_store):
        shared_store.device.close()
        shared_store.by_hand("DROP TABLE audit")
        assert ("error", "audit-unreadable", "record of destructive acts") in findings(shared_store.another())

    def test_a_number_that_could_be_given_out_once_more(self, broken, shared_store):
        numbers = {"file": "UPDATE counter SET sequence = 2", "postgres": "ALTER SEQUENCE sequence_1 RESTART WITH 2"}
        assert "message number" in the_one(broken(numbers[shared_store.kind]), "store-fault").sentence

    @pytest.mark.parametrize("shared_store", ["file"], indirect=True)
    def test_a_foreign_key_that_leads_nowhere(self, broken):
        """What a database of PostgreSQL does not let happen."""
        device = broken("UPDATE queue SET space_id = 77 WHERE name = 'KEPT'")
        assert ("error", "file-damaged", f"file {device.path}") in findings(device)

    def test_what_does_not_fit_together_in_memory(self, store, memory_dir):
        space = store.space(memory=1_000_000)
        make_queue(space, retries=1)
        space.enqueue("Q", "x", persistent=False)
        attachment = attachment_of(space)
        attachment.volume.write(
            lambda unit: unit.memory(attachment.opened.space.id).run(delete(ready)), Purpose.ADMINISTRATION
        )
        found = [each for each in but_for_this_server(store.device.check()) if each.severity is Severity.ERROR]
        assert [finding.target for finding in found] == ["memory of queue space SPACE"]
        assert "1 message without a place" in found[0].sentence
