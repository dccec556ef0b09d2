"""What the commands of qmspark do to archives and devices."""

import csv
import dataclasses
import hashlib
import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import qmadmin
from qmadmin.transfer import importing
from qmcore.errors import OperatingSystemError


def ids(messages):
    return [message.msgid for message in messages]


class TestExport:
    def test_all_that_a_device_has_is_written_and_counted(self, qmspark):
        found = qmspark.json("export", qmspark.device, qmspark.path("archive")).found
        assert [(q["space"], q["queue"], q["messages"], q["ready"], q["delayed"]) for q in found["queues"]] == [
            ("QSPACE", "errq", 1, 1, 0),
            ("QSPACE", "orders", 4, 4, 0),
        ]
        manifest = (qmspark.directory / "archive" / "manifest.json").read_bytes()
        assert found["manifest_sha256"] == hashlib.sha256(manifest).hexdigest()
        assert found["archive"] == json.loads(manifest)["archive"]
        assert (found["messages"], found["parts"]) == (5, len(json.loads(manifest)["parts"]))

    def test_csv_has_a_line_for_each_queue(self, qmspark):
        said = qmspark("export", "--format", "csv", qmspark.device, qmspark.path("archive"))
        rows = list(csv.DictReader(said.out.splitlines()))
        assert {row["queue"]: (row["messages"], row["bytes"]) for row in rows} == {
            "errq": ("1", "4"),
            "orders": ("4", "28"),
        }

    @pytest.mark.parametrize(
        ("options", "counts"),
        [
            (["--queue", "ord*"], {"orders": 4}),
            (["--queue", "errq", "--queue", "orders"], {"errq": 1, "orders": 4}),
            (["--where", "priority > 50"], {"errq": 0, "orders": 2}),
            (["--where", "header.number = '3'"], {"errq": 0, "orders": 1}),
            (["--count", "2"], {"errq": 1, "orders": 2}),
            (["--older-than", "1h"], {"errq": 0, "orders": 0}),
            (["--newer-than", "1h"], {"errq": 1, "orders": 4}),
            (["--state", "delayed,held"], {"errq": 0, "orders": 0}),
            (["--state", "ready", "--state", "consumed"], {"errq": 1, "orders": 4}),
            (["--definitions-only"], {"errq": 0, "orders": 0}),
        ],
    )
    def test_only_what_is_selected_is_written(self, qmspark, options, counts):
        assert qmspark.json("export", *options, qmspark.device, qmspark.path("archive")).counts == counts
        assert qmspark.json("show", qmspark.path("archive")).counts == counts

    def test_dry_run_tells_the_numbers_and_writes_nothing(self, qmspark):
        said = qmspark.json("export", "--dry-run", "--queue", "orders", qmspark.device, qmspark.path("archive"))
        assert said.counts == {"orders": 4}
        assert [queue["bytes"] for queue in said.found["queues"]] == [28]
        assert not Path(qmspark.path("archive")).exists()
        assert "would_remove" not in said.found

    @pytest.mark.parametrize("options", [[], ["--where", "priority > 50"], ["--count", "3"], ["--definitions-only"]])
    @pytest.mark.parametrize("processes", [[], ["--processes", "2"]])
    def test_dry_run_tells_the_bytes_that_the_run_writes(self, qmspark, options, processes):
        qmspark.site.space.enqueue("orders", b"x" * 100_000, priority=90)
        exporting = ("export", *options, *processes, qmspark.device, qmspark.path("archive"))
        would_be, done = (qmspark.json(*exporting[:1], *more, *exporting[1:]).found for more in (["--dry-run"], []))
        assert would_be["queues"] == done["queues"]

    def test_dry_run_tells_what_would_be_removed_or_moved_and_where_to(self, qmspark):
        dry_run, there = ("export", "--dry-run", "--queue", "orders"), qmspark.empty_device()
        removing = qmspark.json(*dry_run, "--remove", qmspark.device, qmspark.path("archive")).found
        assert (removing["would_remove"], "destination" in removing) == (4, False)
        moving = qmspark.json(*dry_run, "--move", there, qmspark.device, qmspark.path("archive")).found
        assert (moving["would_remove"], moving["destination"]) == (4, there)
        assert len(qmspark.messages(qmspark.device)) == 4
        nowhere = qmspark.refusal(*dry_run, "--move", "NOWHERE", qmspark.device, qmspark.path("archive"))
        assert "there is no device" in nowhere

    def test_messages_of_open_transactions_are_refused_left_out_or_carried_as_asked(self, qmspark):
        with qmspark.site.space.transaction():
            qmspark.site.space.dequeue("orders")
            refusal = qmspark.refusal("export", qmspark.device, qmspark.path("none"))
            assert "1 open transaction has 1 message of queue space 'QSPACE'" in refusal
            left_out = qmspark.json("export", "--transactions", "leave-out", qmspark.device, qmspark.path("one"))
            carried = qmspark.json("export", "--transactions", "as-rolled-back", qmspark.device, qmspark.path("two"))
        assert (left_out.counts["orders"], carried.counts["orders"]) == (3, 4)
        (notice,) = json.loads(left_out.out)["notices"]
        assert notice["text"].endswith("1 message that 1 active and 0 prepared transactions hold is left out")
        assert not Path(qmspark.path("none")).exists()

    def test_directory_with_something_in_it_is_refused_and_left_alone(self, qmspark):
        archive = qmspark.archive()
        before = sorted(path.stat().st_mtime_ns for path in Path(archive).iterdir())
        assert "holds an archive already" in qmspark.refusal("export", qmspark.device, archive)
        assert "holds an archive already" in qmspark.refusal("export", "--resume", qmspark.device, archive)
        assert sorted(path.stat().st_mtime_ns for path in Path(archive).iterdir()) == before

    def test_file_is_no_place_for_an_archive(self, qmspark):
        (qmspark.directory / "file").write_text("")
        refusal = qmspark.refusal("export", qmspark.device, qmspark.directory / "file")
        assert "file' is not a directory Name a directory that does not exist or is empty." in refusal
        nowhere = qmspark.refusal("export", qmspark.device, qmspark.directory / "none" / "archive")
        assert "No such file or directory Create the directory that is to contain it." in nowhere

    def test_export_that_was_cut_short_is_begun_again_if_that_is_asked_for(self, qmspark):
        begun = qmspark.directory / "archive"
        begun.mkdir()
        for name in (".unfinished", ".part-00000.parquet.0a0b0c0d"):
            (begun / name).write_text("")
        refusal = qmspark.refusal("export", qmspark.device, begun)
        assert "was not finished" in refusal
        assert refusal.endswith("does not exist or is empty. --resume begins again in this one.")
        qmspark("export", "--resume", qmspark.device, begun)
        qmspark("verify", begun, qmspark.device)

    def test_device_is_that_of_qmconfig_where_none_is_named(self, qmspark, monkeypatch):
        assert "no device is named" in qmspark.refusal("export", qmspark.path("archive"))
        monkeypatch.setenv("QMCONFIG", qmspark.device)
        assert qmspark.json("export", qmspark.path("archive")).found["messages"] == 5
        refusal = qmspark.refusal("import", qmspark.path("archive"))
        assert "exists already" in refusal
        assert "The options are --existing, --rename-queue and --rename." in refusal


class TestRemoval:
    def test_exactly_what_the_archive_has_is_removed(self, qmspark):
        found = qmspark.json(
            "export", "--remove", "--where", "priority > 50", qmspark.device, qmspark.path("archive")
        ).found
        assert (found["messages"], found["removed"], found["kept"]) == (2, 2, 0)
        assert [message.priority for message in qmspark.messages(qmspark.device)] == [50, 40]
        assert len(qmspark.messages(qmspark.device, "errq")) == 1
        newest = qmspark.site.administered.audited(1)[0]
        assert newest.command.startswith("qmspark export --format json --remove --where 'priority > 50' ")
        assert newest.outcome == "2 messages removed"

    def test_record_of_one_message_says_so(self, qmspark):
        there = qmspark.empty_device()
        qmspark("export", "--move", there, "--queue", "errq", qmspark.device, qmspark.path("archive"))
        assert qmspark.site.administered.audited(1)[0].outcome == "1 message moved"
        with qmadmin.open_device(there) as device:
            assert device.audited(1)[0].outcome == "1 message imported into queue space QSPACE"

    def test_removal_goes_on_in_an_archive_that_is_complete_and_leaves_alone_what_has_changed(self, qmspark):
        archive = qmspark.archive()
        qmspark.site.space.dequeue("orders")
        said = qmspark("export", "--format", "json", "--remove", "--resume", qmspark.device, archive)
        assert (said.found["removed"], said.found["kept"]) == (4, 1)
        assert "1 message of the archive was not removed" in said.err
        assert "Those that the first attempt removed are no longer there." in said.err
        assert qmspark.messages(qmspark.device) == []

    def test_move_leaves_nothing_here_and_everything_there(self, qmspark):
        before, there = qmspark.messages(qmspark.device), qmspark.empty_device()
        found = qmspark.json("export", "--move", there, "--start", qmspark.device, qmspark.path("archive")).found
        assert (found["messages"], found["removed"], found["imported_into"]) == (5, 5, "QSPACE")
        assert qmspark.messages(there) == before
        assert qmspark.messages(qmspark.device) == []
        queue = qmspark.queue(there)
        assert (queue.enqueue_enabled, queue.dequeue_enabled) == (True, True)
        assert qmspark.queue(qmspark.device).enqueue_enabled is False


class TestImport:
    def test_what_is_imported_is_the_same_and_waits_to_be_started(self, qmspark):
        archive, there = qmspark.archive(), qmspark.empty_device()
        assert "will be stopped for dequeuing" in qmspark.json("import", "--dry-run", archive, there).err
        said = qmspark.json("import", archive, there)
        assert [(q["queue"], q["mode"], q["messages"]) for q in said.found["queues"]] == [
            ("errq", "created", 1),
            ("orders", "created", 4),
        ]
        assert qmspark.messages(there) == qmspark.messages(qmspark.device)
        assert qmspark.queue(there).dequeue_enabled is False
        assert said.err.index("will be stopped for dequeuing") < said.err.index("are stopped for dequeuing")
        with qmadmin.open_device(there) as device:
            assert device.audited(1)[0].outcome == "5 messages imported into queue space QSPACE"

    def test_imported_queues_can_be_started_at_once(self, qmspark):
        archive, there = qmspark.archive(), qmspark.empty_device()
        assert qmspark.json("import", "--start", archive, there).err == ""
        assert qmspark.queue(there).dequeue_enabled is True

    def test_dry_run_tells_the_numbers_and_changes_nothing(self, qmspark):
        archive, there = qmspark.archive(), qmspark.empty_device()
        assert qmspark.json("import", "--dry-run", archive, there).counts == {"errq": 1, "orders": 4}
        with qmadmin.open_device(there) as device:
            assert device.spaces() == []
            assert device.audited() == []

    def test_queue_space_and_queue_get_other_names(self, qmspark):
        archive = qmspark.archive()
        renaming = ["--rename", "QSPACE=COPY", "--rename-queue", "orders=old.orders"]
        said = qmspark.json("import", *renaming, archive, qmspark.device)
        assert [(q["space"], q["queue"], q["archived_as"]) for q in said.found["queues"]] == [
            ("COPY", "errq", "QSPACE/errq"),
            ("COPY", "old.orders", "QSPACE/orders"),
        ]
        there = qmspark.messages(qmspark.device, "old.orders", "COPY")
        assert ids(there) == ids(qmspark.messages(qmspark.device))
        qmspark("verify", *renaming, archive, qmspark.device)
        only_there = ["--rename", "QSPACE=COPY", "--rename-queue", "QSPACE/orders=old.orders"]
        qmspark("verify", *only_there, archive, qmspark.device)

    @pytest.mark.parametrize("command", ["import", "verify"])
    @pytest.mark.parametrize("renaming", [["--rename", "QSPAC=COPY"], ["--rename-queue", "QSPACE/order=other"]])
    def test_new_name_for_what_is_not_in_the_archive_is_refused(self, qmspark, command, renaming):
        archive, there = qmspark.archive(), qmspark.empty_device()
        assert "that could get another name" in qmspark.refusal(command, *renaming, archive, there)

    @pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
    def test_two_get_one_name_neither_in_a_dry_run_nor_in_a_run(self, qmspark, dry_run):
        with qmadmin.open_device(qmspark.device) as device:
            device.create_space(dataclasses.replace(device.space("QSPACE").definition, name="TWO"))
        archive, there = qmspark.archive(), qmspark.empty_device()
        importing_there = ("import", *dry_run, archive, there)
        for renaming, sentence in {
            ("--rename=QSPACE=X", "--rename=TWO=X"): "'QSPACE' and 'TWO' of the archive would both be called 'X'",
            ("--rename=QSPACE=TWO",): "'QSPACE' and 'TWO' of the archive would both be called 'TWO'",
            ("--rename=TWO=X", "--rename=TWO=Y"): "--rename gives 'TWO' two names, 'X' and 'Y'",
            ("--rename-queue=errq=orders",): "the name 'orders' is in the import twice",
        }.items():
            said = qmspark.refusal(*importing_there, *renaming)
            assert sentence in said
        with qmadmin.open_device(there) as device:
            assert device.spaces() == []

    def test_queues_that_exist_are_refused_skipped_appended_to_or_replaced(self, qmspark):
        archive = qmspark.archive("archive", "--where", "priority = 70")
        before = qmspark.messages(qmspark.device)
        assert "exists already" in qmspark.refusal("import", archive, qmspark.device)
        skipped = qmspark.json("import", "--existing", "skip", archive, qmspark.device)
        assert {queue["mode"] for queue in skipped.found["queues"]} == {"skipped"}
        assert qmspark.messages(qmspark.device) == before
        qmspark("import", "--existing", "append", archive, qmspark.device)
        assert [message.priority for message in qmspark.messages(qmspark.device)] == [70, 70, 60, 50, 40]
        qmspark("import", "--existing", "replace", "--again", archive, qmspark.device)
        assert [message.priority for message in qmspark.messages(qmspark.device)] == [70]

    @pytest.mark.parametrize(
        ("options", "counts"),
        [
            (["--queue", "o*"], {"orders": 5}),
            (["--state", "ready"], {"errq": 1, "orders": 4}),
            (["--state", "delayed"], {"errq": 0, "orders": 1}),
            (["--definitions-only"], {"errq": 0, "orders": 0}),
            (["--definitions-only", "--queue", "errq"], {"errq": 0}),
        ],
    )
    def test_only_what_is_selected_is_imported(self, qmspark, options, counts):
        qmspark.site.space.enqueue("orders", "later", delay=3600)
        archive, there = qmspark.archive(), qmspark.empty_device()
        assert qmspark.json("import", *options, archive, there).counts == counts
        assert {queue: len(qmspark.messages(there, queue)) for queue in counts} == counts
        with qmadmin.open_device(there) as device:
            assert {queue.name for queue in device.queues("QSPACE")} == set(counts)

    def test_messages_alone_go_to_queues_that_are_there(self, qmspark):
        archive, there = qmspark.archive(), qmspark.empty_device()
        assert "there is no queue space 'QSPACE'" in qmspark.refusal("import", "--messages-only", archive, there)
        qmspark("import", "--definitions-only", archive, there)
        assert qmspark.json("import", "--messages-only", "--again", archive, there).counts == {"errq": 1, "orders": 4}
        assert qmspark.messages(there) == qmspark.messages(qmspark.device)

    def test_messages_that_were_exported_alone_go_to_queues_that_are_there(self, qmspark):
        archive, there = qmspark.path("alone"), qmspark.empty_device()
        qmspark("export", "--messages-only", qmspark.device, archive)
        assert "there is no queue space 'QSPACE'" in qmspark.refusal("import", archive, there)
        assert qmspark.json("import", archive, qmspark.device).counts == {"errq": 1, "orders": 4}
        assert len(qmspark.messages(qmspark.device)) == 8

    def test_second_import_is_refused_unless_it_is_asked_for(self, qmspark):
        archive = qmspark.archive()
        qmspark("import", "--existing", "append", archive, qmspark.device)
        again = ["import", "--existing", "append", archive, qmspark.device]
        refusal = qmspark.refusal(*again)
        assert "was imported into this queue space before" in refusal
        assert "its messages may then be here twice. The option is --again." in refusal
        replacing = qmspark.refusal("import", "--existing", "replace", archive, qmspark.device)
        assert "it takes the place of the one that is there. The option is --again." in replacing
        assert qmspark.site.administered.audited(1)[0].outcome.startswith("ERROR: queue ")
        qmspark(*again, "--again")
        assert len(qmspark.messages(qmspark.device)) == 12

    def test_times_are_kept_shifted_or_begin_again(self, qmspark):
        archive, there = qmspark.archive(), qmspark.empty_device()
        shift = ["--times", "shift", "--shift-by", "-3600"]
        qmspark("import", *shift, archive, there)
        before = [message.enqueued_at for message in qmspark.messages(qmspark.device)]
        assert [message.enqueued_at for message in qmspark.messages(there)] == [
            time - timedelta(hours=1) for time in before
        ]
        other = qmspark.empty_device("OTHER")
        qmspark("import", "--times", "shift", archive, other)
        moved = {message.enqueued_at - time for message, time in zip(qmspark.messages(other), before, strict=True)}
        assert len(moved) == 1
        assert moved.pop() > timedelta(0)
        assert "--shift-by is for --times shift" in qmspark.refusal("import", "--shift-by", "5", archive, there)

    @pytest.mark.parametrize("by", ["-3155760000", "3155760000"])
    def test_times_can_be_shifted_by_a_century_and_no_further_than_there_are_times(self, qmspark, by):
        qmspark.site.space.enqueue("orders", "at the end", available_at=datetime(9999, 12, 31, tzinfo=UTC))
        archive, there = qmspark.archive(), qmspark.empty_device()
        qmspark("import", "--times", "shift", "--shift-by", by, archive, there)
        moved = [message.available_at.year for message in qmspark.messages(there) if message.available_at]
        assert moved == [9899 if by.startswith("-") else 9999]

    def test_import_that_was_cut_short_is_gone_on_with_or_given_up(self, qmspark, monkeypatch):
        archive, there = qmspark.archive(), qmspark.empty_device()
        assert "was interrupted" in qmspark.refusal("import", "--resume", archive, there)
        with qmadmin.open_device(there) as device:
            assert device.spaces() == []

        def fail(*_):
            raise OperatingSystemError("the disk is full")

        with monkeypatch.context() as broken:
            broken.setattr(importing, "load_part", fail)
            assert "the disk is full" in qmspark.refusal("import", archive, there, status=1)
        with qmadmin.open_device(there) as device:
            assert [queue.name for queue in device.queues("QSPACE")] == []
        assert "an interrupted import would be resumed" in qmspark("import", "--dry-run", archive, there).out
        assert qmspark.json("import", "--abandon", "--dry-run", archive, there).found["imports"] == 1
        assert qmspark.json("import", "--abandon", archive, there).found["imports"] == 1
        assert qmspark.json("import", "--abandon", archive, there).found["imports"] == 0
        with monkeypatch.context() as broken:
            broken.setattr(importing, "load_part", fail)
            qmspark("import", archive, there, status=1)
        assert qmspark.json("import", "--resume", archive, there).found["resumed"] is True
        qmspark("verify", archive, there)

    def test_import_that_is_published_is_not_given_up_and_that_is_told(self, qmspark, monkeypatch):
        archive, appending = qmspark.archive(), ("import", "--existing", "append")

        def interrupted(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as broken:
            broken.setattr(importing.acts, "merge", interrupted)
            for _ in ("while it is merged", "when it is gone on with"):
                hint = qmspark.refusal(*appending, archive, qmspark.device, status=130)
                assert "published already and cannot be given up; the same command resumes it." in hint
                assert "--abandon" not in hint
        assert qmspark.site.administered.audited(1)[0].outcome == "interrupted"
        for options in ([], ["--dry-run"]):
            said = qmspark("import", "--abandon", *options, archive, qmspark.device, status=1)
            assert "an import into queue space 'QSPACE' is published already and can only be completed" in said.err
        qmspark(*appending, archive, qmspark.device)
        assert len(qmspark.messages(qmspark.device)) == 8

    def test_import_that_is_interrupted_while_it_is_loaded_can_be_given_up(self, qmspark, monkeypatch):
        archive, there = qmspark.archive(), qmspark.empty_device()

        def interrupted(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as broken:
            broken.setattr(importing, "load_part", interrupted)
            hint = qmspark.refusal("import", archive, there, status=130)
        assert "--abandon gives up an import that is not published yet" in hint
        assert qmspark.json("import", "--abandon", archive, there).found["imports"] == 1

    def test_import_of_which_something_else_is_asked_is_told_apart_from_one_of_another_archive(
        self, qmspark, monkeypatch
    ):
        archive, other = qmspark.archive(), qmspark.archive("other")
        there = qmspark.empty_device()

        def fail(*_):
            raise OperatingSystemError("the disk is full")

        with monkeypatch.context() as broken:
            broken.setattr(importing, "load_part", fail)
            qmspark("import", archive, there, status=1)
        asked_otherwise = qmspark.refusal("import", "--queue", "orders", archive, there)
        assert "from this archive is under way, for which something else was asked" in asked_otherwise
        assert "or give it up. --abandon gives it up" in asked_otherwise
        assert "another import of queue 'errq', from archive" in qmspark.refusal("import", other, there)

    def test_imports_that_were_cut_short_are_given_up_without_their_archives(self, qmspark, monkeypatch):
        archives = [qmspark.archive(name) for name in ("one", "two")]
        there = qmspark.empty_device()

        def fail(*_):
            raise OperatingSystemError("the disk is full")

        with monkeypatch.context() as broken:
            broken.setattr(importing, "load_part", fail)
            for number, archive in enumerate(archives):
                renamed = [f"--rename-queue={name}={name}{number}" for name in ("orders", "errq")]
                qmspark("import", *renamed, archive, there, status=1)
            shutil.rmtree(archives[0])
        abandoning = ("import", "--abandon-all")
        assert qmspark.json(*abandoning, "--space", "OTHER*", there, status=2)
        assert qmspark.json(*abandoning, "--dry-run", there).found["imports"] == 2
        assert qmspark.json(*abandoning, "--space", "QSPACE", there).found["imports"] == 2
        monkeypatch.setenv("QMCONFIG", there)
        assert qmspark.json(*abandoning).found["imports"] == 0
        with qmadmin.open_device(there) as device:
            assert device.space_usage("QSPACE").messages == 0


@pytest.mark.parametrize("site", ["postgres"], indirect=True)
def test_device_on_postgresql_is_exported_and_imported_into_like_a_file(qmspark):
    archive, there = qmspark.archive(), qmspark.empty_device()
    assert qmspark.json("show", archive).found["kind"] == "postgresql"
    qmspark("import", archive, there)
    qmspark("verify", "--processes", "2", archive, there)
    qmspark("import", "--existing", "replace", "--again", archive, qmspark.device)
    assert ids(qmspark.messages(qmspark.device)) == ids(qmspark.messages(there))


class TestVerify:
    def test_difference_of_one_message_says_so(self, qmspark):
        archive = qmspark.archive("archive", "--queue", "errq")
        qmspark.site.space.dequeue("errq")
        said = qmspark("verify", archive, qmspark.device, status=1)
        assert "1 message in the archive, 0 on the device" in said.err

    def test_archive_is_judged_by_itself(self, qmspark):
        found = qmspark.json("verify", qmspark.archive()).found
        assert [(queue["queue"], queue["state"], queue["messages"]) for queue in found["queues"]] == [
            ("errq", "ready", 1),
            ("orders", "ready", 4),
        ]
        assert {len(queue["digest"]) for queue in found["queues"]} == {32}
        assert "differences" not in found

    def test_digests_do_not_depend_on_when_and_where_it_was_exported(self, qmspark):
        archive, there = qmspark.archive(), qmspark.empty_device()
        qmspark("import", archive, there)
        qmspark("export", "--processes", "2", there, qmspark.path("second"))
        first, second = (qmspark.json("verify", each).found["queues"] for each in (archive, qmspark.path("second")))
        assert first == second

    def test_difference_is_an_error_with_its_sentence(self, qmspark):
        archive = qmspark.archive()
        qmspark.site.space.dequeue("orders")
        said = qmspark("verify", "--format", "csv", archive, qmspark.device, status=1)
        rows = {row["queue"]: row["device"] for row in csv.DictReader(said.out.splitlines())}
        assert rows == {"errq": "same", "orders": "4 messages in the archive, 3 on the device"}
        assert "ERROR: queue 'orders' of queue space 'QSPACE', ready: 4 messages" in said.err

    def test_damage_is_found(self, qmspark):
        archive = qmspark.archive()
        part = next(Path(archive).glob("*.parquet"))
        data = bytearray(part.read_bytes())
        data[len(data) // 2] ^= 1
        part.write_bytes(data)
        for arguments in (["verify", archive], ["import", "--start", archive, qmspark.empty_device()]):
            assert qmspark.refusal(*arguments, status=1).startswith("ERROR: QMESYSTEM: ")


class TestShow:
    def test_archive_says_where_it_is_from_and_what_was_asked_for(self, qmspark):
        archive = qmspark.archive("archive", "--queue", "orders", "--where", "priority > 50")
        found = qmspark.json("show", archive).found
        assert (found["kind"], found["device"], found["release"]) == ("sqlite", qmspark.device, qmadmin.__version__)
        assert (found["selection"]["condition"], found["messages"]) == ("priority > 50", 2)
        some = qmspark.archive("some", "--queue", "o*", "--count", "1")
        assert qmspark.json("show", some).found["selection"] == {
            "queues": ["o*"],
            "count": 1,
            "transactions": "refuse",
        }
        said = qmspark("show", "--format", "table", archive)
        assert "Asked for:        queues orders; condition priority > 50\n" in said.out

    def test_signed_archive_takes_its_key(self, qmspark):
        key, other = qmspark.directory / "key", qmspark.directory / "other"
        key.write_bytes(b"k" * 32)
        other.write_bytes(b"o" * 32)
        archive = qmspark.archive("archive", "--key", key)
        for command in ("show", "verify"):
            qmspark(command, "--key", key, archive)
            assert "no key was given" in qmspark.refusal(command, archive)
            assert "not signed with this key" in qmspark.refusal(command, "--key", other, archive, status=1)

    def test_key_file_that_is_not_there_is_told_as_that(self, qmspark):
        nowhere = qmspark.refusal("export", "--key", "nowhere", qmspark.device, qmspark.path("archive"))
        assert nowhere == "ERROR: QMEOS: there is no file 'nowhere' with a key Name the file that contains the key."
        assert not Path(qmspark.path("archive")).exists()
