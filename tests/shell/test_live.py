"""The commands qtop and qstat where no terminal is: tables and documents."""

import json
import os
import sys

import pytest

from qmadmin import open_device


@pytest.fixture
def busy(laid_out):
    """A device whose queue STRING has had three messages, of which one is left."""
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as space:
        for body in (b"a", b"b", b"c"):
            space.enqueue("STRING", body)
        space.dequeue("STRING")
        space.dequeue("STRING")
    return laid_out


def documents(ran):
    """Return the documents of qtop and qstat."""
    found = [json.loads(line) for line in ran.out.splitlines() if line.startswith("{")]
    return [document for document in found if document["command"] in ("qtop", "qstat")]


def rows(ran):
    """Return the rows of each document."""
    return [document["rows"] for document in documents(ran)]


# ---- qtop ----


def test_one_look_is_a_table_without_rates(busy):
    ran = busy.run("qopen QSPACE\nqtop\n")
    assert ran.status == 0
    title, string, errq = ran.out.splitlines()[1:]
    titles = "Time Queue Depth Ready Delayed Held In/s Out/s Age Moved Lost Trend Drain Age of Parked"
    assert " ".join(title.split()) == titles
    assert string.split()[-2:] == ["oldest", "0"]
    assert string.split()[1:8] == ["STRING", "1", "1", "0", "0", "-", "-"]
    assert errq.split()[1:] == ["errq", "0", "0", "0", "0", "-", "-", "-", "0", "0", "-", "-", "-", "0"]


def test_each_look_is_a_document_of_its_own_with_rates_from_the_second_on(busy):
    ran = busy.run("format json\nqopen QSPACE\nqtop -n 3 -d 0.1 STRING\n")
    found = documents(ran)
    assert [document["command"] for document in found] == ["qtop"] * 3
    assert all(document["ok"] and len(document["rows"]) == 1 for document in found)
    (first,), *later = rows(ran)
    assert (first["in_rate"], first["trend"]) == (None, None)
    assert [(row["in_rate"], row["out_rate"], row["trend"]) for (row,) in later] == [(0.0, 0.0, "steady")] * 2
    assert first["time"] < later[0][0]["time"] < later[1][0]["time"]
    assert first["age"] >= 0


def test_all_looks_have_their_keys_once_in_csv(busy):
    ran = busy.run("format csv\nqopen QSPACE\nqtop -n 2 -d 0.1\n")
    lines = [line.split(",") for line in ran.out.splitlines() if "," in line]
    assert [line[1] for line in lines] == ["queue", "STRING", "errq", "STRING", "errq"]


def test_watching_an_empty_queue_space_shows_no_row(busy):
    ran = busy.run("qspacecreate BARE 54321 20 3 5 5 10 '' n 16\nformat json\nqopen BARE\nqtop\n")
    assert json.loads(ran.out.splitlines()[-1])["rows"] == []


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("qtop NOPE", "QMEBADQUEUE: there is no queue 'NOPE'"),
        ("qtop -d 0", "The delay must be 0.1 to 3600 seconds, got 0"),
        ("qtop -d 3601", "The delay must be 0.1 to 3600 seconds, got 3601"),
        ("qtop -d now", "The delay must be a number of seconds: 'now'"),
        ("qtop -d 1e1", "The delay must be a number of seconds: '1e1'"),
        ("qtop -n 0", "The number of updates must be 1 to"),
    ],
)
def test_watching_is_refused(busy, line, error):
    ran = busy.run(f"qopen QSPACE\n{line}\n")
    assert f"ERROR: {error}" in ran.err
    assert ran.status == 1


# ---- qstat ----


def test_counters_since_the_queue_was_created(busy):
    ran = busy.run("format json\nqopen QSPACE\nqstat\nqstat STRING\n")
    counted = {"queue": "STRING", "enqueued": 3, "dequeued": 2, "expired": 0, "discarded": 0, "moved": 0}
    everything, one = rows(ran)
    assert one == [counted]
    assert counted in everything
    assert {row["queue"] for row in everything} == {"STRING", "errq"}


def test_what_was_counted_since_the_snapshot_of_the_session(busy):
    script = "qopen QSPACE\nqstat -s\n!{put}\nqstat -r STRING\n"
    put = busy.directory / "put.py"
    put.write_text(
        "import sys\nfrom qmadmin import open_device\n"
        "with open_device(sys.argv[1]) as device, device.open_space('QSPACE') as space:\n"
        "    space.enqueue('STRING', b'x')\n    space.enqueue('STRING', b'x')\n    space.dequeue('STRING')\n"
    )
    ran = busy.run("format json\n" + script.format(put=f"{sys.executable} {put} {busy.device}"))
    kept, since = documents(ran)
    assert kept["said"] == ["Snapshot of 2 queues kept"]
    (row,) = since["rows"]
    assert (row["enqueued"], row["dequeued"], row["moved"]) == (2, 1, 0)
    assert row["seconds"] >= 0
    assert since["said"][0].startswith("Since 20")


def test_people_get_the_rates_of_what_is_frequent(busy):
    ran = busy.run("qopen QSPACE\nqstat -s\nqstat -r\n")
    assert ["Queue", "Enqueued", "/s", "Dequeued", "/s", "Expired", "Discarded", "Moved"] in [
        line.split() for line in ran.out.splitlines()
    ]


def test_snapshot_in_a_file_is_there_for_other_sessions(busy):
    file = busy.directory / "snapshot.json"
    first = busy.run(f"qopen QSPACE\nqstat -s -f {file}\n")
    assert first.out.endswith(f"Snapshot of 2 queues kept in {file}\n")
    assert file.exists()
    assert file.stat().st_mode & 0o777 == 0o600
    with open_device(busy.device) as device, device.open_space("QSPACE") as space:
        space.enqueue("STRING", b"x")
    ran = busy.run(f"format json\nqopen QSPACE\nqstat -r -s -f {file} STRING\nqstat -r -f {file} STRING\n")
    (then,), (now,) = rows(ran)
    assert (then["enqueued"], now["enqueued"]) == (1, 0)
    assert not list(busy.directory.glob(".snapshot*"))


def test_queue_that_was_created_after_the_snapshot_counts_from_its_creation(busy):
    ran = busy.run(
        "format json\nqopen QSPACE\nqstat -s\nqdestroy -y -p STRING\n"
        'qcreate STRING fifo none 0 0 100% 0% ""\nqcreate NEW fifo none 0 0 100% 0% ""\nqstat -r\n'
    )
    assert {row["queue"]: row["enqueued"] for row in rows(ran)[-1]} == {"STRING": 0, "errq": 0, "NEW": 0}


def refused(shell, line):
    ran = shell.run(f"qopen QSPACE\n{line}\n")
    assert ran.status == 1
    return ran.err


def test_comparison_without_a_snapshot_is_refused(busy):
    assert "ERROR: There is no snapshot of queue space 'QSPACE'" in refused(busy, "qstat -r")
    assert "ERROR: There is no snapshot of queue space 'QSPACE'" in refused(busy, f"qstat -r -f {busy.directory}/none")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"kind": "other"}', '"text"', "\x00\xff", "[[[["])
def test_file_that_is_no_snapshot_is_refused(busy, content):
    file = busy.directory / "other"
    file.write_text(content, encoding="latin-1")
    assert f"ERROR: File {file} is not a snapshot that qstat has written" in refused(busy, f"qstat -r -f {file}")


def test_snapshot_of_another_queue_space_is_refused(busy):
    busy.run("qspacecreate OTHER 54321 20 3 5 5 10 '' n 16\n")
    file = busy.directory / "snapshot"
    busy.run(f"qopen OTHER\nqstat -s -f {file}\n")
    assert f"ERROR: The snapshot in {file} is of queue space 'OTHER'" in refused(busy, f"qstat -r -f {file}")


def test_snapshot_is_not_written_in_place_of_something_that_is_no_file(busy):
    pipe = busy.directory / "pipe"
    os.mkfifo(pipe)
    assert "it is not a regular file" in refused(busy, f"qstat -s -f {pipe}")
    assert pipe.is_fifo()
    assert "Failed to write the snapshot" in refused(busy, f"qstat -s -f {busy.directory}/no/where")
