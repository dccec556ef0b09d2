"""What Django's own test cases see; its runner runs them."""

import threading

import pytest
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from qmcore.errors import InvalidArgumentError, ProtocolError
from tests.api.django_shop.models import Order
from tests.api.django_shop.views import space


def setUpModule():
    # In a transaction that has the file for itself it could not be opened.
    space()


def tearDownModule():
    space().close()
    space.cache_clear()


def queued():
    return [message.text for message in space().browse("ORDERS")]


def orders():
    return list(Order.objects.values_list("what", flat=True))


class EachTestIsRolledBack(TestCase):
    def place_one(self, what):
        assert (orders(), space().dequeue("ORDERS", connection=connection)) == ([], None)
        answer = self.client.get("/place", {"what": what})
        assert answer.content.decode() == what
        assert orders() == [what]
        assert queued() == []

    def test_a_message_is_there_for_the_test(self):
        self.place_one("a chair")
        assert space().dequeue("ORDERS", connection=connection).text == "a chair"

    def test_and_not_for_another(self):
        self.place_one("a vase")

    def test_a_page_that_fails_leaves_neither(self):
        self.client.raise_request_exception = False
        assert self.client.get("/place", {"what": "nothing"}).status_code == 500
        assert orders() == []
        assert space().dequeue("ORDERS", connection=connection) is None

    def test_what_belongs_to_a_commit_can_be_run_although_there_is_none(self):
        with self.captureOnCommitCallbacks(execute=True):
            space().enqueue("ORDERS", "a lamp", connection=connection)
        assert queued() == []


class EachTestCommits(TransactionTestCase):
    def setUp(self):
        while space().dequeue("ORDERS") is not None:
            pass

    def test_a_page_leaves_both(self):
        self.client.get("/place", {"what": "a chair"})
        assert (orders(), queued()) == (["a chair"], ["a chair"])

    def test_a_page_that_fails_leaves_neither(self):
        self.client.raise_request_exception = False
        assert self.client.get("/place", {"what": "nothing"}).status_code == 500
        assert (orders(), queued()) == ([], [])

    def test_an_inner_block_that_fails_takes_its_message(self):
        with transaction.atomic():
            space().enqueue("ORDERS", "outer", connection=connection)
            with pytest.raises(ValueError), transaction.atomic():
                space().enqueue("ORDERS", "inner", connection=connection)
                raise ValueError
        assert queued() == ["outer"]

    def test_who_waits_gets_it_after_the_commit(self):
        found = []
        waiting = threading.Thread(target=lambda: found.append(space().dequeue("ORDERS", wait=60).text))
        waiting.start()
        self.client.get("/place", {"what": "a vase"})
        waiting.join()
        assert found == ["a vase"]

    def test_without_a_block_it_is_refused(self):
        with pytest.raises(InvalidArgumentError, match="is not inside atomic"):
            space().enqueue("ORDERS", "x", connection=connection)

    def test_two_transactions_at_once_are_refused(self):
        with transaction.atomic(), space().transaction(), pytest.raises(ProtocolError):
            space().enqueue("ORDERS", "x", connection=connection)
