"""Connections that are lost: each act is done or not, once, the caller knows which, and the next act works."""

import contextlib
import re
import threading

import pytest

from qmadmin.opening import create_device, open_device
from qmcore.errors import AbortedError, OperatingSystemError, OutcomeUnknownError
from qmcore.findings import Severity
from qmcore.message import PLAIN_CONTROL
from tests.fix_store import Work, attachment_of, bodies_held, eventually, make_queue, space_definition, waiting_for
from tests.fix_storm import new_session, session_of
from tests.fix_waits import Loop, waits
from tests.proxy import Proxy

psycopg = pytest.importorskip("psycopg")

from qmstorage.postgres import connection_timeouts  # noqa: E402 - there is nothing to test without psycopg
from qmstorage.postgres.connection_timeouts import WatchedConnection  # noqa: E402

COUNTED = b'INSERT INTO "lost".'
"""The first statement that changes something; only a new session sends its text."""
BEGIN, COMMIT = b"BEGIN", b"COMMIT"
ARRIVAL, END = b"qm_enqueue", b"qm_commit"
"""What is sent together with its commit, by the name of the statement."""


class Net:
    """A queue space that is reached through a network that can be cut, and from beside it."""

    def __init__(self, url):
        host, port = re.search(r"@([^:/]+):(\d+)/", url).groups()
        self.server = host, int(port)
        self.proxy = Proxy(self.server)
        self.beside = create_device(url, 20_000)
        self.beside.create_space(space_definition(error_queue="ERRORS", processes=100))
        self.seen = self.beside.open_space("SPACE")
        for name in ("Q", "R", "ERRORS"):
            make_queue(self.seen, name, retries=3)
        self.url = url.replace(f"@{host}:{port}/", f"@127.0.0.1:{self.proxy.port}/")
        self.device = open_device(self.url)
        self.space = self.device.open_space("SPACE")
        # Of the first transaction ever it would be noted that there was one.
        self.seen.enqueue("Q", "first")
        with self.space.transaction():
            self.space.dequeue("Q")

    def begin(self):
        """Leave nothing of the test before: the next unit gets a session of its own, which sends statements as text."""
        for name in ("Q", "R", "ERRORS"):
            self.seen.purge(name)
        self.settle()
        self.seen.enqueue("Q", "old")
        new_session(attachment_of(self.space).volume)

    def silence_seconds(self, connection):
        """Return after how much silence of the server a connection counts as lost."""
        return 0.2 if f"port={self.proxy.port}" in connection.conninfo else connection_timeouts.SILENCE_SECONDS

    def settle(self):
        """Return when others know again that the process behind the network lives, and it that they do."""
        attachment_of(self.space).do_housekeeping(now=True)
        others = attachment_of(self.seen).volume
        eventually(lambda: others.liveness.living([attachment_of(self.space).owner]), "the process is known again")

    def mend(self):
        """Let the network take connections again, after it refused them."""
        self.proxy.close()
        self.proxy = Proxy(self.server, self.proxy.port)

    def texts(self, queue="Q"):
        return sorted(self.seen.content(info).text for info in self.seen.messages(queue))

    def close(self):
        for each in (self.device, self.beside, self.proxy):
            each.close()


@pytest.fixture(scope="module")
def shared_net(postgres_server, worker_database):
    # A worker that takes tests of others may come back to this module, and begins anew.
    postgres_server.sql("DROP SCHEMA IF EXISTS lost, lost_memory CASCADE", worker_database)
    with contextlib.closing(Net(f"{postgres_server.url(worker_database)}?schema=lost")) as net:
        yield net


@pytest.fixture
def net(shared_net, postgres_server, worker_database, monkeypatch):
    monkeypatch.setenv("QM_TEST_DATABASE", postgres_server.url(worker_database))
    # Beside the network, the server of a loaded machine may take longer.
    monkeypatch.setattr(WatchedConnection, "silence_seconds", property(shared_net.silence_seconds))
    monkeypatch.setattr(WatchedConnection, "last_words_seconds", 0.2)
    shared_net.begin()
    return shared_net


def enqueue(space):
    space.enqueue("Q", "new")


def enqueue_together(space):
    assert len(space.enqueue_many("Q", [b"new", b"newer"])) == 2


def taken(space):
    """Return the text of the message; what a lost session had taken is there again when the server notices its end."""
    return space.dequeue("Q", wait=30).text


def dequeue(space):
    assert taken(space) == "old"


def dequeue_in_transaction(space):
    with space.transaction():
        assert taken(space) == "old"


def reply(space):
    with space.transaction():
        space.enqueue("R", taken(space))


def roll_back(space):
    transaction = space.transaction()
    with transaction:
        assert taken(space) == "old"
        transaction.rollback()


def listen(space):
    assert space.listen(["R", "Q"]) == "Q"


def peek(space):
    assert space.peek("Q").text == "old"


def browse(space):
    assert [message.text for message in space.browse("Q")] == ["old"]


def list_them(space):
    assert [info.size for info in space.messages("Q")] == [3]


def do_housekeeping(space):
    attachment_of(space).do_housekeeping(now=True)


def count(space):
    assert space.usage("Q").messages == 1


AFTER = {
    enqueue: (["new", "old"], []),
    enqueue_together: (["new", "newer", "old"], []),
    dequeue: ([], []),
    dequeue_in_transaction: ([], []),
    reply: ([], ["old"]),
}
"""What is in Q and in R after an act that was done; all others change nothing."""

UNDONE = ["old"], []
FIRST = {enqueue_together: b".qm_enqueue(", dequeue: b".qm_claim("}
"""The first that changes something where no row of the session is written."""
CHANGING = [enqueue, enqueue_together, dequeue, dequeue_in_transaction, reply]
ACTS = [*CHANGING, roll_back, listen, peek, browse, list_them, do_housekeeping, count]


def books(net):
    """Return what is in the queues, and prove that nothing is held and that the counters and tables are sound."""
    net.settle()
    found = net.texts("Q"), net.texts("R")
    assert [list(net.seen.messages(queue)) for queue in ("ERRORS",)] == [[]]
    assert bodies_held(net.seen)[1:] == (0, 0)
    assert net.beside.space_usage("SPACE").transactions == 0
    assert [finding.sentence for finding in net.beside.check("SPACE") if finding.severity is Severity.ERROR] == []
    return found


@pytest.mark.matrix
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("cut", [Proxy.reset, Proxy.swallow])
def test_a_connection_that_was_lost_before_an_act_is_made_again(net, act, cut):
    list_them(net.space)
    cut(net.proxy)
    act(net.space)
    assert books(net) == AFTER.get(act, UNDONE)


@pytest.mark.matrix
@pytest.mark.parametrize("act", CHANGING)
@pytest.mark.parametrize("moment", ["before", "answer"])
@pytest.mark.parametrize("order", ["reset", "swallow"])
def test_what_is_cut_in_the_middle_is_done_again_from_the_beginning(net, act, moment, order):
    net.proxy.trap(FIRST.get(act, COUNTED), moment, order)
    act(net.space)
    assert net.proxy.sprung.is_set()
    assert books(net) == AFTER[act]


# ---- commits --------------------------------------------------------------------------------------------------------


def commit_in(net, moment, order):
    """Reply to the message, and lose the connection while the transaction is committed."""
    with net.space.transaction():
        net.space.enqueue("R", net.space.dequeue("Q").text)
        net.proxy.trap(END, moment, order)


def commit_of(act):
    """Return the act, with the connection lost while its commit is under way."""
    word = ARRIVAL if act is enqueue else COMMIT

    def acts(net, moment, order):
        # The upkeep of each second must not come now: its commit would be the one that is caught.
        do_housekeeping(net.space)
        net.proxy.trap(word, moment, order)
        act(net.space)

    return acts


PLAIN = {"enqueue": enqueue, "enqueue_together": enqueue_together, "dequeue": dequeue}
COMMITS = {name: commit_of(act) for name, act in PLAIN.items()} | {"reply": commit_in}
DONE = {name: AFTER[act] for name, act in {**PLAIN, "reply": reply}.items()}


@pytest.mark.matrix(together=2)
@pytest.mark.parametrize("name", COMMITS)
@pytest.mark.parametrize("moment", ["before", "answer"])
@pytest.mark.parametrize("order", ["reset", "swallow"])
def test_where_the_server_can_be_asked_what_became_of_a_lost_commit_it_is_done_once(net, name, moment, order):
    COMMITS[name](net, moment, order)
    assert net.proxy.sprung.is_set()
    assert books(net) == DONE[name]


def follow(net, word, moment, order, to):
    """Commit with an answer and have a successor take the next message, while the connection is lost at a word."""
    net.seen.enqueue("Q", "second")
    do_housekeeping(net.space)
    transaction = net.space.transaction()
    transaction.join_context()
    request = net.space.dequeue("Q")
    transaction.leave_context()
    net.proxy.trap(word, moment, order)
    successor = transaction.successor(None)
    return successor, transaction.commit_and_take([(to, request.body, PLAIN_CONTROL)], successor, "Q")


@pytest.mark.matrix(together=2)
@pytest.mark.parametrize("word", [b"qm_commit", b"qm_claim_held", BEGIN, COMMIT])
@pytest.mark.parametrize("moment", ["before", "answer"])
@pytest.mark.parametrize("order", ["reset", "swallow"])
@pytest.mark.parametrize("to", ["R", "Q"])
def test_a_commit_that_takes_the_next_message_is_done_once_wherever_it_is_cut(net, word, moment, order, to):
    successor, taken = follow(net, word, moment, order, to)
    assert net.proxy.sprung.is_set()
    assert [message.text for message in taken] == ["second"]
    assert net.beside.space_usage("SPACE").transactions == 1
    successor.rollback(counts=False)
    assert books(net) == ((["second"], ["old"]) if to == "R" else (["old", "second"], []))


@pytest.mark.parametrize("moment", ["before", "answer"])
def test_where_nobody_can_be_asked_such_a_commit_is_unknown_and_has_all_happened_or_nothing(net, moment):
    try:
        with pytest.raises(OutcomeUnknownError):
            follow(net, COMMIT, moment, "refuse", "R")
    finally:
        net.mend()
    do_housekeeping(net.space)
    assert books(net) == ((["second"], ["old"]) if moment == "answer" else (["old", "second"], []))


@pytest.mark.parametrize("name", COMMITS)
@pytest.mark.parametrize("moment", ["before", "answer"])
def test_where_nobody_can_be_asked_the_outcome_is_unknown_and_the_next_act_works(net, name, moment):
    try:
        with pytest.raises(OutcomeUnknownError, match="whether it was done is unknown"):
            COMMITS[name](net, moment, "refuse")
        with pytest.raises(OperatingSystemError, match="cannot be reached"):
            net.space.enqueue("Q", "while it is away")
    finally:
        net.mend()
    do_housekeeping(net.space)
    found = books(net)
    assert found == (DONE[name] if moment == "answer" else UNDONE)
    assert not any(info.retries for info in net.seen.messages("Q"))
    assert net.space.enqueue("R", "next")


def test_where_the_server_was_restarted_meanwhile_the_outcome_is_unknown(net):
    """Behind a crash the number of the transaction may be another one's."""
    enqueue(net.space)
    session = session_of(attachment_of(net.space).volume)
    session.boot = "before"
    with pytest.raises(OutcomeUnknownError) as caught:
        commit_of(dequeue)(net, "answer", "reset")
    assert caught.value.hint == "Check before you repeat it: it may have been done."
    assert books(net) == (["new"], [])


@pytest.mark.parametrize("moment", ["before", "answer"])
def test_what_became_of_a_plain_enqueue_is_known_beyond_a_restart_with_its_identifier(net, moment):
    """A row that only its session writes tells of it."""
    enqueue(net.space)
    session = session_of(attachment_of(net.space).volume)
    session.boot = "before"
    do_housekeeping(net.space)
    net.proxy.trap(ARRIVAL, moment, "reset")
    msgid = net.space.enqueue("Q", "newer")
    assert net.proxy.sprung.is_set()
    assert [info.size for info in net.seen.messages("Q") if info.msgid == msgid] == [5]
    assert books(net) == (["new", "newer", "old"], [])


def test_where_another_session_has_written_that_row_the_outcome_is_unknown(net):
    enqueue(net.space)
    volume = attachment_of(net.space).volume
    session = session_of(volume)
    with connection_timeouts.connected(attachment_of(net.seen).volume.address) as connection:
        connection.execute(f"UPDATE lost.counter SET generation = 1 WHERE slot = {session.slot}")
    with pytest.raises(OutcomeUnknownError):
        commit_of(enqueue)(net, "answer", "reset")
    assert books(net) == (["new", "new", "old"], [])


def test_the_number_of_a_queue_space_that_was_destroyed_is_not_taken_for_that_of_the_next(
    postgres_server, worker_database
):
    """It has the same number, and begins to count again: the last of the one may be the next of the other."""
    with contextlib.closing(Net(f"{postgres_server.url(worker_database)}?schema=again")) as net:
        enqueue(net.space)
        net.space.close()
        net.seen.close()
        net.beside.destroy_space("SPACE", force=True)
        net.beside.create_space(space_definition(processes=100))
        net.seen = net.beside.open_space("SPACE")
        make_queue(net.seen, "Q")
        again = net.device.open_space("SPACE")
        net.proxy.trap(ARRIVAL, "answer", "reset")
        enqueue(again)
        assert net.proxy.sprung.is_set()
        assert net.texts() == ["new"]


@pytest.mark.parametrize("order", ["reset", "swallow"])
def test_a_session_that_has_the_process_number_of_a_lost_one_by_now_is_left_alone(net, order):
    """The server gives numbers again, to sessions of the same program too."""
    volume = attachment_of(net.space).volume
    enqueue(net.space)
    lost = session_of(volume).connection
    with contextlib.closing(connection_timeouts.connected(attachment_of(net.seen).volume.address)) as later:
        lost.identity = lost.identity._replace(pid=later.identity.pid)
        net.proxy.trap(ARRIVAL, "answer", order)
        enqueue(net.space)
        assert net.proxy.sprung.is_set()
        assert later.execute("SELECT 1").fetchone() == (1,)
    assert books(net) == (["new", "new", "old"], [])


@pytest.mark.parametrize("name", COMMITS)
@pytest.mark.parametrize("moment", ["before", "answer"])
def test_a_lost_session_that_a_pooler_gives_us_again_tells_what_became_of_the_commit(net, name, moment, monkeypatch):
    """Who ended it would end himself, and never know."""
    enqueue(net.space)
    volume = attachment_of(net.space).volume
    lost = session_of(volume).connection
    do_housekeeping(net.space)
    with contextlib.closing(connection_timeouts.connected(attachment_of(net.seen).volume.address)) as again:
        lost.identity = again.identity
        monkeypatch.setattr(volume, "connected_hastily", lambda: again)
        COMMITS[name](net, moment, "reset")
        # Nothing of what came after the cut has gone through the network, which may say so later.
        assert net.proxy.sprung.wait(60)
        assert again.closed, "it was asked"
    of_q, of_r = DONE[name]
    assert books(net) == (sorted([*of_q, "new"]), of_r)


@pytest.mark.parametrize("moment", ["before", "answer"])
def test_a_transaction_that_may_have_taken_a_message_can_only_roll_back(net, moment):
    transaction = net.space.transaction()
    with pytest.raises(AbortedError, match="was rolled back"), transaction:
        try:
            with pytest.raises(OutcomeUnknownError):
                commit_of(dequeue)(net, moment, "refuse")
        finally:
            net.mend()
        transaction.commit()
    do_housekeeping(net.space)
    assert books(net) == UNDONE


# ---- waiting --------------------------------------------------------------------------------------------------------


@pytest.mark.matrix
@pytest.mark.parametrize("cut", [Proxy.reset, Proxy.swallow, Proxy.refuse])
@pytest.mark.parametrize("how", ["dequeue", "in a transaction", "listen", "peek"])
def test_a_wait_outlives_its_connections_and_gets_what_comes_after(net, how, cut):
    def wait():
        if how == "listen":
            return net.space.listen(["R"], wait=30)
        if how == "peek":
            return net.space.peek("R", wait=30).text
        with net.space.transaction() if how == "in a transaction" else contextlib.nullcontext():
            return net.space.dequeue("R", wait=30).text

    waiting = Work(wait)
    eventually(lambda: waiting_for(net.device.path), "somebody waits")
    try:
        cut(net.proxy)
    finally:
        if cut is Proxy.refuse:
            net.mend()
    net.seen.enqueue("R", "late")
    assert waiting.results() == ["R" if how == "listen" else "late"]
    net.settle()
    assert net.seen.usage("R").held == 0
    eventually(lambda: not waiting_for(net.device.path), "nobody waits any more")


@pytest.mark.parametrize("cut", [Proxy.reset, Proxy.refuse])
def test_waits_that_an_event_loop_drives_outlive_their_connections_too(net, cut):
    with Loop(net.space) as loop:
        for _ in range(5):
            loop.add("R")
        loop.run_until(lambda: waits(net.seen) == 5)
        try:
            cut(net.proxy)
            if cut is Proxy.refuse:
                # At least one has found the server away, and goes on all the same.
                loop.run_until(lambda: any(wait.wakeup is None for wait in loop.open))
        finally:
            if cut is Proxy.refuse:
                net.mend()
        net.seen.enqueue_many("R", "abcde")
        loop.run_until(lambda: not loop.open)
        assert sorted(loop.got) == list("abcde")
    net.settle()
    assert net.seen.usage("R").held == 0
    eventually(lambda: not waiting_for(net.device.path), "nobody waits any more")


def test_a_wait_whose_time_is_over_while_the_server_is_away_says_so(net):
    waiting = Work(lambda: net.space.dequeue("R", wait=1))
    eventually(lambda: waiting_for(net.device.path), "somebody waits")
    net.proxy.refuse()
    try:
        (error,) = waiting.results()
        assert isinstance(error, OperatingSystemError)
        assert "cannot be reached" in str(error)
    finally:
        net.mend()


def test_a_long_statement_is_not_taken_for_a_lost_connection(net):
    """Somebody keeps the volume for himself for longer than the silence that makes us ask."""
    entered, leave = threading.Event(), threading.Event()

    def keep():
        with attachment_of(net.seen).volume.quiesced(10):
            entered.set()
            assert leave.wait(90)

    keeping = Work(keep)
    assert entered.wait(90)
    working = Work(lambda: net.space.enqueue("Q", "new"))
    waits = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE wait_event = 'advisory' AND clock_timestamp() > query_start + '1 s'::interval"
    )
    with connection_timeouts.connected(attachment_of(net.seen).volume.address) as connection:
        eventually(lambda: connection.execute(waits).fetchone() != (0,), "it waits for longer than the silence")
    leave.set()
    (msgid,) = working.results()
    keeping.results()
    assert msgid in [info.msgid for info in net.seen.messages("Q")]
