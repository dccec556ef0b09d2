"""What was exported and imported is the same, in all that belongs to it, whatever store it comes from and goes to."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from qmadmin.device import Device
from qmadmin.opening import create_device
from qmadmin.space import QueueSpace
from qmadmin.transfer import Processes
from qmadmin.transfer.comparing import compare
from qmadmin.transfer.exporting import export
from qmadmin.transfer.import_planning import ImportOptions
from qmadmin.transfer.importing import load_archive
from qmcore.message import BODY_MAX
from tests.fix_store import space_definition
from tests.transfer.drawing import ACTS, Act, done, seen


class Places:
    """Where devices of one kind go, a new one each time."""

    def __init__(self, kind: str, base: str) -> None:
        self.kind = kind
        self._base = base
        self._numbers = itertools.count()

    @contextlib.contextmanager
    def device(self) -> Iterator[Device]:
        """Make a device, and close it at the end."""
        number = next(self._numbers)
        with create_device(f"{self._base}_{number}", 200_000) as made:
            yield made


def places(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    if kind == "postgres":
        return Places(kind, f"{request.getfixturevalue('database_url')}_{tmp_path.name[:8].replace('-', '_')}")
    return Places(kind, str(tmp_path / "QUE"))


def laid_out(device: Device, acts: list[Act], *, memory: bool) -> QueueSpace:
    device.create_space(space_definition(pages=50_000, messages=20_000, memory=2**20 if memory else 0))
    space = device.open_space("SPACE")
    done(space, acts, memory=memory)
    return space


EXAMPLES = {"file": 25, "postgres": 4}


@pytest.mark.matrix
@pytest.mark.parametrize("source", ["file", "postgres"])
@pytest.mark.parametrize("target", ["file", "postgres"])
def test_an_import_of_an_export_is_the_same_in_everything_that_can_be_seen(
    source: str, target: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    there, here = places(source, request, tmp_path), places(target, request, tmp_path / "here")
    (tmp_path / "here").mkdir()
    numbers = itertools.count()

    @settings(
        max_examples=min(EXAMPLES[source], EXAMPLES[target]),
        # Making smaller what fails takes minutes where a device takes a second.
        phases=tuple(Phase) if source == target == "file" else (Phase.explicit, Phase.reuse, Phase.generate),
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(acts=ACTS, memory=st.booleans())
    def check(acts: list[Act], memory: bool) -> None:
        archive = tmp_path / f"archive-{next(numbers)}"
        with there.device() as device, laid_out(device, acts, memory=memory) as space:
            export(device.config, archive)
            before = seen(space)
            with here.device() as other:
                load_archive(archive, other.config, ImportOptions(start=True))
                with other.open_space("SPACE") as arrived:
                    assert seen(arrived) == before
                    assert [queue.definition for queue in arrived.queues()] == [
                        queue.definition for queue in space.queues()
                    ]
                    assert not [found for found in other.check("SPACE") if found.severity.value == "error"]
                compared = compare(archive, other.config)
        assert compared.differences == ()

    check()


def test_messages_that_are_exported_again_from_where_they_were_imported_keep_their_first_identifiers(
    tmp_path: Path,
) -> None:
    files = Places("file", str(tmp_path / "QUE"))
    acts = [Act("enqueue", "fifo", f"{number}".encode()) for number in range(5)]
    with files.device() as first, laid_out(first, acts, memory=False) as space:
        before = seen(space)
        export(first.config, tmp_path / "one")
        with files.device() as second:
            load_archive(tmp_path / "one", second.config, ImportOptions(start=True))
            with second.open_space("SPACE") as between:
                own = between.enqueue("fifo", b"own")
                export(second.config, tmp_path / "two")
            with files.device() as third:
                load_archive(tmp_path / "two", third.config, ImportOptions(start=True))
                with third.open_space("SPACE") as last:
                    stored = [info.msgid for info, _ in seen(last)["fifo"][0]]
                    assert stored == [*(info.msgid for info, _ in before["fifo"][0]), own]
                    assert [last.dequeue("fifo", msgid=msgid).body for msgid in stored] == [  # type: ignore[union-attr]
                        *(f"{number}".encode() for number in range(5)),
                        b"own",
                    ]


def test_what_a_message_was_before_it_was_moved_is_the_same_there(tmp_path: Path) -> None:
    files = Places("file", str(tmp_path / "QUE"))
    with files.device() as first, laid_out(first, [], memory=False) as space, files.device() as second:
        moved = space.enqueue("fifo", b"x", expires_in=600)
        end = next(space.messages("fifo")).expires_us
        space.move("fifo", "lifo")
        space.move("lifo", "errors")
        export(first.config, tmp_path / "one")
        load_archive(tmp_path / "one", second.config, ImportOptions(start=True))
        with second.open_space("SPACE") as there:
            (info,) = there.messages("errors")
            assert (info.first_msgid, info.expires_us) == (moved, None)
            there.move("errors", "fifo")
            assert next(there.messages("fifo")).expires_us == end


def test_what_is_enqueued_after_an_import_comes_behind_what_was_imported_and_on_top_before_it(tmp_path: Path) -> None:
    files = Places("file", str(tmp_path / "QUE"))
    acts = [Act("enqueue", "fifo", b"1"), Act("enqueue", "fifo", b"2"), Act("enqueue", "fifo", b"0", {"top": True})]
    with files.device() as first, laid_out(first, acts, memory=False):
        export(first.config, tmp_path / "archive")
    with files.device() as second:
        load_archive(tmp_path / "archive", second.config, ImportOptions(start=True))
        with second.open_space("SPACE") as space:
            space.enqueue("fifo", b"3")
            space.enqueue("fifo", b"first", top=True)
            assert [m.body for m in space.dequeue_many("fifo", 10)] == [b"first", b"0", b"1", b"2", b"3"]


def test_a_definition_is_the_same_with_everything_that_a_queue_space_records(tmp_path: Path) -> None:
    files = Places("file", str(tmp_path / "QUE"))
    with files.device() as first, laid_out(first, [], memory=True) as space:
        before = dataclasses.asdict(space.definition)
        export(first.config, tmp_path / "archive")
    with files.device() as second:
        load_archive(tmp_path / "archive", second.config)
        assert dataclasses.asdict(second.space("SPACE").definition) == before


@pytest.mark.slow
@pytest.mark.parametrize("target", ["file", "postgres"])
def test_the_largest_body_that_there_can_be_arrives_as_it_was(
    target: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    (tmp_path / "here").mkdir()
    files, here = Places("file", str(tmp_path / "QUE")), places(target, request, tmp_path / "here")
    body = random.Random(0).randbytes(BODY_MAX)
    with files.device() as first, laid_out(first, [], memory=False) as space, here.device() as second:
        msgids = space.enqueue_many("fifo", [b"small", body, b"small"])
        export(first.config, tmp_path / "archive", executor=Processes(2))
        load_archive(tmp_path / "archive", second.config, ImportOptions(start=True), executor=Processes(2))
        assert compare(tmp_path / "archive", second.config).differences == ()
        with second.open_space("SPACE") as arrived:
            assert arrived.dequeue("fifo", msgid=msgids[1]).body == body  # type: ignore[union-attr]
