"""Non-persistent messages: in memory, in one order with those on disk, and counted together with them."""

import pytest

from qmadmin.transacting import Transaction
from qmcore.errors import InUseError, InvalidArgumentError, NoSpaceError, Resource
from qmcore.message import Reason
from qmcore.queue import Delivery
from tests.fix_store import bodies_held, count_rows, drain, make_queue, truth

PAGE = 4096


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(memory_dir):
    pass


@pytest.fixture
def space(store):
    opened = store.space(memory=100 * PAGE, error_queue="ERRORS")
    make_queue(opened, "Q", retries=1)
    make_queue(opened, "ERRORS")
    make_queue(opened, "MEMORY", delivery=Delivery.NONPERSIST)
    return opened


def fill(space, texts, queue="Q"):
    """Enqueue each text: in memory where it is written in capitals."""
    return [space.enqueue(queue, text, persistent=text.islower()) for text in texts]


class TestWhere:
    def test_a_message_says_whether_it_is_kept(self, space):
        space.enqueue("Q", "kept", persistent=True)
        space.enqueue("Q", "lost", persistent=False)
        assert [info.delivery for info in space.messages("Q")] == [Delivery.PERSIST, Delivery.NONPERSIST]
        assert space.peek("Q").delivery is Delivery.PERSIST
        assert [space.dequeue("Q").delivery for _ in range(2)] == [Delivery.PERSIST, Delivery.NONPERSIST]

    def test_without_a_word_of_the_sender_the_queue_decides(self, space):
        for queue in ("Q", "MEMORY"):
            space.enqueue(queue, "as the queue says")
            space.enqueue(queue, "kept", persistent=True)
            space.enqueue(queue, "lost", persistent=False)
        assert [space.dequeue("Q").delivery.value for _ in range(3)] == ["persist", "persist", "nonpersist"]
        assert [space.dequeue("MEMORY").delivery.value for _ in range(3)] == ["nonpersist", "persist", "nonpersist"]

    def test_a_queue_whose_default_is_changed_keeps_what_it_has(self, space):
        import dataclasses

        space.enqueue("MEMORY", "first")
        space.change_queue(dataclasses.replace(space.queue("MEMORY").definition, delivery=Delivery.PERSIST))
        space.enqueue("MEMORY", "second")
        assert [space.dequeue("MEMORY").delivery.value for _ in range(2)] == ["nonpersist", "persist"]

    def test_a_queue_space_without_memory_names_what_it_lacks(self, store):
        opened = store.space("DISK")
        make_queue(opened, "Q")
        with pytest.raises(NoSpaceError) as refusal:
            opened.enqueue("Q", "x", persistent=False)
        assert (refusal.value.resource, refusal.value.used, refusal.value.limit) == (Resource.MEMORY, 0, 0)
        with opened.transaction():
            with pytest.raises(NoSpaceError):
                opened.enqueue("Q", "x", persistent=False)
            opened.enqueue("Q", "y")
        assert drain(opened) == ["y"]

    def test_it_does_not_take_pages_of_the_disk(self, space, store):
        fill(space, "ABC")
        usage = store.device.space_usage("SPACE")
        assert (usage.pages, usage.memory, usage.messages) == (0, 3 * PAGE, 3)
        usage = space.usage("Q")
        assert (usage.pages, usage.memory_pages, usage.nonpersistent, usage.messages) == (0, 3, 3, 3)

    def test_a_reply_that_need_not_be_kept_is_a_wish_of_the_request(self, space):
        space.enqueue("Q", "x", persistent=False, reply_persistent=True)
        assert space.dequeue("Q").reply_delivery is Delivery.PERSIST


class TestOrder:
    MIXED = "aBcDEfgHiJ"

    def test_both_stores_are_one_queue(self, space):
        ids = fill(space, self.MIXED)
        assert [message.msgid for message in space.browse("Q")] == ids
        assert drain(space) == list(self.MIXED)

    def test_within_a_transaction_too(self, space):
        with space.transaction():
            ids = fill(space, self.MIXED)
            assert truth(space) == ([], [])
        assert [message.msgid for message in space.browse("Q")] == ids
        assert drain(space) == list(self.MIXED)

    def test_the_place_is_that_of_the_commit(self, space):
        fill(space, "aB")
        with space.transaction():
            fill(space, "cD")
            for text in "eF":
                space.enqueue("Q", text, persistent=text.islower(), transactional=False)
            fill(space, "Gh")
        assert drain(space) == list("aBeFcDGh")

    def test_many_at_once_keep_their_order(self, space):
        from qmcore.message import EnqueueControl

        ids = space.put_many([("Q", text.encode(), EnqueueControl(delivery=_delivery(text))) for text in self.MIXED])
        assert [message.msgid for message in space.browse("Q")] == ids
        assert [message.body.decode() for message in space.dequeue_many("Q", 4)] == list(self.MIXED[:4])
        with space.transaction():
            assert [message.body.decode() for message in space.dequeue_many("Q", 4)] == list(self.MIXED[4:8])
        assert drain(space) == list(self.MIXED[8:])

    def test_a_transaction_that_spills_keeps_it(self, store):
        opened = store.space("LARGE", pages=19_000, memory=19_000 * PAGE)
        make_queue(opened, "Q")
        with opened.transaction():
            for at in range(24):
                opened.enqueue("Q", bytes([at]) * 1_000_000, persistent=bool(at % 2))
        assert [message.body[0] for message in opened.browse("Q")] == list(range(24))
        assert [message.body[0] for message in opened.dequeue_many("Q", 100)] == list(range(24))
        assert store.device.space_usage("LARGE").pages == store.device.space_usage("LARGE").memory == 0

    def test_priority_time_lifo_and_places_hold_over_both(self, space, clock):
        make_queue(space, "FREE", order="priority,lifo", out_of_order="top,msgid")
        for text, priority in (("a", 10), ("B", 90), ("c", 90), ("D", 10)):
            space.enqueue("FREE", text, priority=priority, persistent=text.islower())
        (place,) = [info.msgid for info in space.messages("FREE") if info.size and info.priority == 10][-1:]
        before = next(message for message in space.browse("FREE") if message.msgid == place).text
        space.enqueue("FREE", "E", before=place, persistent=False)
        space.enqueue("FREE", "f", before=place)
        space.enqueue("FREE", "G", top=True, persistent=False)
        space.enqueue("FREE", "h", top=True)
        order = drain(space, "FREE")
        assert order[:4] == ["h", "G", "c", "B"]
        assert order[order.index(before) - 2 : order.index(before)] == ["E", "f"]

    def test_one_of_a_rolled_back_transaction_is_in_its_place_again(self, space):
        fill(space, "aBcD")
        with space.transaction() as transaction:
            assert drain(space) == list("aBcD")
            transaction.rollback()
        assert drain(space) == list("aBcD")

    def test_by_identifier_correlation_and_condition_it_is_found_in_either(self, space):
        for text in "aBcD":
            space.enqueue("Q", text, corrid=text, priority=ord(text.lower()) - 90, persistent=text.islower())
        ids = [info.msgid for info in space.browse("Q")]
        assert space.dequeue("Q", msgid=ids[3]).text == "D"
        assert space.dequeue("Q", corrid="B").text == "B"
        assert space.dequeue("Q", corrid_like="%c%").text == "c"
        assert space.dequeue("Q", condition="priority = 7").text == "a"
        assert truth(space) == ([], [])


def _delivery(text):
    return Delivery.PERSIST if text.islower() else Delivery.NONPERSIST


class TestTransactions:
    def test_a_commit_consumes_from_both_and_enqueues_in_both(self, space, store):
        fill(space, "aB")
        with space.transaction():
            assert drain(space) == ["a", "B"]
            fill(space, "cD")
            assert bodies_held(space) == (0, 0, 2)
        assert drain(space) == ["c", "D"]
        assert store.device.space_usage("SPACE").messages == 0

    def test_a_rollback_leaves_both_as_they_were_and_counts_as_a_try(self, space):
        fill(space, "aB")
        with pytest.raises(ZeroDivisionError), space.transaction():
            drain(space)
            fill(space, "cD")
            _ = 1 / 0
        assert [(info.retries, info.delivery.value) for info in space.messages("Q")] == [
            (1, "persist"),
            (1, "nonpersist"),
        ]
        assert drain(space) == ["a", "B"]

    def test_the_record_of_a_commit_does_not_stay(self, space, clock):
        for _ in range(3):
            with space.transaction():
                fill(space, "aB")
        clock.advance(2)
        space.usage("Q")
        assert count_rows(space, "trans") == (0,)

    def test_more_transactions_than_may_be_open_can_follow_each_other_at_once(self, space):
        """What is committed and only waits for memory to follow is no open transaction."""
        for _ in range(25):
            with space.transaction():
                fill(space, "A")
        assert len(truth(space)[1]) == 25

    def test_locked_ones_come_back(self, space):
        fill(space, "aB")
        with space.transaction():
            assert (space.lock("Q").text, space.lock("Q").text) == ("a", "B")
            assert space.dequeue("Q", transactional=False) is None
            assert space.dequeue("Q").text == "a"
        assert [(info.retries, info.delivery.value) for info in space.messages("Q")] == [(0, "nonpersist")]

    @pytest.mark.synchronous
    def test_two_queue_spaces_in_one_transaction(self, store, space):
        other = store.space("OTHER", memory=100 * PAGE)
        make_queue(other, "Q")
        fill(space, "A")
        with Transaction(store.device, None) as transaction:
            assert space.dequeue("Q").text == "A"
            fill(other, "Bc")
            fill(space, "D")
            transaction.rollback()
        assert (drain(space), drain(other)) == (["A"], [])
        fill(space, "A")
        with Transaction(store.device, None):
            assert space.dequeue("Q").text == "A"
            fill(other, "Bc")
            fill(space, "D")
        assert (drain(space), drain(other)) == (["D"], ["B", "c"])


class TestTimesAndTries:
    def test_delay_and_expiry_hold(self, space, clock):
        space.enqueue("Q", "late", persistent=False, delay=10)
        space.enqueue("Q", "brief", persistent=False, expires_in=5)
        assert bodies_held(space) == (1, 1, 0)
        clock.advance(6)
        assert bodies_held(space) == (0, 1, 0)
        clock.advance(6)
        usage = space.usage("Q")
        assert (usage.ready, usage.expired, usage.messages) == (1, 1, 1)
        assert drain(space) == ["late"]

    def test_one_that_is_out_of_retries_goes_to_the_error_queue_and_stays_in_memory(self, space, store):
        (msgid,) = fill(space, "A")
        for _ in range(2):
            with space.transaction() as transaction:
                assert space.dequeue("Q").text == "A"
                transaction.rollback("broken")
        message = space.dequeue("ERRORS")
        assert (message.text, message.delivery) == ("A", Delivery.NONPERSIST)
        assert (message.origin.msgid, message.origin.reason, message.origin.error) == (msgid, Reason.RETRIES, "broken")
        assert space.usage("Q").moved == 1
        assert store.device.space_usage("SPACE").memory == 0

    def test_one_that_expires_goes_to_the_error_queue_where_the_queue_says_so(self, space, clock):
        make_queue(space, "KEEP", keep_expired=True)
        space.enqueue("KEEP", "A", persistent=False, expires_in=5)
        clock.advance(6)
        assert space.dequeue("KEEP") is None
        message = space.dequeue("ERRORS")
        assert (message.origin.reason, message.delivery) == (Reason.EXPIRED, Delivery.NONPERSIST)

    def test_a_retry_delay_holds(self, space, clock):
        make_queue(space, "SLOW", retries=5, retry_delay=10)
        fill(space, "A", "SLOW")
        with space.transaction() as transaction:
            space.dequeue("SLOW")
            transaction.rollback()
        assert bodies_held(space, "SLOW") == (0, 1, 0)
        clock.advance(11)
        assert drain(space, "SLOW") == ["A"]

    def test_purging_takes_both(self, space):
        fill(space, "aBcD")
        space.enqueue("Q", "E", delay=100, persistent=False)
        assert space.purge("Q") == 5
        assert truth(space) == ([], [])
        assert space.usage("Q").discarded == 5

    def test_a_queue_that_groups_messages_takes_none(self, space):
        make_queue(space, "GROUPS", grouping=True)
        with pytest.raises(InvalidArgumentError, match="groups messages"):
            space.enqueue("GROUPS", "x", persistent=False)


class TestLimits:
    def test_memory_is_named_with_its_use_and_limit(self, store):
        opened = store.space("SMALL", memory=3 * PAGE)
        make_queue(opened, "Q")
        fill(opened, "AB")
        with pytest.raises(NoSpaceError) as refusal:
            opened.enqueue("Q", bytes(2 * PAGE), persistent=False)
        error = refusal.value
        assert error.resource is Resource.MEMORY
        assert (error.used, error.limit, error.wanted) == (2 * PAGE, 3 * PAGE, 3 * PAGE)
        opened.enqueue("Q", "the disk has room", persistent=True)
        fill(opened, "C")
        assert len(truth(opened)[1]) == 3

    def test_in_a_transaction_it_is_refused_at_once_and_the_rest_commits(self, store):
        opened = store.space("SMALL", memory=3 * PAGE)
        make_queue(opened, "Q")
        with opened.transaction():
            fill(opened, "ABC")
            with pytest.raises(NoSpaceError) as refusal:
                fill(opened, "D")
            assert (refusal.value.used, refusal.value.limit) == (3 * PAGE, 3 * PAGE)
        assert drain(opened) == ["A", "B", "C"]

    def test_what_a_transaction_consumes_makes_room_for_what_it_brings(self, store):
        opened = store.space("SMALL", memory=3 * PAGE)
        make_queue(opened, "Q")
        fill(opened, "ABC")
        for _ in range(3):
            with opened.transaction():
                texts = drain(opened)
                fill(opened, texts)
        assert drain(opened) == ["A", "B", "C"]

    def test_the_number_of_messages_is_limited_together(self, store):
        opened = store.space("FEW", memory=100 * PAGE, messages=4)
        make_queue(opened, "Q")
        fill(opened, "aBcD")
        for text in "Ef":
            with pytest.raises(NoSpaceError) as refusal:
                fill(opened, text)
            assert (refusal.value.resource, refusal.value.used, refusal.value.limit) == (Resource.MESSAGES, 4, 4)
        with opened.transaction(), pytest.raises(NoSpaceError):
            fill(opened, "E")
        opened.dequeue("Q")
        fill(opened, "E")
        assert drain(opened) == ["B", "c", "D", "E"]

    def test_expired_ones_make_room(self, store, clock):
        opened = store.space("SMALL", memory=3 * PAGE)
        make_queue(opened, "Q")
        for text in "ABC":
            opened.enqueue("Q", text, persistent=False, expires_in=5)
        clock.advance(6)
        fill(opened, "D")
        assert drain(opened) == ["D"]

    def test_the_way_to_the_error_queue_is_free_although_nothing_else_fits(self, store):
        opened = store.space("SMALL", memory=2 * PAGE, messages=2, error_queue="ERRORS")
        make_queue(opened, "Q")
        make_queue(opened, "ERRORS")
        fill(opened, "AB")
        with opened.transaction() as transaction:
            drain(opened)
            transaction.rollback()
        assert drain(opened, "ERRORS") == ["A", "B"]

    def test_a_transaction_that_loses_its_room_meanwhile_loses_no_request(self, store):
        opened = store.space("SMALL", memory=2 * PAGE)
        make_queue(opened, "Q")
        make_queue(opened, "OUT")
        opened.enqueue("Q", "request")
        with pytest.raises(NoSpaceError) as refusal, opened.transaction():
            opened.dequeue("Q")
            fill(opened, "AB", "OUT")
            opened.enqueue("OUT", "quicker", persistent=False, transactional=False)
        assert refusal.value.resource is Resource.MEMORY
        message = opened.dequeue("Q")
        assert (message.text, message.retries) == ("request", 0)
        assert drain(opened, "OUT") == ["quicker"]


class TestQueuesAndSpaces:
    def test_a_queue_is_destroyed_with_what_it_has_in_memory(self, space, store):
        fill(space, "aB")
        with pytest.raises(InUseError, match="holds 2 messages"):
            space.destroy_queue("Q")
        space.destroy_queue("Q", purge=True)
        usage = store.device.space_usage("SPACE")
        assert (usage.messages, usage.memory) == (0, 0)
        make_queue(space, "Q")
        fill(space, "C")
        assert drain(space) == ["C"]

    def test_a_queue_is_not_destroyed_while_a_transaction_holds_one(self, space):
        fill(space, "A")
        with space.transaction():
            space.dequeue("Q")
            with pytest.raises(InUseError):
                space.destroy_queue("Q", force=True)

    def test_a_queue_space_is_destroyed_with_its_memory(self, space, store, memory_dir):
        fill(space, "A")
        space.close()
        with pytest.raises(InUseError, match="holds 1 message"):
            store.device.destroy_space("SPACE")
        store.device.destroy_space("SPACE", force=True)
        assert list(memory_dir.iterdir()) == []

    def test_one_that_is_made_again_under_its_name_and_number_is_empty(self, space, store):
        fill(space, "A")
        store.device.destroy_space("SPACE", force=True)
        opened = store.space("SPACE", memory=100 * PAGE)
        make_queue(opened, "Q")
        assert truth(opened) == ([], [])
        fill(opened, "B")
        assert drain(opened) == ["B"]

    def test_ipcrm_gives_up_the_non_persistent_and_nothing_else(self, space, store):
        fill(space, "aBcD")
        with pytest.raises(InUseError):
            store.device.clear_memory("SPACE")
        store.device.clear_memory("SPACE", force=True)
        assert drain(space) == ["a", "c"]
        fill(space, "E")
        assert truth(space)[1] != []
        space.close()
        store.device.clear_memory("SPACE")
        with store.device.open_space("SPACE") as opened:
            assert drain(opened) == []

    def test_ipcrm_in_the_midst_of_a_transaction_leaves_it_what_is_on_disk(self, space, store):
        fill(space, "aB")
        with space.transaction():
            assert drain(space) == ["a", "B"]
            fill(space, "cD")
            store.device.clear_memory("SPACE", force=True)
        assert "c" in drain(space)

    def test_after_ipcrm_and_without_its_queue_a_transaction_rolls_back(self, space, store):
        fill(space, "B", "MEMORY")
        fill(space, "a")
        with space.transaction() as transaction:
            assert (drain(space, "MEMORY"), drain(space)) == (["B"], ["a"])
            store.device.clear_memory("SPACE", force=True)
            space.destroy_queue("MEMORY", force=True)
            transaction.rollback()
        assert drain(space) == ["a"]
