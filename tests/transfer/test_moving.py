"""Moves that end early, or that take only a part: no message can be consumed in both places."""

from __future__ import annotations

import pytest

from qmadmin.archive.file_systems import Directory
from qmadmin.archive.manifest import Content
from qmadmin.archive.reading import open_archive
from qmadmin.console import archives
from qmadmin.opening import create_device, open_device
from qmadmin.transfer import Local
from qmadmin.transfer.exporting import ExportOptions, export
from qmadmin.transfer.import_planning import ImportOptions
from qmadmin.transfer.importing import imports_into
from qmadmin.transfer.moving import move
from qmadmin.transfer.selecting import ArchiveSelection
from qmcore.errors import InUseError, InvalidArgumentError, NoSpaceError
from qmcore.imports import Stage
from qmcore.times import MICROS
from tests.fix_store import MovableClock, make_queue, space_definition

STARTED, STOPPED = (True, True), (False, False)


class Interrupt(BaseException):
    """As Ctrl-C is, or a signal."""


@pytest.fixture
def source(tmp_path):
    with create_device(tmp_path / "QUE", 20_000) as device:
        device.create_space(space_definition())
        with device.open_space("SPACE") as space:
            make_queue(space, "Q")
            for number in range(9):
                space.enqueue("Q", f"{number}", priority=number + 1)
        return device.path


@pytest.fixture
def there(tmp_path):
    with create_device(tmp_path / "NEW", 20_000) as device:
        return device.path


@pytest.fixture
def moved(source, there, tmp_path):
    def moves(name="archive", at="", selection=None, to=there, spaces=None, **how):
        def progress(what, done, _total):
            if what == at and done:
                raise Interrupt

        exporting = ExportOptions(selection=selection or ArchiveSelection(), **how)
        landing = ImportOptions(start=True, spaces=spaces or {})
        return move(
            source,
            to,
            tmp_path / name,
            exporting=exporting,
            importing=landing,
            executor=Local(),
            progress=progress,
        )

    return moves


def directions(config):
    with open_device(config) as device:
        (queue,) = device.queues("SPACE")
        return queue.enqueue_enabled, queue.dequeue_enabled


def texts(config):
    with open_device(config) as device, device.open_space("SPACE") as space:
        return [space.content(info).text for info in space.messages("Q")]


def told(done):
    return [notice.text for notice in archives.moved(done).notices]


def consumed(config):
    with open_device(config) as device, device.open_space("SPACE") as space:
        return space.dequeue("Q").text


def stages(config):
    with open_device(config) as device:
        return [job.state for space in device.spaces() for job in imports_into(device, space.name)]


@pytest.mark.parametrize(
    ("at", "stand"),
    [
        ("Importing", "The queues are started again, and nothing"),
        ("Comparing", "The queues stay stopped in both places"),
    ],
)
def test_an_interrupt_says_how_things_stand(moved, at, stand):
    with pytest.raises(Interrupt) as caught:
        moved(at=at)
    (note,) = caught.value.__notes__
    assert note.startswith(stand)


def test_an_interrupt_says_that_a_move_goes_on_whose_queues_were_stopped_before(moved, source, there):
    with open_device(source) as device, device.open_space("SPACE") as space:
        space.stop_queue("Q")
    with pytest.raises(Interrupt) as caught:
        moved(at="Importing")
    assert caught.value.__notes__ == [
        "The queues stay stopped, and nothing has arrived; the same move with --resume continues."
    ]
    moved(again=True)
    assert (texts(source), len(texts(there))) == ([], 9)


@pytest.mark.parametrize("at", ["Exporting", "Verifying", "Importing"])
def test_a_move_that_ends_before_anything_has_arrived_leaves_all_as_it_was(moved, source, there, at):
    with pytest.raises(Interrupt):
        moved(at=at)
    assert directions(source) == STARTED
    assert Stage.LOADING not in stages(there)
    assert consumed(source) == "0"
    moved("another")
    assert texts(there) == [f"{number}" for number in range(1, 9)]


def test_an_archive_whose_queues_were_started_since_is_not_gone_on_with(moved, source, there):
    with pytest.raises(Interrupt):
        moved(at="Importing")
    with pytest.raises(InUseError, match="queue 'Q' of queue space 'SPACE' was started after it was exported"):
        moved(again=True)
    assert directions(source) == STARTED
    assert len(texts(source)) == 9


@pytest.mark.parametrize("at", ["Comparing", "Removing"])
def test_what_has_arrived_cannot_be_consumed_anywhere_until_the_move_goes_on(moved, source, there, at):
    before = texts(source)
    with pytest.raises(Interrupt):
        moved(at=at)
    assert (directions(source), directions(there)) == (STOPPED, STOPPED)
    assert texts(there) == before
    moved(again=True)
    assert (directions(source), directions(there)) == (STOPPED, STARTED)
    assert (texts(source), texts(there)) == ([], before)


def test_a_move_goes_on_although_messages_that_have_arrived_became_available_or_expired(moved, source, there):
    with open_device(source, clock=MovableClock(1_600_000_000 * MICROS)) as device, device.open_space("SPACE") as space:
        space.enqueue("Q", "delayed", delay=60)
        space.enqueue("Q", "short-lived", expires_in=60)
    with pytest.raises(Interrupt):
        moved(at="Comparing")
    # Whoever looks at a queue has its messages released and removed.
    with open_device(there) as device, device.open_space("SPACE") as space:
        assert space.usage("Q").ready == 10
    moved(again=True)
    assert (len(texts(there)), texts(source)) == (10, [])


def test_a_queue_that_was_started_by_hand_after_its_messages_arrived_keeps_the_move_from_going_on(moved, source, there):
    with pytest.raises(Interrupt):
        moved(at="Removing")
    with open_device(source) as device, device.open_space("SPACE") as space:
        space.start_queue("Q")
    with pytest.raises(InUseError, match="was started after it was exported"):
        moved(again=True)
    assert directions(there) == STOPPED


def test_queues_of_which_only_some_messages_are_moved_go_on_at_the_source(moved, source, there):
    moved(selection=ArchiveSelection(condition="priority > 5"))
    assert (texts(source), texts(there)) == (["0", "1", "2", "3", "4"], ["5", "6", "7", "8"])
    assert (directions(source), directions(there)) == (STARTED, STARTED)


def test_a_part_that_was_cut_short_lets_the_queues_go_on_when_it_is_done(moved, source, there):
    some = ArchiveSelection(condition="priority > 5")
    with pytest.raises(Interrupt):
        moved(at="Removing", selection=some)
    assert directions(source) == STOPPED
    moved(selection=some, again=True)
    assert directions(source) == STARTED
    assert len(texts(source)) == 5


def test_definitions_alone_are_not_moved(moved, source):
    with pytest.raises(InvalidArgumentError, match="a move without messages would only stop the queues"):
        moved(selection=ArchiveSelection(content=Content.DEFINITIONS))
    assert directions(source) == STARTED


def test_messages_are_not_moved_without_their_definitions(moved, source):
    with pytest.raises(InvalidArgumentError, match="a move creates the queues at the destination"):
        moved(selection=ArchiveSelection(content=Content.MESSAGES))
    assert directions(source) == STARTED


def test_what_the_destination_has_no_room_for_is_refused_before_anything_is_stopped(moved, there, source, tmp_path):
    with open_device(there) as device:
        device.create_space(space_definition(messages=8))
    with pytest.raises(NoSpaceError):
        moved()
    assert directions(source) == STARTED
    assert not (tmp_path / "archive").exists()


def test_a_queue_that_is_there_is_refused_with_what_a_move_can_do_about_it(moved, source, there):
    moved(selection=ArchiveSelection(condition="priority > 5"))
    with pytest.raises(InvalidArgumentError, match="queue 'Q' exists already") as caught:
        moved("another")
    assert caught.value.hint.startswith("A move creates its queues.")
    assert (caught.value.alternative, directions(source)) == (None, STARTED)


def test_a_move_to_the_device_itself_is_refused(source, tmp_path):
    with pytest.raises(InvalidArgumentError, match="cannot be moved to that device itself"):
        move(source, source, tmp_path / "archive")
    assert directions(source) == STARTED
    assert not (tmp_path / "archive").exists()


def test_while_queues_are_moved_another_move_of_them_is_refused_and_disturbs_nothing(source, there, tmp_path):
    with create_device(tmp_path / "THIRD", 20_000) as third:
        pass

    def another(what, _done, _total):
        if what == "Removing":
            with pytest.raises(InUseError, match="are being moved by two processes"):
                move(source, third.path, tmp_path / "another", executor=Local())

    before = texts(source)
    move(source, there, tmp_path / "archive", executor=Local(), progress=another)
    assert (texts(source), texts(there), stages(third.path)) == ([], before, [])
    assert (directions(source), directions(there)) == (STOPPED, (True, False))
    assert not (tmp_path / "another").exists()


def test_a_move_that_was_done_may_go_on_again_although_its_messages_are_being_consumed(moved, source, there):
    moved()
    assert consumed(there) == "0"
    moved(again=True)
    assert (len(texts(there)), texts(source)) == (8, [])
    assert (directions(source), directions(there)) == (STOPPED, STARTED)


def test_one_goes_on_only_with_the_selection_of_the_first_time(moved, source, there):
    some = ArchiveSelection(condition="priority > 5")
    with pytest.raises(Interrupt):
        moved(at="Removing", selection=some)
    with pytest.raises(InvalidArgumentError, match="with another selection of queues or messages"):
        moved(again=True)
    assert (directions(source), directions(there)) == (STOPPED, STOPPED)
    assert moved(selection=some, again=True).left == 0


def test_what_is_enqueued_by_a_transaction_that_commits_after_the_export_stays_and_is_told(source, there, tmp_path):
    with open_device(source) as device, device.open_space("SPACE") as space, space.transaction() as transaction:
        space.enqueue("Q", "later")

        def commit(what, _done, _total):
            if what == "Removing" and transaction.active:
                transaction.commit()

        done = move(
            source,
            there,
            tmp_path / "archive",
            importing=ImportOptions(start=True),
            executor=Local(),
            progress=commit,
        )
    assert (texts(source), len(texts(there)), done.left) == (["later"], 9, 1)
    assert told(done) == ["1 message is left at the source, in queues that stay stopped"]


def test_a_move_tells_which_queues_are_stopped_where_and_what_starts_them(source, there, tmp_path):
    done = move(source, there, tmp_path / "archive", executor=Local())
    at_destination, at_source = archives.moved(done).notices
    assert at_destination.text == "the queues are stopped for dequeuing at the destination"
    assert at_destination.hint.endswith(f": qmadmin -c 'qopen SPACE' -c 'qstart -d Q' {there}")
    assert at_source.text == "the queues stay stopped at the source, where nothing is left in them"
    assert at_source.hint.endswith(f": qmadmin -c 'qopen SPACE' -c 'qstart Q' {source}")
    with open_device(there) as device, device.open_space("SPACE") as space:
        space.start_queue("Q")
    again = move(source, there, tmp_path / "archive", exporting=ExportOptions(again=True), executor=Local())
    assert told(again) == [at_source.text]


def test_a_move_of_several_queues_tells_how_each_is_started(source, there, tmp_path):
    with open_device(source) as device, device.open_space("SPACE") as space:
        make_queue(space, "P")
    hints = [
        notice.hint for notice in archives.moved(move(source, there, tmp_path / "archive", executor=Local())).notices
    ]
    assert [hint.count("start each of them, such as the first one: qmadmin") for hint in hints] == [1, 1]


def test_a_move_of_a_part_tells_nothing_of_queues_that_go_on(moved):
    assert told(moved(selection=ArchiveSelection(condition="priority > 5"))) == []


@pytest.mark.parametrize("selection", [None, ArchiveSelection(condition="priority > 5")])
def test_a_move_that_goes_on_does_not_take_what_was_removed_before_for_left(moved, source, there, selection):
    with pytest.raises(Interrupt):
        moved(at="Removing", selection=selection)
    done = moved(again=True, selection=selection)
    assert (done.removed.removed, done.removed.before, done.removed.kept) == (0, len(texts(there)), 0)
    assert not any("not removed" in text for text in told(done))


@pytest.mark.parametrize("at", ["Comparing", "Removing"])
def test_what_may_have_arrived_in_one_place_is_taken_to_no_other(moved, source, there, tmp_path, at):
    before = texts(source)
    with create_device(tmp_path / "THIRD", 20_000) as third:
        pass
    with pytest.raises(Interrupt):
        moved(at=at)
    here = texts(source)
    with pytest.raises(InvalidArgumentError, match="may have its messages, and not to") as caught:
        moved(again=True, to=third.path)
    assert f"a move to device {there!r}" in caught.value.message
    assert "qmspark verify" in caught.value.hint
    assert (directions(source), texts(source), stages(third.path)) == (STOPPED, here, [])
    moved(again=True)
    assert (texts(source), texts(there)) == ([], before)


def test_a_move_goes_on_to_the_same_device_by_another_path(moved, source, there, tmp_path, monkeypatch):
    with pytest.raises(Interrupt):
        moved(at="Removing")
    (tmp_path / "by").mkdir()
    (tmp_path / "by" / "link").symlink_to(there)
    monkeypatch.chdir(tmp_path / "by")
    moved(again=True, to="link")
    assert (texts(source), len(texts(there))) == ([], 9)


def test_a_move_does_not_go_on_under_other_names(moved, source, there):
    with pytest.raises(Interrupt):
        moved(at="Comparing")
    with pytest.raises(InvalidArgumentError, match="under other names of queue spaces or queues"):
        moved(again=True, spaces={"SPACE": "OTHER"})
    assert (directions(source), len(stages(there))) == (STOPPED, 1)


def test_an_archive_that_was_not_of_a_move_is_not_gone_on_with(moved, source, there, tmp_path):
    export(source, tmp_path / "archive")
    # What is consumed here meanwhile must not arrive there.
    assert consumed(source) == "0"
    with open_device(source) as device, device.open_space("SPACE") as space:
        space.stop_queue("Q")
    with pytest.raises(InvalidArgumentError, match="there is no move to go on with"):
        moved(again=True)
    assert (len(texts(source)), stages(there)) == (8, [])


def test_an_archive_of_a_move_tells_where_that_goes(moved, there, tmp_path):
    moved()
    manifest = open_archive(tmp_path / "archive").manifest
    shown = {each.label: each.value for each in archives.content(Directory(tmp_path / "archive"), manifest).fields}
    assert shown["Asked for"] == f"move {there}"


def test_the_first_messages_of_a_queue_are_moved_and_the_others_stay(moved, source, there):
    first = ArchiveSelection(count=4)
    with pytest.raises(Interrupt):
        moved(at="Removing", selection=first)
    done = moved(selection=first, again=True)
    assert (texts(source), texts(there)) == (["4", "5", "6", "7", "8"], ["0", "1", "2", "3"])
    assert (directions(source), done.emptied) == (STARTED, False)


def test_a_move_of_which_the_second_queue_space_did_not_arrive_goes_on_when_nothing_is_in_its_way(
    source, there, tmp_path
):
    with open_device(source) as device:
        device.create_space(space_definition("TWO"))
        with device.open_space("TWO") as space:
            make_queue(space, "Q")
            space.enqueue("Q", "of the second")

    def in_the_way(what, done, _total):
        if what == "Importing" and done:
            with open_device(there) as device, device.open_space("TWO") as space:
                make_queue(space, "Q")

    before = texts(source)
    with pytest.raises(InUseError, match="was created while the import was under way") as caught:
        move(source, there, tmp_path / "archive", executor=Local(), progress=in_the_way)
    assert "The queues stay stopped in both places" in caught.value.hint
    assert (directions(source), texts(source), texts(there)) == (STOPPED, before, before)
    with open_device(there) as device, device.open_space("TWO") as space:
        space.destroy_queue("Q")
    done = move(source, there, tmp_path / "archive", exporting=ExportOptions(again=True), executor=Local())
    assert (texts(source), texts(there), done.removed.removed) == ([], before, 10)
