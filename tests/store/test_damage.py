"""A message whose record is gone or cannot be read costs that message, and nothing else."""

import itertools

import pytest

from qmadmin import SystemFailureError, mib
from qmadmin.transfer.exporting import export
from qmcore.findings import Severity
from qmcore.message import EnqueueControl
from qmcore.times import MICROS
from tests.fix_postgres import but_for_this_server
from tests.fix_store import bodies_held, drain, make_queue

ITS = "(SELECT min(id) FROM message)"
GONE = f"DELETE FROM message WHERE id = {ITS}"
NOT_JSON = f"UPDATE message SET headers = 'not JSON' WHERE id = {ITS}"
NO_OBJECT = f"UPDATE message SET headers = '[1]' WHERE id = {ITS}"
UNKNOWN_WORD = f"UPDATE message SET reply_delivery = 'perhaps' WHERE id = {ITS}"
UNKNOWN_REASON = f"UPDATE message SET origin_queue = 'Q', origin_reason = 'why', moved_at = 1 WHERE id = {ITS}"
NO_ORIGIN = f"UPDATE message SET origin_queue = 'Q', origin_reason = 'admin', moved_at = 1 WHERE id = {ITS}"
CUT_BODY = f"UPDATE message SET body = x'' WHERE id = {ITS}"
KINDS = {
    "gone": GONE,
    "not-json": NOT_JSON,
    "no-object": NO_OBJECT,
    "unknown-word": UNKNOWN_WORD,
    "unknown-reason": UNKNOWN_REASON,
    "no-origin": NO_ORIGIN,
    "cut-body": CUT_BODY,
}


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def damage(request):
    return request.param


@pytest.fixture
def space(shared_store):
    opened = shared_store.space(error_queue="ERRORS")
    make_queue(opened, "ERRORS")
    make_queue(opened, "Q", retries=2)
    make_queue(opened, "OTHER", retries=2)
    return opened


@pytest.fixture
def damaged(shared_store, space, damage):
    """Return a queue space with three messages on Q, of which the first is damaged."""
    for body in "abc":
        space.enqueue("Q", body)
    shared_store.by_hand(damage)
    return space


def refused(act):
    with pytest.raises(SystemFailureError) as caught:
        act()
    assert "is damaged" in caught.value.message
    assert "qpurge -d" in caught.value.hint
    return caught.value


def dequeue_in_transaction(space):
    with space.transaction():
        return space.dequeue("Q")


ACTS = {
    "dequeue": lambda space: space.dequeue("Q"),
    "dequeue many": lambda space: space.dequeue_many("Q", 2),
    "dequeue in a transaction": dequeue_in_transaction,
    "peek": lambda space: space.peek("Q"),
    "listen and dequeue": lambda space: space.listen(["Q"]) and space.dequeue("Q"),
}


@pytest.mark.matrix(together=2)
@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_who_comes_upon_it_is_told_and_nothing_is_changed(damaged, act):
    before = damaged.usage("Q")
    for _ in range(2):
        refused(lambda: act(damaged))
    assert damaged.usage("Q") == before


def test_other_queues_are_served(damaged):
    damaged.enqueue("OTHER", "x")
    refused(lambda: damaged.dequeue("Q"))
    assert drain(damaged, "OTHER") == ["x"]


def test_others_of_the_queue_are_listed(damaged):
    # One whose body alone is damaged is listed too.
    assert [damaged.content(info).text for info in [*damaged.messages("Q")][-2:]] == ["b", "c"]


def test_whoever_lists_is_told_how_many_are_left_out(shared_store, space, damage):
    for body in "abc":
        space.enqueue("Q", body)
    space.enqueue("Q", "due", delay=9)
    shared_store.by_hand(damage)
    left_out = []
    listed = [*space.messages("Q", left_out=left_out.append)]
    cursor = space.browse("Q")
    # One whose body alone is damaged is listed, and not read with it.
    assert (len(listed), left_out) == ((4, []) if damage == CUT_BODY else (3, [1]))
    assert [message.text for message in cursor] == ["b", "c"]
    assert cursor.left_out == 1


CONDITIONS = ("priority < 99", "NOT priority > 99", "msgid != '00000000000000000000000000000000'", "retries = 0")


@pytest.mark.parametrize("condition", CONDITIONS)
def test_whoever_lists_by_a_condition_is_told_of_those_without_a_record_too(shared_store, space, condition):
    """Whether the condition held for them nobody can know."""
    for body in "abc":
        space.enqueue("Q", body)
    for _ in range(2):
        shared_store.by_hand(GONE)
    left_out = []
    assert len([*space.messages("Q", condition=condition, left_out=left_out.append)]) == 1
    assert left_out == [2]
    cursor = space.browse("Q", condition=condition)
    assert [message.text for message in cursor] == ["c"]
    assert cursor.left_out == 2
    assert space.move("Q", "OTHER", condition=condition) == 1, "who acts by a condition leaves them alone"
    assert space.purge("Q", condition=condition) == 0


@pytest.mark.parametrize("condition", ["corrid = 'mine'", "corrid LIKE 'mi%'", "corrid IN ('mine', 'yours')", None])
def test_whoever_names_what_is_listed_is_told_of_nothing_else(shared_store, space, condition):
    ids = [space.enqueue("Q", body, corrid="mine") for body in "abc"]
    shared_store.by_hand(GONE)
    left_out = []
    named = condition or f"msgid = '{ids[2]}'"
    assert len([*space.messages("Q", condition=f"{named} AND size > 0", left_out=left_out.append)]) == (
        2 if condition else 1
    )
    assert left_out == []


@pytest.mark.matrix
@pytest.mark.parametrize("condition", [None, *CONDITIONS])
@pytest.mark.parametrize("many", [1, 600])
def test_those_that_are_retained_and_without_a_record_are_told(shared_store, space, condition, many):
    make_queue(space, "KEEPS", retention=100)
    space.enqueue_many("KEEPS", ["x"] * many)
    space.enqueue("KEEPS", "last", urcode=7)
    drain(space, "KEEPS")
    shared_store.by_hand("DELETE FROM message WHERE urcode = 0")
    left_out = []
    told = space.history("KEEPS", condition=condition, left_out=left_out.append)
    assert [each.info.urcode for each in told] == [7]
    assert sum(left_out) == many


def test_where_all_are_left_out_it_is_told_too(shared_store, space):
    for body in "abc":
        space.enqueue("Q", body)
    shared_store.by_hand("DELETE FROM message")
    left_out = []
    assert [*space.messages("Q", left_out=left_out.append)] == []
    assert sum(left_out) == 3


def test_those_that_are_retained_and_left_out_are_told(shared_store, space):
    make_queue(space, "KEEPS", retention=100)
    for body in "ab":
        space.enqueue("KEEPS", body)
    drain(space, "KEEPS")
    shared_store.by_hand(NOT_JSON)
    left_out = []
    assert len([*space.history("KEEPS", left_out=left_out.append)]) == 1
    assert left_out == [1]


def test_those_that_are_chosen_can_be_dequeued(shared_store, space, damage):
    ids = [space.enqueue("Q", body) for body in "abc"]
    shared_store.by_hand(damage)
    assert [space.dequeue("Q", msgid=msgid).text for msgid in ids[1:]] == ["b", "c"]


def test_the_others_are_moved_when_the_damaged_one_is_removed(damaged):
    assert damaged.purge_damaged("Q") == 1
    assert damaged.move("Q", "OTHER") == 2
    assert drain(damaged, "OTHER") == ["b", "c"]


def test_a_move_of_all_takes_what_has_a_record(damaged):
    assert damaged.move("Q", "OTHER") in (2, 3)
    # Where the origin was the damage, that is what a move writes again.
    assert [info.size for info in damaged.messages("OTHER")][-2:] == [1, 1]


def test_removing_the_damaged_leaves_the_others_and_counts_them_again(shared_store, damaged):
    assert damaged.purge_damaged("Q") == 1
    assert damaged.purge_damaged("Q") == 0
    assert bodies_held(damaged, "Q")[0] == 2
    assert (damaged.usage("Q").messages, damaged.usage("Q").discarded) == (2, 1)
    assert drain(damaged) == ["b", "c"]
    assert bad(shared_store) == []


def test_a_queue_can_be_purged(shared_store, damaged):
    assert damaged.purge("Q") == 3
    assert bodies_held(damaged, "Q") == (0, 0, 0)
    damaged.enqueue("Q", "new")
    assert drain(damaged) == ["new"]
    assert bad(shared_store) == []


def test_a_check_finds_it(shared_store, damaged):
    assert bad(shared_store)


OF_ANOTHER_KIND = {
    **{
        column: f"UPDATE message SET {column} = x'00ff' WHERE id = {ITS}"
        for column in ("type", "subtype", "reply_queue", "failure_queue", "error_queue", "client_id")
    },
    **{
        column: f"UPDATE message SET {column} = x'00ff' WHERE id = {ITS} AND origin_queue NOTNULL"
        for column in ("origin_queue", "origin_msgid", "origin_error", "first_msgid")
    },
    "corrid": f"UPDATE message SET corrid = 'text' WHERE id = {ITS}",
    "retries": "UPDATE ready SET retries = 'many' WHERE order_key = (SELECT min(order_key) FROM ready)",
}


class TestOfAnotherKind:
    """Columns of a file take values of any kind; a server refuses them."""

    @pytest.fixture(params=OF_ANOTHER_KIND)
    def damaged(self, request, file_store):
        """A queue space with three messages on Q, which were moved there, of which the first is damaged."""
        space = file_store.space()
        for queue in ("FROM", "Q", "OTHER"):
            make_queue(space, queue, retries=2)
        for body in "abc":
            space.enqueue("FROM", body)
        assert space.move("FROM", "Q") == 3
        file_store.by_hand(OF_ANOTHER_KIND[request.param])
        return space

    @pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
    def test_who_comes_upon_it_is_told_which_field_it_is_and_nothing_is_changed(self, request, damaged, act):
        before = damaged.usage("Q")
        field = request.node.callspec.params["damaged"]
        for _ in range(2):
            assert f"its field {field} is not" in refused(lambda: act(damaged)).message
        assert damaged.usage("Q") == before

    def test_others_are_listed_browsed_and_dequeued_when_it_is_removed(self, file_store, damaged):
        left_out = []
        assert len([*damaged.messages("Q", left_out=left_out.append)]) == 2
        assert left_out == [1]
        assert [message.text for message in damaged.browse("Q")] == ["b", "c"]
        assert bad(file_store)
        assert damaged.purge_damaged("Q") == 1
        assert drain(damaged) == ["b", "c"]
        assert bad(file_store) == []


def test_a_message_with_a_large_body_that_lacks_a_part_is_not_given_out(shared_store, space):
    space.enqueue("Q", b"x" * 3_000_000)
    space.enqueue("Q", "whole")
    shared_store.by_hand("DELETE FROM chunk WHERE number = 1")
    assert "its body has" in refused(lambda: space.dequeue("Q")).message
    assert space.purge_damaged("Q") == 1
    assert drain(space) == ["whole"]
    assert bad(shared_store) == []


@pytest.mark.parametrize("spends", [False, True])
def test_one_that_a_transaction_holds_comes_back_when_that_is_rolled_back(shared_store, space, spends):
    space.enqueue("Q", "a")
    transaction = space.transaction()
    with transaction:
        space.dequeue("Q")
        shared_store.by_hand(GONE)
        transaction.rollback("no", permanent=spends)
    refused(lambda: space.peek("Q"))
    assert space.purge_damaged("Q") == 1
    assert bad(shared_store) == []


def test_one_whose_priority_is_none_comes_back_and_does_not_go_to_an_error_queue_that_orders_by_it(file_store):
    space = file_store.space()
    make_queue(space, "URGENT", order="priority")
    make_queue(space, "ONCE", retries=0, error_queue="URGENT")
    space.enqueue("ONCE", "a")
    with space.transaction() as transaction:
        space.dequeue("ONCE")
        file_store.by_hand("UPDATE message SET priority = 'high'")
        transaction.rollback("no")
    refused(lambda: space.peek("ONCE"))
    assert space.purge_damaged("ONCE") == 1
    assert bad(file_store) == []


def test_one_whose_priority_is_none_does_not_expire_into_an_error_queue_that_orders_by_it(file_store, clock):
    space = file_store.space()
    make_queue(space, "URGENT", order="priority")
    make_queue(space, "KEEPING", keep_expired=True, error_queue="URGENT")
    space.enqueue_many("KEEPING", "ab", EnqueueControl(lifetime=10 * MICROS))
    file_store.by_hand("UPDATE message SET priority = 'high' WHERE body = 'a' OR body = x'61'")
    clock.advance(20)
    assert drain(space, "URGENT") == ["b"]
    assert space.purge_damaged("KEEPING") == 1
    assert bad(file_store) == []


def test_one_that_expires_is_in_nobodys_way(shared_store, space, clock):
    make_queue(space, "KEEPING", retries=1, keep_expired=True)
    for queue, delay in itertools.product(("Q", "KEEPING"), (0, 5)):
        space.enqueue(queue, "a", expires_in=10, delay=delay)
        space.enqueue(queue, "b", expires_in=100)
    shared_store.by_hand("DELETE FROM message WHERE size = 1 AND expires_at < enqueued_at + 50000000")
    clock.advance(20)
    for queue in ("Q", "KEEPING"):
        assert space.usage(queue).expired == 0
        assert [info.expires_us for info in space.messages(queue)] != []
        assert space.purge_damaged(queue) == 2
        assert drain(space, queue) == ["b", "b"]
    assert bad(shared_store) == []


def test_one_that_was_kept_after_it_was_consumed_is_forgotten(shared_store, space, clock):
    make_queue(space, "KEPT", retention=10)
    for body in "ab":
        space.enqueue("KEPT", body)
        space.dequeue("KEPT")
    shared_store.by_hand(GONE)
    assert [each.info.size for each in space.history("KEPT")] == [1]
    clock.advance(20)
    assert list(space.history("KEPT")) == []
    assert space.purge_damaged("KEPT") == 0
    assert bad(shared_store) == []


def test_a_page_of_nothing_but_damaged_messages_does_not_end_a_listing(shared_store, space):
    space.enqueue_many("Q", ["x"] * 600)
    space.enqueue("Q", "whole", urcode=7)
    shared_store.by_hand("UPDATE message SET headers = '?' WHERE urcode = 0")
    assert [info.urcode for info in space.messages("Q")] == [7]


def test_an_export_tells_of_it_where_it_can_be_mended(shared_store, space, tmp_path):
    space.enqueue("Q", "a", headers={"kind": "order"})
    space.enqueue("OTHER", "whole")
    shared_store.by_hand(NOT_JSON)
    with pytest.raises(SystemFailureError, match="of queue 'Q' is damaged: its field headers is not a JSON object"):
        export(shared_store.path, tmp_path / "archive")
    space.purge_damaged("Q")
    export(shared_store.path, tmp_path / "again")


def test_headers_that_cannot_be_read_have_no_header_and_hinder_no_condition(file_store):
    space = file_store.space(error_queue="")
    make_queue(space, "Q", retries=1)
    for body in "abc":
        space.enqueue("Q", body, headers={"kind": "order"})
    file_store.by_hand(NOT_JSON)
    assert [space.content(info).text for info in space.messages("Q", condition="header.kind = 'order'")] == ["b", "c"]
    assert space.dequeue("Q", condition="header.kind = 'order'").text == "b"


@pytest.mark.parametrize("column", ["pages", "size", "priority", "enqueued_at", "body_id"])
def test_a_number_that_is_a_text_costs_its_message_alone(file_store, column):
    space = file_store.space(error_queue="")
    for name in ("Q", "OTHER"):
        make_queue(space, name, retries=1)
    for body in "abc":
        space.enqueue("Q", body)
    file_store.by_hand(f"UPDATE message SET {column} = 'x' WHERE id = {ITS}")
    assert space.move("Q", "OTHER") in (2, 3)
    assert [space.content(info).text for info in [*space.messages("OTHER")][-2:]] == ["b", "c"]
    assert space.purge("Q") + space.purge_damaged("OTHER") == 1
    assert drain(space, "OTHER") == ["b", "c"]
    assert bad(file_store) == []


WRONG = [
    *((column, value) for column in ("enqueued_at", "expires_at", "available_at") for value in ("'x'", str(2**62))),
    ("corrid", "'x'"),
    ("group_id", "'x'"),
    ("body", "-1"),
    ("expires_before", "'x'"),
]


@pytest.mark.parametrize(("column", "value"), WRONG)
def test_a_value_of_another_kind_stops_nobody(file_store, column, value):
    space = file_store.space(error_queue="")
    for name in ("Q", "OTHER"):
        make_queue(space, name, retries=1)
    for body in "abc":
        space.enqueue("Q", body)
    file_store.by_hand(f"UPDATE message SET {column} = {value} WHERE id = {ITS}")
    assert [usage.messages for _, usage in space.usages()] == [0, 3]
    assert len([*mib.get(file_store.device, "T_APPQ", {"TA_APPQSPACENAME": "SPACE"})]) == 2
    assert len([*mib.get(file_store.device, "T_APPQMSG", {"TA_APPQSPACENAME": "SPACE"})]) in (2, 3)
    assert [info.size for info in space.messages("Q")][-2:] == [1, 1]
    assert [finding for finding in file_store.device.check() if finding.severity is Severity.ERROR]
    assert space.purge_damaged("Q") == 1
    assert space.move("Q", "OTHER") == 2
    assert drain(space, "OTHER") == ["b", "c"]
    assert bad(file_store) == []


NO_KEY = {"text": "'x'", "number": "7"}


class TestOrderKeys:
    """What a file has in the place of an order key; a server takes nothing else."""

    @pytest.fixture(params=NO_KEY.values(), ids=NO_KEY)
    def no_key(self, request, file_store):
        """Damage the key of the first message in tables."""

        def damage(*tables):
            for table in tables:
                number = "id" if table == "message" else "message_id"
                file_store.by_hand(f"UPDATE {table} SET order_key = {request.param} WHERE {number} = {ITS}")

        return damage

    @pytest.fixture
    def space(self, file_store):
        # With messages in memory the first ones of two stores are compared.
        space = file_store.space(error_queue="ERRORS", memory=100 * 4096)
        make_queue(space, "ERRORS")
        make_queue(space, "GROUPS", retries=2, grouping=True)
        make_queue(space, "Q", retries=2, out_of_order="msgid")
        return space

    @pytest.mark.matrix(together=2)
    @pytest.mark.parametrize("tables", [("ready",), ("message",), ("ready", "message")], ids="-".join)
    @pytest.mark.parametrize(
        "take",
        [
            lambda space, queue: space.dequeue(queue),
            lambda space, queue: space.dequeue_many(queue, 1),
            lambda space, queue: space.dequeue_many(queue, 3),
            lambda space, queue: space.dequeue_many(queue, 3, condition="priority > 1"),
            lambda space, queue: space.lock(queue),
        ],
        ids=["one", "one of many", "many", "by a condition", "lock"],
    )
    @pytest.mark.parametrize("queue", ["Q", "GROUPS"])
    def test_nobody_is_in_its_way_who_takes_and_rolls_back(self, file_store, space, no_key, tables, take, queue):
        space.enqueue_many(queue, list("abc"))
        no_key(*tables)
        with space.transaction() as transaction:
            assert take(space, queue)
            transaction.rollback("no")
        assert sorted(drain(space, queue)) == ["a", "b", "c"]
        assert bad(file_store) == []

    def test_no_more_than_are_asked_for_are_taken_where_several_are_damaged(self, space, file_store):
        space.enqueue_many("Q", list("abc"))
        file_store.by_hand("UPDATE ready SET order_key = CAST(message_id AS TEXT)")
        assert len(space.dequeue_many("Q", 2)) == 2
        assert space.usage("Q").messages == 1

    @pytest.mark.matrix(together=2)
    @pytest.mark.parametrize("tables", [("held",), ("held", "message"), ("message",)], ids="-".join)
    @pytest.mark.parametrize("how", [{}, {"permanent": True}], ids=["tries again", "is over"])
    @pytest.mark.parametrize("queue", ["Q", "GROUPS"])
    def test_what_a_transaction_holds_comes_back(self, file_store, space, no_key, tables, how, queue):
        space.enqueue_many(queue, list("abc"))
        with space.transaction() as transaction:
            space.dequeue(queue)
            space.dequeue(queue)
            no_key(*tables)
            transaction.rollback("no", **how)
        assert sorted(drain(space, queue) + drain(space, "ERRORS")) == ["a", "b", "c"]
        assert bad(file_store) == []

    @pytest.mark.parametrize("queue", ["Q", "GROUPS"])
    def test_its_queue_is_purged(self, file_store, space, no_key, queue):
        space.enqueue_many(queue, list("abc"))
        no_key("ready", "message")
        assert space.purge(queue) == 3
        assert bad(file_store) == []

    def test_none_stands_before_it(self, space, no_key):
        first, _ = space.enqueue_many("Q", list("ab"))
        no_key("ready", "message")

        def in_transaction():
            with space.transaction():
                space.enqueue("Q", "x", before=first)

        for act in (lambda: space.enqueue("Q", "x", before=first), in_transaction):
            assert "its field order_key is not bytes" in refused(act).message
        assert space.usage("Q").messages == 2

    def test_one_that_is_kept_back_gets_another_priority(self, space, clock, no_key):
        for body in "ab":
            space.enqueue("Q", body, delay=5)
        no_key("due", "message")
        assert space.change_priority("Q", 7) == 2
        clock.advance(10)
        assert drain(space) == ["a", "b"]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *((column, "'x'") for column in ("order_key", "corrid", "priority", "pages", "size", "enqueued_at", "body")),
        *((column, "1.5") for column in ("order_key", "priority", "urcode", "available_at", "body")),
        ("type", "x'00ff'"),
    ],
)
def test_an_export_tells_of_a_value_of_another_kind(file_store, tmp_path, column, value):
    space = file_store.space(error_queue="")
    make_queue(space, "Q")
    for body in "ab":
        space.enqueue("Q", body)
    file_store.by_hand(f"UPDATE message SET {column} = {value} WHERE id = {ITS}")
    with pytest.raises(SystemFailureError, match=f"of queue 'Q' is damaged: its field {column} is not"):
        export(file_store.path, tmp_path / "archive")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE entry SET dlindex = 7",
        "UPDATE entry SET pages = 'x'",
        "UPDATE extent SET dlindex = 'x'",
        "UPDATE extent SET pages = 'x'",
        "UPDATE device SET page_size = 'x'",
        "UPDATE queue SET ordering = x'80'",
        "UPDATE queue SET high = x'80'",
        "UPDATE queue SET delivery = 'x'",
        "UPDATE space SET created_at = 'x'",
        "UPDATE space SET pages = 'x'",
    ],
)
def test_damage_of_what_is_defined_is_told_in_a_sentence(file_store, damage):
    space = file_store.space(error_queue="")
    make_queue(space, "Q")
    space.close()
    file_store.by_hand(damage)

    def use(device):
        assert [finding for finding in device.check() if finding.severity is Severity.ERROR]
        with device.open_space("SPACE") as opened:
            opened.queues()
        device.entries()
        device.table_of_contents()

    with pytest.raises(SystemFailureError, match=r"damaged|has 'x' bytes") as caught, file_store.another() as device:
        use(device)
    assert caught.value.hint == "Restore the device from a backup."


def test_a_queue_space_that_nothing_is_counted_of_is_told_in_a_sentence(file_store):
    file_store.space(error_queue="").close()
    file_store.by_hand("UPDATE space SET id = 77")
    with file_store.another() as device:
        with pytest.raises(SystemFailureError, match="queue space number 77 is damaged"):
            device.space_usage("SPACE")
        assert [finding for finding in device.check() if "number 77 is damaged" in str(finding)]


@pytest.mark.parametrize("column", ["pages", "size"])
@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_a_charge_that_is_a_text_is_told_of(file_store, column, act):
    space = file_store.space(error_queue="")
    make_queue(space, "Q", retries=1)
    space.enqueue("Q", "a")
    file_store.by_hand(f"UPDATE message SET {column} = 'x'")
    refused(lambda: act(space))


class TestTextsThatAreNone:
    """SQLite keeps whatever bytes a text has; PostgreSQL refuses them."""

    @pytest.fixture
    def space(self, file_store):
        opened = file_store.space(error_queue="ERRORS")
        make_queue(opened, "ERRORS")
        make_queue(opened, "Q", retries=1)
        for body in "abc":
            opened.enqueue("Q", body)
        file_store.by_hand(f"UPDATE message SET reply_queue = CAST(x'ff' AS TEXT) WHERE id = {ITS}")
        return opened

    def test_it_is_told_of_without_its_text(self, space):
        with pytest.raises(SystemFailureError, match="the reply_queue of a message on device") as caught:
            space.dequeue("Q")
        assert "qpurge -d" in caught.value.hint

    def test_the_others_are_listed_and_left(self, file_store, space):
        assert [info.size for info in space.messages("Q")] == [1, 1]
        assert bad(file_store)
        assert space.purge_damaged("Q") == 1
        assert drain(space) == ["b", "c"]
        assert bad(file_store) == []


def bad(store):
    """Return what a check finds that is wrong."""
    return [
        finding.sentence for finding in but_for_this_server(store.device.check()) if finding.severity is Severity.ERROR
    ]


@pytest.mark.parametrize("size", ["'a'", "1e30", "0", "-3", "9000000000000000"])
def test_a_body_that_is_kept_apart_and_whose_size_is_wrong_is_damage(shared_store, space, size):
    if shared_store.kind != "file":
        pytest.skip("a table of PostgreSQL refuses most of it")
    space.enqueue("Q", bytes(3 << 20))
    shared_store.by_hand(f"UPDATE message SET size = {size}")
    for act in ACTS.values():
        refused(lambda act=act: act(space))


def test_a_body_that_lacks_a_part_is_told_with_its_identifier(shared_store, space):
    msgid = space.enqueue("Q", bytes(3 << 20))
    shared_store.by_hand("DELETE FROM chunk WHERE number = 1")
    assert repr(msgid) in refused(lambda: space.dequeue("Q")).message
