"""The manifest is read strictly, and says the same when it is read as when it was written."""

import copy
import dataclasses
import json

import pytest

from qmadmin.archive import manifest_file
from qmadmin.archive.manifest import (
    ArchiveSource,
    Content,
    Count,
    PartEntry,
    Portion,
    counted,
)
from qmadmin.archive.manifest_fields import Fields, definition_of, told_definition
from qmcore import names
from qmcore.attributes import Limits, Text, Whole, attribute, declared
from qmcore.errors import QueueError, SystemFailureError
from qmcore.limits import Threshold, parse_high, parse_low
from qmcore.message import State
from tests.fix_archive import make, manifest_of, refuses

NO_TIME = "the manifest: the field 'created_at' must be a time such as 2026-01-31T23:59:59.000000Z"


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    """The document of a manifest in which everything stands that can."""
    directory = tmp_path_factory.mktemp("manifest") / "archive"
    make(directory)
    return json.loads((directory / manifest_file.NAME).read_bytes())


def read(document):
    return manifest_file.from_json(json.dumps(document).encode())


def places(found, path=()):
    """Yield the path of each field of a document, but for those of the selection, which are free."""
    if isinstance(found, dict):
        for name, value in found.items():
            yield (*path, name)
            if name != "selection":
                yield from places(value, (*path, name))
    elif isinstance(found, list):
        for at, value in enumerate(found):
            yield from places(value, (*path, at))


def changed(document, path, change):
    """Return a document with a field changed by a function that is given the object of it and its name."""
    document = copy.deepcopy(document)
    found = document
    for step in path[:-1]:
        found = found[step]
    change(found, path[-1])
    return document


def test_a_manifest_says_the_same_when_it_is_read_again(tmp_path):
    manifest = make(tmp_path / "archive")
    assert manifest_file.from_json(manifest_file.to_json(manifest)) == manifest
    assert manifest.messages == 19
    assert manifest.part("part-00001.parquet") is manifest.parts[1]
    with pytest.raises(KeyError):
        manifest.part("none")


@dataclasses.dataclass(frozen=True)
class Grown:
    """A definition, to which the minor versions 1 and 3 have added attributes."""

    name: str = dataclasses.field(metadata=declared(Text("name", names.queue_name), "Its name."))
    first: int = attribute(5, Whole("first", 0, 9), "What was added first.", since=1)
    use: Threshold = attribute(Threshold.none(), Limits("use"), "use", since=3)


@pytest.mark.parametrize(("minor", "carried"), [(0, []), (1, ["first"]), (2, ["first"]), (3, ["first", "use"])])
def test_an_earlier_archive_lacks_later_attributes_and_means_their_defaults(minor, carried):
    grown = Grown("N", 7, Threshold(parse_high("80%"), parse_low("10%", parse_high("80%")), "true"))
    told = told_definition(grown, minor)
    read = definition_of(Grown, minor)(Fields(told, "it"))
    assert read == dataclasses.replace(Grown("N"), **{name: getattr(grown, name) for name in carried})
    last = told.popitem()[0]
    with refuses("manifest", f"it lacks the field {last!r}"):
        definition_of(Grown, minor)(Fields(told, "it"))


def test_an_archive_of_nothing_is_one():
    manifest = manifest_of((), spaces=())
    assert manifest_file.from_json(manifest_file.to_json(manifest)) == manifest
    assert (manifest.messages, manifest.size) == (0, 0)


@pytest.mark.parametrize("content", Content)
def test_a_manifest_says_what_is_imported_of_the_archive(content):
    data = manifest_file.to_json(manifest_of((), content=content))
    assert manifest_file.from_json(data).content is content


def test_a_manifest_of_the_first_minor_version_says_nothing_of_what_is_imported(tmp_path):
    first = json.loads(manifest_file.to_json(make(tmp_path / "first", minor=0)))
    assert "content" not in first
    assert read(first).content is Content.ALL
    with pytest.raises(SystemFailureError, match="has the unknown field 'content'"):
        read(first | {"content": "all"})


def test_each_missing_field_is_told(document):
    for path in places(document):
        if path not in {("format",), ("version",)}:
            with pytest.raises(SystemFailureError, match=f"lacks the field '{path[-1]}'") as told:
                read(changed(document, path, lambda found, name: found.pop(name)))
            assert told.value.facts["field"] == path[-1]


def test_each_field_of_a_wrong_type_is_told(document):
    for path in places(document):
        if path in {("format",), ("version",)}:
            continue
        for wrong in ([[]], {"x": 1}, -9, 1.5, True, "\0"):
            now = document
            for step in path:
                now = now[step]
            if path == ("selection",) and isinstance(wrong, dict):
                continue
            free_text = path[-1] in {"device", "device_id", "kind", "release"}
            if type(wrong) is type(now) and (free_text or isinstance(wrong, bool | dict)):
                continue
            if path[-1] == "shift" and wrong == -9:
                continue
            with pytest.raises(QueueError) as told:
                read(changed(document, path, lambda found, name, wrong=wrong: found.update({name: wrong})))
            assert told.value.facts["fault"] in {"manifest", "part-name", "contents"}, (path, wrong)


def test_each_unknown_field_is_told(document):
    for path in places(document):
        with pytest.raises(SystemFailureError, match="has the unknown field 'later'"):
            read(changed(document, path, lambda found, _name: found.update(later=1)))


def test_text_that_is_no_json_is_told():
    for data in (b"", b"{", b"\xff", b'{"a": NaN}', b'{"a": 1, "a": 2}', b"[" * 100_000):
        with pytest.raises(SystemFailureError, match=r"^the manifest is not JSON: "):
            manifest_file.from_json(data)
    with refuses("manifest", "the manifest is not a JSON object"):
        manifest_file.from_json(b"[]")


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (
            ("created_at",),
            "2026-01-01",
            f"{NO_TIME}, got '2026-01-01'",
        ),
        (
            ("created_at",),
            "2026-01-01T12:00:00.000000+01:00",
            f"{NO_TIME}, got '2026-01-01T12:00:00.000000+01:00'",
        ),
        (
            ("archive",),
            "A1" * 16,
            f"the manifest: the field 'archive' must be 32 hexadecimal digits, got '{'A1' * 16}'",
        ),
        (("bodies",), "xdr", "the manifest: the field 'bodies' must be one of octets, got 'xdr'"),
        (
            ("parts", 0, "portions", 1, "state"),
            7,
            "part 'part-00000.parquet', portion 2: the field 'state' must be one of ready, delayed, consumed, got 7",
        ),
        (
            ("spaces", 0, "definition", "pages"),
            6,
            "the definition of queue space 1: queue space 'QSPACE' needs more than 6 pages for 5 queues, got 6",
        ),
        (
            ("spaces", 0, "definition", "name"),
            "a name too long.",
            "the definition of queue space 1: the queue space name 'a name too long.' has 16 bytes, the limit is 15",
        ),
        (
            ("spaces", 0, "queues", 0, "definition", "order"),
            "size",
            "the definition of queue space 'QSPACE', queue 1: the queue order 'size' has the unknown criterion 'size'",
        ),
        (
            ("spaces", 0, "queues", 0, "definition", "high"),
            "200%",
            "the definition of queue space 'QSPACE', queue 1: Invalid high threshold number: '200%'",
        ),
        (("spaces", 0, "queues", 0), 7, "queue space 'QSPACE', queue 1 is not a JSON object"),
        (("spaces", 1, "definition", "name"), "QSPACE", "the manifest has the queue space 'QSPACE' twice"),
        (
            ("spaces", 0, "queues", 1, "definition", "name"),
            "Q",
            "the manifest has the queue ('QSPACE', 'Q') twice",
        ),
    ],
)
def test_a_wrong_value_is_told_with_its_place(document, path, value, sentence):
    with refuses("manifest", sentence):
        read(changed(document, path, lambda found, name: found.__setitem__(name, value)))


def test_a_long_value_is_shown_in_part(document):
    with pytest.raises(SystemFailureError, match=r"got 'x{56}\.\.\.$"):
        read(document | {"bodies": "x" * 100})


def test_counts_of_no_messages_say_nothing(document):
    def add(found, name):
        found[name] = [{"state": "consumed", "delivery": "persist", "messages": 0, "pages": 0, "size": 0}]

    assert read(changed(document, ("spaces", 1, "queues", 1, "counts"), add)).messages == 19


def test_portions_of_the_same_queue_in_several_parts_are_summed_up():
    first = Portion("S", "Q", State.READY, False, 1, 2, 3, 4, 5)
    second = Portion("S", "Q", State.READY, False, 10, 20, 30, 1, 9)
    memory = Portion("S", "Q", State.READY, True, 1, 1, 1, 6, 6)
    parts = [PartEntry(f"{at}.parquet", 0, 0, "", of) for at, of in enumerate([(first, memory), (second,)])]
    assert counted(parts) == {("S", "Q"): (Count(State.READY, False, 11, 22, 33), Count(State.READY, True, 1, 1, 1))}


def test_a_device_with_a_name_that_is_no_unicode_is_shown():
    manifest = manifest_of((), spaces=(), source=ArchiveSource("QUE\udcff\0", "", "sqlite", 4096, 0))
    assert manifest_file.from_json(manifest_file.to_json(manifest)).source.device == "QUE\\udcff\\x00"
