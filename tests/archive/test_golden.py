"""The archives of each minor version of version 1 that are kept in the repository are read for ever."""

from pathlib import Path

import pytest

from qmadmin.archive import columns, manifest_file
from qmadmin.archive.reading import open_archive
from tests import fix_archive
from tests.fix_archive import GROUPS, GROUPS_OF_MINOR_2, QUEUES, QUEUES_OF_MINOR_3, contents, make

PLACE = Path(__file__).parent
FIRST, SECOND, NEWEST = PLACE / "golden-1", PLACE / "golden-1.2", PLACE / "golden-1.3"
CONTENTS = {FIRST: GROUPS, SECOND: GROUPS_OF_MINOR_2, NEWEST: GROUPS_OF_MINOR_2}
DEFINED = {FIRST: QUEUES, SECOND: QUEUES, NEWEST: QUEUES_OF_MINOR_3}

each_golden = pytest.mark.parametrize("golden", CONTENTS, ids=lambda path: path.name)


@each_golden
def test_every_field_of_each_message_of_the_golden_archive_is_read(golden):
    archive = open_archive(golden)
    assert archive.verify().rows == archive.manifest.messages
    assert contents(archive) == CONTENTS[golden]


def test_the_golden_archive_has_each_field_set_and_each_optional_one_not_set():
    for name, column in columns.BY_NAME.items():
        if not column.carried:
            continue
        at = fix_archive.bulk_rows.COLUMNS.index(column.carried)
        values = [row[at] for groups in GROUPS_OF_MINOR_2.values() for group in groups for row in group[4]]
        assert any(value is not None for value in values), name
        assert column.required or None in values, name


def test_there_is_a_golden_archive_of_the_newest_minor_version():
    assert open_archive(NEWEST).manifest.minor == columns.MINOR


@each_golden
def test_message_ids_of_the_golden_archive_name_the_space_and_the_number(golden):
    archive = open_archive(golden)
    told = [
        row
        for entry in archive.manifest.parts
        for _, batch in archive.batches(entry)
        for row in batch.select(["msgid", "sequence", "space", "group_msgid", "group_sequence"]).to_pylist()
    ]
    assert len(told) == archive.manifest.messages
    for row in told:
        msgid = fix_archive.msgid(row["space"])
        assert row["msgid"] == msgid(row["sequence"])
        assert row["group_msgid"] == (row["group_sequence"] and msgid(row["group_sequence"]))


@pytest.mark.parametrize(
    ("path", "minor", "release"), [(FIRST, 0, "0.1.0"), (SECOND, 2, "0.2.0"), (NEWEST, 3, "0.2.0")]
)
def test_the_manifest_of_the_golden_archive_says_what_it_said_when_it_was_made(path, minor, release, tmp_path):
    golden = open_archive(path).manifest
    today = make(tmp_path / "today", parts=CONTENTS[path], queues=DEFINED[path], release=release)
    assert golden.spaces == today.spaces
    assert golden.source == today.source
    assert golden.selection == today.selection
    assert (golden.archive, golden.created_us, golden.release, golden.minor) == (
        today.archive,
        today.created_us,
        today.release,
        minor,
    )
    assert [(part.name, part.rows, part.portions) for part in golden.parts] == [
        (part.name, part.rows, part.portions) for part in today.parts
    ]


@each_golden
def test_writing_the_manifest_of_the_golden_archive_again_gives_the_same_bytes(golden):
    data = (golden / manifest_file.NAME).read_bytes()
    assert manifest_file.to_json(manifest_file.from_json(data)) == data
