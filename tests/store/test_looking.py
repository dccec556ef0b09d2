"""Looking at messages without taking them, locking them, browsing, listening, and removing without reading."""

import math

import pytest
import sqlalchemy

from qmadmin.opening import create_device
from qmcore.acts import waiting
from qmcore.condition_parser import parse
from qmcore.errors import BadQueueError, InvalidArgumentError, NotOpenError, ProtocolError
from qmcore.message import State
from qmcore.queue import Delivery
from tests.fix_store import Work, attachment_of, bodies_held, drain, eventually, make_queue, space_definition

MIB = 1024 * 1024
SELECTIONS = [
    {"corrid": "c"},
    {"corrid_like": "c%"},
    {"condition": "priority = 7"},
    {"condition": "header.h = 'v' AND size > 0"},
]
FITTING = {"corrid": "c", "priority": 7, "headers": {"h": "v"}}


@pytest.fixture
def space(store, monkeypatch, tmp_path):
    monkeypatch.setenv("QM_SHM_DIR", str(tmp_path))
    opened = store.space(error_queue="ERRORS", memory=400_000, pages=10_000)
    make_queue(opened, "Q", retries=3, out_of_order="top,msgid")
    make_queue(opened, "OTHER", order="priority")
    make_queue(opened, "M", delivery=Delivery.NONPERSIST, retries=3)
    make_queue(opened, "ERRORS")
    return opened


@pytest.fixture(params=["Q", "M"])
def queue(request):
    """A queue for messages on disk, and one for messages in memory."""
    return request.param


class TestUsages:
    def test_they_are_those_of_all_queues_by_name(self, space, clock):
        for queue in ("Q", "M", "OTHER"):
            space.enqueue(queue, "a")
        space.enqueue("Q", "b", delay=5)
        space.enqueue("M", "c")
        space.dequeue("M")
        clock.advance(1)
        found = space.usages()
        assert [queue.name for queue, _ in found] == ["ERRORS", "M", "OTHER", "Q"]
        assert found == [(queue, space.usage(queue.name)) for queue in space.queues()]
        assert {queue.name: (use.messages, use.delayed, use.dequeued) for queue, use in found} == {
            "ERRORS": (0, 0, 0),
            "M": (1, 0, 1),
            "OTHER": (1, 0, 0),
            "Q": (2, 1, 0),
        }

    @pytest.mark.matrix(together=2)
    @pytest.mark.parametrize("order", ["fifo", "lifo", "priority", "priority,lifo"])
    @pytest.mark.parametrize("delivery", [Delivery.PERSIST, Delivery.NONPERSIST])
    def test_the_oldest_is_told_in_every_priority(self, space, clock, order, delivery):
        make_queue(space, "AGED", order=order, delivery=delivery, out_of_order="top,msgid", retries=9)
        assert space.usage("AGED").oldest_us is None
        ids, times = [], []
        for number, priority in enumerate((50, 7, 100, 7, 50, 1, 100)):
            ids.append(space.enqueue("AGED", "x", priority=priority))
            times.append(next(space.messages("AGED", condition=f"msgid = '{ids[number]}'")).enqueued_us)
            assert space.usage("AGED").oldest_us == times[0]
            clock.advance(1)
        space.enqueue("AGED", "later", top=True)
        space.enqueue("AGED", "later", before=ids[0])
        space.enqueue("AGED", "not ready", delay=1000)
        for msgid, since in zip(ids, times, strict=True):
            assert space.usage("AGED").oldest_us == since
            space.dequeue("AGED", msgid=msgid)
        assert space.usage("AGED").oldest_us > times[-1]

    def test_each_queue_has_its_own_whatever_lies_between_their_numbers(self, store, space, clock):
        another = store.space("OTHERS", memory=400_000, pages=5_000)
        orders = ("fifo", "lifo", "priority", "priority,lifo", "time", "expiration,lifo", "expiration")
        for number in range(14):
            for opened in (space, another):
                name = f"Q{number}"
                make_queue(opened, name, order=orders[number % 7], out_of_order="top,msgid")
                for at in range(number % 5):
                    control = {"priority": (50, 7, 100)[at % 3], "expires_in": 1000 if at % 2 else None}
                    first = opened.enqueue(name, "x" * number, persistent=bool(at % 2), **control)
                    clock.advance(1)
                    if number % 3 == 2:
                        opened.enqueue(name, "later", before=first, persistent=bool(at % 2))
                        opened.enqueue(name, "on top", top=True)
        space.destroy_queue("Q7", purge=True, force=True)
        for opened in (space, another):
            for queue, use in opened.usages():
                ready = list(opened.messages(queue.name))
                assert use == opened.usage(queue.name)
                assert (use.messages, use.size) == (len(ready), sum(info.size for info in ready))
                assert use.nonpersistent == sum(info.delivery is Delivery.NONPERSIST for info in ready)
                assert use.first_us == (ready[0].enqueued_us if ready else None)
                if queue.definition.order.goes_by_age:
                    assert use.oldest_us == min((info.enqueued_us for info in ready), default=None)
        assert another.queue("Q1").id > space.queue("Q1").id < space.queue("Q13").id > another.queue("Q12").id

    def test_of_several_on_top_the_first_is_the_oldest(self, space, clock):
        for body in ("one", "two", "three"):
            space.enqueue("Q", body, top=True)
            clock.advance(1)
        assert space.usage("Q").oldest_us == list(space.messages("Q"))[-1].enqueued_us

    def test_no_oldest_is_told_where_the_order_goes_by_times(self, space):
        for order in ("time", "expiration", "priority,time"):
            make_queue(space, order, order=order)
            space.enqueue(order, "x")
            assert space.usage(order).oldest_us is None
            assert space.usage(order).first_us is not None

    def test_they_hold_now_be_it_that_nobody_came_by(self, space, clock):
        space.enqueue("Q", "a", delay=5)
        space.enqueue("OTHER", "b", expires_in=5)
        clock.advance(6)
        found = {queue.name: use for queue, use in space.usages()}
        assert (found["Q"].ready, found["Q"].delayed) == (1, 0)
        assert (found["OTHER"].messages, found["OTHER"].expired) == (0, 1)


class TestPeek:
    def test_it_shows_the_first_message_and_leaves_it(self, space, queue):
        msgid = space.enqueue(queue, "a", **FITTING)
        space.enqueue(queue, "b")
        for _ in range(3):
            message = space.peek(queue)
            assert (message.msgid, message.text, message.retries) == (msgid, "a", 0)
            assert (message.state, message.headers) == (State.READY, {"h": "v"})
        assert space.usage(queue).dequeued == 0
        assert drain(space, queue) == ["a", "b"]

    def test_it_shows_what_a_dequeue_would_give(self, space):
        for priority in (3, 90, 50):
            space.enqueue("OTHER", str(priority), priority=priority, persistent=priority != 90)
        while space.usage("OTHER").messages:
            assert space.peek("OTHER").msgid == space.dequeue("OTHER").msgid
        assert space.peek("OTHER") is None

    def test_what_is_held_or_delayed_or_of_an_open_transaction_is_not_shown(self, space, queue, clock):
        space.enqueue(queue, "held")
        msgid = space.enqueue(queue, "delayed", delay=5)
        with space.transaction() as transaction:
            assert space.dequeue(queue).text == "held"
            space.enqueue(queue, "pending")
            assert space.peek(queue) is None
            assert space.peek(queue, msgid=msgid) is None
            transaction.rollback()
        clock.advance(5)
        assert space.peek(queue, msgid=msgid).text == "delayed"

    def test_what_has_expired_is_not_shown_and_is_gone(self, space, queue, clock):
        space.enqueue(queue, "x", expires_in=5)
        clock.advance(5)
        assert space.peek(queue) is None
        assert space.usage(queue).expired == 1

    def test_it_is_no_part_of_a_transaction(self, space):
        space.enqueue("Q", "a")
        with space.transaction() as transaction:
            assert space.peek("Q").text == "a"
            assert space.dequeue("Q", transactional=False).text == "a"
            transaction.rollback()
        assert drain(space) == []

    def test_the_tries_are_shown(self, space, queue):
        space.enqueue(queue, "a")
        with space.transaction() as transaction:
            space.dequeue(queue)
            transaction.rollback()
        assert space.peek(queue).retries == 1

    def test_a_large_body_is_whole(self, space):
        body = bytes(range(256)) * 4096 * 3
        space.enqueue("Q", body)
        assert space.peek("Q").body == body
        assert space.peek("Q").body == space.dequeue("Q").body

    def test_a_stopped_queue_is_refused(self, space):
        space.stop_queue("Q", enqueue=False)
        for look in (space.peek, space.lock, space.remove, space.dequeue):
            with space.transaction(), pytest.raises(BadQueueError):
                look("Q")
        with pytest.raises(BadQueueError):
            space.listen(["OTHER", "Q"])


class TestSelecting:
    """Every way to ask for a message, through every call that takes one."""

    @pytest.mark.matrix(together=2)
    @pytest.mark.parametrize("how", SELECTIONS)
    @pytest.mark.parametrize("call", ["peek", "lock", "dequeue", "remove"])
    def test_the_first_that_fits_comes_and_no_other_queue_is_reached(self, space, queue, call, how):
        for other in ("OTHER", "ERRORS"):
            space.enqueue(other, "another queue's", **FITTING)
        space.enqueue(queue, "no fit", corrid="x", priority=8, headers={"h": "w"})
        with space.transaction():
            assert getattr(space, call)(queue, **how) is None
        first = space.enqueue(queue, "first", **FITTING)
        space.enqueue(queue, "second", **FITTING)
        with space.transaction() as transaction:
            assert getattr(space, call)(queue, **how).msgid == first
            transaction.rollback()
        assert space.dequeue_many(queue, 5, **how)[1].text == "second"

    @pytest.mark.matrix(together=2)
    @pytest.mark.parametrize("how", SELECTIONS)
    @pytest.mark.parametrize("call", ["peek", "lock", "dequeue", "remove", "dequeue_many"])
    def test_what_is_not_available_is_not_reached(self, space, queue, clock, call, how):
        arguments = (queue, 9) if call == "dequeue_many" else (queue,)
        space.enqueue(queue, "held", **FITTING)
        space.enqueue(queue, "delayed", delay=5, **FITTING)
        space.enqueue(queue, "short", expires_in=3, **FITTING)
        clock.advance(3)
        with space.transaction() as transaction:
            assert space.dequeue(queue, **how).text == "held"
            assert not getattr(space, call)(*arguments, **how)
            transaction.rollback()

    @pytest.mark.parametrize("call", ["peek", "lock", "dequeue", "remove"])
    def test_by_identifier_only_an_available_one_of_that_queue_comes(self, space, queue, clock, call):
        look = getattr(space, call)
        delayed, ready = space.enqueue(queue, "delayed", delay=5), space.enqueue(queue, "ready")
        with space.transaction() as transaction:
            assert look(queue, msgid=delayed) is None
            assert look("OTHER", msgid=ready) is None
            assert look(queue, msgid=ready).size == 5
            transaction.rollback()
        clock.advance(5)
        with space.transaction():
            assert look(queue, msgid=delayed).size == 7

    @pytest.mark.parametrize("call", ["peek", "lock", "dequeue", "remove"])
    def test_two_things_at_once_are_refused(self, space, call):
        with space.transaction(), pytest.raises(InvalidArgumentError, match="one thing"):
            getattr(space, call)("Q", corrid="c", condition="size > 1")

    @pytest.mark.parametrize("call", ["peek", "lock", "dequeue", "remove", "browse", "messages", "history", "purge"])
    def test_a_condition_that_is_none_is_refused_and_nothing_happens(self, space, call):
        space.enqueue("Q", "a")
        with space.transaction(), pytest.raises(InvalidArgumentError):
            list(getattr(space, call)("Q", condition="priority >") or [])
        assert bodies_held(space) == (1, 0, 0)

    def test_a_condition_about_tries_and_times(self, space, clock):
        space.enqueue("Q", "tried")
        with space.transaction() as transaction:
            space.dequeue("Q")
            transaction.rollback()
        clock.advance(10)
        now = clock.now() // 1_000_000
        msgid = space.enqueue("Q", "new", expires_in=50)
        assert space.peek("Q", condition="retries = 1").text == "tried"
        assert space.peek("Q", condition=f"enqueued_at >= {now}").text == "new"
        assert space.peek("Q", condition="expires_at IS NOT NULL").text == "new"
        assert space.peek("Q", condition=f"msgid = '{msgid}'").text == "new"
        assert space.peek("Q", condition="retries > 1") is None

    def test_a_message_that_was_moved_is_found_by_where_it_came_from(self, space):
        for retries, text in ((0, "a"), (0, "b")):
            make_queue(space, f"FROM-{text}", retries=retries)
            space.enqueue(f"FROM-{text}", text)
            with space.transaction() as transaction:
                space.dequeue(f"FROM-{text}")
                transaction.rollback(f"no {text}")
        assert space.dequeue("ERRORS", condition="origin_queue = 'FROM-b' AND origin_reason = 'retries'").text == "b"
        assert space.dequeue("ERRORS", condition="origin_error LIKE 'no _'").text == "a"

    def test_a_parsed_condition_is_as_good_as_its_text(self, space):
        space.enqueue("Q", "a", priority=3)
        assert space.dequeue("Q", condition=parse("priority < 5")).text == "a"


class TestLock:
    def test_outside_of_a_transaction_it_is_refused(self, space):
        with pytest.raises(ProtocolError):
            space.lock("Q")

    def test_nobody_else_has_it_until_the_transaction_ends_and_that_is_no_try(self, space, queue):
        for text in "ab":
            space.enqueue(queue, text)
        with space.transaction():
            assert space.lock(queue).text == "a"
            assert space.peek(queue).text == "b"
            assert space.dequeue(queue, transactional=False).text == "b"
            assert bodies_held(space, queue) == (0, 0, 1)
        with space.transaction() as transaction:
            assert space.lock(queue).text == "a"
            transaction.rollback()
        assert space.dequeue(queue).retries == 0

    def test_each_call_locks_the_next_and_a_dequeue_takes_the_first_locked(self, space, queue):
        for text in "abc":
            space.enqueue(queue, text)
        with space.transaction():
            assert [space.lock(queue).text for _ in range(2)] == ["a", "b"]
            assert space.dequeue(queue).text == "a"
            assert [message.text for message in space.dequeue_many(queue, 5)] == ["b", "c"]
            assert space.lock(queue) is None
        assert space.usage(queue).messages == 0

    def test_a_locked_one_is_taken_when_it_is_its_turn(self, space):
        ids = [space.enqueue("Q", text) for text in "abc"]
        with space.transaction():
            assert space.lock("Q", msgid=ids[1]).text == "b"
            assert [space.dequeue("Q").text for _ in range(3)] == ["a", "b", "c"]

    def test_many_are_taken_in_order_whichever_of_them_were_locked(self, space):
        ids = [space.enqueue("Q", text) for text in "abcde"]
        with space.transaction():
            space.lock("Q", msgid=ids[1])
            space.lock("Q", msgid=ids[3])
            assert [message.text for message in space.dequeue_many("Q", 4)] == ["a", "b", "c", "d"]
        assert drain(space) == ["e"]

    @pytest.mark.parametrize("call", ["dequeue", "remove"])
    def test_it_is_taken_by_its_identifier(self, space, queue, call):
        for text in "ab":
            space.enqueue(queue, text)
        with space.transaction():
            space.lock(queue)
            locked = space.lock(queue)
            assert getattr(space, call)(queue, msgid=locked.msgid).msgid == locked.msgid
            assert getattr(space, call)(queue, msgid=locked.msgid) is None
        assert drain(space, queue) == ["a"]

    @pytest.mark.parametrize("how", SELECTIONS)
    def test_it_is_taken_by_whatever_else_it_is_asked_for(self, space, queue, how):
        space.enqueue(queue, "no fit")
        space.enqueue(queue, "a", **FITTING)
        with space.transaction():
            assert space.lock(queue, **how).text == "a"
            assert space.dequeue(queue, **how).text == "a"
            assert space.dequeue(queue, **how) is None
        assert drain(space, queue) == ["no fit"]

    def test_what_it_dequeued_counts_a_try_and_what_it_locked_does_not(self, space):
        for text in "ab":
            space.enqueue("Q", text)
        with space.transaction() as transaction:
            assert space.dequeue("Q").text == "a"
            assert space.lock("Q").text == "b"
            transaction.rollback()
        assert [(message.text, message.retries) for message in space.browse("Q")] == [("a", 1), ("b", 0)]

    def test_a_locked_one_that_expires_meanwhile_goes_when_the_transaction_ends(self, space, queue, clock):
        space.enqueue(queue, "x", expires_in=5)
        with space.transaction():
            assert space.lock(queue).text == "x"
            clock.advance(10)
            assert space.usage(queue).expired == 0
        assert (space.usage(queue).expired, space.usage(queue).messages) == (1, 0)

    def test_the_lock_of_a_process_that_died_is_gone_and_was_no_try(self, file_store, start):
        space = file_store.space()
        make_queue(space, "Q", retries=0)
        space.enqueue("Q", "a")
        child = start(
            "device = open_device(sys.argv[1])\n"
            "space = device.open_space('SPACE')\n"
            "with space.transaction():\n"
            "    say(space.lock('Q').text)\n"
            "    heard()\n",
            file_store.path,
        )
        child.expect("a")
        assert space.dequeue("Q") is None
        child.kill()
        message = space.dequeue("Q")
        assert (message.text, message.retries) == ("a", 0)


class TestRemove:
    def test_the_message_is_gone_and_told_of_without_its_body(self, space, queue):
        msgid = space.enqueue(queue, "abc", **FITTING)
        info = space.remove(queue)
        assert (info.msgid, info.size, info.corrid, info.headers) == (msgid, 3, b"c", {"h": "v"})
        assert getattr(info, "body", None) is None
        usage = space.usage(queue)
        assert (usage.messages, usage.dequeued, usage.pages, usage.memory_pages) == (0, 1, 0, 0)
        assert space.remove(queue) is None

    def test_in_a_transaction_it_comes_back_whole(self, space):
        body = b"x" * (3 * MIB)
        space.enqueue("Q", body)
        with space.transaction() as transaction:
            assert space.remove("Q").size == len(body)
            transaction.rollback()
        message = space.dequeue("Q")
        assert (message.retries, message.body) == (1, body)

    def test_what_was_looked_at_before_is_removed(self, space):
        for text in "abc":
            space.enqueue("Q", text)
        for message in space.browse("Q"):
            if message.text != "b":
                space.remove("Q", msgid=message.msgid)
        assert drain(space) == ["b"]


class TestBrowse:
    def test_all_that_can_be_dequeued_is_shown_in_order_and_stays(self, space, clock):
        for at in range(20):
            space.enqueue("OTHER", str(at), priority=1 + at * 7 % 100, persistent=at % 3 != 0)
        space.enqueue("OTHER", "delayed", delay=5)
        shown = [message.text for message in space.browse("OTHER")]
        assert len(shown) == 20
        assert drain(space, "OTHER") == shown

    def test_more_than_a_step_is_shown_once_each(self, space):
        ids = space.enqueue_many("Q", ["x"] * 990)
        assert [message.msgid for message in space.browse("Q")] == ids

    def test_it_says_when_it_is_exhausted(self, space):
        space.enqueue("Q", "a")
        cursor = space.browse("Q")
        assert not cursor.exhausted
        assert next(cursor).text == "a"
        assert not cursor.exhausted
        assert next(cursor, None) is None
        assert cursor.exhausted
        space.enqueue("Q", "later")
        assert next(cursor, None) is None

    def test_an_empty_queue_is_exhausted_at_the_first_look(self, space, queue):
        cursor = space.browse(queue)
        assert list(cursor) == []
        assert cursor.exhausted

    @pytest.mark.parametrize("order", ["fifo", "lifo", "priority", "priority,lifo", "time", "expiration"])
    def test_what_arrives_later_is_not_shown_wherever_it_stands(self, space, order):
        make_queue(space, "O", order=order, out_of_order="top,msgid")
        ids = [space.enqueue("O", text, priority=50, expires_in=500) for text in "abc"]
        cursor = space.browse("O")
        first = next(cursor)
        for how in ({"priority": 100}, {"priority": 1}, {"top": True}, {"before": ids[1]}, {"expires_in": 1}):
            space.enqueue("O", "later", **how)
            space.enqueue("O", "later", persistent=False, **how)
        with space.transaction():
            space.enqueue("O", "later")
        shown = [first, *cursor]
        assert sorted(message.msgid for message in shown) == sorted(ids)

    def test_what_an_open_transaction_commits_later_is_not_shown_though_it_has_an_identifier(self, space):
        with space.transaction():
            space.enqueue("OTHER", "reserved", priority=100)
            space.enqueue("OTHER", "first", priority=50, transactional=False)
            cursor = space.browse("OTHER")
        assert [message.text for message in cursor] == ["first"]

    def test_what_is_moved_into_the_queue_later_is_not_shown(self, space):
        make_queue(space, "NEVER")
        space.enqueue("ERRORS", "old")
        space.enqueue("NEVER", "moved")
        cursor = space.browse("ERRORS")
        with space.transaction() as transaction:
            space.dequeue("NEVER")
            transaction.rollback()
        assert [message.text for message in cursor] == ["old"]

    def test_what_is_gone_or_held_when_its_turn_comes_is_passed_over(self, space, queue, clock):
        ids = [space.enqueue(queue, text) for text in "abcde"]
        space.enqueue(queue, "short", expires_in=5)
        cursor = space.browse(queue)
        assert next(cursor).text == "a"
        space.dequeue(queue, msgid=ids[1])
        space.purge(queue, condition=f"msgid = '{ids[3]}'")
        with space.transaction() as transaction:
            assert space.dequeue(queue, msgid=ids[2])
            clock.advance(5)
            assert space.usage(queue).expired == 1
            assert next(cursor).text == "e"
            transaction.rollback()
        assert next(cursor, None) is None

    def test_only_what_fulfils_the_condition_is_shown(self, space, queue):
        for at in range(10):
            space.enqueue(queue, str(at), priority=at + 1, headers={"odd": str(at % 2)})
        cursor = space.browse(queue, condition="header.odd = '1' AND priority BETWEEN 3 AND 9")
        assert [message.text for message in cursor] == ["3", "5", "7"]

    def test_two_cursors_do_not_disturb_each_other(self, space):
        for text in "abc":
            space.enqueue("Q", text)
        one, other = space.browse("Q"), space.browse("Q")
        assert [next(one).text, next(one).text] == ["a", "b"]
        assert [message.text for message in other] == ["a", "b", "c"]
        assert [message.text for message in one] == ["c"]

    def test_it_sees_nothing_of_a_transaction_that_is_open(self, space):
        for text in "ab":
            space.enqueue("Q", text)
        with space.transaction():
            space.dequeue("Q")
            space.enqueue("Q", "c")
            assert [message.text for message in space.browse("Q")] == ["b"]

    def test_a_queue_that_is_not_there_is_refused_at_once(self, space):
        with pytest.raises(BadQueueError):
            space.browse("NONE")

    def test_it_ends_with_its_queue_or_its_queue_space(self, store, space):
        space.enqueue("Q", "a")
        cursor = space.browse("Q")
        space.destroy_queue("Q", purge=True)
        with pytest.raises(BadQueueError):
            next(cursor)
        space.enqueue("OTHER", "b")
        cursor = space.browse("OTHER")
        space.close()
        with pytest.raises(NotOpenError):
            next(cursor)


class TestListen:
    def test_the_first_listed_queue_that_has_a_message_is_named_and_nothing_is_taken(self, space):
        space.enqueue("M", "m")
        space.enqueue("OTHER", "o")
        assert space.listen(["Q", "OTHER", "M"]) == "OTHER"
        assert space.listen(["M", "OTHER"]) == "M"
        assert space.listen(["Q"]) is None
        assert space.usage("M").ready == space.usage("OTHER").ready == 1

    def test_what_is_due_counts_and_what_has_expired_or_is_held_does_not(self, space, clock):
        space.enqueue("Q", "short", expires_in=5)
        space.enqueue("M", "delayed", delay=5)
        space.enqueue("OTHER", "held")
        clock.advance(5)
        with space.transaction():
            assert space.dequeue("OTHER")
            assert space.listen(["Q", "OTHER", "M"]) == "M"

    @pytest.mark.parametrize("queues", [[], "Q"])
    def test_no_list_of_names_is_refused(self, space, queues):
        with pytest.raises(InvalidArgumentError):
            space.listen(queues)

    def test_a_queue_that_is_not_there_is_refused(self, space):
        with pytest.raises(BadQueueError):
            space.listen(["Q", "NONE"])


@pytest.fixture(params=["file", "memory"])
def real(request, tmp_path, monkeypatch):
    """A queue space on the machine's own clock, where a wake-up that is lost is noticed by nobody."""
    monkeypatch.setattr(waiting, "CHECK_SECONDS", 1_000.0)
    monkeypatch.setenv("QM_SHM_DIR", str(tmp_path))
    path = ":memory:" if request.param == "memory" else tmp_path / "QUE"
    with create_device(path, 5_000) as device:
        device.create_space(space_definition(memory=400_000))
        with device.open_space("SPACE") as opened:
            for name in ("Q", "OTHER", "THIRD"):
                make_queue(opened, name)
            make_queue(opened, "G", grouping=True)
            yield opened


class TestWaiting:
    """Each call that waits is woken by what it waits for, and by nothing else."""

    def waiters(self, space):
        count = sqlalchemy.text("SELECT count(DISTINCT address) FROM waiter")
        return attachment_of(space).volume.read(lambda unit: unit.run(count).fetchone()[0])

    def woken(self, space, wait, *acts):
        work = Work(wait)
        for act in acts:
            eventually(lambda: self.waiters(space) == 1, "the thread waits")
            act()
        (found,) = work.results()
        assert self.waiters(space) == 0
        return found

    @pytest.mark.matrix(together=2)
    @pytest.mark.parametrize("persistent", [True, False])
    @pytest.mark.parametrize("call", ["dequeue", "peek", "remove", "lock"])
    @pytest.mark.parametrize("how", [{}, *SELECTIONS])
    def test_a_wait_for_one_message_ends_with_the_one_that_fits(self, real, call, how, persistent):
        def wait():
            with real.transaction():
                return getattr(real, call)("Q", wait=math.inf, **how)

        acts = [lambda: real.enqueue("Q", "no fit", persistent=persistent)] if how else []
        found = self.woken(real, wait, *acts, lambda: real.enqueue("Q", "it", persistent=persistent, **FITTING))
        assert (found.size, found.corrid) == (2, b"c")

    def test_a_wait_for_many_ends_with_the_first(self, real):
        found = self.woken(
            real, lambda: real.dequeue_many("Q", 5, wait=math.inf), lambda: real.enqueue_many("Q", ["a", "b"])
        )
        assert [message.text for message in found] == ["a", "b"]

    @pytest.mark.parametrize("queue", ["Q", "OTHER", "THIRD"])
    def test_a_wait_for_several_queues_ends_with_any_of_them(self, real, queue):
        found = self.woken(
            real, lambda: real.listen(["Q", "OTHER", "THIRD"], wait=math.inf), lambda: real.enqueue(queue, "x")
        )
        assert found == queue

    def test_a_wait_ends_when_a_lock_is_given_up(self, real):
        real.enqueue("Q", "a")
        with real.transaction():
            assert real.lock("Q")
            work = Work(lambda: real.dequeue("Q", wait=math.inf))
            eventually(lambda: self.waiters(real) == 1, "the thread waits")
        (found,) = work.results()
        assert found.text == "a"

    def test_a_wait_in_a_grouped_queue_ends_when_the_group_is_given_up(self, real):
        real.enqueue_many("G", ["a", "b"])
        with real.transaction():
            assert real.dequeue("G").text == "a"
            work = Work(lambda: real.dequeue("G", wait=math.inf))
            eventually(lambda: self.waiters(real) == 1, "the thread waits")
        (found,) = work.results()
        assert found.text == "b"

    def test_a_wait_ends_exactly_when_one_of_several_queues_has_something_due(self, real):
        real.enqueue("OTHER", "x", delay=0.05)
        real.enqueue("THIRD", "x", delay=0.1)
        assert real.listen(["Q", "THIRD", "OTHER"], wait=math.inf) == "OTHER"

    def test_a_queue_that_is_stopped_ends_every_wait_for_it(self, real):
        for call in (real.dequeue, real.peek, real.remove, lambda name, wait: real.listen(["OTHER", name], wait=wait)):
            found = self.woken(real, lambda call=call: call("Q", wait=math.inf), lambda: real.stop_queue("Q"))
            assert isinstance(found, BadQueueError)
            real.start_queue("Q")

    @pytest.mark.parametrize("call", ["dequeue", "peek", "remove"])
    def test_nothing_in_time_is_nothing(self, real, call):
        assert getattr(real, call)("Q", wait=0.01) is None
        assert real.listen(["Q"], wait=0.01) is None
        assert real.dequeue_many("Q", 3, wait=0.01) == []
