"""Messages that stand and fall with transactions of applications, on every kind of connection that calls can join."""

import contextlib
import threading

import pytest

from qmadmin import capacity
from qmadmin.opening import create_device
from qmcore.errors import InvalidArgumentError, NoSpaceError, ProtocolError, QueueError
from qmcore.limits import Threshold, parse_high, parse_low
from qmstorage.sqlite import joining
from tests.fix_applications import KINDS
from tests.fix_store import (
    Work,
    attachment_of,
    drain,
    eventually,
    make_queue,
    space_definition,
    truth,
)
from tests.fix_task_applications import TASK_KINDS

pytestmark = [
    pytest.mark.matrix(every=3),
    pytest.mark.parametrize("joined_store", [*KINDS, *TASK_KINDS], indirect=True, ids="-".join),
]


@pytest.fixture
def space(joined_store, application):
    opened = joined_store.space(error_queue="ERRORS")
    make_queue(opened, "Q", retries=3)
    make_queue(opened, "ERRORS")
    return application.space_of(opened, joined_store.device)


class TestStandsOrFalls:
    @pytest.mark.matrix(every=1)
    def test_with_the_commit(self, space, application):
        with application.transaction() as connection:
            application.order("order")
            msgid = space.enqueue("Q", "event", connection=connection)
            assert space.peek("Q") is None
            assert application.orders() == []
        assert application.orders() == ["order"]
        message = space.dequeue("Q")
        assert (message.msgid, message.text) == (msgid, "event")

    @pytest.mark.matrix(every=1)
    def test_with_an_exception(self, space, application):
        space.enqueue("Q", "request")
        with pytest.raises(ZeroDivisionError), application.transaction() as connection:
            assert space.dequeue("Q", connection=connection).text == "request"
            application.order("order")
            space.enqueue("Q", "event", connection=connection)
            _ = 1 / 0
        assert application.orders() == []
        (info,) = space.messages("Q")
        assert (info.size, info.retries) == (7, 0)
        assert drain(space) == ["request"]

    def test_whatever_comes_first_and_again_and_again(self, space, application):
        for turn in range(3):
            with application.transaction() as connection:
                space.enqueue("Q", f"event {turn}", connection=connection)
                application.order(f"order {turn}")
        with contextlib.suppress(ZeroDivisionError), application.transaction() as connection:
            assert space.dequeue("Q", connection=connection).text == "event 0"
            _ = 1 / 0
        with application.transaction() as connection:
            assert space.dequeue("Q", connection=connection).text == "event 0"
        assert application.orders() == ["order 0", "order 1", "order 2"]
        assert drain(space) == ["event 1", "event 2"]

    def test_with_a_savepoint_around_it(self, space, application):
        with application.transaction() as connection:
            space.enqueue("Q", "outer", connection=connection)
            with pytest.raises(ZeroDivisionError), application.savepoint():
                application.order("inner")
                space.enqueue("Q", "inner", connection=connection)
                assert space.dequeue("Q", connection=connection).text == "outer"
                _ = 1 / 0
            with application.savepoint():
                space.enqueue("Q", "second", connection=connection)
        assert (application.orders(), drain(space)) == ([], ["outer", "second"])

    def test_where_the_first_call_is_in_a_savepoint(self, space, application):
        with application.transaction() as connection:
            application.order("order")
            with pytest.raises(ZeroDivisionError), application.savepoint():
                space.enqueue("Q", "inner", connection=connection)
                _ = 1 / 0
            space.enqueue("Q", "outer", connection=connection)
        assert (application.orders(), drain(space)) == (["order"], ["outer"])

    def test_many_at_once_bytes_and_removal(self, space, application):
        body = bytes(range(256)) * 8_000
        with application.transaction() as connection:
            ids = space.enqueue_many("Q", ["a", "b", "ü", body], connection=connection)
        with application.transaction() as connection:
            assert space.remove("Q", msgid=ids[1], connection=connection).msgid == ids[1]
            assert [message.text for message in space.dequeue_many("Q", 2, connection=connection)] == ["a", "ü"]
            assert space.dequeue("Q", corrid="none", connection=connection) is None
            assert space.dequeue("Q", connection=connection).body == body
        assert truth(space) == ([], [])
        assert space.usage("Q").dequeued == 4

    def test_a_refused_call_undoes_itself_and_nothing_else(self, space, application):
        with application.transaction() as connection:
            application.order("order")
            space.enqueue("Q", "a", connection=connection)
            with pytest.raises(NoSpaceError):
                space.enqueue("Q", bytes(3_000 * 4096), connection=connection)
            with pytest.raises(QueueError):
                space.enqueue_many("NONE", ["x"], connection=connection)
            space.enqueue("Q", "b", connection=connection)
        assert (application.orders(), drain(space)) == (["order"], ["a", "b"])

    @pytest.mark.matrix(every=6)
    def test_a_kill_before_the_commit_leaves_nothing_and_after_it_everything(
        self, request, joined_store, space, application, start
    ):
        _, kind = request.node.callspec.params["joined_store"]
        source = (
            "import tests.fix_task_applications\n"
            "from tests.fix_applications import application_at\n"
            "device = open_device(sys.argv[1])\n"
            "application = application_at(sys.argv[1], sys.argv[2])\n"
            "space = application.space_of(device.open_space('SPACE'), device)\n"
            "transaction = application.transaction()\n"
            "connection = transaction.__enter__()\n"
            "application.order('order')\n"
            "said = space.dequeue('Q', connection=connection).text\n"
            "space.enqueue('Q', 'event', connection=connection)\n"
            "if sys.argv[3] == 'after': transaction.__exit__(None, None, None)\n"
            "say(said)\nheard()\n"
        )
        space.enqueue("Q", "request")
        child = start(source, joined_store.path, kind, "before")
        child.expect("request")
        child.kill()
        eventually(lambda: [message.text for message in space.browse("Q")] == ["request"], "it is back")
        assert space.usage("Q").dequeued == 0
        child = start(source, joined_store.path, kind, "after")
        child.expect("request")
        child.kill()
        assert drain(space) == ["event"]
        assert application.orders() == ["order"]


class TestRefused:
    def calls(self, space, connection):
        return (
            lambda: space.enqueue("Q", "x", connection=connection),
            lambda: space.enqueue_many("Q", ["x", "y"], connection=connection),
            lambda: space.dequeue("Q", connection=connection),
            lambda: space.dequeue_many("Q", 2, connection=connection),
            lambda: space.remove("Q", connection=connection),
        )

    def test_a_connection_that_is_closed(self, space, application, request):
        if "ession" in request.node.name.partition("[")[2]:
            pytest.skip("a session that was closed begins anew")
        application.disconnect()
        for call in self.calls(space, application.connection):
            with pytest.raises(InvalidArgumentError, match=r"is closed|is not inside atomic") as refusal:
                call()
            assert refusal.value.hint
        assert drain(space) == []

    def test_waiting(self, space, application):
        with application.transaction() as connection, pytest.raises(InvalidArgumentError, match="cannot wait"):
            space.dequeue("Q", wait=1, connection=connection)

    def test_two_transactions_at_once(self, space, application):
        with application.transaction() as connection, space.transaction():
            for call in self.calls(space, connection):
                with pytest.raises(ProtocolError):
                    call()

    def test_the_connection_of_another_database(self, space, application, tmp_path):
        with create_device(str(tmp_path / "OTHER"), 20_000) as device:
            device.create_space(space_definition("SPACE"))
            with device.open_space("SPACE") as other:
                make_queue(other, "Q")
                other = application.space_of(other, device)  # noqa: PLW2901 - the same
                with application.transaction() as connection:
                    for call in self.calls(other, connection):
                        with pytest.raises(InvalidArgumentError, match="the connection leads to"):
                            call()
                    space.enqueue("Q", "here", connection=connection)
        assert drain(space) == ["here"]


class TestAfterwards:
    def test_plain_calls_of_the_thread_go_on_after_each_end(self, space, application):
        with application.transaction() as connection:
            space.enqueue("Q", "joined", connection=connection)
        space.enqueue("Q", "plain")
        with pytest.raises(ZeroDivisionError), application.transaction() as connection:
            space.enqueue("Q", "lost", connection=connection)
            _ = 1 / 0
        space.enqueue("Q", "more")
        assert drain(space) == ["joined", "plain", "more"]

    def test_what_would_wait_for_the_transaction_is_refused_in_its_thread(self, space, application, monkeypatch):
        monkeypatch.setattr(joining, "PATIENCE_SECONDS", 0.0)
        with application.transaction() as connection:
            space.enqueue("Q", "joined", connection=connection)
            with pytest.raises(ProtocolError, match=r"this (thread|task) has a transaction of its own open"):
                make_queue(space, "NEW")
        make_queue(space, "NEW")
        assert drain(space) == ["joined"]

    def test_a_waiter_gets_the_message_after_the_commit(self, space, application):
        waiting = Work(lambda: space.dequeue("Q", wait=60).text)
        with application.transaction() as connection:
            space.enqueue("Q", "event", connection=connection)
        assert waiting.results() == ["event"]

    @pytest.fixture
    def started(self, monkeypatch, trusted):
        events = []
        monkeypatch.setattr(capacity, "start", events.append)
        return events

    def limited(self, space):
        high = parse_high("2m")
        make_queue(space, "LIMITED", threshold=Threshold(high, parse_low("0", high), "notify"))

    def settled(self, space):
        its = attachment_of(space)
        claims = its.volume.read(lambda unit: unit.capacity_commands.of_space(its.opened.space.id))
        return not claims and not any(thread.name == "qmadmin-follow" for thread in threading.enumerate())

    def test_a_capacity_command_is_started(self, space, application, started):
        self.limited(space)
        with application.transaction() as connection:
            space.enqueue_many("LIMITED", ["a", "b"], connection=connection)
            assert started == []
        eventually(lambda: bool(started) and self.settled(space), "the command is started")
        assert [(event.queue, event.value) for event in started] == [("LIMITED", 2)]

    def test_and_none_after_a_rollback(self, space, application, started):
        self.limited(space)
        with pytest.raises(ZeroDivisionError), application.transaction() as connection:
            space.enqueue_many("LIMITED", ["a", "b"], connection=connection)
            _ = 1 / 0
        with application.transaction() as connection:
            space.enqueue("LIMITED", "c", connection=connection)
        eventually(lambda: self.settled(space), "all is done")
        assert started == []

    def test_nor_after_that_of_a_savepoint(self, space, application, started):
        self.limited(space)
        with application.transaction() as connection:
            space.enqueue("LIMITED", "a", connection=connection)
            with pytest.raises(ZeroDivisionError), application.savepoint():
                space.enqueue("LIMITED", "b", connection=connection)
                _ = 1 / 0
        eventually(lambda: self.settled(space), "all is done")
        assert started == []
        assert space.usage("LIMITED").messages == 1
