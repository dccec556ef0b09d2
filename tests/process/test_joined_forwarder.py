"""Services of the forwarder that have a database of their own take part in the transaction of their request."""

import contextlib
import os
import signal
import sqlite3

import pytest

import qmadmin
from qmadmin import QueueDefinition
from tests.doom import Doom, environment_of
from tests.fix_process import eventually
from tests.fix_store import SOURCES

SELLING = """
import contextlib, pathlib, sqlite3, threading, time

import qmadmin
from qmadmin.forwarder import enqueue, join

HERE = pathlib.Path(__file__).parent
local = threading.local()


def connection():
    if not hasattr(local, "connection"):
        local.connection = sqlite3.connect(HERE / "shop.db")
    return local.connection


def sell(request):
    join(connection())
    connection().execute("INSERT INTO sale VALUES (?)", [request.text])
    enqueue("AUDIT", request.text)
    with open(HERE / "calls", "a") as calls:
        calls.write(request.text + "\\n")
    while request.text == "slow" and not (HERE / "go").exists():
        time.sleep(0.005)
    if request.text == "bad":
        raise ValueError("not for sale")
    return f"sold {request.text}"


async def awaited(request):
    return sell(request)


# In a worker process no device is open.
with contextlib.suppress(qmadmin.InvalidArgumentError):
    qmadmin.recover(connection())
"""

SERVICES = """
[services.SELL]
python = "server:sell"

[services.AWAIT]
python = "server:awaited"

[services.APART]
python = "server:sell"
run = "process"
"""


def sales(site):
    """Return what was sold."""
    with contextlib.closing(sqlite3.connect(site.directory / "shop.db")) as connection:
        return [text for (text,) in connection.execute("SELECT text FROM sale ORDER BY rowid")]


@pytest.fixture
def space(site):
    site.services(SERVICES, server=SELLING)
    with contextlib.closing(sqlite3.connect(site.directory / "shop.db")) as connection:
        connection.execute("CREATE TABLE sale (text)")
        qmadmin.create_decision_table(connection)
    queues = [QueueDefinition(name=name, retries=1) for name in ("SELL", "AWAIT", "APART")]
    return site.lay_out(*queues, "AUDIT", "RPLYQ", "ERRQUE", pages=2000)


@pytest.mark.parametrize("site", ["file", "postgres"], indirect=True)
def test_request_reply_and_rows_are_one_transaction(site, space):
    for text in ("one", "bad", "two"):
        space.enqueue("SELL", text, reply_queue="RPLYQ")
    site.run("-q", "SELL", "-e")
    assert sales(site) == ["one", "two"]
    assert [message.text for message in site.all_of("AUDIT")] == ["one", "two"]
    assert [message.text for message in site.all_of("RPLYQ")] == ["sold one", "sold two"]
    (failed,) = site.all_of("ERRQUE")
    assert failed.origin.error == "ValueError: not for sale"


@pytest.mark.parametrize("site", ["file"], indirect=True)
@pytest.mark.parametrize(
    ("queue", "reason"),
    [
        ("AWAIT", "a coroutine, or another thread of a handler, cannot have a database take part"),
        ("APART", "a service in a worker process cannot have a database take part"),
    ],
)
def test_what_cannot_take_part_is_refused_in_one_sentence(site, space, queue, reason):
    space.enqueue(queue, "one", reply_queue="RPLYQ")
    site.run("-q", queue, "-e")
    (failed,) = site.all_of("ERRQUE")
    assert reason in failed.origin.error
    assert sales(site) == []


@pytest.mark.parametrize("site", ["file"], indirect=True)
def test_a_forwarder_that_is_stopped_ends_the_call_and_commits_all_of_it(site, space):
    space.enqueue("SELL", "slow", reply_queue="RPLYQ")
    forwarder = site.start("-q", "SELL")
    site.wait_for_calls()
    forwarder.tell(signal.SIGTERM)
    (site.directory / "go").touch()
    forwarder.wait()
    assert (sales(site), space.dequeue("RPLYQ").text) == (["slow"], "sold slow")


@pytest.mark.parametrize("site", ["file"], indirect=True)
def test_a_second_signal_leaves_nothing_of_the_call(site, space):
    space.enqueue("SELL", "slow", reply_queue="RPLYQ")
    forwarder = site.start("-q", "SELL")
    site.wait_for_calls()
    forwarder.tell(signal.SIGTERM)
    forwarder.wait_until_logged("a second signal stops at once")
    forwarder.tell(signal.SIGTERM)
    forwarder.wait()
    assert (sales(site), space.dequeue("RPLYQ")) == ([], None)
    message = space.dequeue("SELL")
    assert (message.text, message.retries) == ("slow", 0)


@pytest.mark.parametrize("site", ["file", "postgres"], indirect=True)
def test_a_forwarder_that_is_killed_in_a_call_leaves_nothing_of_it(site, space):
    space.enqueue("SELL", "slow", reply_queue="RPLYQ")
    forwarder = site.start("-q", "SELL")
    site.wait_for_calls()
    forwarder.kill()
    assert sales(site) == []
    (site.directory / "go").touch()
    site.wait_until_alone()
    site.run("-q", "SELL", "-e")
    eventually(lambda: sales(site) == ["slow"], "the sale")
    assert (space.dequeue("RPLYQ").text, len(site.all_of("AUDIT"))) == ("sold slow", 1)


@pytest.mark.parametrize("site", ["file", "postgres"], indirect=True)
def test_a_service_that_recovers_as_it_is_loaded_ends_what_a_killed_forwarder_has_left(site, space, tmp_path):
    space.enqueue("SELL", "one", reply_queue="RPLYQ")
    doom = Doom("qmstorage.participants:Participant.commit", "return")
    told = environment_of(doom, tmp_path / "mark", tmp_path / "loaded")
    path = f"{tmp_path / 'loaded'}{os.pathsep}{SOURCES}"
    forwarder = site.launch(["env", *site.command("-q", "SELL", "-e")], PYTHONPATH=path, **told)
    forwarder.wait()
    assert (tmp_path / "mark").exists()
    # It is decided, and the branch of the queue space does not know.
    assert (sales(site), space.dequeue("RPLYQ"), len(space.tpc_recover())) == (["one"], None, 1)
    site.wait_until_alone()
    site.run("-q", "SELL", "-e")
    eventually(lambda: space.tpc_recover() == [], "the end of what was in doubt")
    assert (sales(site), space.dequeue("RPLYQ").text) == (["one"], "sold one")
