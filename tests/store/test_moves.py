"""What goes along when a message is moved, to an error queue, from there, or by an administrator: all that it has."""

import dataclasses

import pytest

from qmcore.message import Reason
from tests.fix_store import count_rows, drain, make_queue


@pytest.fixture
def space(store, monkeypatch, tmp_path):
    monkeypatch.setenv("QM_SHM_DIR", str(tmp_path))
    opened = store.space(error_queue="ERRORS", memory=400_000, pages=10_000)
    make_queue(opened, "Q", retries=1, keep_expired=True)
    for name in ("ERRORS", "OWN", "OTHER"):
        make_queue(opened, name)
    return opened


@pytest.fixture(params=[True, False], ids=["persistent", "in-memory"])
def persistent(request):
    return request.param


def fail(space, name, times):
    for _ in range(times):
        with space.transaction() as transaction:
            space.dequeue(name)
            transaction.rollback("no account")


def only(space, name):
    (info,) = space.messages(name)
    return info


def terms(info):
    """Return what a move leaves as it is."""
    return [getattr(info, field.name) for field in dataclasses.fields(info) if field.name not in MOVED]


MOVED = ("msgid", "queue", "retries", "origin", "last_error", "expires_us", "available_us", "group")


def everything(space, **more):
    return space.enqueue(
        "Q", "x", priority=7, corrid="c", reply_queue="R", failure_queue="F", error_queue="OWN", urcode=3,
        headers={"h": "v"}, type="VIEW", subtype="s", reply_persistent=False, **more,
    )  # fmt: skip


def test_all_that_a_message_has_goes_along_to_an_error_queue_and_back(space, clock, persistent):
    everything(space, expires_in=60, persistent=persistent)
    before = only(space, "Q")
    fail(space, "Q", 2)
    there = only(space, "OWN")
    assert (terms(there), there.retries, there.expires_us) == (terms(before), 0, None)
    assert space.requeue("OWN") == 1
    back = only(space, "Q")
    assert (terms(back), back.retries, back.expires_us) == (terms(before), 0, before.expires_us)
    fail(space, "Q", 2)
    assert terms(only(space, "OWN")) == terms(before)


def test_the_error_queue_of_a_message_is_asked_again_after_each_return(space):
    space.enqueue("Q", "x", error_queue="OWN")
    for _ in range(3):
        fail(space, "Q", 2)
        assert only(space, "OWN").origin.queue == "Q"
        space.requeue("OWN")
    space.move("Q", "OTHER")
    fail(space, "OTHER", 1)
    assert drain(space, "OWN") == ["x"]


def test_nothing_expires_in_an_error_queue_and_what_comes_back_in_time_does(space, clock, persistent):
    space.enqueue("Q", "x", expires_in=60, persistent=persistent)
    fail(space, "Q", 2)
    clock.advance(50)
    assert only(space, "ERRORS").expires_us is None
    space.requeue("ERRORS")
    assert only(space, "Q").expires_at == clock.moment(10)
    clock.advance(10)
    assert space.dequeue("Q") is None
    assert only(space, "ERRORS").origin.reason is Reason.EXPIRED


@pytest.mark.parametrize("way", ["retries", "expired", "admin"])
def test_what_would_have_expired_there_comes_back_without_an_expiry_and_that_is_told(space, clock, caplog, way):
    space.enqueue("Q", "x", expires_in=60)
    space.enqueue("Q", "y")
    if way == "retries":
        fail(space, "Q", 4)
    elif way == "admin":
        space.move("Q", "ERRORS")
    clock.advance(100)
    space.usages()
    caplog.clear()
    told = []
    if way == "admin":
        assert space.move("ERRORS", "OTHER", outlived=told.append) == 2
        queue = "OTHER"
    else:
        assert space.requeue("ERRORS", outlived=told.append) == (1 if way == "expired" else 2)
        queue = "Q"
    assert told == [1]
    assert [record.message for record in caplog.records] == [
        "1 message has left queue 'ERRORS' of queue space 'SPACE' without an expiry: its earlier one has passed"
    ]
    assert all(info.expires_us is None for info in space.messages(queue))
    clock.advance(1000)
    assert sorted(drain(space, queue)) == ["x", "y"]


def test_nothing_is_told_where_no_expiry_was_over(space, caplog):
    space.enqueue("Q", "x", expires_in=60)
    space.move("Q", "ERRORS")
    told = []
    space.requeue("ERRORS", outlived=told.append)
    assert (told, caplog.records) == ([0], [])


def test_the_expiry_of_before_lasts_from_one_error_queue_to_the_next(space, clock):
    make_queue(space, "SECOND", error_queue="OWN")
    space.enqueue("SECOND", "x", expires_in=60)
    end = only(space, "SECOND").expires_us
    fail(space, "SECOND", 1)
    space.move("OWN", "ERRORS")
    assert only(space, "ERRORS").expires_us is None
    space.move("ERRORS", "OTHER")
    assert only(space, "OTHER").expires_us == end
    space.move("OTHER", "SECOND")
    assert only(space, "SECOND").expires_us == end


def test_an_expiry_that_is_given_in_the_error_queue_is_the_one_that_goes_along(space, clock):
    space.enqueue("Q", "x", expires_in=60)
    fail(space, "Q", 2)
    space.change_expiry("ERRORS", 500)
    space.requeue("ERRORS")
    assert only(space, "Q").expires_at == clock.moment(500)


def test_the_first_identifier_stays_readable_over_any_number_of_moves(space, persistent):
    first = space.enqueue("Q", "x", persistent=persistent)
    assert (only(space, "Q").origin, only(space, "Q").first_msgid) == (None, first)
    before = first
    for at in range(4):
        if at % 2:
            space.requeue("ERRORS")
        else:
            fail(space, "Q", 2)
        moved = only(space, "Q" if at % 2 else "ERRORS")
        assert (moved.origin.msgid, moved.origin.first, moved.first_msgid) == (before, first, first)
        before = moved.msgid
    space.move("Q", "OTHER", condition=f"first_msgid = '{first}'")
    message = space.dequeue("OTHER")
    assert (message.origin.first, message.origin.msgid) == (first, before)


def test_of_what_release_0_1_0_has_moved_the_last_identifier_that_it_knows_is_the_first(store, space):
    before = space.enqueue("Q", "x")
    fail(space, "Q", 2)
    if store.kind == "memory":
        pytest.skip("nobody else can write to a device in memory")
    store.by_hand("UPDATE message SET first_msgid = NULL")
    assert only(space, "ERRORS").origin.first == before
    space.requeue("ERRORS")
    assert only(space, "Q").origin.first == before


def test_a_move_leaves_nothing_behind(space):
    space.enqueue("Q", "x", expires_in=60)
    fail(space, "Q", 2)
    assert count_rows(space, "message", "expiring") == (1, 0)
    space.requeue("ERRORS")
    assert count_rows(space, "message", "expiring") == (1, 1)
    assert drain(space) == ["x"]
    assert count_rows(space, "message", "expiring") == (0, 0)
