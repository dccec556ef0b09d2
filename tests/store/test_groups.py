"""Messages that are enqueued together, in a queue that keeps them together: one consumer at a time has them."""

import dataclasses

import pytest

from qmcore.acts import enqueue_in_transaction
from qmcore.errors import BadQueueError, InvalidArgumentError
from qmcore.message import EnqueueControl
from qmcore.queue import Delivery
from tests.fix_store import bodies_held, drain, make_queue, queue_definition


@pytest.fixture
def space(store):
    opened = store.space(error_queue="ERRORS", pages=19_000, messages=19_000)
    make_queue(opened, "G", grouping=True, retries=2, retry_delay=10, out_of_order="top,msgid")
    make_queue(opened, "ERRORS")
    return opened


def enqueue_together(space, texts, queue="G", **how):
    """Enqueue messages in one transaction, and return their identifiers."""
    with space.transaction():
        return [space.enqueue(queue, text, **how) for text in texts]


def aside(space, queue="G", **how):
    """Dequeue as another consumer would, beside the open transaction."""
    return space.dequeue(queue, transactional=False, **how)


def texts(messages):
    return [message.text for message in messages]


class TestTogether:
    def test_a_consumer_of_one_has_all_until_it_ends_and_another_takes_the_next_group(self, space):
        enqueue_together(space, "abc")
        space.enqueue("G", "alone")
        enqueue_together(space, "xyz")
        with space.transaction():
            assert space.dequeue("G").text == "a"
            assert bodies_held(space, "G") == (4, 0, 3)
            assert aside(space).text == "alone"
            assert aside(space).text == "x"
            assert [space.dequeue("G").text for _ in range(2)] == ["b", "c"]
        assert drain(space, "G") == ["y", "z"]

    def test_messages_of_one_enqueue_many_are_a_group_and_single_ones_are_none(self, space):
        space.enqueue_many("G", ["a", "b"])
        space.enqueue("G", "c")
        enqueue_together(space, "d")
        groups = [info.group for info in space.messages("G")]
        assert groups[0] == groups[1] == next(iter(space.messages("G"))).msgid
        assert groups[2:] == [None, None]

    def test_a_transaction_makes_a_group_in_each_queue_and_none_in_others(self, space):
        make_queue(space, "G2", grouping=True)
        make_queue(space, "PLAIN")
        with space.transaction():
            for text in "ab":
                for queue in ("G", "PLAIN", "G2"):
                    space.enqueue(queue, text)
        groups = {name: {info.group for info in space.messages(name)} for name in ("G", "G2", "PLAIN")}
        assert len(groups["G"]) == len(groups["G2"]) == 1
        assert groups["G"] != groups["G2"]
        assert groups["PLAIN"] == {None}

    def test_the_rest_of_the_group_comes_before_what_has_arrived_since(self, space):
        make_queue(space, "P", grouping=True, order="priority", out_of_order="top")
        enqueue_together(space, "abc", "P", priority=10)
        with space.transaction():
            assert space.dequeue("P").text == "a"
            space.enqueue("P", "urgent", priority=99, transactional=False)
            space.enqueue("P", "top", top=True, transactional=False)
            assert drain(space, "P") == ["b", "c", "top", "urgent"]

    def test_the_first_of_the_group_says_where_all_stand_and_when_they_are_available_and_expire(self, space, clock):
        make_queue(space, "P", grouping=True, order="priority")
        space.enqueue("P", "between", priority=50)
        with space.transaction():
            space.enqueue("P", "a", priority=90, delay=5, expires_in=20)
            space.enqueue("P", "b", priority=10)
            space.enqueue("P", "c", priority=99, delay=100)
        assert bodies_held(space, "P") == (1, 2 + 1, 0)
        clock.advance(5)
        assert [message.text for message in space.browse("P")] == ["a", "b", "c", "between"]
        assert [message.priority for message in space.browse("P")] == [90, 10, 99, 50]
        clock.advance(15)
        assert space.usage("P").expired == 3
        assert drain(space, "P") == ["between"]

    def test_a_transaction_may_take_one_group_after_the_other(self, space):
        for group in ("ab", "cd", "ef"):
            enqueue_together(space, group)
        with space.transaction():
            assert [space.dequeue("G").text for _ in range(3)] == ["a", "b", "c"]
            assert aside(space).text == "e"
            assert space.dequeue("G").text == "d"
            assert space.dequeue("G").text == "f"
            assert space.dequeue("G") is None

    def test_what_a_commit_leaves_of_a_group_stays_in_its_place(self, space):
        enqueue_together(space, "abc")
        space.enqueue("G", "d")
        with space.transaction():
            assert space.dequeue("G").text == "a"
        assert [(message.text, message.retries) for message in space.browse("G")] == [("b", 0), ("c", 0), ("d", 0)]

    def test_without_a_transaction_each_dequeue_is_a_consumer_of_its_own(self, space):
        enqueue_together(space, "abc")
        with space.transaction():
            assert aside(space).text == "a"
            assert space.dequeue("G").text == "b"
            assert aside(space) is None
            assert space.dequeue("G").text == "c"

    def test_what_a_transaction_spills_is_one_group_with_what_it_keeps(self, space, monkeypatch):
        monkeypatch.setattr(enqueue_in_transaction, "SPILL_BYTES", 2_000)
        with space.transaction():
            for at in range(20):
                space.enqueue("G", f"{at}".ljust(300))
            space.enqueue("G", "last")
        assert len({info.group for info in space.messages("G")}) == 1
        with space.transaction():
            assert space.dequeue("G").text.strip() == "0"
            assert aside(space) is None

    def test_a_group_on_top_or_before_another_message_stays_together(self, space):
        target = space.enqueue("G", "target")
        with space.transaction():
            space.enqueue("G", "a", before=target)
            space.enqueue("G", "b")
        with space.transaction():
            space.enqueue("G", "x", top=True)
            space.enqueue("G", "y")
        assert drain(space, "G") == ["y", "x", "a", "b", "target"]


class TestBySelection:
    def test_by_identifier_locks_the_others_too(self, space):
        ids = enqueue_together(space, "abc")
        space.enqueue("G", "next")
        with space.transaction():
            assert space.dequeue("G", msgid=ids[1]).text == "b"
            assert aside(space, msgid=ids[0]) is None
            assert aside(space).text == "next"
            assert space.dequeue("G", msgid=ids[2]).text == "c"
            assert drain(space, "G") == ["a"]

    @pytest.mark.parametrize("how", [{"corrid": "c"}, {"corrid_like": "c%"}, {"condition": "priority = 7"}])
    def test_by_anything_else_the_group_that_is_taken_is_asked_first(self, space, how):
        space.put_many(
            ("G", text.encode(), EnqueueControl(corrid=b"c", priority=7) if text in "bd" else EnqueueControl())
            for text in "abcd"
        )
        space.enqueue("G", "other group", corrid="c", priority=7)
        with space.transaction():
            assert [space.dequeue("G", **how).text for _ in range(3)] == ["b", "d", "other group"]
            assert space.dequeue("G", **how) is None
            assert drain(space, "G") == ["a", "c"]

    @pytest.mark.parametrize("transactional", [True, False])
    @pytest.mark.parametrize("how", [{"corrid": "c"}, {"corrid_like": "c%"}, {"condition": "priority = 7"}])
    def test_many_are_of_one_group_and_all_of_them_fit(self, space, how, transactional):
        fitting, other = EnqueueControl(corrid=b"c", priority=7), EnqueueControl()
        space.put_many(("G", text.encode(), fitting if text in "bd" else other) for text in "abcd")
        space.put_many(("G", text.encode(), fitting) for text in "xy")
        with space.transaction():
            taken = space.dequeue_many("G", 10, transactional=transactional, **how)
        assert texts(taken) == ["b", "d"]
        assert drain(space, "G") == ["a", "c", "x", "y"]

    def test_a_lock_keeps_the_whole_group_and_the_next_lock_takes_the_next_group(self, space):
        enqueue_together(space, "abc")
        enqueue_together(space, "xy")
        with space.transaction():
            assert space.lock("G").text == "a"
            assert aside(space).text == "x"
            assert space.lock("G").text == "y"
            assert aside(space) is None
            assert drain(space, "G") == ["a", "b", "c", "y"]

    def test_a_lock_that_is_given_up_is_no_try_and_no_delay(self, space):
        enqueue_together(space, "abc")
        with space.transaction() as transaction:
            assert space.lock("G").text == "a"
            transaction.rollback()
        assert [(message.text, message.retries) for message in space.browse("G")] == [("a", 0), ("b", 0), ("c", 0)]

    def test_a_browse_and_a_peek_show_all_of_a_group_that_nobody_has(self, space):
        enqueue_together(space, "ab")
        assert space.peek("G").text == "a"
        assert texts(space.browse("G")) == ["a", "b"]


class TestMany:
    def test_many_are_of_one_group(self, space):
        enqueue_together(space, "abc")
        enqueue_together(space, "xy")
        space.enqueue("G", "alone")
        assert [texts(space.dequeue_many("G", 10)) for _ in range(4)] == [["a", "b", "c"], ["x", "y"], ["alone"], []]

    def test_fewer_than_the_group_leave_the_rest_in_its_place(self, space):
        enqueue_together(space, "abcde")
        assert texts(space.dequeue_many("G", 2)) == ["a", "b"]
        assert drain(space, "G") == ["c", "d", "e"]

    def test_in_a_transaction_the_rest_of_the_group_is_locked(self, space):
        enqueue_together(space, "abcde")
        enqueue_together(space, "xy")
        with space.transaction():
            assert texts(space.dequeue_many("G", 2)) == ["a", "b"]
            assert aside(space).text == "x"
            assert texts(space.dequeue_many("G", 2)) == ["c", "d"]
            assert texts(space.dequeue_many("G", 9)) == ["e"]
            assert texts(space.dequeue_many("G", 9)) == ["y"]

    def test_a_group_of_more_than_a_thousand_is_one_group(self, space, clock):
        count = 2_300
        ids = space.enqueue_many("G", [b"x"] * count, EnqueueControl(delay=5_000_000))
        assert bodies_held(space, "G") == (0, count, 0)
        clock.advance(5)
        with space.transaction() as transaction:
            assert space.dequeue("G").msgid == ids[0]
            assert bodies_held(space, "G") == (0, 0, count)
            assert len(space.dequeue_many("G", 1_000)) == 1_000
            assert aside(space) is None
            transaction.rollback()
        assert bodies_held(space, "G") == (0, count, 0)
        clock.advance(10)
        assert [message.msgid for message in space.dequeue_many("G", 5_000)] == ids

    def test_what_is_due_in_steps_is_never_had_in_parts(self, store, space, clock):
        space.enqueue_many("G", [b"x"] * 2_300, EnqueueControl(delay=5_000_000))
        clock.advance(5)
        with space.transaction():
            assert space.dequeue("G")
            assert space.peek("G") is None
            assert space.listen(["G"]) is None
            assert aside(space) is None


class TestGivenBack:
    def test_a_rollback_gives_all_back_and_counts_those_that_were_tried(self, space, clock):
        make_queue(space, "NOW", grouping=True, retries=5)
        enqueue_together(space, "abc", "NOW")
        with space.transaction() as transaction:
            assert space.dequeue("NOW").text == "a"
            transaction.rollback()
        assert [(message.text, message.retries) for message in space.browse("NOW")] == [("a", 1), ("b", 0), ("c", 0)]

    def test_a_retry_delay_holds_for_the_whole_group(self, space, clock):
        enqueue_together(space, "abc")
        space.enqueue("G", "next")
        with space.transaction() as transaction:
            assert space.dequeue("G").text == "a"
            transaction.rollback()
        assert bodies_held(space, "G") == (1, 3, 0)
        assert aside(space).text == "next"
        clock.advance(9)
        assert aside(space) is None
        clock.advance(1)
        with space.transaction():
            assert [space.dequeue("G").text for _ in range(3)] == ["a", "b", "c"]

    def test_a_rollback_that_does_not_count_delays_none_of_the_group(self, space):
        enqueue_together(space, "abc")
        with space.transaction() as transaction:
            assert space.dequeue("G").text == "a"
            transaction.rollback("stopped", counts=False)
        assert [(message.text, message.retries) for message in space.browse("G")] == [("a", 0), ("b", 0), ("c", 0)]

    def test_those_out_of_tries_go_to_the_error_queue_and_the_others_wait_and_stay(self, space, clock):
        enqueue_together(space, "abc")
        for _ in range(3):
            with space.transaction() as transaction:
                assert texts(space.dequeue_many("G", 2)) == ["a", "b"]
                transaction.rollback("broken")
            clock.advance(10)
        assert [(message.text, message.group) for message in space.browse("ERRORS")] == [("a", None), ("b", None)]
        assert drain(space, "G") == ["c"]

    def test_an_error_queue_that_groups_takes_them_one_by_one(self, store, clock):
        space = store.space("GROUPS", error_queue="E")
        make_queue(space, "G", grouping=True)
        make_queue(space, "E", grouping=True)
        enqueue_together(space, "abc")
        with space.transaction() as transaction:
            space.dequeue_many("G", 3)
            transaction.rollback()
        assert [texts(space.dequeue_many("E", 9)) for _ in range(3)] == [["a"], ["b"], ["c"]]

    def test_members_that_expire_while_they_are_held_go_at_the_end(self, space, clock):
        enqueue_together(space, "abc", expires_in=20)
        with space.transaction():
            assert space.dequeue("G").text == "a"
            clock.advance(30)
            assert space.dequeue("G").text == "b"
        usage = space.usage("G")
        assert (usage.messages, usage.dequeued, usage.expired, usage.pages) == (0, 2, 1, 0)

    def test_members_that_expire_while_they_wait_for_the_next_try_go(self, space, clock):
        enqueue_together(space, "abc", expires_in=5)
        with space.transaction() as transaction:
            assert space.dequeue("G").text == "a"
            transaction.rollback()
        clock.advance(10)
        assert aside(space) is None
        assert space.usage("G").expired == 3

    def test_the_death_of_the_consumer_gives_the_whole_group_back(self, file_store, clock, start):
        space = file_store.space()
        make_queue(space, "G", grouping=True, retries=1, retry_delay=10)
        enqueue_together(space, "abc")
        space.enqueue("G", "next")
        child = start(
            "device = open_device(sys.argv[1])\n"
            "space = device.open_space('SPACE')\n"
            "with space.transaction():\n"
            "    say(space.dequeue('G').text)\n"
            "    heard()\n",
            file_store.path,
        )
        child.expect("a")
        assert bodies_held(space, "G") == (1, 0, 3)
        child.kill()
        assert aside(space).text == "next"
        assert bodies_held(space, "G") == (0, 3, 0)
        clock.advance(10)
        with space.transaction():
            assert [(message.text, message.retries) for message in space.dequeue_many("G", 9)] == [
                ("a", 1),
                ("b", 0),
                ("c", 0),
            ]

    def test_a_timeout_gives_the_whole_group_back(self, space, clock):
        enqueue_together(space, "abc")
        with pytest.raises(Exception, match="timeout"), space.transaction(timeout=5):
            assert space.dequeue("G").text == "a"
            clock.advance(6)
        assert bodies_held(space, "G") == (0, 3, 0)
        clock.advance(10)
        assert texts(space.browse("G")) == ["a", "b", "c"]

    def test_the_books_are_even_after_all_of_it(self, space, clock, store):
        for at in range(4):
            enqueue_together(space, "abc", expires_in=None if at % 2 else 15)
        for at in range(6):
            with space.transaction() as transaction:
                space.dequeue_many("G", 2)
                if at % 2:
                    transaction.rollback()
            clock.advance(10)
        while space.dequeue("G") or space.dequeue("ERRORS"):
            pass
        usage = store.device.space_usage("SPACE")
        assert (usage.messages, usage.pages, usage.transactions) == (0, 0, 0)


class TestRefused:
    def test_a_queue_for_messages_in_memory_does_not_group(self):
        with pytest.raises(InvalidArgumentError):
            queue_definition("G", grouping=True, delivery=Delivery.NONPERSIST)

    def test_a_message_in_memory_has_no_place_in_a_group(self, store, monkeypatch, tmp_path):
        monkeypatch.setenv("QM_SHM_DIR", str(tmp_path))
        space = store.space("MEMORY", memory=400_000)
        make_queue(space, "G", grouping=True)
        with pytest.raises(InvalidArgumentError, match="groups messages"):
            space.enqueue("G", "x", persistent=False)
        assert space.usage("G").messages == 0

    @pytest.mark.parametrize("how", [{}, {"corrid": b"c"}, {"condition": "size = 1"}])
    def test_what_was_put_aside_from_memory_stands_for_itself_among_groups(
        self, store, clock, monkeypatch, tmp_path, how
    ):
        monkeypatch.setenv("QM_SHM_DIR", str(tmp_path))
        space = store.space("MEMORY", memory=400_000)
        make_queue(space, "G", grouping=True)
        make_queue(space, "Q", error_queue="G", keep_expired=True)
        space.enqueue("Q", "x", persistent=False, expires_in=5, corrid="c")
        clock.advance(5)
        assert space.dequeue("Q") is None
        enqueue_together(space, "ab", corrid="c")
        assert texts(space.dequeue_many("G", 3, **how)) == ["x"]
        assert texts(space.dequeue_many("G", 3, **how)) == ["a", "b"]

    @pytest.mark.parametrize("grouping", [True, False])
    def test_whether_a_queue_groups_cannot_be_changed(self, space, grouping):
        made = make_queue(space, "Q", grouping=grouping)
        with pytest.raises(InvalidArgumentError, match="grouping"):
            space.change_queue(dataclasses.replace(made.definition, grouping=not grouping))

    def test_what_a_transaction_has_of_a_stopped_queue_is_given_back(self, space):
        enqueue_together(space, "abc")
        with space.transaction():
            assert space.dequeue("G").text == "a"
            space.stop_queue("G", dequeue=False)
            assert space.dequeue("G").text == "b"
            with pytest.raises(BadQueueError):
                space.enqueue("G", "x")
        assert drain(space, "G") == ["c"]
