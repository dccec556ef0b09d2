"""Servers that go away and come back, or whose standby takes over: everything goes on, and nothing is lost."""

import contextlib
import logging
import os
import re
import signal
import threading
from pathlib import Path

import pytest

from qmadmin.opening import create_device, open_device
from qmcore.errors import AbortedError, OperatingSystemError, OutcomeUnknownError
from qmcore.findings import Severity
from tests.fix_postgres import but_for_this_server, or_do_without
from tests.fix_process import is_running
from tests.fix_store import Work, attachment_of, bodies_held, drain, eventually, make_queue, space_definition
from tests.fix_storm import session_of

psycopg = pytest.importorskip("psycopg")

from qmstorage.postgres import liveness_queries, translate  # noqa: E402
from qmstorage.postgres.connection_timeouts import WatchedConnection  # noqa: E402
from tests.cluster import Cluster  # noqa: E402 - there is nothing to test without psycopg

MODES = ["fast", "immediate", "kill"]


@pytest.fixture(scope="module")
def cluster():
    """A server that the tests of this module may end, and start again."""
    with or_do_without():
        made = Cluster.of_its_own()
    yield made
    made.close()


@pytest.fixture
def url(cluster, request):
    """The URL of a device that is not there yet."""
    name = "".join(char if char.isalnum() else "_" for char in request.node.name)[-40:].lower()
    try:
        cluster.sql("SELECT 1")
    except psycopg.OperationalError:
        # A test that failed has left the server ended.
        cluster.start()
    cluster.sql(f"DROP SCHEMA IF EXISTS {name} CASCADE")
    return f"{cluster.url()}?schema={name}"


@pytest.fixture
def device(url):
    with create_device(url, 20_000) as made:
        made.create_space(space_definition(pages=5_000, error_queue="ERRORS", memory=1_000_000))
        with made.open_space("SPACE") as space:
            for name in ("Q", "R", "ERRORS"):
                make_queue(space, name, retries=3)
        yield made


@pytest.fixture
def space(device):
    with device.open_space("SPACE") as opened:
        yield opened


@pytest.fixture
def hasty(monkeypatch):
    """Have those who do not come back with the server given up at once."""
    monkeypatch.setattr(liveness_queries, "GRACE_SECONDS", 0.0)


def end(cluster, mode):
    cluster.kill() if mode == "kill" else cluster.stop(mode)


def restart(cluster, mode):
    end(cluster, mode)
    cluster.start()


def is_sound(device):
    return [each.sentence for each in but_for_this_server(device.check()) if each.severity is Severity.ERROR] == []


def schema_of(device):
    return device.path.partition("schema=")[2]


HOLD = """
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
transaction = space.transaction()
transaction.join_context()
say(space.dequeue("Q").text)
space.enqueue("R", "synchronous, and with it all before", transactional=False)
say("holds")
heard()
transaction.commit()
say("committed")
heard()
"""


@pytest.mark.parametrize("mode", MODES)
def test_whoever_waits_gets_what_comes_after_a_restart(cluster, device, space, mode):
    waiting = Work(*(lambda: space.dequeue("Q", wait=30).text for _ in range(3)))
    eventually(lambda: cluster.sql(f"SELECT count(*) FROM {schema_of(device)}.waiter") == [(3,)], "all wait")
    restart(cluster, mode)
    for text in "abc":
        space.enqueue("Q", text)
    assert sorted(waiting.results()) == ["a", "b", "c"]
    assert is_sound(device)


@pytest.mark.parametrize("mode", MODES)
def test_what_was_acknowledged_is_there_once_and_all_works_on(cluster, device, space, mode):
    ids = [space.enqueue("Q", str(number)) for number in range(20)]
    taken = [space.dequeue("Q").msgid for _ in range(5)]
    restart(cluster, mode)
    assert [info.msgid for info in space.messages("Q")] == ids[5:]
    assert taken == ids[:5]
    with space.transaction():
        space.enqueue("R", space.dequeue("Q").text)
    assert drain(space, "R") == ["5"]
    assert drain(space) == [str(number) for number in range(6, 20)]
    assert is_sound(device)


AWAY = (OperatingSystemError, OutcomeUnknownError)
"""What an enqueue raises: it is sent with its commit, and a process of a killed server may still have taken it."""


@pytest.mark.parametrize("mode", MODES)
def test_while_the_server_is_away_an_operation_says_so_and_the_next_one_works(cluster, space, mode):
    space.enqueue("Q", "x")
    session = session_of(attachment_of(space).volume)
    end(cluster, mode)
    # A process of a killed server may go on for a moment.
    eventually(session.was_ended, "nobody answers any more")
    for act in (lambda: space.enqueue("Q", "y"), lambda: space.dequeue("Q"), lambda: list(space.messages("Q"))):
        with pytest.raises(AWAY) as caught:
            act()
        if isinstance(caught.value, OperatingSystemError):
            assert re.search(r"cannot be reached.*(Connection refused|closed the)", caught.value.message)
            assert "Check host and port" in caught.value.hint
    cluster.start()
    assert drain(space) in (["x"], ["x", "y"])


@pytest.mark.parametrize("wait", [None, 30])
@pytest.mark.parametrize("mode", MODES)
def test_what_could_not_be_rolled_back_meanwhile_comes_first(cluster, space, mode, wait):
    space.enqueue_many("Q", "abc")
    with pytest.raises(AWAY), space.transaction():
        assert space.dequeue("Q").text == "a"
        end(cluster, mode)
        space.enqueue("R", "reply", transactional=False)
    with pytest.raises(OperatingSystemError):
        space.dequeue("Q")
    cluster.start()
    assert space.dequeue("Q", wait=wait).text == "a"
    assert drain(space) == ["b", "c"]


@pytest.mark.parametrize("mode", MODES)
def test_a_transaction_in_which_nothing_was_lost_goes_on_after_a_restart(cluster, device, space, mode):
    """The message is held durably before the server ends."""
    space.enqueue("Q", "x")
    with space.transaction():
        assert space.dequeue("Q").text == "x"
        space.enqueue("R", "synchronous, and with it all before", transactional=False)
        restart(cluster, mode)
        space.enqueue("R", "reply")
    assert drain(space, "R") == ["synchronous, and with it all before", "reply"]
    assert (bodies_held(space), device.space_usage("SPACE").transactions) == ((0, 0, 0), 0)


@pytest.mark.parametrize("what", ["held", "spilled"])
def test_a_transaction_of_which_the_server_has_lost_a_part_is_rolled_back(cluster, device, space, what):
    """The crash of a server takes with it the last commits that did not have to reach the disk."""
    for text in "ab":
        space.enqueue("Q", text)
    with pytest.raises(AbortedError, match="lost a part of it"), space.transaction():
        space.dequeue("Q")
        if what == "held":
            space.dequeue("Q")
        else:
            for _ in range(2):
                space.enqueue("R", b"x" * 5_000_000)
        lose_the_last(cluster, schema_of(device))
    assert [info.retries for info in space.messages("Q")] == [0, 0]
    assert space.usage("R").messages == 0


def lose_the_last(cluster, schema):
    """Undo the last thing that a transaction has taken, or spilled, as a crash does whose log ends before it."""
    last = f"SELECT max(message_id) FROM {schema}.held"
    cluster.sql(
        f"WITH lost AS (DELETE FROM {schema}.held WHERE message_id = ({last}) RETURNING *)"
        f" INSERT INTO {schema}.ready (queue_id, order_key, message_id, retries)"
        " SELECT queue_id, order_key, message_id, retries FROM lost WHERE role = 0"
    )


@pytest.mark.parametrize("mode", MODES)
def test_whoever_looks_first_gives_up_nobody_who_comes_back(cluster, device, space, start, url, mode):
    space.enqueue("Q", "x")
    child = start(HOLD, url)
    child.expect("x", "holds")
    child.freeze()
    restart(cluster, mode)
    boots = f"SELECT count(DISTINCT boot) FROM {schema_of(device)}.owner"
    eventually(lambda: cluster.sql(boots) == [(2,)], "one of the two has come back")
    assert bodies_held(space) == (0, 0, 1)
    child.process.send_signal(signal.SIGCONT)
    child.say()
    child.expect("committed")
    assert bodies_held(space) == (0, 0, 0)
    assert device.space_usage("SPACE").processes == 2


def test_whoever_dies_after_a_restart_has_tried(cluster, space, start, url, hasty):
    space.enqueue("Q", "x")
    child = start(HOLD, url)
    child.expect("x", "holds")
    owners = f"{url.partition('schema=')[2]}.owner"
    ((before,),) = cluster.sql(f"SELECT DISTINCT boot FROM {owners}")
    restart(cluster, "immediate")
    left = f"SELECT count(*) FROM {owners} WHERE boot = '{before}'"
    eventually(lambda: cluster.sql(left) == [(0,)], "both have come back")
    child.kill()
    message = space.dequeue("Q", wait=60)
    assert message.text == "x"
    assert message.retries == 1


@pytest.mark.parametrize("mode", MODES)
def test_whoever_does_not_come_back_has_not_tried(cluster, space, start, url, mode, hasty):
    space.enqueue("Q", "x")
    child = start(HOLD, url)
    child.expect("x", "holds")
    end(cluster, mode)
    child.kill()
    cluster.start()
    message = space.dequeue("Q", wait=60)
    assert message.text == "x"
    assert message.retries == 0


def test_a_process_that_was_given_up_is_attached_again_by_itself(cluster, device, space, start, url):
    cluster.sql(f"DELETE FROM {schema_of(device)}.owner")
    space.enqueue("Q", "x")
    space.usage("Q")
    assert device.space_usage("SPACE").processes == 1
    with space.transaction():
        assert space.dequeue("Q").text == "x"


def test_the_crash_of_one_session_of_the_server_is_a_restart(cluster, device, space, start, url, hasty):
    """The server ends all its sessions, and restarts without being started."""
    space.enqueue("Q", "x")
    child = start(HOLD, url)
    child.expect("x", "holds")
    child.freeze()
    waiting = Work(lambda: space.dequeue("R", wait=30, corrid=b"c").text)
    eventually(lambda: cluster.sql(f"SELECT count(*) FROM {schema_of(device)}.waiter") == [(1,)], "it waits")
    before = boot_of(cluster)
    with contextlib.suppress(psycopg.Error), cluster.connect() as victim:
        os.kill(victim.info.backend_pid, signal.SIGKILL)
        victim.execute("SELECT pg_sleep(30)")
    child.kill()
    eventually(lambda: boot_of(cluster) not in ("", before), "the server has recovered")
    assert space.dequeue("Q", wait=60).retries == 0
    space.enqueue("R", "late", corrid=b"c")
    assert waiting.results() == ["late"]


def boot_of(cluster):
    """Return what tells this life of the server from others, "" while it takes no connections."""
    with contextlib.suppress(psycopg.Error), cluster.connect() as connection:
        return liveness_queries.server(connection).boot
    return ""


@pytest.mark.parametrize("mode", MODES)
def test_non_persistent_messages_outlast_a_restart_but_no_crash(cluster, device, space, mode):
    space.enqueue("Q", "persistent")
    space.enqueue("Q", "not", persistent=False)
    restart(cluster, mode)
    left = ["persistent", "not"] if mode == "fast" else ["persistent"]
    usage = space.usage("Q")
    assert usage.messages == len(left)
    assert usage.nonpersistent == len(left) - 1
    space.enqueue("Q", "again", persistent=False)
    with space.transaction():
        space.enqueue("R", space.dequeue("Q").text, persistent=False)
    assert drain(space) == [*left[1:], "again"]
    assert drain(space, "R") == ["persistent"]
    assert is_sound(device)


@pytest.mark.parametrize("together", [True, False])
def test_a_server_that_is_stopped_keeps_nobody_waiting_for_ever(cluster, url, device, monkeypatch, together):
    monkeypatch.setattr(WatchedConnection, "silence_seconds", 0.2)
    with open_device(f"{url}&connect_timeout=2") as other, other.open_space("SPACE") as space:
        space.enqueue("Q", "before")
        stopped = [cluster.pid, *children_of(cluster.pid)]
        try:
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            if together:
                with pytest.raises(OperatingSystemError, match=r"cannot be reached.*timeout"):
                    space.enqueue_many("Q", ["meanwhile", "too"])
            else:
                # It is sent with its commit, and nobody can be asked what became of it.
                with pytest.raises(OutcomeUnknownError):
                    space.enqueue("Q", "meanwhile")
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        assert drain(space) in ([["before"]] if together else [["before"], ["before", "meanwhile"]])


def children_of(pid):
    """Return the processes that a process has started."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(status.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(status.parent.name))
    return found


def test_a_storm_of_losses_is_a_line_in_the_log_for_each_outage(cluster, device, space, caplog):
    caplog.set_level(logging.INFO, "qmadmin")
    transaction = space.transaction()
    space.enqueue("Q", "x")
    transaction.join_context()
    space.dequeue("Q")
    end(cluster, "immediate")
    transaction.leave_context()
    with pytest.raises(OperatingSystemError):
        transaction.rollback() or space.enqueue("Q", "y")
    for _ in range(20):
        with pytest.raises(OperatingSystemError):
            space.usage("Q")
    cluster.start()
    assert space.dequeue("Q", wait=60).text == "x"
    eventually(lambda: caplog.records[-1].levelname == "INFO", "it is known again")
    *lost, again = [record.levelname for record in caplog.records]
    # The loss is told by one thread, the rollback that is put off by another.
    assert sorted(lost) == ["ERROR", "WARNING"]
    assert again == "INFO"


# ---- failover -------------------------------------------------------------------------------------------------------


@pytest.fixture
def pair():
    """A server, its standby without which nothing is acknowledged, and the URL of both."""
    with or_do_without():
        cluster = Cluster.of_its_own()
    with contextlib.closing(cluster):
        standby = cluster.standby()
        cluster.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        cluster.sql("SELECT pg_reload_conf()")
        eventually(lambda: cluster.sql("SHOW synchronous_standby_names") == [("*",)], "replication is synchronous")
        one = f"127.0.0.1:{cluster.port}"
        both = f"{one},127.0.0.1:{standby.port}"
        yield cluster, standby, f"{cluster.url().replace(one, both)}?target_session_attrs=read-write"


def test_after_a_failover_all_that_was_acknowledged_is_there_and_all_goes_on(pair, start, monkeypatch):
    cluster, standby, url = pair
    with create_device(url, 20_000) as device:
        device.create_space(space_definition(memory=1_000_000))
        space = device.open_space("SPACE")
        for name in ("Q", "R", "W"):
            make_queue(space, name, retries=3)
        for text in "abcd":
            space.enqueue("Q", text)
        space.enqueue("R", "gone", persistent=False)
        child = start(HOLD, url)
        child.expect("a", "holds")
        waiting = Work(lambda: space.dequeue("W", wait=30).text)
        eventually(lambda: cluster.sql("SELECT count(*) FROM qmadmin.waiter") == [(1,)], "it waits")
        assert space.dequeue("Q").text == "b"
        clients = [pid for (pid,) in cluster.sql("SELECT pid FROM pg_stat_activity WHERE client_port IS NOT NULL")]
        cluster.kill()
        eventually(lambda: not any(map(is_running, clients)), "its processes for the clients have noticed")
        with pytest.raises(OperatingSystemError, match=r"cannot be reached|no server of device"):
            space.dequeue("Q")
        standby.promote()
        assert space.dequeue("Q").text == "c"
        space.enqueue("W", "late")
        assert waiting.results() == ["late"]
        child.say()
        child.expect("committed")
        assert drain(space) == ["d"]
        assert drain(space, "R") == ["synchronous, and with it all before"]
        space.enqueue("R", "again", persistent=False)
        assert drain(space, "R") == ["again"]
        assert is_sound(device)


def test_a_wait_goes_on_that_meets_the_standby_before_it_takes_over(pair, monkeypatch):
    """As where an address leads to it a moment too early: here both are named, and none is asked for by its kind."""
    cluster, standby, url = pair
    met, on_standby = set(), translate.on_standby

    def noting(shown):
        met.add(threading.get_ident())
        return on_standby(shown)

    monkeypatch.setattr(translate, "on_standby", noting)
    with create_device(url.partition("?")[0], 20_000) as device:
        device.create_space(space_definition(memory=1_000_000))
        space = device.open_space("SPACE")
        make_queue(space, "W")
        waiting = Work(lambda: space.dequeue("W", wait=30).text)
        eventually(lambda: cluster.sql("SELECT count(*) FROM qmadmin.waiter") == [(1,)], "it waits")
        cluster.kill()
        with pytest.raises(OperatingSystemError, match=r"the server is a standby|cannot be reached"):
            space.enqueue("W", "early")
        eventually(lambda: waiting.idents() <= met, "the wait has met the standby")
        standby.promote()
        space.enqueue("W", "late")
        assert waiting.results() == ["late"]


def test_a_standby_is_for_reading_only_and_says_so(pair):
    cluster, standby, url = pair
    with create_device(url, 20_000) as device:
        device.create_space(space_definition())
        space = device.open_space("SPACE")
        make_queue(space, "Q")
        space.enqueue("Q", "x")
        with open_device(standby.url()) as reader:
            assert reader.readonly
            with reader.open_space("SPACE") as seen:
                eventually(lambda: [info.size for info in seen.messages("Q")] == [1], "it is replicated")
                assert seen.usage("Q").messages == 1
                assert seen.peek("Q").text == "x"
                for act in (lambda: seen.enqueue("Q", "y"), lambda: seen.dequeue("Q")):
                    with pytest.raises(OperatingSystemError, match="the server is a standby") as caught:
                        act()
                    assert "Name the primary" in caught.value.hint
        cluster.stop("immediate")
        for act in (lambda: space.enqueue("Q", "y"), lambda: open_device(url)):
            with pytest.raises(OperatingSystemError, match="of the kind that target_session_attrs asks for"):
                act()
