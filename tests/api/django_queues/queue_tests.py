"""What Django's own test cases see; its runner makes the database, and migrate in it the device."""

import pytest
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from qmadmin.django import close, space
from tests.api.django_queues.models import Order


def tearDownModule():
    close()


def place(what):
    with transaction.atomic():
        Order.objects.create(what=what)
        space().enqueue("orders", what, connection=connection)
        if what == "nothing":
            raise ValueError(what)


def queued():
    return [message.text for message in space().browse("orders")]


def orders():
    return list(Order.objects.values_list("what", flat=True))


class EachTestIsRolledBack(TestCase):
    def test_a_message_is_there_for_the_test(self):
        place("a chair")
        assert (orders(), queued()) == (["a chair"], [])
        assert space().dequeue("orders", connection=connection).text == "a chair"

    def test_and_not_for_another(self):
        assert (orders(), space().dequeue("orders", connection=connection)) == ([], None)
        place("a vase")


class EachTestCommits(TransactionTestCase):
    def setUp(self):
        while space().dequeue("orders") is not None:
            pass

    def test_an_order_and_its_message_commit_together(self):
        place("a chair")
        assert (orders(), queued()) == (["a chair"], ["a chair"])

    def test_or_neither_does(self):
        with pytest.raises(ValueError):
            place("nothing")
        assert (orders(), queued()) == ([], [])

    def test_the_queue_space_is_open_before_a_transaction_is(self):
        close()
        connection.close()
        place("a table")
        assert queued() == ["a table"]

    def test_it_is_opened_once(self):
        assert space() is space()
