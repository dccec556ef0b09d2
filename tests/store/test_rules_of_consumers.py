"""Rules and topics of subscriptions: each consumer gets the messages that it wants, whichever way they come."""

import itertools
import json
import sys
from functools import partial

import pytest

from qmcore.errors import (
    BadQueueError,
    InUseError,
    InvalidArgumentError,
    NoRecipientsError,
)
from qmcore.findings import Severity
from qmcore.message import PLAIN_CONTROL, EnqueueControl
from tests.body_cases import CASES
from tests.fix_store import Work, count_rows, drain, make_queue

MIB = 1024 * 1024
EU, US = {"region": "eu"}, {"region": "us"}
ASKS_EU = EnqueueControl(headers=EU)
OF_EU, OF_US = "header.region = 'eu'", "header.region = 'us'"


@pytest.fixture
def space(store):
    opened = store.space(error_queue="ERRORS", pages=12_000, queues=100)
    make_queue(opened, "Q", multiple_consumers=True, retries=1)
    make_queue(opened, "PLAIN")
    make_queue(opened, "ERRORS")
    return opened


@pytest.fixture
def both(space):
    space.subscribe("Q", "eu", rule=OF_EU)
    space.subscribe("Q", "us", rule=OF_US)
    return space


def sound(store, space):
    """Prove that what is stored and what is counted agree."""
    found = store.device.check(space.name)
    assert [finding.sentence for finding in found if finding.severity is Severity.ERROR] == []


def counts(space, *names):
    return [space.usage(name).messages for name in ("Q", *(f"Q:{name}" for name in names))]


def counted(work):
    """Return how many Python calls of the engine and the storage some work makes in this thread."""
    count = 0

    def note(frame, event, _):
        nonlocal count
        count += event == "call" and (
            "/qmcore/" in frame.f_code.co_filename or "/qmstorage/" in frame.f_code.co_filename
        )

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def left(space):
    """Return how many rows there are of messages, places and shares, and of what is held."""
    return count_rows(space, "message", "ready", "share", "held")


class TestTerms:
    @pytest.mark.parametrize("topics", [["a,b"], "a", 5], ids=["comma", "text", "number"])
    def test_what_are_no_topics_leaves_a_subscription_as_it_was(self, space, topics):
        made = space.subscribe("Q", "one", topics=["a"])
        for call in (space.subscribe, space.change_subscription):
            with pytest.raises(InvalidArgumentError) as refused:
                call("Q", "one", topics=topics)
            assert "Give" in refused.value.hint
        assert space.subscriptions("Q") == [made]

    def test_a_rule_and_topics_are_kept_and_shown_as_they_read_again(self, space):
        made = space.subscribe("Q", "one", rule="header.region='eu' and priority>20", topics=["b.#", "a.*", "b.#"])
        assert (made.rule, made.topics) == ("header.region = 'eu' AND priority > 20", ("a.*", "b.#"))
        plain = space.subscribe("Q", "two")
        assert (plain.rule, plain.topics) == (None, ())
        assert space.subscriptions("Q") == [made, plain]

    def test_the_same_terms_again_change_nothing_and_others_are_refused(self, space, clock):
        made = space.subscribe("Q", "one", rule=OF_EU, topics=["a", "b"])
        clock.advance(5)
        assert space.subscribe("Q", "one", rule="header.region  =  'eu'", topics=("b", "a")) == made
        for terms in ({}, {"rule": OF_EU}, {"rule": OF_US, "topics": ["a", "b"]}, {"topics": ["a", "b"]}):
            with pytest.raises(InUseError, match="'one' has subscribed to queue 'Q' for the rule") as refused:
                space.subscribe("Q", "one", **terms)
            assert "change_subscription" in refused.value.hint
        assert space.subscriptions("Q") == [made]
        space.subscribe("Q", "two")
        with pytest.raises(InUseError, match="for all messages, and not for topics 'a'"):
            space.subscribe("Q", "two", topics=["a"])

    def test_they_are_changed_for_what_comes_then_and_what_is_there_stays(self, store, space):
        space.subscribe("Q", "one", rule=OF_EU)
        space.subscribe("Q", "all")
        space.enqueue("Q", "first", headers=EU)
        changed = space.change_subscription("Q", "one", topics=["a.#"])
        assert changed.rule == space.subscriptions("Q")[1].rule is not None
        changed = space.change_subscription("Q", "one", rule=None)
        assert (changed.rule, changed.topics) == (None, ("a.#",))
        assert [each.topics for each in space.subscriptions("Q")] == [(), ("a.#",)]
        space.enqueue("Q", "second", headers=EU)
        space.enqueue("Q", "third", topic="a.b")
        assert drain(space, "Q:one") == ["first", "third"]
        assert space.change_subscription("Q", "one", topics=()) == space.subscribe("Q", "one")
        assert space.change_subscription("Q", "one") == space.subscribe("Q", "one")
        space.enqueue("Q", "fourth")
        assert drain(space, "Q:one") == ["fourth"]
        assert drain(space, "Q:all") == ["first", "second", "third", "fourth"]
        sound(store, space)

    def test_what_cannot_be_is_refused_and_changes_nothing(self, space):
        space.subscribe("Q", "one", rule=OF_EU)
        before = space.subscriptions()
        for name, act in (("two", space.subscribe), ("one", space.change_subscription)):
            with pytest.raises(InvalidArgumentError, match=r"column 8 of the condition: the character") as refused:
                act("Q", name, rule="urcode ? 1")
            assert refused.value.facts["column"] == 8
            with pytest.raises(InvalidArgumentError, match="the limit is 4000"):
                act("Q", name, rule=" " * 4001)
            with pytest.raises(InvalidArgumentError, match="nested more than 20 deep"):
                act("Q", name, rule="NOT " * 21 + "urcode = 1")
            with pytest.raises(InvalidArgumentError, match="cannot ask for enqueued_at"):
                act("Q", name, rule="enqueued_at > 5")
            with pytest.raises(InvalidArgumentError, match=r"has 'a\*' between dots"):
                act("Q", name, topics=["a*"])
            with pytest.raises(InvalidArgumentError, match="is for one consumer"):
                act("PLAIN", name, topics=["a"])
        with pytest.raises(BadQueueError, match="queue 'Q' has no subscription 'ones'") as refused:
            space.change_subscription("Q", "ones", rule=OF_US)
        assert "Did you mean 'one'?" in refused.value.hint
        assert space.subscriptions() == before

    def test_they_belong_to_no_transaction(self, space):
        space.subscribe("Q", "one")
        with pytest.raises(ZeroDivisionError), space.transaction():
            Work(partial(space.change_subscription, "Q", "one", topics=["a"])).results()
            _ = 1 / 0
        assert space.subscriptions()[0].topics == ("a",)

    def test_who_unsubscribes_and_comes_again_has_other_terms(self, space):
        space.subscribe("Q", "one", rule=OF_EU)
        space.unsubscribe("Q", "one")
        assert space.subscribe("Q", "one", topics=["a"]).rule is None


class TestWhatIsWanted:
    def test_topics_and_rules_choose_and_both_have_to_hold(self, store, space):
        space.subscribe("Q", "rule", rule=f"{OF_EU} AND priority > 20")
        space.subscribe("Q", "topics", topics=["order.#", "*.deleted"])
        space.subscribe("Q", "both", rule=OF_EU, topics=["order.*"])
        space.subscribe("Q", "all")
        space.enqueue("Q", "a", headers=EU, topic="order.created")
        space.enqueue("Q", "b", headers=EU, priority=20)
        space.enqueue("Q", "c", headers=US, topic="order.eu.created")
        space.enqueue("Q", "d", topic="user.deleted")
        space.enqueue("Q", "e", headers=EU, topic="order", priority=1)
        assert drain(space, "Q:rule") == ["a"]
        assert drain(space, "Q:topics") == ["a", "c", "d", "e"]
        assert drain(space, "Q:both") == ["a"]
        assert drain(space, "Q:all") == ["a", "b", "c", "d", "e"]
        assert left(space) == (0, 0, 0, 0)
        sound(store, space)

    def test_only_what_is_true_delivers_and_what_a_new_message_has_not_is_neither(self, space):
        space.subscribe("Q", "retries", rule="retries = 0 AND size = 1 AND type = 'STRING'")
        for name, rule in {
            "other": "header.region <> 'us'",
            "not": "NOT header.region = 'us'",
            "origin": "origin_queue = 'PLAIN' OR NOT origin_queue = 'PLAIN'",
            "none": "header.region IS NULL AND origin_queue IS NULL AND first_msgid IS NULL AND subtype IS NULL",
            "client": "client_id = 'me' AND reply_queue = 'PLAIN' AND corrid LIKE 'x%' AND urcode IN (5,6)",
        }.items():
            space.subscribe("Q", name, rule=rule)
        space.enqueue("Q", "a")
        assert counts(space, "retries", "other", "not", "origin", "none", "client") == [1, 1, 0, 0, 0, 1, 0]
        control = EnqueueControl(client_id="me", reply_queue="PLAIN", corrid=b"xy", urcode=6)
        space.put_many([("Q", b"b", control)])
        assert drain(space, "Q:client") == ["b"]

    def test_nobody_who_wants_it_is_told_and_nothing_is_done(self, store, both):
        with pytest.raises(NoRecipientsError, match="no subscription of queue 'Q' is for the message") as refused:
            both.enqueue("Q", "x", headers={"region": "asia"})
        assert "qsublist" in refused.value.hint
        several = [("PLAIN", b"y", PLAIN_CONTROL), ("Q", b"x", ASKS_EU), ("Q", b"z", PLAIN_CONTROL)]
        with pytest.raises(NoRecipientsError, match="is for the message with index 2") as refused:
            both.put_many(several)
        assert refused.value.facts == {"queue": "Q", "index": 2}
        with pytest.raises(NoRecipientsError) as refused, both.transaction():
            both.put_many(several)
        assert refused.value.facts == {"queue": "Q", "index": 2}
        with pytest.raises(NoRecipientsError), both.transaction():
            both.enqueue("PLAIN", "y")
            both.enqueue("Q", "x")
        assert left(both) == (0, 0, 0, 0)
        sound(store, both)

    def test_a_rule_says_of_a_body_what_the_table_of_cases_says(self, space):
        bodies = list(dict.fromkeys(body for body, _, _ in CASES))
        expected, found = {}, {}
        for number, body in enumerate(bodies):
            queue = f"B{number}"
            make_queue(space, queue, multiple_consumers=True)
            space.subscribe(queue, "all")
            for at, (of, text, truth) in enumerate(CASES):
                if of == body:
                    for name, rule in ((f"{at}", text), (f"{at}-not", f"NOT ({text})")):
                        space.subscribe(queue, name, rule=rule)
                    expected[at] = truth
            space.put_many([(queue, body, EnqueueControl(type="JSON"))])
            use = {each.name: space.usage(f"{queue}:{each.name}").messages for each in space.subscriptions(queue)}
            for at in expected.keys() - found.keys():
                holds, fails = use[f"{at}"], use[f"{at}-not"]
                found[at] = True if holds else False if fails else None
        assert found == expected

    @pytest.mark.parametrize("kind", ["CARRAY", "STRING"])
    def test_a_body_of_another_type_has_no_values(self, space, kind):
        space.subscribe("Q", "value", rule="body.a = 1")
        space.subscribe("Q", "none", rule="body.a IS NULL")
        space.put_many([("Q", b'{"a":1}', EnqueueControl(type=kind))])
        assert counts(space, "value", "none") == [1, 0, 1]
        space.enqueue("Q", {"a": 1})
        assert counts(space, "value", "none") == [2, 1, 1]

    def test_an_enqueue_makes_no_call_for_those_that_do_not_want_it(self, space):
        space.subscribe("Q", "eu", rule=f"{OF_EU} AND priority > 10")
        space.subscribe("Q", "topics", topics=["order.*.new"])

        def subscribe(numbers):
            for number in numbers:
                space.subscribe("Q", f"rule{number}", rule=f"header.region = 'r{number}' AND priority > 10")
                space.subscribe("Q", f"topic{number}", topics=[f"order.{number}.#"])

        def calls():
            """Return the fewest calls of some rounds: a look that is due each second is not in them."""
            return min(counted(partial(space.enqueue, "Q", "x", headers=EU, topic="order.eu.new")) for _ in range(9))

        subscribe(range(2))
        few = calls()
        subscribe(range(2, 60))
        assert calls() == few
        assert len(space.subscriptions("Q")) == 122

    def test_many_that_do_not_want_it_have_nothing_of_it(self, store, space):
        for number in range(60):
            space.subscribe("Q", f"rule{number}", rule=f"header.region = 'r{number}'")
            space.subscribe("Q", f"topic{number}", topics=[f"order.{number}.#"])
        space.enqueue("Q", "x", headers={"region": "r7"}, topic="order.9.new")
        its = [each.name for each in space.subscriptions("Q") if space.usage(f"Q:{each.name}").messages]
        assert its == ["rule7", "topic9"]
        assert left(space) == (1, 2, 1, 0)
        sound(store, space)


def enqueue_all(space, sent):
    for text, headers in sent:
        space.enqueue("Q", text, headers=headers)


def put_together(space, sent):
    space.put_many([("Q", text.encode(), EnqueueControl(headers=headers)) for text, headers in sent])


def in_a_transaction(space, sent):
    with space.transaction():
        enqueue_all(space, sent)


def spilled(space, sent):
    with space.transaction():
        for text, headers in sent:
            space.enqueue("Q", text.ljust(MIB * 3), headers=headers)


def prepared(space, sent):
    space.tpc_begin(space.xid(7, b"global", b"branch"))
    enqueue_all(space, sent)
    space.tpc_prepare()
    space.tpc_commit()


def delayed(space, sent):
    for text, headers in sent:
        space.enqueue("Q", text, headers=headers, delay=-0.0)


def moved(space, sent):
    for text, headers in sent:
        space.enqueue("PLAIN", text, headers=headers)
    assert space.move("PLAIN", "Q") == len(sent)


def after_a_change(space, sent):
    with space.transaction():
        enqueue_all(space, sent)
        # What is committed is looked at by other definitions than when it was enqueued.
        Work(partial(space.create_queue, "NEW")).results()


WAYS = [enqueue_all, put_together, in_a_transaction, spilled, prepared, delayed, moved, after_a_change]


class TestEachWay:
    @pytest.mark.parametrize("way", WAYS)
    def test_each_gets_what_it_wants_in_order(self, store, both, way):
        both.subscribe("Q", "all", rule="priority > 0")
        sent = [(f"{number}", region) for number, region in enumerate([EU, US, US, EU, None, EU])]
        way(both, sent)
        texts = {name: [text.strip() for text in drain(both, f"Q:{name}")] for name in ("eu", "us", "all")}
        assert texts == {"eu": ["0", "3", "5"], "us": ["1", "2"], "all": ["0", "1", "2", "3", "4", "5"]}
        assert left(both) == (0, 0, 0, 0)
        assert both.usage("Q").dequeued == 6
        sound(store, both)

    def test_identifiers_are_those_of_the_messages_in_their_order(self, both):
        controls = [EnqueueControl(headers=headers) for headers in (EU, US, EU)]
        its = [("Q", b"0", controls[0]), ("PLAIN", b"1", PLAIN_CONTROL), ("Q", b"2", controls[1])]
        msgids = both.put_many([*its, ("Q", b"3", controls[2]), ("PLAIN", b"4", PLAIN_CONTROL)])
        found = {msg.text: msg.msgid for name in ("Q:eu", "Q:us", "PLAIN") for msg in both.dequeue_many(name, 5)}
        assert msgids == [found[f"{number}"] for number in range(5)]

    def test_a_schedule_s_message_goes_to_those_who_want_it(self, both, clock):
        both.create_schedule("each", "Q", "every 1m", b"x", ASKS_EU)
        clock.advance(61)
        both.dequeue("PLAIN")
        assert counts(both, "eu", "us") == [1, 1, 0]

    def test_a_schedule_s_message_that_nobody_wants_is_put_off_until_somebody_does(self, both, clock):
        both.create_schedule("each", "Q", "every 1m", b"x")
        clock.advance(61)
        both.dequeue("PLAIN")
        assert counts(both) == [0]
        both.change_subscription("Q", "eu", topics=["#"], rule="header.schedule = 'each'")
        both.subscribe("Q", "all")
        clock.advance(2)
        both.dequeue("PLAIN")
        assert counts(both, "eu", "all") == [1, 0, 1]

    def test_what_is_requeued_from_the_error_queue_goes_back_to_its_consumer_whatever_the_rule_is_now(self, both):
        both.enqueue("Q", "x", headers=EU)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError), both.transaction():
                assert both.dequeue("Q:eu")
                _ = 1 / 0
        both.change_subscription("Q", "eu", rule=OF_US)
        assert both.requeue("ERRORS") == 1
        assert drain(both, "Q:eu") == ["x"]

    def test_what_is_moved_is_seen_with_its_body_and_where_it_comes_from(self, store, space):
        space.subscribe("Q", "body", rule="body.a = 1")
        space.subscribe("Q", "large", rule=f"size > {MIB} AND body.a IS NULL")
        space.subscribe("Q", "origin", rule="origin_queue = 'PLAIN' AND origin_reason = 'admin' AND retries = 0")
        space.enqueue("PLAIN", {"a": 1})
        space.enqueue("PLAIN", {"a": 2})
        space.enqueue("PLAIN", {"a": 1, "b": "x" * MIB})
        assert space.move("PLAIN", "Q") == 3
        assert [json.loads(text)["a"] for text in drain(space, "Q:body")] == [1]
        assert counts(space, "large", "origin") == [3, 1, 3]
        sound(store, space)

    def test_what_nobody_wants_is_not_moved(self, both):
        both.enqueue("PLAIN", "x")
        with pytest.raises(NoRecipientsError):
            both.move("PLAIN", "Q")
        assert drain(both, "PLAIN") == ["x"]

    def test_those_that_nobody_wants_stay_while_others_are_moved(self, store, both):
        for text, headers in (("a", EU), ("b", {}), ("c", US), ("d", EU)):
            both.enqueue("PLAIN", text, headers=headers)
        assert both.move("PLAIN", "Q") == 3
        assert drain(both, "PLAIN") == ["b"]
        assert (drain(both, "Q:eu"), drain(both, "Q:us")) == (["a", "d"], ["c"])
        sound(store, both)

    @pytest.mark.parametrize("end", ["all", "some"])
    def test_those_stay_that_nobody_wants_where_they_came_from(self, store, space, end):
        space.subscribe("Q", "all")
        for headers in (EU, US, EU):
            space.enqueue("Q", headers["region"], headers=headers)
        assert space.move("Q:all", "ERRORS") == 3
        space.unsubscribe("Q", "all")
        if end == "some":
            space.subscribe("Q", "all", rule=OF_EU)
        # They go back to the consumer that they came from, whatever it wants; its queue has nobody now.
        assert space.requeue("ERRORS") == (3 if end == "some" else 0)
        sound(store, space)


class TestTransactions:
    @pytest.mark.parametrize("size", [1, 3 * MIB], ids=["kept", "spilled"])
    def test_the_commit_decides(self, store, both, size):
        """Both of what its process keeps, and of what is left to the store because there is so much."""
        both.subscribe("Q", "all")
        with both.transaction():
            for headers in (EU, US, EU, US):
                both.enqueue("Q", b"x" * size, headers=headers)
            Work(partial(both.change_subscription, "Q", "eu", rule=OF_US)).results()
            Work(partial(both.unsubscribe, "Q", "us")).results()
            Work(partial(both.subscribe, "Q", "late", rule=f"{OF_EU} AND size = {size}")).results()
            both.enqueue("Q", b"y" * size, headers=EU)
        assert counts(both, "eu", "late", "all") == [5, 2, 3, 5]
        assert len(both.dequeue_many("Q:eu", 9)) == 2
        sound(store, both)

    @pytest.mark.parametrize("size", [1, 3 * MIB], ids=["kept", "spilled"])
    def test_one_that_nobody_wants_any_more_at_the_commit_refuses_all(self, store, both, size):
        with pytest.raises(NoRecipientsError), both.transaction():
            both.enqueue("PLAIN", "x")
            for _ in range(4):
                both.enqueue("Q", b"x" * size, headers=EU)
            Work(partial(both.change_subscription, "Q", "eu", rule=OF_US)).results()
        assert left(both) == (0, 0, 0, 0)
        sound(store, both)

    @pytest.mark.parametrize("size", [1, 3 * MIB], ids=["kept", "spilled"])
    def test_what_is_prepared_is_settled(self, store, both, size):
        both.subscribe("Q", "all")
        both.tpc_begin(both.xid(7, b"global", b"branch"))
        for headers in (EU, US, EU, US):
            both.enqueue("Q", b"x" * size, headers=headers)
        Work(partial(both.subscribe, "Q", "before", rule=f"{OF_EU} AND size = {size}")).results()
        both.tpc_prepare()
        Work(partial(both.change_subscription, "Q", "eu", rule=OF_US)).results()
        Work(partial(both.subscribe, "Q", "late", rule=OF_EU)).results()
        Work(partial(both.unsubscribe, "Q", "us")).results()
        both.tpc_commit()
        assert counts(both, "eu", "before", "late", "all") == [4, 2, 2, 0, 4]
        sound(store, both)

    def test_of_what_is_prepared_that_is_discarded_which_is_left_with_nobody(self, store, both, caplog):
        both.tpc_begin(both.xid(7, b"global", b"branch"))
        for number, headers in enumerate((EU, US, EU)):
            both.enqueue("Q", f"{number}", headers=headers)
        both.tpc_prepare()
        Work(partial(both.unsubscribe, "Q", "eu")).results()
        both.tpc_commit()
        assert drain(both, "Q:us") == ["1"]
        assert (both.usage("Q").enqueued, both.usage("Q").discarded) == (3, 2)
        assert "2 messages of a transaction are discarded" in caplog.text
        assert left(both) == (0, 0, 0, 0)
        sound(store, both)

    def test_what_is_suspended_is_settled_by_whoever_resumes_it(self, store, both):
        with both.transaction() as transaction:
            both.enqueue("Q", "x", headers=EU)
            token = transaction.suspend()
        both.change_subscription("Q", "us", rule=OF_EU)
        with both.resume(token):
            both.enqueue("Q", "y", headers=EU)
        assert drain(both, "Q:us") == drain(both, "Q:eu") == ["x", "y"]
        sound(store, both)

    def test_a_rollback_leaves_nothing(self, store, both):
        with pytest.raises(ZeroDivisionError), both.transaction():
            for text in itertools.repeat(b"x" * (3 * MIB), 4):
                both.enqueue("Q", text, headers=EU)
            _ = 1 / 0
        assert left(both) == (0, 0, 0, 0)
        sound(store, both)
