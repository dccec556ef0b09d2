"""Many messages at once: all or nothing, in order, on several queues."""

import pytest

from qmcore.acts import enqueue_in_transaction
from qmcore.errors import BadMessageIdError, BadQueueError, InvalidArgumentError, NoSpaceError, Resource
from qmcore.limits import Threshold, parse_high, parse_low
from qmcore.message import EnqueueControl
from qmcore.queue import Delivery
from tests.fix_store import Work, bodies_held, drain, make_queue

BODIES = [b"a", "b", None, b"", bytearray(b"c"), memoryview(b"d")]


@pytest.fixture
def space(store, monkeypatch, tmp_path):
    monkeypatch.setenv("QM_SHM_DIR", str(tmp_path))
    opened = store.space(memory=400_000, pages=10_000)
    make_queue(opened, "Q", retries=3)
    make_queue(opened, "OTHER", order="priority", retries=3)
    make_queue(opened, "M", delivery=Delivery.NONPERSIST, retries=3)
    return opened


@pytest.fixture(params=["Q", "M"])
def queue(request):
    return request.param


def texts(messages):
    return [message.text for message in messages]


class TestEnqueueMany:
    def test_identifiers_come_in_order_and_so_do_the_messages(self, space, queue):
        ids = space.enqueue_many(queue, BODIES)
        messages = space.dequeue_many(queue, 10)
        assert [message.msgid for message in messages] == ids
        assert [message.body for message in messages] == [b"a", b"b", None, b"", b"c", b"d"]
        assert [message.type for message in messages] == ["CARRAY", "STRING", *["CARRAY"] * 4]

    def test_what_is_said_of_one_holds_for_all(self, space, queue, clock):
        control = EnqueueControl(priority=9, corrid=b"c", delay=5_000_000, headers={"h": "v"}, type="JSON")
        space.enqueue_many(queue, ["a", b"b"], control)
        assert bodies_held(space, queue) == (0, 2, 0)
        clock.advance(5)
        for message in space.dequeue_many(queue, 5):
            assert (message.priority, message.corrid, message.headers, message.type) == (9, b"c", {"h": "v"}, "JSON")

    def test_none_at_all_is_no_error_and_any_iterable_will_do(self, space):
        assert space.enqueue_many("Q", []) == []
        assert space.put_many([]) == []
        assert len(space.enqueue_many("Q", (str(at) for at in range(3)))) == 3
        assert drain(space) == ["0", "1", "2"]

    @pytest.mark.parametrize("transactional", [True, False])
    def test_a_body_that_is_refused_refuses_all(self, space, transactional):
        with space.transaction():
            for bad in (object(), b"x" * (64 * 1024 * 1024 + 1), "\ud800"):
                with pytest.raises(InvalidArgumentError):
                    space.enqueue_many("Q", ["a", bad], transactional=transactional)
        assert space.usage("Q").messages == 0

    def test_what_does_not_fit_altogether_is_refused_altogether(self, store, space):
        small = store.space("SMALL", messages=10)
        make_queue(small, "Q")
        small.enqueue_many("Q", ["x"] * 6)
        for transactional in (True, False):
            with small.transaction(), pytest.raises(NoSpaceError) as caught:
                small.enqueue_many("Q", ["x"] * 5, transactional=transactional)
            assert (caught.value.resource, caught.value.limit) == (Resource.MESSAGES, 10)
            assert small.usage("Q").messages == 6
        small.enqueue_many("Q", ["x"] * 4)
        assert small.usage("Q").messages == 10

    def test_in_a_transaction_they_wait_for_its_commit(self, space, queue):
        with space.transaction():
            ids = space.enqueue_many(queue, ["a", "b"])
            space.enqueue(queue, "c")
            assert space.usage(queue).messages == 0
        assert [info.msgid for info in space.messages(queue)][:2] == ids
        with space.transaction() as transaction:
            space.enqueue_many(queue, ["x", "y"])
            transaction.rollback()
        assert drain(space, queue) == ["a", "b", "c"]

    def test_others_never_see_a_part_of_them(self, file_store):
        space = file_store.space()
        make_queue(space)
        other = file_store.another().open_space("SPACE")

        def enqueue():
            for _ in range(20):
                space.enqueue_many("Q", ["x"] * 7)

        def look():
            return {other.usage("Q").messages % 7 for _ in range(40)}

        assert Work(enqueue, look).results() == [None, {0}]


ORDERS = ("fifo", "lifo", "priority", "time,fifo", "time,lifo", "expiration", "priority,time,lifo")
OPTIONS = {
    "none": {},
    "another order": {"order": "priority,lifo"},
    "grouping": {"grouping": True},
    "an expiration": {"expiration": 10_000_000},
    "a command": {"threshold": Threshold(HIGH := parse_high("50m"), parse_low("1m", HIGH), "true")},
    "retention": {"retention": 10},
}


class TestWithoutOptions:
    """Messages without options, for a queue space that has all of them on the disk: few steps, the same outcome."""

    @pytest.fixture
    def space(self, store):
        return store.space(pages=10_000, messages=200)

    @pytest.mark.parametrize("order", ORDERS)
    def test_they_stand_as_if_they_had_come_one_by_one(self, space, order):
        make_queue(space, "Q", order=order)
        make_queue(space, "BY_ONE", order=order)
        several = [b"5", bytearray(b"6"), memoryview(b"7")], ["8", "\u20ac", ""], [b"11", "12"]
        for bodies in ([b"1", None, b"3"], [b""], *several):
            ids = space.enqueue_many("Q", bodies)
            assert ids == sorted(ids)
            for body in bodies:
                space.enqueue("BY_ONE", body)
        found, wanted = (list(space.messages(name)) for name in ("Q", "BY_ONE"))
        assert [space.content(info).body for info in found] == [space.content(info).body for info in wanted]
        assert [info.type for info in found] == [info.type for info in wanted]
        assert len({info.msgid for info in found + wanted}) == 24

    @pytest.mark.parametrize(
        "bodies", [(bytes(1024), b"\0", None), ("text", "", "\u20ac" * 1000)], ids=["bytes", "texts"]
    )
    @pytest.mark.parametrize("options", OPTIONS)
    def test_everything_about_them_and_what_is_counted_is_as_with_those_that_come_alone(
        self, space, store, options, bodies
    ):
        for name in ("Q", "BY_ONE"):
            make_queue(space, name, **OPTIONS[options])
        space.enqueue_many("Q", bodies)
        for body in bodies:
            space.put("BY_ONE", *as_put(body))
        assert store.device.space_usage("SPACE").messages == 6
        names = ("messages", "pages", "size", "enqueued")
        few, many = (space.usage(name) for name in ("Q", "BY_ONE"))
        assert [getattr(few, name) for name in names] == [getattr(many, name) for name in names]
        differs = {"msgid": None, "queue": None, "group": None}
        for one, other in zip(space.dequeue_many("Q", 3), space.dequeue_many("BY_ONE", 3), strict=False):
            assert facts(one) | differs == facts(other) | differs
        if options == "grouping":
            assert space.dequeue("Q") is None

    def test_the_last_that_have_room_are_taken_and_none_of_those_that_have_not(self, space):
        make_queue(space, "Q")
        space.enqueue_many("Q", [b"x"] * 150)
        with pytest.raises(NoSpaceError) as caught:
            space.enqueue_many("Q", [b"x"] * 51)
        assert (caught.value.facts["used"], caught.value.facts["wanted"], caught.value.facts["limit"]) == (150, 51, 200)
        assert space.usage("Q").messages == 150
        assert len(space.enqueue_many("Q", [b"x"] * 50)) == 50

    def test_one_with_a_large_body_has_its_place_among_the_others(self, space):
        make_queue(space, "Q")
        bodies = [b"1", bytes(2_000_000), b"3"]
        ids = space.enqueue_many("Q", bodies)
        found = [space.dequeue("Q") for _ in bodies]
        assert [message.msgid for message in found] == ids
        assert [message.body for message in found] == bodies

    def test_what_another_process_has_changed_holds_at_once(self, store, space):
        make_queue(space, "Q")
        space.enqueue_many("Q", [b"x", b"y"])
        elsewhere = store.another().open_space("SPACE")
        elsewhere.stop_queue("Q", enqueue=True, dequeue=False)
        with pytest.raises(BadQueueError, match="is stopped for enqueuing"):
            space.enqueue_many("Q", [b"x", b"y"])
        elsewhere.destroy_queue("Q", force=True)
        with pytest.raises(BadQueueError):
            space.enqueue_many("Q", [b"x", b"y"])
        make_queue(elsewhere, "Q", order="lifo")
        space.enqueue_many("Q", [b"x", b"y"])
        assert drain(space) == ["y", "x"]

    def test_as_many_who_wait_are_woken_as_there_are_messages(self, space):
        make_queue(space, "Q")
        waiting = Work(*[lambda: space.dequeue("Q", wait=30)] * 3)
        ids = space.enqueue_many("Q", [b"1", b"2", b"3"])
        assert sorted(message.msgid for message in waiting.results()) == ids


def as_put(body):
    """Return what is given to `put`, with options said that nobody asks for: so it goes another way."""
    is_text = isinstance(body, str)
    return body.encode() if is_text else body, EnqueueControl(type="STRING" if is_text else "CARRAY")


def facts(message):
    return {name: getattr(message, name) for kind in type(message).__mro__ for name in getattr(kind, "__slots__", ())}


class TestPutMany:
    def items(self):
        return [
            ("Q", b"1", EnqueueControl()),
            ("OTHER", b"2", EnqueueControl(priority=1)),
            ("M", b"3", EnqueueControl(corrid=b"c")),
            ("OTHER", b"4", EnqueueControl(priority=99, delivery=Delivery.NONPERSIST)),
            ("Q", b"5", EnqueueControl(delivery=Delivery.NONPERSIST)),
            ("Q", b"6", EnqueueControl(headers={"h": "v"})),
            ("OTHER", b"7", EnqueueControl(priority=1)),
        ]

    @pytest.mark.parametrize("transactional", [True, False])
    def test_several_queues_and_controls_keep_their_order_in_each_queue(self, space, transactional):
        with space.transaction():
            ids = space.put_many(self.items(), transactional=transactional)
        assert sorted(set(ids)) == sorted(ids)
        found = {name: space.dequeue_many(name, 9) for name in ("Q", "OTHER", "M")}
        assert {name: texts(messages) for name, messages in found.items()} == {
            "Q": ["1", "5", "6"],
            "OTHER": ["4", "2", "7"],
            "M": ["3"],
        }
        assert [message.msgid for message in found["Q"]] == [ids[0], ids[4], ids[5]]
        assert [message.msgid for message in found["OTHER"]] == [ids[3], ids[1], ids[6]]
        assert found["Q"][2].headers == {"h": "v"}

    @pytest.mark.parametrize("spill_bytes", [1, 2_000])
    def test_spilled_ones_keep_it_too(self, space, monkeypatch, spill_bytes):
        monkeypatch.setattr(enqueue_in_transaction, "SPILL_BYTES", spill_bytes)
        with space.transaction():
            space.enqueue("Q", "0")
            space.put_many(self.items())
            space.enqueue("Q", "9")
        assert drain(space) == ["0", "1", "5", "6", "9"]

    @pytest.mark.parametrize("transactional", [True, False])
    @pytest.mark.parametrize(
        ("bad", "refusal"),
        [
            (("NONE", b"x", EnqueueControl()), BadQueueError),
            (("STOPPED", b"x", EnqueueControl()), BadQueueError),
            (("Q", b"x", EnqueueControl(top=True)), InvalidArgumentError),
            (("FREE", b"x", EnqueueControl(before="0" * 32)), BadMessageIdError),
        ],
    )
    def test_one_that_is_refused_refuses_all(self, space, transactional, bad, refusal):
        make_queue(space, "FREE", out_of_order="msgid")
        make_queue(space, "STOPPED")
        space.stop_queue("STOPPED")
        with space.transaction(), pytest.raises(refusal):
            space.put_many([*self.items(), bad], transactional=transactional)
        assert [space.usage(name).enqueued for name in ("Q", "OTHER", "M")] == [0, 0, 0]


class TestDequeueMany:
    def test_they_come_in_order_and_fewer_is_no_error(self, space, queue):
        for text in "abcde":
            space.enqueue(queue, text)
        assert texts(space.dequeue_many(queue, 2)) == ["a", "b"]
        assert texts(space.dequeue_many(queue, 9)) == ["c", "d", "e"]
        assert space.dequeue_many(queue, 9) == []

    def test_messages_on_disk_and_in_memory_come_in_their_common_order(self, space):
        for at in range(30):
            space.enqueue("OTHER", f"{at:02}", priority=1 + at * 7 % 30, persistent=at % 3 != 0)
        found = space.dequeue_many("OTHER", 20) + space.dequeue_many("OTHER", 20)
        assert [message.priority for message in found] == list(range(30, 0, -1))

    @pytest.mark.parametrize("how", [{"corrid": "c"}, {"corrid_like": "c%"}, {"condition": "priority = 7"}])
    def test_only_those_that_are_asked_for_come(self, space, queue, how):
        for at, text in enumerate("abcdef"):
            space.enqueue(queue, text, **({"corrid": "c", "priority": 7} if at % 2 else {}))
        assert texts(space.dequeue_many(queue, 2, **how)) == ["b", "d"]
        assert texts(space.dequeue_many(queue, 9, **how)) == ["f"]
        assert drain(space, queue) == ["a", "c", "e"]

    def test_in_a_transaction_all_come_back_and_count_a_try(self, space, queue):
        space.enqueue_many(queue, ["a", "b", "c"])
        with space.transaction() as transaction:
            assert len(space.dequeue_many(queue, 2)) == 2
            assert bodies_held(space, queue) == (1, 0, 2)
            transaction.rollback()
        assert [(message.text, message.retries) for message in space.dequeue_many(queue, 9)] == [
            ("a", 1),
            ("b", 1),
            ("c", 0),
        ]

    def test_the_books_are_even_afterwards(self, space, queue, store):
        space.enqueue_many(queue, ["x" * 5_000] * 20)
        space.dequeue_many(queue, 20)
        usage = space.usage(queue)
        assert (usage.messages, usage.dequeued, usage.pages, usage.memory_pages, usage.size) == (0, 20, 0, 0, 0)
        assert store.device.space_usage("SPACE").memory == 0

    def test_two_consumers_share_all_and_get_none_twice(self, file_store):
        space = file_store.space()
        make_queue(space)
        other = file_store.another().open_space("SPACE")
        ids = space.enqueue_many("Q", ["x"] * 300)

        def take(consumer):
            found = []
            while messages := consumer.dequeue_many("Q", 7):
                found.append([message.msgid for message in messages])
            return found

        results = Work(lambda: take(space), lambda: take(other)).results()
        every = [msgid for batches in results for batch in batches for msgid in batch]
        assert sorted(every) == sorted(ids)
        assert all(batch == sorted(batch) for batches in results for batch in batches)

    @pytest.mark.parametrize("limit", [0, -1, 1_000_001, 1.5, None])
    def test_a_number_that_is_none_is_refused(self, space, limit):
        with pytest.raises(InvalidArgumentError):
            space.dequeue_many("Q", limit)
