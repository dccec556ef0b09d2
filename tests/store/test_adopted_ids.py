"""Message identifiers of other queue spaces that stay valid: wherever one can be given, and wherever one is shown."""

import pytest

from qmcore.bulk_rows import Adopted
from qmcore.errors import BadMessageIdError
from qmcore.message import EnqueueControl, message_id
from qmcore.purpose import Purpose
from qmcore.queue import Delivery
from tests.fix_store import attachment_of, drain, make_queue

FOREIGN = "f0e1d2c3b4a59687"
SHIFT = 1_000


def adopt(space, *pieces):
    """Let the queue space adopt identifiers, as the end of an import does."""
    attachment = attachment_of(space)
    for piece in pieces:
        attachment.volume.write(
            lambda unit, piece=piece: unit.spaces.adopt(attachment.opened.space.id, piece), Purpose.ADMINISTRATION
        )


def number_of(msgid):
    return int(msgid[16:], 16)


def as_if_imported(space, *msgids, foreign=FOREIGN, to=SHIFT):
    """Let messages that are there have come with an import, and return the identifiers that they have by that."""
    own = [number_of(msgid) for msgid in msgids]
    adopt(space, *(Adopted(foreign, number + to, number + to, -to) for number in own))
    return [message_id(foreign, number + to) for number in own]


def definitions(space):
    attachment = attachment_of(space)
    return attachment.volume.read(attachment.opened.definitions)


def test_a_queue_space_is_read_with_what_it_has_adopted(space, store):
    pieces = [Adopted(FOREIGN, 1, 5, 100), Adopted(FOREIGN, 1, 5, 200), Adopted("0" * 16, 3, 4, 300)]
    before = definitions(space)
    adopt(space, *pieces)
    after = definitions(space)
    assert after.generation != before.generation
    assert set(after.space.adopted) == set(pieces)
    other = store.space("OTHER", ipc_key=41_000)
    volume = attachment_of(space).volume
    assert {one.name: len(one.adopted) for one in volume.read(lambda unit: unit.spaces.listed())} == {
        "SPACE": 3,
        "OTHER": 0,
    }
    assert definitions(other).space.adopted == ()


def test_a_destroyed_queue_space_leaves_none_behind_for_the_next_of_its_number(space, store):
    adopt(space, Adopted(FOREIGN, 1, 5, 100))
    space.close()
    store.device.destroy_space("SPACE")
    assert definitions(store.space()).space.adopted == ()


class TestOneThatIsValid:
    """Of messages that were enqueued here, some show what an import has brought with them."""

    @pytest.fixture
    def queue_of_three(self, space):
        make_queue(space, "OWN", out_of_order="msgid", retention=60, retries=3)
        own = [space.enqueue("OWN", f"m{number}") for number in range(3)]
        foreign = as_if_imported(space, own[0], own[2])
        return space, [foreign[0], own[1], foreign[1]], own

    def test_is_what_each_way_to_look_shows(self, queue_of_three):
        space, shown, _ = queue_of_three
        assert [info.msgid for info in space.messages("OWN")] == shown
        assert [message.msgid for message in space.browse("OWN")] == shown
        assert space.peek("OWN").msgid == shown[0]
        with space.transaction() as transaction:
            assert [space.lock("OWN").msgid, space.dequeue("OWN", msgid=shown[2]).msgid] == [shown[0], shown[2]]
            transaction.rollback()
        assert [message.msgid for message in space.dequeue_many("OWN", 3)] == shown
        assert [consumed.info.msgid for consumed in space.history("OWN")] == shown

    def test_finds_its_message_in_each_way_to_ask(self, queue_of_three):
        space, shown, _ = queue_of_three
        for number, msgid in enumerate(shown):
            assert space.peek("OWN", msgid=msgid.upper()).text == f"m{number}"
            (info,) = space.messages("OWN", condition=f"msgid = '{msgid}'")
            assert space.content(info).text == f"m{number}"
            others = space.messages("OWN", condition=f"msgid <> '{msgid}'")
            assert [other.msgid for other in others] == [other for other in shown if other != msgid]
        within = space.messages("OWN", condition=f"msgid IN ('{shown[0]}', '{shown[1]}')")
        assert [info.msgid for info in within] == shown[:2]
        assert space.dequeue("OWN", msgid=shown[2]).text == "m2"
        assert space.recall("OWN", shown[2]).text == "m2"
        assert space.recall("OWN", shown[1]) is None

    def test_stands_in_the_place_of_the_one_that_its_message_would_have_here(self, queue_of_three):
        space, _, own = queue_of_three
        assert space.peek("OWN", msgid=own[0]) is None
        assert space.dequeue("OWN", msgid=own[0]) is None
        assert list(space.messages("OWN", condition=f"msgid = '{own[0]}'")) == []
        with pytest.raises(BadMessageIdError, match="has no message"):
            space.enqueue("OWN", "x", before=own[0])
        assert space.peek("OWN", msgid=own[1]).text == "m1"

    def test_can_be_enqueued_before(self, queue_of_three):
        space, shown, _ = queue_of_three
        new = space.enqueue("OWN", "new", before=shown[2])
        with space.transaction():
            space.enqueue("OWN", "newer", before=shown[0])
        assert drain(space, "OWN") == ["newer", "m0", "m1", "new", "m2"]
        assert new.startswith(attachment_of(space).opened.space.incarnation)

    def test_can_be_locked_and_then_consumed(self, queue_of_three):
        space, shown, _ = queue_of_three
        with space.transaction():
            assert space.lock("OWN", msgid=shown[2]).msgid == shown[2]
            assert space.dequeue("OWN", msgid=shown[2]).text == "m2"
        assert drain(space, "OWN") == ["m0", "m1"]

    def test_is_what_administrators_act_on(self, queue_of_three):
        space, shown, _ = queue_of_three
        make_queue(space, "OTHER")
        assert space.change_priority("OWN", 90, condition=f"msgid = '{shown[0]}'") == 1
        assert space.purge("OWN", condition=f"msgid = '{shown[1]}'") == 1
        assert space.move("OWN", "OTHER", condition=f"msgid = '{shown[2]}'") == 1
        (left,) = space.messages("OWN")
        assert (left.msgid, left.priority) == (shown[0], 90)
        (moved,) = space.messages("OTHER")
        assert moved.origin.msgid == shown[2]
        assert moved.msgid.startswith(attachment_of(space).opened.space.incarnation)

    def test_is_what_an_error_queue_remembers(self, store):
        space = store.space(error_queue="ERRORS")
        make_queue(space, "ERRORS")
        make_queue(space, "Q")
        (msgid,) = as_if_imported(space, space.enqueue("Q", "x"))
        with pytest.raises(ZeroDivisionError), space.transaction():
            space.dequeue("Q")
            _ = 1 / 0
        assert space.peek("ERRORS").origin.msgid == msgid

    def test_is_what_a_message_of_its_group_names(self, store):
        space = store.space()
        make_queue(space, "G", grouping=True)
        with space.transaction():
            own = [space.enqueue("G", text) for text in ("a", "b")]
        foreign = as_if_imported(space, *own)
        assert [message.group for message in space.dequeue_many("G", 2)] == [foreign[0]] * 2

    def test_is_what_a_rollback_can_be_about(self, space):
        make_queue(space, "T", retries=5)
        foreign = as_if_imported(space, *[space.enqueue("T", text) for text in ("a", "b", "c")])
        with space.transaction() as transaction:
            for _ in foreign:
                space.dequeue("T")
            transaction.give_back(foreign[:1], "not this one")
        (left,) = space.messages("T")
        assert (left.msgid, left.retries) == (foreign[0], 1)
        with space.transaction() as transaction:
            space.dequeue("T")
            transaction.rollback("nor now", only=foreign[0], permanent=True)
        assert list(space.messages("T")) == []

    def test_is_what_a_failure_is_answered_for(self, queue_of_three):
        space, shown, _ = queue_of_three
        make_queue(space, "FAILED")
        with space.transaction() as transaction:
            space.dequeue("OWN")
            answer = ("FAILED", b"why", EnqueueControl())
            transaction.answer_failure(shown[0], "no", [answer])
        assert space.dequeue("FAILED").text == "why"
        assert [info.msgid for info in space.messages("OWN")] == shown[1:]

    def test_of_a_nonpersistent_message_is_as_good(self, store):
        space = store.space(memory=1_000_000)
        make_queue(space, "Q", out_of_order="msgid", delivery=Delivery.NONPERSIST)
        own = [space.enqueue("Q", text) for text in ("a", "b", "c")]
        foreign = as_if_imported(space, own[1], own[2])
        assert [info.msgid for info in space.messages("Q")] == [own[0], *foreign]
        space.enqueue("Q", "x", before=foreign[0])
        assert space.dequeue("Q", msgid=foreign[1]).text == "c"
        assert drain(space, "Q") == ["a", "x", "b"]


class TestOneThatSeveralImportsBrought:
    """Messages with one identifier: copies of one, or what is left of a queue space that came in two parts."""

    @pytest.fixture
    def copies(self, space):
        make_queue(space, "COPY", out_of_order="msgid", retention=60)
        make_queue(space, "Q2", out_of_order="msgid")
        own = [space.enqueue(queue, text) for queue, text in (("COPY", "one"), ("COPY", "two"), ("Q2", "three"))]
        for msgid in own:
            adopt(space, Adopted(FOREIGN, 7, 7, number_of(msgid) - 7))
        return space, message_id(FOREIGN, 7)

    def test_is_found_in_the_queue_that_is_asked(self, copies):
        space, msgid = copies
        assert space.peek("Q2", msgid=msgid).text == "three"
        (info,) = space.messages("Q2", condition=f"msgid = '{msgid}'")
        assert space.content(info).text == "three"
        assert {space.content(info).text for info in space.messages("COPY")} <= {"one", "two"}
        assert space.peek("Q", msgid=msgid) is None
        space.enqueue("Q2", "before", before=msgid)
        assert drain(space, "Q2") == ["before", "three"]

    def test_is_of_each_that_is_left(self, copies):
        space, msgid = copies
        assert len(list(space.messages("COPY", condition=f"msgid = '{msgid}'"))) == 2
        assert list(space.messages("COPY", condition=f"msgid <> '{msgid}'")) == []
        assert {space.dequeue("COPY", msgid=msgid).text for _ in range(2)} == {"one", "two"}
        assert space.dequeue("COPY", msgid=msgid) is None
        assert space.recall("COPY", msgid).text in {"one", "two"}
        with pytest.raises(BadMessageIdError):
            space.enqueue("COPY", "x", before=msgid)
        assert space.purge("Q2", condition=f"msgid IN ('{msgid}')") == 1

    def test_is_dequeued_as_often_as_it_is_there(self, copies):
        space, msgid = copies
        assert {message.text for message in space.dequeue_many("COPY", 5, condition=f"msgid = '{msgid}'")} == {
            "one",
            "two",
        }

    def test_of_messages_that_are_gone_is_of_the_one_that_is_not(self, copies):
        space, msgid = copies
        space.purge("COPY", condition="msgid IS NOT NULL")
        with space.transaction():
            assert space.dequeue("Q2", msgid=msgid).text == "three"
            assert space.dequeue("COPY", msgid=msgid) is None

    def test_may_be_one_that_went_away_and_came_back(self, space):
        mine = space.enqueue("Q", "it stayed")
        own = space.enqueue("Q", "it came back")
        adopt(space, Adopted(mine[:16], number_of(mine), number_of(mine), number_of(own) - number_of(mine)))
        assert [info.msgid for info in space.messages("Q")] == [mine, mine]
        assert {message.text for message in space.dequeue_many("Q", 2, condition=f"msgid = '{mine}'")} == {
            "it stayed",
            "it came back",
        }


def test_another_process_knows_an_identifier_once_it_is_adopted(shared_store):
    space = shared_store.space()
    make_queue(space, "Q")
    own = space.enqueue("Q", "x")
    other = shared_store.another().open_space("SPACE")
    assert other.peek("Q").msgid == own
    (foreign,) = as_if_imported(space, own)
    assert other.peek("Q").msgid == foreign
    assert other.dequeue("Q", msgid=foreign).text == "x"


def test_an_identifier_of_four_hundred_imports_is_found(space):
    own = space.enqueue("Q", "x")
    pieces = [Adopted(FOREIGN, 1, 10, SHIFT * at) for at in range(1, 400)]
    adopt(space, *pieces, Adopted(FOREIGN, 5, 5, number_of(own) - 5))
    msgid = message_id(FOREIGN, 5)
    assert space.peek("Q", msgid=msgid).msgid == msgid
    assert [info.msgid for info in space.messages("Q", condition=f"msgid = '{msgid}'")] == [msgid]
    assert space.dequeue("Q", msgid=msgid).text == "x"
