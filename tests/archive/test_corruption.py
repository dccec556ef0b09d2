"""Whatever is wrong with an archive is told in a sentence of its own, before anything of it is used."""

import hashlib
import io
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from qmadmin.archive import manifest_file
from qmadmin.archive.columns import MINOR
from qmadmin.archive.manifest import PartEntry
from qmadmin.archive.part_validation import CHUNK_BYTES
from qmadmin.archive.reading import batches, check_files, checked_manifest, open_archive, verify_part
from qmadmin.archive.rows import pa, pq
from qmadmin.archive.writing import ArchiveWriter
from qmcore.errors import QueueError
from tests.fix_archive import (
    KEY,
    contents,
    make,
    refitted,
    refuses,
    resealed,
    written,
)

PART = "part-00000.parquet"
UNFINISHED = "the archive in the directory '{}' is not finished: it has no manifest.json"
ALTERED = "the manifest was altered: it does not have the digest that manifest.sha256 says"


def of(document, *, at=0):
    return document["parts"][at]


def parquet(table, **options):
    written = io.BytesIO()
    pq.write_table(table, written, **options)
    return written.getvalue()


def test_a_directory_that_is_not_there_is_refused(tmp_path):
    with refuses("no-directory", f"the archive '{tmp_path}/none' is not there"):
        open_archive(tmp_path / "none")


def test_a_file_is_no_archive(tmp_path):
    (tmp_path / "file").write_text("")
    with refuses("no-directory", f"the archive '{tmp_path}/file' is not a directory"):
        open_archive(tmp_path / "file")


def test_an_empty_directory_is_refused(tmp_path):
    with refuses("empty", f"the directory '{tmp_path}' is empty"):
        open_archive(tmp_path)


def test_a_directory_of_something_else_is_refused(tmp_path):
    (tmp_path / "letter.txt").write_text("")
    with refuses("format", f"the directory '{tmp_path}' holds no archive: it has no manifest.json"):
        open_archive(tmp_path)


def test_an_archive_that_is_not_finished_is_refused(tmp_path):
    writer = ArchiveWriter.create(tmp_path)
    for step in (lambda: None, lambda: written(writer)):
        step()
        with refuses("unfinished", UNFINISHED.format(tmp_path)):
            open_archive(tmp_path)


def test_an_archive_that_lost_its_manifest_is_refused(archive):
    (archive / "manifest.json").unlink()
    with refuses("unfinished", UNFINISHED.format(archive)):
        open_archive(archive)


@pytest.mark.parametrize("at", [0, 100, -1])
def test_an_altered_manifest_is_refused(archive, at):
    data = bytearray((archive / "manifest.json").read_bytes())
    data[at] ^= 1
    (archive / "manifest.json").write_bytes(data)
    with refuses("altered", ALTERED):
        open_archive(archive)


def test_a_truncated_manifest_is_refused(archive):
    os.truncate(archive / "manifest.json", 200)
    with refuses("altered", ALTERED):
        open_archive(archive)


def test_a_missing_seal_is_refused(archive):
    (archive / "manifest.sha256").unlink()
    with refuses("no-seal", "the archive lacks manifest.sha256, which shows whether its manifest was altered"):
        open_archive(archive)


@pytest.mark.parametrize("text", ["", "0" * 64, "0" * 63 + "  manifest.json\n", "0" * 64 + "  other.json\n"])
def test_a_seal_that_is_none_is_refused(archive, text):
    (archive / "manifest.sha256").write_text(text)
    with refuses("bad-seal", "manifest.sha256 is not a digest of the manifest"):
        open_archive(archive)


def test_another_seal_is_refused(archive):
    (archive / "manifest.sha256").write_text("0" * 64 + "  manifest.json\n")
    with refuses("altered", ALTERED):
        open_archive(archive)


class TestSigned:
    @pytest.fixture
    def signed(self, tmp_path):
        make(tmp_path / "signed", KEY)
        return tmp_path / "signed"

    def test_a_signed_archive_is_opened_with_its_key(self, signed):
        assert contents(open_archive(signed, KEY))
        assert not (signed / manifest_file.PLAIN).exists()

    def test_a_signed_archive_needs_its_key(self, signed):
        with refuses("key-needed", "the archive is signed, and no key was given to check it with"):
            open_archive(signed)

    def test_another_key_is_refused(self, signed):
        with refuses("forged", "the manifest was not signed with this key, or was altered afterwards"):
            open_archive(signed, KEY[::-1])

    def test_a_manifest_that_was_altered_by_somebody_without_the_key_is_refused(self, signed):
        resealed(signed, lambda document: document["selection"].clear(), KEY[::-1])
        with refuses("forged", "the manifest was not signed with this key, or was altered afterwards"):
            open_archive(signed, KEY)

    def test_a_signature_that_was_replaced_by_a_digest_is_refused_where_a_key_is_given(self, signed):
        (signed / manifest_file.SIGNED).unlink()
        resealed(signed, lambda document: None)
        with refuses("not-signed", "the archive is not signed, so that the given key proves nothing"):
            open_archive(signed, KEY)

    def test_a_digest_beside_the_signature_proves_nothing(self, signed):
        resealed(signed, lambda document: document["selection"].clear())
        with refuses("forged", "the manifest was not signed with this key, or was altered afterwards"):
            open_archive(signed, KEY)

    def test_a_signature_that_is_none_is_refused(self, signed):
        (signed / manifest_file.SIGNED).write_text("?")
        with refuses("bad-seal", "manifest.hmac is not a digest of the manifest"):
            open_archive(signed, KEY)

    @pytest.mark.parametrize("size", [0, 15, 4097])
    def test_a_key_of_another_size_is_refused(self, signed, size):
        (signed.parent / "key").write_bytes(bytes(size))
        with refuses("bad-key", f"a key has 16 to 4096 bytes, this one {size}"):
            manifest_file.key_of(signed.parent / "key")
        with refuses("bad-key", f"a key has 16 to 4096 bytes, this one {size}"):
            open_archive(signed, bytes(size))

    def test_a_key_file_is_read_as_it_is(self, signed):
        (signed.parent / "key").write_bytes(KEY + b"\n")
        assert manifest_file.key_of(signed.parent / "key") == KEY + b"\n"
        with refuses("unreadable", f"there is no file '{signed.parent}/none' with a key"):
            manifest_file.key_of(signed.parent / "none")


def test_a_key_for_an_archive_that_is_not_signed_is_refused(archive):
    with refuses("not-signed", "the archive is not signed, so that the given key proves nothing"):
        open_archive(archive, KEY)


@pytest.mark.parametrize("name", ["other-archive", None, 1])
def test_another_format_is_refused(archive, name):
    resealed(archive, lambda document: document | {"format": name})
    with refuses("format", f"the manifest is of the format {name!r}, not 'qmadmin-archive'"):
        open_archive(archive)


@pytest.mark.parametrize("version", [2, 0, "1", None, True])
def test_another_version_is_refused_whatever_else_it_says(archive, version):
    resealed(archive, lambda document: {"format": document["format"], "version": version, "release": "7.1"})
    sentence = f"the archive has version {version!r} of the format, this release reads version 1"
    with refuses("version", sentence):
        open_archive(archive)


def test_a_newer_version_tells_the_release_that_reads_it(archive):
    for release, hint in (
        ("7.1", "Use release 7.1 of qmadmin, which wrote it, or a newer one."),
        (None, "Use the release that wrote it or a newer one."),
    ):
        resealed(archive, lambda document, release=release: document | {"version": 2, "release": release})
        with pytest.raises(QueueError) as told:
            open_archive(archive)
        assert told.value.hint == hint


def test_a_missing_part_is_refused(archive):
    (archive / PART).unlink()
    with refuses("missing-part", f"part '{PART}' of the archive is missing"):
        open_archive(archive)


@pytest.mark.parametrize("name", ["part-00002.parquet", "notes.txt"])
def test_what_is_not_of_the_archive_is_refused(archive, name):
    (archive / name).write_bytes(b"")
    with refuses("extra-file", f"the directory has the file '{name}', which does not belong to the archive"):
        open_archive(archive)


def test_hidden_files_are_left_alone(archive):
    for name in ("_SUCCESS", f".{PART}.crc", "._SUCCESS.crc"):
        (archive / name).write_bytes(b"?")
    open_archive(archive).verify()


@pytest.mark.parametrize("change", [-1, 1])
def test_a_part_of_another_size_is_refused(archive, change):
    size = (archive / PART).stat().st_size
    os.truncate(archive / PART, size + change)
    with refuses("size", f"part '{PART}' has {size + change} bytes, its manifest says {size}"):
        open_archive(archive)


@pytest.mark.parametrize("at", [0, 1000, -1])
def test_a_part_with_other_bytes_is_refused(archive, at):
    data = bytearray((archive / PART).read_bytes())
    data[at] ^= 1
    (archive / PART).write_bytes(data)
    opened = open_archive(archive)
    with refuses("digest", f"part '{PART}' was altered: it has another digest"):
        opened.verify()


def test_parts_that_changed_places_are_refused(archive):
    def change(document):
        first, second = document["parts"]
        for name in ("size", "sha256"):
            first[name], second[name] = second[name], first[name]

    resealed(archive, change)
    (archive / PART).rename(archive / "kept")
    (archive / "part-00001.parquet").rename(archive / PART)
    (archive / "kept").rename(archive / "part-00001.parquet")
    with refuses("rows", f"part '{PART}' has 11 rows, its manifest says 8"):
        open_archive(archive).verify()


def test_another_number_of_rows_is_refused(archive):
    data = parquet(pq.read_table(archive / PART).slice(1))
    refitted(archive, data)
    with refuses("rows", f"part '{PART}' has 7 rows, its manifest says 8"):
        open_archive(archive).verify()


def test_rows_of_another_queue_than_the_manifest_counts_are_refused(archive):
    table = pq.read_table(archive / PART)
    names = ["ELSEWHERE", *["Q"] * (table.num_rows - 1)]
    refitted(archive, parquet(table.set_column(table.schema.get_field_index("queue"), "queue", pa.array(names))))
    with refuses("contents", f"part '{PART}' does not have the messages of each queue that its manifest counts"):
        open_archive(archive).verify()


@pytest.mark.parametrize("quantity", ["messages", "pages", "size"])
def test_counts_of_a_queue_that_are_not_those_of_its_parts_are_refused(archive, quantity):
    def change(document):
        document["spaces"][0]["queues"][0]["counts"][0][quantity] += 1

    resealed(archive, change)
    sentence = "the parts of the archive do not have the messages of queue 'Q' of queue space 'QSPACE'"
    with refuses("contents", f"{sentence} that its manifest counts"):
        open_archive(archive)


def test_counts_of_a_part_that_are_not_those_of_its_rows_are_refused(archive):
    def change(document):
        document["spaces"][0]["queues"][0]["counts"][0]["pages"] += 1
        of(document)["portions"][0]["pages"] += 1

    resealed(archive, change)
    with refuses("contents", f"part '{PART}' does not have the messages of each queue that its manifest counts"):
        open_archive(archive).verify()


def test_rows_that_are_not_those_of_the_portions_are_refused(archive):
    resealed(archive, lambda document: of(document).update(rows=9))
    with refuses("contents", f"part '{PART}' does not have as many rows as messages"):
        open_archive(archive)


def test_messages_of_a_queue_without_a_definition_are_refused(archive):
    def change(document):
        document["spaces"][0]["queues"] = document["spaces"][0]["queues"][1:]

    resealed(archive, change)
    sentence = "a part of the archive has messages of queue 'Q' of queue space 'QSPACE', which its manifest does not"
    with refuses("contents", f"{sentence} define"):
        open_archive(archive)


@pytest.mark.parametrize("name", ["first", "last"])
def test_sequence_numbers_outside_of_those_of_the_space_are_refused(archive, name):
    def change(document):
        document["spaces"][0][name] += 1 if name == "first" else -1

    resealed(archive, change)
    with pytest.raises(QueueError, match=r"has sequence numbers from .* and queue space 'QSPACE' only those from"):
        open_archive(archive)


WRONG = {
    "without a column": (lambda table: table.drop_columns(["appkey"]), "no column 'appkey'"),
    "without an optional one": (lambda table: table.drop_columns(["corrid"]), "no column 'corrid'"),
    "with one more": (
        lambda table: table.append_column("later", table.column("msgid")),
        "a column 'later' that does not belong to the format",
    ),
    "with one twice": (
        lambda table: table.append_column("msgid", table.column("msgid")),
        "a column 'msgid' that does not belong to the format",
    ),
    "with another type": (
        lambda table: table.set_column(table.schema.get_field_index("size"), "size", table.column("msgid")),
        "a column 'size' of type string, not int64",
    ),
    "with times of another unit": (
        lambda table: table.set_column(
            table.schema.get_field_index("moved_at"), "moved_at", table.column("moved_at").cast(pa.timestamp("us"))
        ),
        "a column 'moved_at' of type timestamp[us], not timestamp[us, tz=UTC]",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_part_of_another_schema_is_refused(archive, case):
    change, what = WRONG[case]
    refitted(archive, parquet(change(pq.read_table(archive / PART)), store_schema=False))
    with refuses("schema", f"part '{PART}' has {what}"):
        open_archive(archive).verify()


@pytest.mark.parametrize("name", ["sequence", "order_key", "space"])
def test_a_message_without_what_each_has_is_refused(archive, name):
    table = pq.read_table(archive / PART)
    at = table.schema.get_field_index(name)
    nothing = pa.nulls(table.num_rows, table.schema.field(name).type)
    loose = table.cast(pa.schema([field.with_nullable(True) for field in table.schema]))
    refitted(archive, parquet(loose.set_column(at, name, nothing), store_schema=False))
    with refuses("contents", f"part '{PART}' has a message without '{name}'"):
        open_archive(archive).verify()


def test_a_part_that_another_program_wrote_with_optional_columns_is_as_good(archive):
    before = contents(open_archive(archive))
    table = pq.read_table(archive / PART)
    loose = table.cast(pa.schema([field.with_nullable(True) for field in table.schema]))
    refitted(archive, parquet(loose.select(list(reversed(table.column_names))), compression="snappy"))
    opened = open_archive(archive)
    opened.verify()
    assert contents(opened) == before


def test_a_message_in_a_state_that_nobody_knows_is_refused(archive):
    table = pq.read_table(archive / PART)
    at = table.schema.get_field_index("state")
    refitted(archive, parquet(table.set_column(at, "state", pa.array(["held"] * table.num_rows))))
    with refuses("contents", f"part '{PART}' has a message of the state 'held' and the delivery 'persist'"):
        open_archive(archive).verify()


WRONG_VALUES = {
    "headers": ("[1]", "a JSON object of texts"),
    "reply_delivery": ("perhaps", "one of persist, nonpersist, default"),
    "delivery_asked": ("", "one of persist, nonpersist, default"),
    "origin_reason": ("spite", "one of retries, expired, admin, forward"),
    "origin_msgid": ("1", "a message identifier"),
    "msgid": ("F" * 32, "a message identifier"),
    "priority": (101, "a priority from 1 to 100"),
    "retries": (-1, "a number of 0 or more"),
    "sequence": (0, "a sequence number"),
    "pages": (0, "a number of pages, 1 or more"),
    "corrid": (b"x" * 33, "at most 32 bytes"),
    "reply_queue": ("a\nb", "the name of a queue"),
    "queue": ("x" * 128, "the name of a queue"),
    "client_id": ("a\0b", "a text in UTF-8 without NUL characters"),
    "type": ("", "a type of at most 127 bytes"),
    "consumer": ("\0", "a text in UTF-8 without NUL characters"),
}


def changed(archive, name, value, **options):
    """Give the last message of a part another value, as another program may write it."""
    table = pq.read_table(archive / PART)
    at = table.schema.get_field_index(name)
    values = [*table.column(name).to_pylist()[:-1], value]
    return parquet(table.set_column(at, name, pa.array(values, table.schema.field(name).type)), **options)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("name", WRONG_VALUES)
def test_a_value_that_no_sender_could_give_is_refused(archive, name, packed):
    value, what = WRONG_VALUES[name]
    refitted(archive, changed(archive, name, value, use_dictionary=packed))
    with refuses("contents", f"part '{PART}' has a message whose field {name} is not {what}"):
        open_archive(archive).verify()


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("size", 7, "a message whose body has another size than it says"),
        ("order_key", b"\x80", "a message at a position that the order of queue 'Q' does not know"),
        ("origin_queue", "FROM", "a message whose origin is incomplete"),
        ("state", "consumed", "a message that is consumed and has no 'consumed_at'"),
        ("state", "delayed", "a message that is delayed and has no 'until'"),
    ],
)
def test_values_that_do_not_go_together_are_refused(archive, name, value, what):
    refitted(archive, changed(archive, name, value))
    with refuses("contents", f"part '{PART}' has {what}"):
        open_archive(archive).verify()


class TestWhatUnpacksToMuch:
    """A small file takes no more memory than the format allows, whatever it says of itself."""

    @pytest.fixture
    def one(self, archive):
        return pq.read_table(archive / PART).slice(0, 1)

    def many(self, table, rows, **columns):
        for name, value in columns.items():
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, pa.array([value], table.schema.field(name).type))
        return pa.concat_tables([table] * rows).combine_chunks()

    def verify(self, data):
        rows = pq.ParquetFile(io.BytesIO(data)).metadata.num_rows
        verify_part(PartEntry(PART, rows, len(data), hashlib.sha256(data).hexdigest(), ()), io.BytesIO(data))

    def test_a_row_group_of_very_many_rows_is_refused(self, one):
        data = parquet(self.many(one, 20_000))
        with refuses("contents", f"part '{PART}' has a row group of 20000 rows, and 16384 is the most"):
            self.verify(data)

    def test_a_body_that_a_dictionary_repeats_is_counted_each_time(self, one):
        table = self.many(one, 20, body=bytes(2**20), size=2**20)
        data = parquet(table, use_dictionary=True, dictionary_pagesize_limit=2**22, compression="zstd")
        assert len(data) < 50_000
        what = f"a row group with bodies and headers of {20 * 2**20} bytes, and {16 * 2**20} is the most"
        with refuses("contents", f"part '{PART}' has {what}"):
            self.verify(data)

    def test_a_page_that_unpacks_to_more_than_a_body_may_have_is_refused_before_that(self, one):
        data = parquet(self.many(one, 1, body=bytes(CHUNK_BYTES + 1)), compression="zstd")
        what = "the column 'body' of row group 0 unpacks to more, and 32 MiB is the most"
        with refuses("contents", f"part '{PART}' is not of the format: {what}"):
            self.verify(data)

    def test_texts_that_begin_as_the_ones_before_are_refused(self, one):
        data = parquet(one, use_dictionary=False, column_encoding={"headers": "DELTA_BYTE_ARRAY"})
        why = "its texts are each written as the end of the one before"
        with refuses("parquet", f"part '{PART}' is not a Parquet file that can be read: {why}"):
            self.verify(data)


@pytest.mark.parametrize("keep", [0, 3, 100, -9, -1])
def test_a_part_that_is_cut_off_in_truth_is_refused(archive, keep):
    refitted(archive, (archive / PART).read_bytes()[:keep])
    opened = open_archive(archive)
    with pytest.raises(QueueError, match=f"^part '{PART}' is not a Parquet file that can be read: ") as told:
        opened.verify()
    assert told.value.facts["fault"] == "parquet"


def test_a_part_with_broken_pages_is_refused(archive):
    data = bytearray((archive / PART).read_bytes())
    data[4:3000] = bytes(2996)
    refitted(archive, bytes(data))
    with pytest.raises(QueueError, match=f"^part '{PART}' is not a Parquet file that can be read: "):
        open_archive(archive).verify()


@pytest.mark.parametrize(
    "name",
    [
        "../part-00000.parquet",
        "/etc/passwd",
        "a/b.parquet",
        ".parquet",
        ".x.parquet",
        "_x.parquet",
        "x.PARQUET",
        "",
        "x",
    ],
)
def test_an_illegal_name_of_a_part_is_refused(archive, name):
    resealed(archive, lambda document: of(document).update(name=name))
    with refuses("part-name", f"{name!r} is not a name that a part of an archive can have"):
        open_archive(archive)


def test_a_part_that_is_named_twice_is_refused(archive):
    resealed(archive, lambda document: of(document, at=1).update(name=PART))
    with refuses("manifest", f"the manifest has the part '{PART}' twice"):
        open_archive(archive)


@pytest.mark.parametrize("name", [PART, "manifest.json", "manifest.sha256"])
def test_a_symbolic_link_is_refused_wherever_it_leads(archive, name):
    (archive / name).rename(archive.parent / name)
    (archive / name).symlink_to(archive.parent / name)
    with refuses("link", f"'{name}' of the archive is a symbolic link"):
        open_archive(archive)


def test_a_symbolic_link_to_the_archive_is_followed(archive):
    (archive.parent / "link").symlink_to(archive)
    open_archive(archive.parent / "link").verify()


@pytest.mark.parametrize("make_other", [Path.mkdir, os.mkfifo])
def test_a_part_that_is_no_file_is_refused(archive, make_other):
    (archive / PART).unlink()
    make_other(archive / PART)
    with refuses("no-file", f"'{PART}' of the archive is not a file"):
        open_archive(archive)


@pytest.fixture
def reachable():
    """A directory that everybody can reach, which temporary directories of tests are not."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.mark.parametrize("name", [PART, "manifest.json", "manifest.sha256", ""])
def test_an_unreadable_file_is_refused(archive, reachable, name):
    shutil.copytree(archive, reachable / "archive")
    copied = reachable / "archive"
    copied.chmod(0o755)
    for path in copied.iterdir():
        path.chmod(0o644)
    (copied / name).chmod(0)
    uid = os.geteuid()
    try:
        if uid == 0:
            os.seteuid(65_534)
        with refuses("unreadable", f"{name or str(copied)!r} of the archive cannot be read: Permission denied"):
            open_archive(copied)
    finally:
        os.seteuid(uid)
        (copied / name).chmod(0o755)


def test_a_part_that_vanishes_after_the_archive_was_opened_is_refused(archive):
    opened = open_archive(archive)
    (archive / PART).unlink()
    with refuses("unreadable", f"'{PART}' of the archive cannot be read: No such file or directory"):
        opened.verify()


def test_damage_of_the_last_part_is_found_before_a_row_of_the_first_is_used(archive):
    data = bytearray((archive / "part-00001.parquet").read_bytes())
    data[-20] ^= 1
    (archive / "part-00001.parquet").write_bytes(data)
    told = []
    with refuses("digest", "part 'part-00001.parquet' was altered: it has another digest"):
        open_archive(archive).verify(told.append)
    assert [entry.name for entry in told] == [PART]


def test_what_was_verified_is_told(archive):
    report = open_archive(archive).verify()
    sizes = [path.stat().st_size for path in archive.glob("*.parquet")]
    assert (report.parts, report.rows, report.size) == (2, 19, sum(sizes))


class TestNewerMinor:
    """An archive of a later minor version may say more, which this release would lose without a word."""

    @staticmethod
    def extended(archive, minor):
        table = pq.read_table(archive / PART)
        refitted(archive, parquet(table.append_column("later", table.column("msgid")), store_schema=False))

        def change(document):
            document |= {"minor": minor, "later": [1]}
            for found in (document["source"], document["spaces"][0], document["spaces"][0]["definition"], of(document)):
                found["later"] = {"x": None}
            return document

        resealed(archive, change)

    def test_a_later_minor_version_is_refused(self, archive):
        self.extended(archive, MINOR + 1)
        sentence = f"the archive has version 1.{MINOR + 1} of the format, this release reads up to 1.{MINOR}"
        with refuses("version", sentence):
            open_archive(archive)

    def test_an_earlier_one_is_read(self, archive, tmp_path):
        assert make(tmp_path / "earlier", minor=1).minor == 1 < MINOR
        assert contents(open_archive(tmp_path / "earlier")) == contents(open_archive(archive))

    def test_unknown_fields_of_this_minor_version_are_refused(self, archive):
        self.extended(archive, MINOR)
        with pytest.raises(QueueError, match="has the unknown field 'later'") as told:
            open_archive(archive)
        assert told.value.facts["fault"] == "manifest"


def test_a_part_is_verified_from_any_file(archive):
    files = {path.name: path.read_bytes() for path in archive.iterdir()}
    manifest = checked_manifest(files[manifest_file.NAME], files)
    check_files(manifest, files)
    for entry in manifest.parts:
        opened = io.BytesIO(files[entry.name])
        verify_part(entry, opened)
        assert sum(batch.num_rows for _, batch in batches(entry, opened)) == entry.rows
    with refuses(
        "size", f"part '{PART}' has {manifest.parts[0].size - 1} bytes, its manifest says {manifest.parts[0].size}"
    ):
        verify_part(manifest.parts[0], io.BytesIO(files[PART][:-1]))


def test_every_error_of_reading_is_told_as_one():
    class Broken(io.BytesIO):
        def read(self, _size=-1):
            raise OSError(5, os.strerror(5))

    with refuses("unreadable", "'x.parquet' of the archive cannot be read: Input/output error"):
        verify_part(PartEntry("x.parquet", 1, 1, "0" * 64, ()), Broken())
