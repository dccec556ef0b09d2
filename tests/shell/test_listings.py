"""What the listing commands say of devices, queue spaces, queues and messages."""

import contextlib
import io
import json
import re
import sqlite3

import pytest

from qmadmin import open_device
from qmadmin.console import escaped
from qmadmin.console.formats import Format
from qmadmin.console.styled import StyledScreen
from qmadmin.shell import listing
from qmadmin.shell.catalogue import Catalogue
from qmadmin.shell.interpreter import Interpreter
from qmadmin.shell.lines import Script
from qmadmin.shell.session import Modes, Session
from qmcore.message import EnqueueControl
from qmcore.queue import Delivery

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+0000")


@pytest.fixture
def space(laid_out):
    """The queue space QSPACE, opened by another process as it were."""
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as space:
        yield space


def table(ran, title):
    """Return the rows of a table as lists of words, by the first of them."""
    lines = ran.out.splitlines()
    (start,) = [number for number, line in enumerate(lines) if line.startswith(title)]
    return {row[0]: dict(zip(columns(lines[start]), row, strict=True)) for row in map(str.split, lines[start + 1 :])}


def columns(line):
    return re.split(r" {2,}", line)


def record(ran):
    """Return the fields of the records by their labels."""
    return dict(re.fullmatch(r"  (.+?): +(.*)", line).groups() for line in ran.out.splitlines() if line[:2] == "  ")


# ---- devices ----


def test_free_space_is_listed_stretch_by_stretch(laid_out):
    laid_out.run("qspacecreate B 54321 100 5 10 10 100 '' n 16\nqspacecreate C 54322 100 5 10 10 100 '' n 16\n")
    ran = laid_out.run("qspacedestroy -y B\nverbose\nlidl 0\n")
    assert ran.out.splitlines()[-3:] == [
        "      free space map(2 entries used 99 available):",
        "           size[1]:  100 addr[1]:  226",
        "           size[2]:  1574 addr[2]:  426",
    ]


def test_entries_are_listed_with_their_pages(laid_out):
    laid_out.run(f"crdl {laid_out.directory}/MORE 100 500\n")
    ran = laid_out.run("lidl\n")
    assert [line.split() for line in ran.out.splitlines()] == [
        ["Index", "Name", "Start", "Size", "State", "Durability", "Schema"],
        ["0", laid_out.device, "0", "2000", "present", "full", "6"],
        ["1", f"{laid_out.directory}/MORE", "100", "500", "present", "full", "6"],
    ]
    verbose = laid_out.run("verbose\nlidl\n").out
    assert verbose.count("universal device index.") == 2
    assert (
        f"      name: {laid_out.directory}/MORE\n      start:  100\n      size:   500\n"
        "      state:  present\n      durability: full\n      schema:     6\n" in verbose
    )


def test_table_of_contents_names_the_file_of_each_extent(laid_out):
    more = laid_out.directory / "MORE"
    laid_out.run(f"crdl {more} 0 5000\nqspacecreate BIG 54321 3000 5 10 10 100 '' n 16\n")
    assert table(laid_out.run("livtoc\n"), "Table")["BIG.0"] == {
        "Table": "BIG.0",
        "Entry": "1",
        "Device": str(more),
        "Offset": "0",
        "Pages": "3000",
        "State": "present",
    }


# ---- queue spaces ----


def test_queue_space_is_listed_with_what_each_limit_has_in_use(laid_out, space):
    space.enqueue("STRING", bytes(5000))
    space.enqueue("errq", b"x")
    space.enqueue("errq", b"x")
    with space.transaction():
        space.dequeue("errq")
        found = record(laid_out.run("qopen QSPACE\nqspacelist QSPACE\n"))
    assert TIME.fullmatch(found.pop("Created"))
    assert found == {
        "IPC key": "54320",
        "Pages": "200",
        "Pages for messages": "4 of 194 in use",
        "Queues": "2 of 5 in use, highest 2",
        "Concurrent transactions": "1 of 10 in use, highest 1",
        "Concurrent processes": "2 of 10 in use, highest 2",
        "Messages": "3 of 100 in use, highest 3",
        "Error queue": "errq",
        "Additional actions": "0 of 64 in use, highest 0",
        "Non-persistent memory": "0 of 0 bytes in use",
        "Overflow memory": "0 bytes",
        "Blocking factor": "16",
        "Initialized": "no",
        "Volume": laid_out.device,
        "State of volume": "present",
    }


def test_parameters_of_a_queue_space_go_each_to_its_own_place(shell):
    shell.run(f"crdl {shell.device} 0 2000\nqspacecreate -A 7 -n 2B -o 8 S 54320 204 5 11 12 100 '' y 32\n")
    found = record(shell.run("qspacelist S\n"))
    assert {
        label: found[label].removesuffix(", highest 0").removesuffix(" in use") for label in found if label != "Created"
    } == {
        "IPC key": "54320",
        "Pages": "204",
        "Pages for messages": "0 of 198",
        "Queues": "0 of 5",
        "Concurrent transactions": "0 of 11",
        "Concurrent processes": "0 of 12",
        "Messages": "0 of 100",
        "Error queue": "-",
        "Additional actions": "0 of 7",
        "Non-persistent memory": "0 of 8192 bytes",
        "Overflow memory": "8 bytes",
        "Blocking factor": "32",
        "Initialized": "yes",
        "Volume": shell.device,
        "State of volume": "present",
    }
    assert table(shell.run("qspacelist\n\n"), "Queue space")["S"] == {
        "Queue space": "S",
        "IPC key": "54320",
        "Pages": "204",
        "Queues": "5",
        "Trans": "11",
        "Procs": "12",
        "Messages": "100",
        "Error queue": "-",
        "Volume": shell.device,
        "State": "present",
    }


def test_queue_spaces_are_listed_in_full_in_verbose_mode(laid_out):
    laid_out.run("qspacecreate B 54321 100 5 10 10 100 '' n 16\n")
    assert laid_out.run("qspacelist\n\n").out.count("\n") == 3
    ran = laid_out.run("verbose\nqspl\n\n")
    assert [line for line in ran.out.splitlines() if line[0] == "Q"] == ["Queue space 'B'", "Queue space 'QSPACE'"]


def test_device_without_queue_spaces_says_so(shell):
    shell.run(f"crdl {shell.device} 0 2000\n")
    ran = shell.run("qspacelist\n\n")
    assert (ran.out, ran.err) == ("", f"INFO: device '{shell.device}' has no queue space\n")


# ---- queues ----


def test_queues_are_listed_with_what_they_hold(laid_out, space):
    for body in (bytes(100), bytes(5000), b""):
        space.enqueue("STRING", body)
    for body in (b"xyz", b"xyz"):
        space.enqueue("STRING", body, delay=3600)
    with space.transaction():
        space.dequeue("STRING")
        ran = laid_out.run("qopen QSPACE\nqinfo\n")
    assert table(ran, "Queue  ")["STRING"] == {
        "Queue": "STRING",
        "Messages": "5",
        "Ready": "2",
        "Delayed": "2",
        "Parked": "0",
        "Held": "1",
        "Pages": "6",
        "Bytes": "5106",
    }
    assert set(table(ran, "Queue  ")) == {"STRING", "errq"}
    assert set(table(laid_out.run("qopen QSPACE\nqinfo errq\n"), "Queue  ")) == {"errq"}


def test_queue_space_without_queues_says_so(shell):
    shell.run(f"crdl {shell.device} 0 2000\nqspacecreate S 54320 200 5 10 10 100 '' n 16\n")
    ran = shell.run("qopen S\nqinfo\n")
    assert ran.err == "INFO: queue space 'S' has no queues\n"
    assert ran.out == "Queue space 'S' opened\n"


def test_queue_is_listed_in_full_in_verbose_mode(laid_out, space):
    laid_out.run(
        "qopen QSPACE\n"
        'qcreate -n "80%,10%,nmail me" -e +7200 A priority,lifo top,msgid 1 0 900m 90m "mail me"\n'
        "qcreate -e none B fifo none 0 0 5B 1B ''\n"
    )
    space.enqueue("A", b"12345", expires_in=0.001)
    for body in (b"1", b"22"):
        space.enqueue("A", body)
    # Each of the two returns once, and then is out of retries.
    for _ in range(4):
        with contextlib.suppress(ZeroDivisionError), space.transaction():
            assert space.dequeue("A")
            raise ZeroDivisionError
    space.enqueue("A", b"333")
    space.enqueue("A", b"4444")
    assert space.dequeue("A").body == b"4444"
    ran = laid_out.run("qopen QSPACE\nverbose\nqinfo A\n")
    found = record(ran)
    assert TIME.fullmatch(found.pop("First message"))
    assert TIME.fullmatch(found.pop("Oldest message"))
    assert found == {
        "Messages": "1: 1 ready, 0 delayed, 0 parked, 0 held",
        "Non-persistent": "0 of them, in 0 pages of memory",
        "Space used": "1 pages, 3 bytes",
        "Error queue": "-",
        "Expired messages": "are removed",
        "Groups": "no",
        "Retention": "0 seconds",
        "Several consumers": "no",
        "Enqueuing": "started",
        "Dequeuing": "started",
        "Order": "priority,lifo",
        "Out-of-order": "top,msgid",
        "Retries": "1",
        "Retry delay": "0 seconds",
        "Retry growth": "none",
        "Retry factor": "2",
        "Retry maximum": "none",
        "Retry jitter": "0",
        "Default delay": "0 seconds",
        "High limit": "900m",
        "Low limit": "90m",
        "Capacity command": "mail me",
        "Delivery": "persist",
        "Memory high limit": "80%",
        "Memory low limit": "10%",
        "Memory command": "nmail me",
        "Expiration": "+7200 seconds",
        "Since created": "5 enqueued, 1 dequeued",
        "Lost or moved": "1 expired, 0 discarded, 2 moved to the error queue",
        "Forwarded by": "no process",
    }
    assert "\nQueue 'A'\n" in ran.out
    assert record(laid_out.run("qopen QSPACE\nverbose\nqinfo B\n"))["Expiration"] == "none"


def test_error_queue_is_marked_in_verbose_mode(laid_out):
    ran = laid_out.run("qopen QSPACE\nverbose\nqinfo\n")
    assert [line for line in ran.out.splitlines() if line.startswith("Queue '")] == [
        "Queue 'STRING'",
        "Queue 'errq' (the error queue)",
    ]


def test_missing_error_queue_is_not_told_of_with_a_single_queue(laid_out):
    laid_out.run("qopen QSPACE\nqdestroy -y errq\n")
    ran = laid_out.run("qopen QSPACE\nqinfo STRING\nqinfo\n")
    assert [line.partition("(")[2] for line in ran.err.splitlines()] == ["crque, line 1)", "crque, line 3)"]


# ---- messages ----


def listed(laid_out, verbose=""):
    ran = laid_out.run(f"{verbose}\nqopen QSPACE\nqset STRING\nqlist\n")
    return table(ran, "Message id")


def test_message_is_listed_with_its_control_information(laid_out, space):
    control = EnqueueControl(priority=7, delay=3600 * 10**6, lifetime=7200 * 10**6, reply_delivery=Delivery.PERSIST)
    msgid = space.put("STRING", b"12345", control)
    (row,) = listed(laid_out).values()
    assert TIME.fullmatch(row.pop("Available"))
    assert TIME.fullmatch(row.pop("Expires"))
    assert row == {
        "Message id": msgid,
        "Prio": "7",
        "Retries": "0",
        "Bytes": "5",
        "Delivery": "persist",
        "Reply": "persist",
        "State": "delayed",
    }


def test_message_that_was_tried_and_one_that_is_held_are_listed_so(laid_out, space):
    tried, held = space.enqueue("STRING", b"a"), space.enqueue("STRING", b"b")
    with contextlib.suppress(ZeroDivisionError), space.transaction():
        space.dequeue("STRING")
        raise ZeroDivisionError
    with space.transaction():
        assert space.dequeue("STRING", msgid=held)
        found = listed(laid_out)
    assert {msgid: (row["Retries"], row["State"], row["Available"]) for msgid, row in found.items()} == {
        tried: ("1", "ready", "-"),
        held: ("0", "held", "-"),
    }


def test_correlation_identifier_and_time_of_the_enqueue_are_listed_in_verbose_mode(laid_out, space):
    first = space.enqueue("STRING", b"a", corrid=b"order 7")
    second = space.enqueue("STRING", b"b")
    assert "Enqueued" not in listed(laid_out)[first]
    found = listed(laid_out, "verbose")
    assert (found[first]["Correlation id"], found[second]["Correlation id"]) == (r"order\207", "-")
    assert all(TIME.fullmatch(row["Enqueued"]) for row in found.values())


@pytest.mark.parametrize(
    ("identifier", "shown"),
    [
        (b"plain!~", "plain!~"),
        (b"a b\tc", r"a\20b\09c"),
        (b"back\\slash", r"back\5cslash"),
        (b"\x00\x1f\x7f\x80\xff", r"\00\1f\7f\80\ff"),
        (b"", ""),
    ],
)
def test_identifier_is_shown_in_characters_that_can_be_printed(identifier, shown):
    assert escaped(identifier) == shown


def test_a_relaxed_device_is_made_and_shown(shell):
    ran = shell.run(f"crdl -s relaxed {shell.device} 0 2000\nlidl\n")
    assert ran.err == ""
    assert table(ran, "Index")["0"]["Durability"] == "relaxed"
    assert "      durability: relaxed\n" in shell.run("verbose\nlidl\n").out


def test_what_a_device_is_made_with_cannot_be_given_to_another_entry(laid_out):
    for option in ("-s relaxed", "-H 8"):
        ran = laid_out.run(f"crdl {option} {laid_out.device} 2000 100\n")
        assert f"Option {option.split()[0]} is only for the first entry" in ran.err


def test_partitions_of_a_file_are_refused_in_a_sentence(shell):
    ran = shell.run(f"crdl -H 8 {shell.device} 0 2000\n")
    assert "ERROR: QMEINVAL: partitions are possible only on PostgreSQL" in ran.err
    assert not shell.path.exists()


def at_terminal(shell, script, **elsewhere):
    """Run a script in this process as what a person types; return what is shown, and what is said beside it."""
    out, err = io.StringIO(), io.StringIO()
    screen = StyledScreen(out, err, {"NO_COLOR": "1"})
    modes = Modes(format=Format.TABLE)
    where = {"at_terminal": True, "shown_at_terminal": True} | elsewhere
    session = Session(shell.device, Catalogue(), screen, shell.environ, modes=modes, **where)
    with contextlib.closing(session):
        Interpreter(session, Script(io.StringIO(script), "x", session)).run()
    return out.getvalue(), err.getvalue()


def test_bodies_are_listed_one_line_for_each(laid_out, space, monkeypatch):
    monkeypatch.setattr(listing, "_BODY_MOST", 2000)
    space.enqueue("STRING", "first line\nsecond \x1b[31m " + "ä" * 300)
    space.enqueue("STRING", b"\x00\xff" * 200, delay=3600)
    space.enqueue("STRING", b"")
    space.enqueue("STRING", b"x" * 2001)
    documents = laid_out.run("format json\nqopen QSPACE\nqlist -b STRING\nqlist -b -k 2 STRING\n").out.splitlines()[2:]
    rows, two = (json.loads(document)["rows"] for document in documents)
    assert [list(row) for row in rows] == [["msgid", "state", "bytes", "beginning"]] * 4
    assert rows[0]["beginning"].startswith("first line\nsecond \x1b[31m ä")
    assert [row["beginning"] for row in rows[1:]] == ["", None, "00ff" * 100]
    assert two == rows[:2]
    for width in (60, 80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        shown, _ = at_terminal(laid_out, "qopen QSPACE\nqlist -b STRING\n")
        lines = shown.splitlines()[1:]
        assert len(lines) == 5
        assert all(len(line) <= width for line in lines)
        assert lines[1].split()[3] == "first"
        assert lines[1].endswith("\N{HORIZONTAL ELLIPSIS}") == (width < 200)
        assert "\x1b" not in "".join(lines)


def test_a_listing_at_a_terminal_ends_after_some_messages_and_says_so(laid_out, space, monkeypatch):
    monkeypatch.setattr(listing, "_AT_A_TERMINAL", 3)
    space.enqueue_many("STRING", ["x"] * 3)
    script = "qopen QSPACE\nqlist STRING\n"
    assert at_terminal(laid_out, script)[1] == ""
    space.enqueue("STRING", "x")
    shown, said = at_terminal(laid_out, script)
    assert shown.count("ready") == 3
    assert said == "INFO: the first 3 messages are shown\n  All: qlist -k 0\n"
    for option in ("-k 0", "-k 9"):
        shown, said = at_terminal(laid_out, f"qopen QSPACE\nqlist {option} STRING\n")
        assert (shown.count("ready"), said) == (4, "")
    assert laid_out.run(script).out.count("ready") == 4
    for line, where in (("qlist STRING > out", {}), ("qlist STRING", {"shown_at_terminal": False})):
        monkeypatch.chdir(laid_out.directory)
        shown, said = at_terminal(laid_out, f"qopen QSPACE\n{line}\n", **where)
        listed = (laid_out.directory / "out").read_text() if ">" in line else shown
        assert (listed.count("ready"), said) == (4, "")


def test_a_missing_error_queue_is_told_once_at_a_terminal(laid_out, terminal):
    laid_out.run("qopen QSPACE\nqdestroy -y errq\n")
    screen = terminal(columns=120)
    screen.at_prompt()
    for line in ("qopen QSPACE", "qinfo", "qinfo"):
        screen.enter(line)
    assert screen.shown.count("does not exist") == 1
    assert laid_out.run("qopen QSPACE\nqinfo\n").err.count("does not exist") == 2


def test_a_body_that_is_damaged_hides_no_other(laid_out, space):
    for body in (b"one", b"two", b"three"):
        space.enqueue("STRING", body)
    with contextlib.closing(sqlite3.connect(laid_out.device)) as connection, connection:
        connection.execute("UPDATE message SET body = x'00' WHERE body = x'74776f'")
    (document,) = laid_out.run("format json\nqopen QSPACE\nqlist -b STRING\n").out.splitlines()[2:]
    assert [row["beginning"] for row in json.loads(document)["rows"]] == ["one", None, "three"]
