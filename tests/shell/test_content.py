"""Putting messages on queues, looking into them and taking them off, as an administrator does it."""

import contextlib
import csv
import errno
import json
import os
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest

from qmadmin import open_device
from tests.fix_shell import PROGRAM
from tests.fix_store import drain, make_queue


@pytest.fixture
def space(laid_out):
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as space:
        yield space


@pytest.fixture
def shown(laid_out):
    """Run one command on QSPACE, and return its document."""

    def run(command, status=0):
        ran = laid_out.run(f"format json\nqopen QSPACE\n{command}\n")
        assert ran.status == status, ran.both
        return json.loads(ran.out.splitlines()[2])

    return run


def test_what_is_put_has_all_that_was_asked_for(shown, space):
    before = space.enqueue("STRING", b"x")
    space.purge("STRING")
    row = shown(
        "qput -C ORDER -s eu -p 7 -t +500 -e +900 -i a\\00b -r R -q nonpersist -F F -E E -u 3 -k 4 -H a=1,b=2=3"
        ' STRING "t x"'
    )["rows"][0]
    found = next(space.messages("STRING"))
    assert (row["queue"], row["msgid"]) == ("STRING", found.msgid)
    assert row["msgid"] != before
    assert (found.type, found.subtype, found.priority, found.corrid) == ("ORDER", "eu", 7, b"a\0b")
    assert (found.reply_queue, found.reply_delivery.value, found.failure_queue) == ("R", "nonpersist", "F")
    assert (found.error_queue, found.urcode, found.appkey, found.headers) == ("E", 3, 4, {"a": "1", "b": "2=3"})
    assert found.available_us - found.enqueued_us == 500_000_000
    assert found.expires_us - found.enqueued_us == 900_000_000
    assert space.content(found).text == "t x"


def test_a_file_is_a_message_or_each_line_of_it(laid_out, shown, space):
    file = laid_out.directory / "lines"
    file.write_bytes(b"one\r\ntwo\n\nfour")
    shown(f"qput -f {file} STRING")
    assert space.dequeue("STRING").body == b"one\r\ntwo\n\nfour"
    assert shown(f"qput -l -f {file} STRING")["rows"] == [{"queue": "STRING", "messages": 4}]
    assert [message.body for message in space.dequeue_many("STRING", 9)] == [b"one", b"two", b"", b"four"]


def test_a_message_can_come_from_the_standard_input(laid_out, space):
    ran = subprocess.run(
        [*PROGRAM, "-c", "qopen QSPACE", "-c", "qput -f - STRING"],
        input=b"\0\xff",
        env=laid_out.environ,
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert space.dequeue("STRING").body == b"\0\xff"
    assert "The standard input has the commands" in laid_out.process("qopen QSPACE\nqput -f - STRING\n").stderr


def test_lines_that_were_enqueued_before_an_error_are_told(laid_out, space):
    file = laid_out.directory / "lines"
    file.write_text("line\n" * 1100)
    ran = laid_out.run(f"qopen QSPACE\nqput -l -f {file} STRING\n")
    assert "QMENOSPACE" in ran.err
    assert space.usage("STRING").messages == 0
    ran = laid_out.run(
        "qspacecreate BIG 54321 1500 5 5 5 1050 '' n 16\nqopen BIG\nqcreate Q fifo none 0 0 100% 0% ''\n"
    )
    ran = laid_out.run(f"qopen BIG\nqput -l -f {file} Q\n")
    assert "WARN: 1000 messages were enqueued before the error" in ran.err


def test_bodies_are_text_where_they_are_text_and_base64_or_hex_where_not(shown, space):
    for body in ("grün", b"\xff\0", b"", None):
        space.enqueue("STRING", body)
    rows = shown("qpeek -k 4 STRING")["rows"]
    assert [(row["encoding"], row["body"]) for row in rows] == [
        ("text", "grün"),
        ("base64", "/wA="),
        ("text", ""),
        (None, None),
    ]
    assert [row["body"] for row in shown("qget -x -k 3 STRING")["rows"]] == ["6772c3bc6e", "ff00", ""]
    assert space.usage("STRING").messages == 1


def test_json_is_shown_as_the_text_that_it_is_and_may_be_put_as_one(laid_out, shown, space):
    space.enqueue("STRING", {"city": "Zürich", "lines": [1]})
    content = '{"city":"Zürich","lines":[1]}'
    row = shown("qpeek STRING")["rows"][0]
    assert (row["type"], row["encoding"], row["body"]) == ("JSON", "text", content)
    for command in ("qpeek STRING", "qlist -b STRING"):
        assert content in laid_out.run(f"qopen QSPACE\n{command}\n").out
    shown("qput -C JSON STRING '[2]'")
    assert [(message.type, message.json()) for message in space.dequeue_many("STRING", 2)][1] == ("JSON", [2])


def test_messages_that_cannot_be_dequeued_now_can_be_looked_into(shown, space):
    space.enqueue("STRING", "delayed", delay=500)
    msgid = space.enqueue("STRING", "held")
    with space.transaction():
        space.dequeue("STRING")
        rows = shown("qpeek -k 9 STRING")["rows"]
        assert [(row["state"], row["body"]) for row in rows] == [("delayed", "delayed"), ("held", "held")]
        assert shown(f"qpeek -m {msgid} STRING")["rows"][0]["body"] == "held"
        assert shown("qget STRING")["notices"][0]["text"] == "No messages matched on queue STRING"


def test_retained_messages_can_be_looked_into(shown, space):
    shown("qchange -R forever STRING none 0 0 100% 0% ''")
    msgid = space.enqueue("STRING", "gone", corrid="a")
    space.dequeue("STRING")
    assert shown("qpeek -k 9 STRING")["rows"] == []
    row = shown("qpeek -r -i a STRING")["rows"][0]
    assert (row["msgid"], row["state"], row["body"]) == (msgid, "consumed", "gone")
    assert shown("qpurge -y -r STRING")["rows"] == [{"queue": "STRING", "messages": 0, "retained": 1}]
    assert shown("qpeek -r STRING")["rows"] == []


def test_a_body_that_was_forgotten_is_told_of_and_an_empty_one_has_to_be_said(laid_out, space):
    def run(line):
        return laid_out.process(None, "-s", "QSPACE", "-c", line)

    done = run("qput STRING")
    assert done.stderr.startswith("ERROR: Must specify text (-c ")
    assert done.returncode == 1
    assert space.usage("STRING").messages == 0
    for typed in (laid_out.type, laid_out.run):
        told = typed("qopen QSPACE\nqput STRING\n\n")
        assert "Must specify text" in told.err
        assert space.usage("STRING").messages == 0
    for line in ("qput STRING ''", 'qput STRING ""', "qput STRING\n''", 'qput STRING\n""'):
        assert run(line).returncode == 0
    assert run("qput -z STRING").returncode == 0
    assert [message.body for message in space.browse("STRING")] == [b""] * 4 + [None]


def test_what_is_damaged_can_be_removed_alone(shown, space):
    space.enqueue("STRING", "whole")
    assert shown("qpurge -y -d STRING")["rows"] == [{"queue": "STRING", "messages": 0}]
    for other in ("-r", "-w 'priority = 1'"):
        assert (
            "Option -d applies to all damaged messages"
            in shown(f"qpurge -y -d {other} STRING", status=1)["notices"][0]["text"]
        )
    assert "NONE" in shown("qpurge -y -d NONE", status=1)["notices"][0]["text"]
    assert space.usage("STRING").messages == 1


@pytest.mark.parametrize("damage", ["DELETE FROM message", "UPDATE message SET headers = 'not JSON'"])
@pytest.mark.parametrize(
    ("many", "sentence"), [(1, "1 message of queue 'STRING' is"), (2, "2 messages of queue 'STRING' are")]
)
def test_whoever_lists_sees_that_damaged_messages_are_left_out(laid_out, shown, space, damage, many, sentence):
    for body in "abc":
        space.enqueue("STRING", body)
    change_by_hand(laid_out.device, f"{damage} WHERE id IN (SELECT id FROM message ORDER BY id LIMIT {many})")
    for command in ("qlist STRING", "qlist -b STRING", "qpeek -k 9 STRING"):
        told = shown(command)
        assert len(told["rows"]) == 3 - many
        (notice,) = told["notices"]
        assert (notice["severity"], notice["text"]) == ("WARN", f"{sentence} damaged and left out")
        assert "qpurge -d" in notice["hint"]
        assert "qcheck" in notice["hint"]
    told = laid_out.run('qopen QSPACE\nwatch -k 1 "qlist STRING"\n')
    assert f"WARN: {sentence} damaged and left out" in told.both
    told = laid_out.run("qopen QSPACE\nqlist STRING\n")
    assert f"WARN: {sentence} damaged and left out" in told.err


@pytest.mark.parametrize("retained", ["", "-r "])
def test_a_damaged_body_is_left_out_and_those_behind_it_are_shown(laid_out, shown, space, retained):
    make_queue(space, "KEEPS", retention=100)
    ids = [space.enqueue("KEEPS", body) for body in ("first", "cut", "last")]
    if retained:
        drain(space, "KEEPS")
    change_by_hand(laid_out.device, "UPDATE message SET body = 'c' WHERE size = 3")
    told = shown(f"qpeek {retained}-k 9 KEEPS")
    assert [row["body"] for row in told["rows"]] == ["first", "last"]
    (notice,) = told["notices"]
    assert (notice["severity"], notice["text"]) == ("WARN", "1 message of queue 'KEEPS' is damaged and left out")
    file = laid_out.directory / "out"
    shown(f"qpeek {retained}-k 9 -o {file} KEEPS")
    assert file.read_bytes() == b"firstlast"
    refused = shown(f"qpeek {retained}-m {ids[1]} KEEPS", status=1)
    assert "its body has" in refused["notices"][0]["text"]


def test_whoever_peeks_at_retained_messages_sees_how_many_have_no_record(laid_out, shown, space):
    make_queue(space, "KEEPS", retention=100)
    for body in "abc":
        space.enqueue("KEEPS", body)
    drain(space, "KEEPS")
    change_by_hand(laid_out.device, "DELETE FROM message WHERE id = (SELECT min(id) FROM message)")
    for condition in ("", "-w 'priority < 99'"):
        told = shown(f"qpeek -r -k 9 {condition} KEEPS")
        assert [row["body"] for row in told["rows"]] == ["b", "c"]
        assert told["notices"][0]["text"] == "1 message of queue 'KEEPS' is damaged and left out"
    assert "and 3 retained" in shown("qpurge -n -r KEEPS")["rows"][0]["dry_run"], "the damaged one goes, too"
    assert shown("qpurge -y -r KEEPS")["rows"][0]["retained"] == 3


def test_a_queue_with_nothing_else_than_damaged_messages_says_so(laid_out, shown, space):
    space.enqueue("STRING", "a")
    change_by_hand(laid_out.device, "DELETE FROM message")
    for command in ("qlist STRING", "qpeek STRING"):
        texts = [notice["text"] for notice in shown(command)["notices"]]
        assert texts[-1] == "1 message of queue 'STRING' is damaged and left out"


def change_by_hand(path, statement):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)


def test_one_message_is_taken_by_what_is_asked_for(shown, space):
    ids = [space.enqueue("STRING", str(number), corrid=f"c{number}", priority=number + 1) for number in range(4)]
    assert shown(f"qget -m {ids[2]} STRING")["rows"][0]["body"] == "2"
    assert shown("qget -i c1 STRING")["rows"][0]["body"] == "1"
    assert shown('qget -w "priority > 3" STRING')["rows"][0]["body"] == "3"
    assert [message.body for message in space.browse("STRING")] == [b"0"]


def test_bodies_go_into_a_file_that_is_new(laid_out, shown, space):
    file, peeked = laid_out.directory / "out", laid_out.directory / "peeked"
    for body in (b"one", b"\0two"):
        space.enqueue("STRING", body)
    shown(f"qpeek -o {peeked} STRING")
    assert shown(f"qget -k 5 -o {file} STRING")["rows"] == [{"queue": "STRING", "messages": 2, "file": str(file)}]
    assert file.read_bytes() == b"one\0two"
    assert [each.stat().st_mode & 0o777 for each in (file, peeked)] == [0o600, 0o600]
    space.enqueue("STRING", b"three")
    refused = shown(f"qget -o {file} STRING", status=1)
    assert refused["notices"][0]["text"] == f"File {file} exists already"
    assert space.usage("STRING").messages == 1


@pytest.mark.parametrize("arguments", [[], ["--format", "json"], ["--format", "csv"]])
def test_a_message_that_cannot_be_shown_stays_without_a_try(laid_out, space, arguments):
    space.enqueue("STRING", "precious")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROGRAM, *arguments, "-c", "qopen QSPACE", "-c", "qget STRING"],
            env=laid_out.environ,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=240,
            check=False,
        )
    assert done.returncode == 1
    left = list(space.messages("STRING"))
    assert [(message.state.value, message.retries) for message in left] == [("ready", 0)]


def test_a_message_that_cannot_be_written_into_a_file_stays(laid_out, space):
    space.enqueue("STRING", "precious")
    ran = laid_out.run("qopen QSPACE\nqget -o /nowhere/file STRING\n")
    assert "ERROR: Failed to write /nowhere/file: No such file or directory" in ran.err
    assert space.usage("STRING").ready == 1


def test_csv_of_several_messages_has_one_line_of_keys(laid_out, space):
    space.enqueue_many("STRING", ["one", "two", "three"])
    for command in ("qpeek -k 3 STRING", "qget -k 3 STRING"):
        ran = laid_out.process(None, "--format", "csv", "-c", "qopen QSPACE", "-c", command)
        assert [row["body"] for row in csv.DictReader(ran.stdout.splitlines())] == ["one", "two", "three"]
        assert ran.stdout.count("msgid,queue,state") == 1


def test_csv_of_messages_has_their_headers_in_one_column(laid_out, space):
    space.enqueue("STRING", "a,b", headers={"x": "1"})
    ran = laid_out.process(None, "--format", "csv", "-c", "qopen QSPACE", "-c", "qpeek STRING")
    row = next(csv.DictReader(ran.stdout.splitlines()))
    assert (row["body"], json.loads(row["headers"])) == ("a,b", {"x": "1"})


def test_criteria_and_current_queue_are_forgotten_with_another_queue_space(laid_out):
    ran = laid_out.run("qopen QSPACE\nqset STRING\nqscan -p 5\nqset errq\nqscan\nqopen QSPACE\nqscan\nqset\n")
    assert ran.out.count("Criteria are -p 5\n") == 2
    assert "No criteria are set" in ran.out
    assert "No current queue is set" in ran.err


def test_what_is_listed_changed_and_deleted_is_what_the_criteria_say(laid_out, space):
    for number in range(6):
        space.enqueue("STRING", str(number), priority=10 * (number + 1), persistent=True)
    ran = laid_out.run(
        "qopen QSPACE\nqset STRING\nqscan -p 20-40\nqchangeprio -y 25\nqscan -p 25\nqchangequeue -y errq\nqscan -p 60\n"
        "qchangetime -y +900\nqchangeexptime -y +1000\nqscan -p 50\nqdeletemsg -y\n"
    )
    assert ran.status == 0, ran.both
    assert [message.priority for message in space.messages("errq")] == [25, 25, 25]
    left = {message.priority: message for message in space.messages("STRING")}
    assert sorted(left) == [10, 60]
    assert left[60].state.value == "delayed"
    assert left[60].expires_us - left[60].available_us > 90_000_000
    assert left[10].available_us is None


def test_requeueing_goes_to_where_each_message_came_from(laid_out, space):
    laid_out.run("qopen QSPACE\nqcreate OTHER fifo none 0 0 100% 0% ''\n")
    for queue in ("STRING", "OTHER"):
        space.enqueue(queue, queue)
        space.move(queue, "errq")
    space.enqueue("errq", "from nowhere")
    ran = laid_out.run("qopen QSPACE\nqrequeue -y\n\n")
    assert ran.out.endswith("2 messages moved back\n")
    assert "WARN: 1 message of queue 'errq' came from no queue that still exists" in ran.err
    assert [space.dequeue(queue).text for queue in ("STRING", "OTHER", "errq")] == ["STRING", "OTHER", "from nowhere"]


def test_a_message_whose_expiration_is_over_by_then_goes_without_one_and_that_is_said(laid_out, space):
    for _ in range(2):
        space.enqueue("STRING", "x", expires_in=3600)
    space.move("STRING", "errq")
    # As if that hour had passed.
    with contextlib.closing(sqlite3.connect(laid_out.path, isolation_level=None)) as hand:
        hand.execute("UPDATE message SET expires_before = 1000000")
    first, _ = (info.msgid for info in space.messages("errq"))
    ran = laid_out.run(f"qopen QSPACE\nqset errq\nqscan -m {first}\nqchangequeue -y STRING\nqrequeue -y errq\n")
    assert ran.err.count("WARN: 1 message has no expiration any more: the earlier one has passed (crque, line ") == 2
    assert [info.expires_us for info in space.messages("STRING")] == [None, None]


def test_yes_for_all_leaves_the_answers_that_a_script_has(laid_out, space):
    space.enqueue("STRING", "x")
    done = laid_out.process("qopen QSPACE\nqset STRING\nqdeletemsg\ny\nqdeletemsg\ny\nqset\n", "--yes")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("1 message deleted\nCurrent queue is 'STRING'\n")


def test_no_file_is_left_where_no_message_was_written(laid_out, shown, space):
    file = laid_out.directory / "out"
    shown(f"qget -o {file} STRING")
    shown(f"qpeek -o {file} MISSING", status=1)
    assert not file.exists()
    space.enqueue("STRING", b"")
    shown(f"qget -o {file} STRING")
    assert file.read_bytes() == b""


def test_file_has_whole_messages_only_and_the_rest_stays_on_the_queue(laid_out, space, monkeypatch):
    file = laid_out.directory / "out"
    for body in (b"one", b"two"):
        space.enqueue("STRING", body)
    sync = os.fsync

    def sync_until_full(descriptor):
        if os.fstat(descriptor).st_size == 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", sync_until_full)
    ran = laid_out.run(f"qopen QSPACE\nqget -k 2 -o {file} STRING\n")
    assert f"ERROR: Failed to write {file}: No space left on device" in ran.err
    assert file.read_bytes() == b"one"
    assert [message.body for message in space.browse("STRING")] == [b"two"]


def test_wait_for_a_message_ends_with_the_first_interrupt(laid_out):
    child = subprocess.Popen(
        [*PROGRAM, "-c", "qopen QSPACE", "-c", "qget -s 600 STRING"],
        env=laid_out.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "Queue space 'QSPACE' opened\n"
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=240)[1] == ""
    assert child.returncode == 130


def test_all_that_a_message_is_looked_for_by_has_to_fit(shown, space):
    for body, priority in (("low", 5), ("high", 90)):
        space.enqueue("STRING", body, corrid="c", priority=priority)
    assert [row["body"] for row in shown('qpeek -k 9 -i c -w "priority > 50" STRING')["rows"]] == ["high"]


def test_a_message_that_names_no_time_is_selected_by_the_time_of_its_enqueue(laid_out, space):
    space.enqueue("STRING", b"x")
    space.enqueue("STRING", b"later", delay=1_900_000_000)
    listed = laid_out.run("format csv\nqopen QSPACE\nqset STRING\nqscan -t 00-37\nqlist\nqscan -t 2601-+0\nqlist\n").out
    assert [row["bytes"] for row in csv.DictReader(listed.splitlines()) if row["msgid"] != "msgid"] == ["1", "1"]


def test_the_current_queue_is_meant_where_none_is_named(laid_out, space):
    space.enqueue_many("STRING", ["one", "two"])
    space.enqueue("errq", "three")
    ran = laid_out.type("qopen QSPACE\nqset STRING\nqpeek -x\nqget\nqlist errq\nqpeek errq\nqset\n")
    assert ran.status == 0
    assert "Queue name" not in ran.both
    assert ran.out.count("\none\n") == 1
    assert ran.out.count("\nthree\n") == 1
    assert ran.out.endswith("Current queue is 'STRING'\n")
    assert [message.size for message in space.messages("STRING")] == [3]
    without = laid_out.run("qopen QSPACE\nqlist errq\nqlist\nqpeek\nerrq\n")
    assert without.err == "ERROR: No current queue is set (crque, line 3)\n"
    assert without.out.count("ready") == 2


def test_a_queue_that_nothing_asks_for_passes_no_answer_over(laid_out):
    ran = laid_out.run("qopen QSPACE\nqset STRING\nqpeek -z\nql\n")
    assert "Skipped" not in ran.err
    assert "Skipped" in laid_out.run("qopen QSPACE\nqpeek -z\nSTRING\n").err


def test_the_default_of_a_prompt_holds_where_a_command_among_the_arguments_has_no_answer(laid_out, space):
    space.enqueue("STRING", b"x")
    space.move("STRING", "errq")
    ran = laid_out.process(None, "-c", "qopen QSPACE", "-c", "qrequeue -y", "-c", "qcreate NEW")
    assert (ran.stderr, ran.returncode) == ("", 0)
    assert space.queue("NEW").definition.retries == 0
    assert space.usage("STRING").messages == 1
    for command, prompt in (
        ("qdestroy", "Queue name:"),
        ("qpurge STRING", "Purge 1 message of queue 'STRING'? (y, n [default=n]):"),
    ):
        ran = laid_out.process(None, "-c", "qopen QSPACE", "-c", command)
        assert f"ERROR: Input ended at the prompt '{prompt}'" in ran.stderr
    assert "Input ended" in laid_out.process("qopen QSPACE\nqcreate MORE\n").stderr, "a script may be cut short"
