"""Processes that were stopped and let nobody know: the server ends their sessions, and others go on."""

import signal

import pytest

from qmadmin.opening import create_device
from tests.fix_store import bodies_held, drain, make_queue, space_definition

pytest.importorskip("psycopg")

HASTY = """
import dataclasses
from qmstorage.postgres import liveness, sessions

liveness.Patience.__init__.__defaults__ = (0.5, 10.0, 0.1, 5.0)
made = sessions.Session.__init__

def makes_hasty(its, connection, *arguments):
    connection.execute("SET idle_in_transaction_session_timeout = 500")
    made(its, connection, *arguments)

sessions.Session.__init__ = makes_hasty
"""
"""Has the server lose patience with this process after half a second, instead of a minute."""

HOLD = (
    HASTY
    + """
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
transaction = space.transaction()
transaction.join_context()
say(space.dequeue("Q").text)
heard()
try:
    transaction.commit()
except AbortedError as error:
    say(error)
transaction.leave_context()
with space.transaction():
    say(space.dequeue("Q").text)
"""
)

MIDWAY = (
    HASTY
    + """
from sqlalchemy import text

from qmcore.purpose import Purpose

device = open_device(sys.argv[1])
space = device.open_space("SPACE")

def work(unit):
    say(len(unit.run(text(f"DELETE FROM {sys.argv[2]}.ready RETURNING 1")).fetchall()))
    heard()
    say("on")

space.probe.attachments["SPACE"].volume.write(work, Purpose.MESSAGES)
say("done")
"""
)


@pytest.fixture
def device(database_url):
    with create_device(database_url, 20_000) as made:
        made.create_space(space_definition())
        yield made


@pytest.fixture
def space(device):
    with device.open_space("SPACE") as opened:
        make_queue(opened, "Q", retries=3)
        opened.enqueue("Q", "x")
        yield opened


def test_a_process_that_is_stopped_is_given_up_and_told_so_when_it_goes_on(device, space, start, database_url):
    child = start(HOLD, database_url)
    child.expect("x")
    child.freeze()
    message = space.dequeue("Q", wait=60)
    assert message.retries == 1
    assert device.space_usage("SPACE").processes == 1
    space.enqueue("Q", message.text)
    child.process.send_signal(signal.SIGCONT)
    child.say()
    assert "its process was taken for dead" in child.line()
    child.expect("x")
    child.finish()
    assert bodies_held(space) == (0, 0, 0)


def test_a_process_that_is_stopped_in_the_middle_of_a_unit_does_not_keep_its_rows(space, start, database_url):
    child = start(MIDWAY, database_url, database_url.partition("schema=")[2])
    child.expect("1")
    child.freeze()
    assert space.dequeue("Q") is None, "its row is locked"
    assert space.dequeue("Q", wait=60).text == "x"
    child.process.send_signal(signal.SIGCONT)
    child.say()
    # It runs once more from the beginning, and finds nothing.
    child.expect("on", "0")
    child.say()
    child.expect("on", "done")
    child.finish()
    assert drain(space) == []
