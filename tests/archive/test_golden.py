"""The archive of version 1 that is kept in the repository is read for ever."""

from pathlib import Path

from qmadmin.archive import columns, manifest_file
from qmadmin.archive.reading import open_archive
from tests import fix_archive
from tests.fix_archive import GROUPS, contents, make

GOLDEN = Path(__file__).with_name("golden-1")


def test_every_field_of_each_message_of_the_golden_archive_is_read():
    archive = open_archive(GOLDEN)
    assert archive.verify().rows == archive.manifest.messages
    assert contents(archive) == GROUPS


def test_the_golden_archive_has_each_field_set_and_each_optional_one_not_set():
    for name, column in columns.BY_NAME.items():
        if not column.carried or column.since > 1:
            continue
        at = fix_archive.carried.COLUMNS.index(column.carried)
        values = [row[at] for groups in GROUPS.values() for group in groups for row in group[4]]
        assert any(value is not None for value in values), name
        assert column.required or None in values, name


def test_message_ids_of_the_golden_archive_name_the_space_and_the_number():
    archive = open_archive(GOLDEN)
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


def test_the_manifest_of_the_golden_archive_says_what_it_said_when_it_was_made(tmp_path):
    golden = open_archive(GOLDEN).manifest
    today = make(tmp_path / "today")
    assert golden.spaces == today.spaces
    assert golden.source == today.source
    assert golden.selection == today.selection
    assert (golden.archive, golden.created_us, golden.release, golden.minor) == (
        today.archive,
        today.created_us,
        today.release,
        0,
    )
    assert [(part.name, part.rows, part.portions) for part in golden.parts] == [
        (part.name, part.rows, part.portions) for part in today.parts
    ]


def test_writing_the_manifest_of_the_golden_archive_again_gives_the_same_bytes():
    data = (GOLDEN / manifest_file.NAME).read_bytes()
    assert manifest_file.to_json(manifest_file.from_json(data)) == data
