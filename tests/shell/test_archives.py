"""The commands qexport and qimport: what they take for granted, and what programs get of them."""

import json

import pytest

from qmadmin.archive.file_systems import Directory
from qmadmin.archive.reading import open_archive
from qmadmin.console import archives
from qmadmin.console.formats import Format

FILL = """\
qopen QSPACE
qput STRING hello
qput -t +3600 STRING "in an hour"
"""
OTHER = "qspacecreate OTHER 54321 200 5 10 10 100 '' n 16\n"


def rows(ran, command):
    """Return the one object of each document of a command."""
    documents = [json.loads(line) for line in ran.out.splitlines() if line.startswith("{")]
    found = [document for document in documents if document["command"] == command]
    assert [document["ok"] for document in found] == [True] * len(found), ran.both
    return [document["rows"][0] for document in found]


def spaces_in(directory):
    manifest = json.loads((directory / "manifest.json").read_text())
    return [space["definition"]["name"] for space in manifest["spaces"]]


@pytest.fixture
def archive(laid_out):
    """The archive of a queue space with two messages, one of them delayed."""
    ran = laid_out.run(f"{FILL}qexport {laid_out.directory}/archive\n")
    assert ran.status == 0, ran.both
    return laid_out.directory / "archive"


def test_open_queue_space_is_exported_and_without_one_all_are(laid_out):
    place = laid_out.directory
    ran = laid_out.run(f"{OTHER}qexport {place}/all\nqopen OTHER\nqexport {place}/one\nqexport -s QSPACE {place}/two\n")
    assert ran.status == 0, ran.both
    assert [spaces_in(place / name) for name in ("all", "one", "two")] == [["OTHER", "QSPACE"], ["OTHER"], ["QSPACE"]]


def test_programs_get_one_object_with_the_queues(laid_out, archive):
    script = f"format json\nqexport -s QSPACE {archive}2\nqimport -y -r COPY {archive}\n"
    ran = laid_out.run(script)
    (exported,) = rows(ran, "qexport")
    counts = {queue["queue"]: (queue["messages"], queue["delayed"]) for queue in exported["queues"]}
    assert counts == {"STRING": (2, 1), "errq": (0, 0)}
    (imported,) = rows(ran, "qimport")
    assert [(queue["space"], queue["mode"]) for queue in imported["queues"]] == [("COPY", "created")] * 2
    assert imported["archive"] == json.loads((archive / "manifest.json").read_text())["archive"]


def test_capacity_commands_that_an_archive_brings_are_told_before_and_after(laid_out):
    """Whoever wrote the archive wrote them, and they run as whoever enqueues."""
    archive = laid_out.directory / "archive"
    laid_out.run(f"qopen QSPACE\nqchange STRING none 2 0 80% 0% 'mailme now'\nqexport {archive}\n")
    ran = laid_out.run(f"qimport -n -r COPY {archive}\nqimport -r COPY {archive}\ny\nqimport -y -e append {archive}\n")
    assert "with capacity commands of the archive: 'mailme now'" in ran.out.splitlines()[0]
    told = "WARN: queue 'STRING' of queue space 'COPY' has the capacity command 'mailme now' from the archive"
    assert [line.partition(" (")[0] for line in ran.err.splitlines() if "WARN" in line] == [told]


def test_definitions_alone_make_empty_queues(laid_out, archive):
    ran = laid_out.run(f"qimport -y -d -r COPY {archive}\nqopen COPY\nqinfo\n")
    assert ran.status == 0, ran.both
    assert [line.split()[:2] for line in ran.out.splitlines()[-2:]] == [["STRING", "0"], ["errq", "0"]]


def test_import_is_recorded_with_what_it_was_about(laid_out, archive):
    identifier = open_archive(archive).manifest.archive
    ran = laid_out.run(f"qimport -y -r COPY {archive}\nformat json\nqaudit 1\n")
    (entry,) = rows(ran, "qaudit")
    assert (entry["command"], entry["object"]) == (f"qimport -y -r COPY {archive}", f"import of archive {identifier}")
    assert entry["outcome"] == "2 messages imported into queue space COPY"


def test_new_name_is_of_one_queue_space(laid_out):
    place = laid_out.directory
    ran = laid_out.run(
        f"{OTHER}qexport {place}/all\nqimport -y -r COPY {place}/all\nqimport -y -s OTHER -r C2 {place}/all\n"
    )
    assert ran.err.splitlines()[0].startswith("ERROR: -r names one queue space, and the archive has several")
    assert "New queue spaces: C2" in ran.out


def test_address_is_refused_with_the_program_that_takes_it(laid_out):
    for command in ("qexport", "qimport -y", "qimport -y -r COPY"):
        said = laid_out.run(f"{command} hdfs://host/archive\n").err
        assert said == (
            "ERROR: 'hdfs://host/archive' is an address, which qmspark(1) takes; here an archive is a directory of this"
            " machine (crque, line 1)\n"
        )


def test_started_queues_say_nothing_of_being_stopped(laid_out, archive):
    assert "stopped" in laid_out.run(f"qimport -y -r COPY {archive}\n").err
    assert laid_out.run(f"qimport -y -t -r SECOND {archive}\n").err == ""
    assert laid_out.run(f"qimport -y --start -r THIRD {archive}\n").err == ""
    asked = laid_out.run(f"echo\nqimport -r FOURTH {archive}\nn\nqimport --start -r FOURTH {archive}\nn\n").out
    stopped, started = [line for line in asked.splitlines() if "(y, n" in line]
    assert ", with the queues stopped for dequeuing until qstart? (y, n" in stopped
    assert "stopped" not in started
    assert "Invalid option --stat" in laid_out.run(f"qimport --stat {archive}\n").err


def test_archive_of_a_key_is_imported_with_it(laid_out):
    place = laid_out.directory
    (place / "key").write_bytes(b"k" * 16)
    ran = laid_out.run(
        f"qexport -k {place}/key {place}/signed\nqimport -y -r COPY {place}/signed\n"
        f"qimport -y -k {place}/key -r COPY {place}/signed\n"
    )
    assert "no key was given to check it with" in ran.err
    assert "Archive '" in ran.out.splitlines()[-1]


def test_a_table_leaves_zeros_of_what_is_seldom_there_out(archive):
    told = archives.content(Directory(archive), open_archive(archive).manifest)
    assert [row[5] for row in told.shown(Format.TABLE)[0].rows] == [None, None]
    assert [row[5] for row in told.shown(Format.PLAIN)[0].rows] == [0, 0]
    assert [row[4] for row in told.shown(Format.TABLE)[0].rows] == [1, None]


def test_what_is_refused_names_the_option_that_helps(laid_out, archive):
    place = laid_out.directory
    (place / "begun").mkdir()
    (place / "begun" / ".unfinished").write_text("")
    copying = f"qimport -y -r COPY {archive}\nqimport -y -e append -r COPY {archive}\n"
    said = laid_out.run(f"format json\nqimport -y {archive}\n{copying}qexport {place}/begun\n").out
    for hint in (
        "The options are -e, and -r",
        "The option is -a.",
        "qmspark export --resume begins again in this one.",
    ):
        assert hint in said
