"""The session by which a process is known to others, against real servers, cut connections and killed processes."""

import contextlib
import itertools
import logging
import os
import signal
import stat
import subprocess
import sys
import threading

import pytest

from qmcore.errors import NoSpaceError, NotOpenError, Resource, SystemFailureError
from qmcore.records import Owner
from tests.fix_process import environment, eventually, is_running
from tests.fix_store import freeze
from tests.proxy import Proxy

psycopg = pytest.importorskip("psycopg")

from qmstorage.postgres.keys import Kind, channel, key  # noqa: E402 - where there is no psycopg, there is nothing to test
from qmstorage.postgres.liveness import Liveness, Patience  # noqa: E402
from qmstorage.postgres.nonblocking_connection import abandon_connection  # noqa: E402

DEADLINE = 240.0
HASTY = Patience(ping_seconds=0.1, answer_seconds=1.0)

CHILD = """
import os, sys, time
import psycopg
from qmstorage.postgres.nonblocking_connection import abandon_connection
from qmstorage.postgres.liveness import Patience, Liveness

url, schema, idle, role = sys.argv[1:]
connect = lambda: psycopg.connect(url, autocommit=True)
liveness = Liveness(connect, schema, Patience(idle_seconds=float(idle), ping_seconds=0.2))
worker = connect()
owner = liveness.new_owner(1, role, 0)
print(owner.lock, owner.boot, flush=True)
if role == "forks":
    idle = liveness.pause()
    if os.fork() == 0:
        liveness.abandon(idle=idle)
        abandon_connection(worker)
        print(os.getpid(), flush=True)
    else:
        liveness.resume()
sys.stdin.read()
"""


class Place:
    """A schema's name in a database, and what a test has made there."""

    def __init__(self, url, schema):
        self.url = url
        self.schema = schema
        self.worker = self.connect()
        self._made = contextlib.ExitStack()

    def close(self):
        self._made.close()
        self.worker.close()

    def connect(self, **settings):
        return psycopg.connect(self.url, autocommit=True, **settings)

    def reconnect(self):
        self.worker.close()
        self.worker = self.connect()

    def liveness(self, connect=None, patience=None):
        liveness = Watched(connect or self.connect, self.schema, patience)
        self._made.callback(liveness.close)
        return liveness

    def notify(self, queue_id):
        self.worker.execute("SELECT pg_notify(%s, '')", [channel(self.schema, queue_id)])

    def holder(self, owner):
        """Return the server's process that has the owner's lock."""
        found = self.worker.execute(
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock'"
            " AND (classid::bigint << 32) | objid::bigint = %s",
            [int(owner.lock)],
        ).fetchone()
        return found and found[0]

    def is_there(self, pid):
        return bool(self.worker.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone())

    def child(self, role="application", idle_seconds=60.0):
        """Start a process that attaches, and return it with its owner."""
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD, self.url, self.schema, str(idle_seconds), role],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._made.callback(end, process)
        lock, boot = process.stdout.readline().split()
        return process, an_owner(lock, boot)


class Watched(Liveness):
    """A `Liveness` that can be looked into."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.told = []
        wake = self._wakeups.wake_listeners
        self._wakeups.wake_listeners = lambda channel: (self.told.append(channel), wake(channel))

    def hold(self, lock):
        self._keys.add(lock)
        self._nudge()

    def is_awaited(self):
        return bool(self._changed._waiters)

    def is_running(self):
        return self._thread.is_alive()

    def mistake_for_ours(self, pid):
        self._ghosts = {(pid, started) for _, started in self._ghosts}


def an_owner(lock, boot=""):
    return Owner(id=1, space_id=1, process="", pid=1, host="", boot=boot, lock=lock, role="application", since_us=0)


def is_socket(descriptor):
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def end(process):
    """Kill a process, whose children end when they read that it is gone."""
    process.kill()
    process.communicate()


@pytest.fixture
def place(postgres_server, worker_database):
    """A schema's name in a database of our own."""
    with contextlib.closing(Place(plain(postgres_server.url(worker_database)), f"p_{next(_numbers)}")) as place:
        yield place


_numbers = itertools.count(1)


def plain(url):
    """Return the URL as libpq takes it."""
    return url.replace("postgresql+psycopg:", "postgresql:")


@contextlib.contextmanager
def asleep_on(wakeup):
    """Have a thread that waits for the wake-up, and see that it was woken."""
    woken = []
    waiter = threading.Thread(target=lambda: woken.append(wakeup.wait(DEADLINE)))
    waiter.start()
    try:
        yield
    finally:
        waiter.join()
    assert woken == [True]


def test_an_owner_is_alive_until_it_is_released(place):
    liveness, other = place.liveness(), place.liveness()
    owner = liveness.new_owner(7, "tmqforward", 123)
    assert (owner.space_id, owner.role, owner.since_us, owner.pid) == (7, "tmqforward", 123, os.getpid())
    assert owner.lock == str(key(place.schema, Kind.OWNER, owner.id))
    assert other.alive([owner], place.worker)
    assert other.is_same_boot(owner, place.worker)
    liveness.release_owner(owner)
    assert not other.alive([owner], place.worker)
    assert not liveness.alive([owner], place.worker)


def test_of_several_owners_those_that_live_are_told_apart_by_one_question(place):
    liveness, other = place.liveness(), place.liveness()
    owners = [liveness.new_owner(1, "application", 0) for _ in range(4)]
    gone = [owners[0], owners[2]]
    for owner in gone:
        liveness.release_owner(owner)
    foreign = an_owner("of-another-backend.lock")
    with place.worker.transaction():
        assert other.alive([*owners, foreign], place.worker) == [owners[1], owners[3]]
    assert liveness.alive([*owners, foreign], place.worker) == [owners[1], owners[3]]
    assert liveness.alive([], place.worker) == []


def test_asking_for_an_owner_in_a_transaction_does_not_keep_it_from_being_asked_for_in_another(place):
    liveness, other = place.liveness(), place.liveness()
    owner = liveness.new_owner(1, "application", 0)
    liveness.release_owner(owner)
    with contextlib.closing(place.connect()) as second, place.worker.transaction():
        assert not other.alive([owner], place.worker)
        assert not other.alive([owner], second)


def test_the_owner_of_a_killed_process_is_dead(place):
    liveness = place.liveness()
    process, owner = place.child()
    assert liveness.alive([owner], place.worker)
    end(process)
    eventually(lambda: not liveness.alive([owner], place.worker))


def test_a_stopped_process_is_given_up_when_the_server_ends_its_session_and_comes_back_by_itself(place):
    liveness = place.liveness()
    process, owner = place.child(idle_seconds=1.0)
    session = place.holder(owner)
    freeze(process.pid)
    eventually(lambda: not liveness.alive([owner], place.worker))
    assert not place.is_there(session)
    process.send_signal(signal.SIGCONT)
    eventually(lambda: liveness.alive([owner], place.worker))


def test_a_process_at_leisure_is_not_given_up(place):
    liveness = place.liveness(patience=Patience(idle_seconds=0.4, ping_seconds=0.05))
    owner = liveness.new_owner(1, "application", 0)
    session = place.holder(owner)
    asked = "SELECT query_start FROM pg_stat_activity WHERE pid = %s"
    begun = place.worker.execute(asked, [session]).fetchone()[0]
    # Past the time after which the server would have ended it.
    eventually(lambda: (place.worker.execute(asked, [session]).fetchone()[0] - begun).total_seconds() > 0.8)
    assert place.holder(owner) == session


def test_a_notification_wakes_each_waiter_of_the_queue_and_no_other(place):
    liveness = place.liveness()
    wakeups, others = [liveness.wakeup() for _ in range(100)], [liveness.wakeup() for _ in range(2)]
    for wakeup in wakeups:
        liveness.listen(wakeup.address, 1, 2)
    liveness.listen(others[0].address, 3)
    place.notify(2)
    assert all(wakeup.wait(DEADLINE) for wakeup in wakeups)
    assert not any(wakeup.wait(0) for wakeup in (*wakeups, *others))
    wakeups[0].close()
    liveness.unlisten(wakeups[1].address, 2)
    place.notify(2)
    assert all(wakeup.wait(DEADLINE) for wakeup in wakeups[2:])
    assert not any(wakeup.wait(0) for wakeup in (*wakeups[:2], *others))


def test_of_those_that_wait_in_turn_one_is_woken_and_the_next_when_it_leaves(place):
    liveness = place.liveness()
    first, second, third = wakeups = [liveness.wakeup(in_turn=True) for _ in range(3)]
    other, witness = liveness.wakeup(in_turn=True), liveness.wakeup()
    for wakeup in (*wakeups, witness):
        liveness.listen(wakeup.address, 1)
    liveness.listen(other.address, 2)

    def notify():
        place.notify(1)
        assert witness.wait(DEADLINE)

    notify()
    assert first.wait(DEADLINE)
    notify()
    # It has looked meanwhile, and is the first again.
    assert first.wait(DEADLINE)
    notify()
    notify()
    # Nobody knows yet whether it looks.
    assert second.wait(DEADLINE)
    assert first.wait(0)
    assert not third.wait(0)
    second.close()
    # What it was woken for may be left.
    assert first.wait(0)
    other.close()
    third.close()
    assert not first.wait(0)


def test_listening_is_in_effect_when_it_returns(place):
    liveness = place.liveness()
    for queue_id in range(50):
        wakeup = liveness.wakeup()
        liveness.listen(wakeup.address, queue_id)
        place.notify(queue_id)
        assert wakeup.wait(DEADLINE)
        wakeup.close()


def test_other_schemas_are_not_heard(place):
    liveness = place.liveness()
    wakeup = liveness.wakeup()
    liveness.listen(wakeup.address, 1)
    place.worker.execute("SELECT pg_notify(%s, '')", [channel(f"{place.schema}_2", 1)])
    place.worker.execute("SELECT pg_notify(%s, '')", [channel(place.schema, 2)])
    liveness.listen(wakeup.address, 3)
    assert not wakeup.wait(0)


def test_a_channel_is_left_a_while_after_its_last_wake_up_was_removed(place):
    hasty, patient = place.liveness(patience=Patience(linger_seconds=0.0)), place.liveness()
    for each, heard in ((hasty, [2]), (patient, [1, 2])):
        first, second = each.wakeup(), each.wakeup()
        each.listen(first.address, 1)
        each.listen(second.address, 1)
        first.close()
        place.notify(1)
        assert second.wait(DEADLINE)
        each.told.clear()
        second.close()
        last = each.wakeup()
        each.listen(last.address, 2)
        place.notify(1)
        place.notify(2)
        assert last.wait(DEADLINE)
        assert each.told == [channel(place.schema, queue_id) for queue_id in heard]


def test_listening_is_in_effect_also_where_the_channel_is_just_being_left(place):
    liveness = place.liveness(patience=Patience(linger_seconds=0.0))
    wakeup = liveness.wakeup()
    liveness.listen(wakeup.address, 1)
    wakeup.close()
    in_the_way = key(place.schema, Kind.VOLUME, 1)
    place.worker.execute("SELECT pg_advisory_lock(%s)", [in_the_way])
    liveness.hold(in_the_way)
    eventually(lambda: place.worker.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone())
    again = liveness.wakeup()

    def listen_and_notify():
        liveness.listen(again.address, 1)
        place.notify(1)

    listening = threading.Thread(target=listen_and_notify)
    listening.start()
    eventually(lambda: liveness.is_awaited() or not listening.is_alive())
    place.worker.execute("SELECT pg_advisory_unlock(%s)", [in_the_way])
    listening.join()
    assert again.wait(DEADLINE)


def test_a_wake_up_that_was_removed_listens_to_nothing(place):
    liveness = place.liveness()
    wakeup = liveness.wakeup()
    wakeup.close()
    liveness.listen(wakeup.address, 1)
    other = liveness.wakeup()
    liveness.listen(other.address, 2)
    place.notify(1)
    place.notify(2)
    assert other.wait(DEADLINE)
    assert not wakeup.wait(0)
    assert liveness.told == [channel(place.schema, 2)]


def test_waiters_of_ours_can_be_woken_by_address(place):
    liveness = place.liveness()
    wakeup, other = liveness.wakeup(), liveness.wakeup()
    liveness.wake([wakeup.address, "of-another-process.bell"])
    assert wakeup.wait(0)
    assert not other.wait(0)
    liveness.wake_own()
    liveness.wake_own()
    assert wakeup.wait(0)
    assert other.wait(0)
    assert not wakeup.wait(0)


def test_a_signal_handler_wakes_whoever_waits(place):
    liveness = place.liveness()
    liveness.new_owner(1, "application", 0)
    wakeup = liveness.wakeup()
    before = signal.signal(signal.SIGUSR1, lambda *_: liveness.wake_own())
    try:
        tells = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
        tells.start()
        assert wakeup.wait(DEADLINE)
        tells.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_closing_wakes_all_and_refuses_what_comes_after(place):
    liveness, other = place.liveness(), place.liveness()
    owner = liveness.new_owner(1, "application", 0)
    with asleep_on(liveness.wakeup()):
        liveness.close()
    # The server lets go of the key when it notices the end of the session.
    eventually(lambda: not other.alive([owner], place.worker), "the owner is not known any more")
    assert liveness.wakeup().wait(0)
    with pytest.raises(NotOpenError, match="closed"):
        liveness.new_owner(1, "application", 0)
    with pytest.raises(NotOpenError):
        liveness.listen(liveness.wakeup().address, 1)
    liveness.release_owner(owner)
    liveness.close()


def test_closing_does_not_wait_for_an_attempt_to_connect(place):
    begun, go_on = threading.Event(), threading.Event()

    def connect():
        begun.set()
        assert go_on.wait(DEADLINE)
        return place.connect()

    liveness = place.liveness(connect)
    wakeup = liveness.wakeup()
    refused = []

    def attach():
        with pytest.raises(NotOpenError) as caught:
            liveness.new_owner(1, "application", 0)
        refused.append(caught.value)

    attaching = threading.Thread(target=attach)
    attaching.start()
    assert begun.wait(DEADLINE)
    with asleep_on(wakeup):
        liveness.close()
    attaching.join()
    assert refused
    assert liveness.is_running()
    go_on.set()
    eventually(lambda: not liveness.is_running())


def test_without_a_server_attaching_is_refused_and_the_reason_given(place):
    def no_route():
        raise psycopg.OperationalError("no route")

    full = NoSpaceError("the server", Resource.PROCESSES, used=1, limit=1)

    def no_room():
        raise full

    quick = Patience(answer_seconds=0.3)
    with pytest.raises(SystemFailureError, match=r"did not answer within 0\.3 seconds") as caught:
        place.liveness(no_route, quick).new_owner(1, "application", 0)
    assert str(caught.value.__cause__) == "no route"
    liveness = place.liveness(no_room, quick)
    wakeup = liveness.wakeup()
    with pytest.raises(NoSpaceError) as caught:
        liveness.listen(wakeup.address, 1)
    assert caught.value is full


@pytest.fixture
def proxy(place):
    with contextlib.closing(Proxy((place.worker.info.host, place.worker.info.port))) as proxy:
        yield proxy


@pytest.fixture
def far(place, proxy):
    """A `Liveness` behind the proxy."""
    return place.liveness(lambda: place.connect(host="127.0.0.1", port=proxy.port), HASTY)


@pytest.mark.parametrize("cut", [Proxy.reset, Proxy.swallow])
def test_a_cut_connection_is_made_again_with_all_that_it_had(place, proxy, far, cut, caplog):
    caplog.set_level(logging.INFO, "qmadmin.storage")
    owners = [far.new_owner(1, "application", 0) for _ in range(2)]
    wakeup = far.wakeup()
    far.listen(wakeup.address, 1)
    session = place.holder(owners[0])
    cut(proxy)
    assert wakeup.wait(DEADLINE)
    assert place.holder(owners[0]) == place.holder(owners[1]) not in {session, None}
    assert not place.is_there(session)
    place.notify(1)
    assert wakeup.wait(DEADLINE)
    far.release_owner(owners[0])
    assert far.alive(owners, place.worker) == owners[1:]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert place.worker.info.password not in caplog.text


def test_while_it_has_no_session_our_own_owner_is_alive_to_us_and_nobody_is_kept_waiting_for_long(place, proxy, far):
    owner = far.new_owner(1, "application", 0)
    session = place.holder(owner)
    proxy.refuse()
    eventually(lambda: not place.is_there(session))
    assert far.alive([owner], place.worker)
    assert not place.liveness().alive([owner], place.worker)
    with pytest.raises(SystemFailureError, match="did not answer"):
        far.listen(far.wakeup().address, 1)
    far.release_owner(owner)
    assert not far.alive([owner], place.worker)


def test_a_session_that_got_the_number_of_our_lost_one_is_not_ended(place, proxy, far):
    far.new_owner(1, "application", 0)
    wakeup = far.wakeup()
    with contextlib.closing(place.connect()) as stranger:
        far.mistake_for_ours(stranger.info.backend_pid)
        proxy.reset()
        assert wakeup.wait(DEADLINE)
        assert stranger.execute("SELECT 1").fetchone() == (1,)


def test_a_restart_of_the_server_is_survived_and_told_from_the_death_of_a_process(own_cluster):
    with contextlib.closing(Place(plain(own_cluster.url()), "p")) as place:
        liveness = place.liveness()
        owner = liveness.new_owner(1, "application", 0)
        wakeup = liveness.wakeup()
        liveness.listen(wakeup.address, 1)
        own_cluster.stop("immediate")
        own_cluster.start()
        assert wakeup.wait(DEADLINE)
        place.reconnect()
        assert place.holder(owner)
        assert not liveness.is_same_boot(owner, place.worker)
        assert liveness.is_same_boot(liveness.new_owner(1, "application", 0), place.worker)
        place.notify(1)
        assert wakeup.wait(DEADLINE)


def test_a_standby_that_was_promoted_gets_all_that_the_lost_server_had(own_cluster):
    standby = own_cluster.standby()
    ports = {"host": "127.0.0.1,127.0.0.1", "port": f"{own_cluster.port},{standby.port}"}
    with contextlib.closing(Place(plain(own_cluster.url()), "p")) as place:
        liveness = place.liveness(lambda: place.connect(**ports))
        owner = liveness.new_owner(1, "application", 0)
        wakeup = liveness.wakeup()
        liveness.listen(wakeup.address, 1)
        own_cluster.kill()
        standby.promote()
        assert wakeup.wait(DEADLINE)
        place.url = plain(standby.url())
        place.reconnect()
        assert place.holder(owner)
        assert not liveness.is_same_boot(owner, place.worker)
        place.notify(1)
        assert wakeup.wait(DEADLINE)


def test_an_ordinary_role_on_a_local_socket_has_all_the_rights_that_are_needed(own_cluster):
    own_cluster.sql("CREATE ROLE plain LOGIN PASSWORD 'plain'")
    with contextlib.closing(Place(plain(own_cluster.url(user="plain", password="plain")), "p")) as place:
        liveness = place.liveness(lambda: place.connect(host=str(own_cluster.socket_dir)))
        owner = liveness.new_owner(1, "application", 0)
        wakeup = liveness.wakeup()
        liveness.listen(wakeup.address, 1)
        session = place.holder(owner)
        liveness.mistake_for_ours(place.worker.info.backend_pid)
        place.worker.execute("SELECT pg_terminate_backend(%s)", [session])
        assert wakeup.wait(DEADLINE)
        assert place.holder(owner) not in {session, None}
        assert liveness.is_same_boot(owner, place.worker)


def test_forks_while_the_session_is_busy_do_it_no_harm(place):
    liveness = place.liveness(patience=Patience(linger_seconds=0.0))
    owner = liveness.new_owner(1, "application", 0)
    session = place.holder(owner)
    over = threading.Event()

    def come_and_go():
        for queue_id in itertools.count():
            wakeup = liveness.wakeup()
            liveness.listen(wakeup.address, queue_id)
            wakeup.close()
            if over.is_set():
                return

    busy = threading.Thread(target=come_and_go)
    busy.start()
    try:
        for _ in range(20):
            idle = liveness.pause()
            child = os.fork()
            if child == 0:
                liveness.abandon(idle=idle)
                os._exit(0 if idle else 1)
            liveness.resume()
            assert os.waitpid(child, 0)[1] == 0
    finally:
        over.set()
        busy.join()
    assert place.holder(owner) == session


def test_a_forked_child_leaves_the_sessions_of_its_parent_alone(place):
    liveness = place.liveness()
    owner = liveness.new_owner(1, "application", 0)
    wakeup = liveness.wakeup()
    liveness.listen(wakeup.address, 1)
    session = place.holder(owner)
    idle = liveness.pause()
    child = os.fork()
    if child == 0:
        failed = 1
        try:
            liveness.abandon(idle=idle)
            abandon_connection(place.worker)
            assert place.worker.closed
            with pytest.raises(NotOpenError, match="fork"):
                liveness.new_owner(1, "application", 0)
            liveness.close()
            wakeup.close()
            own = Liveness(place.connect, place.schema)
            assert own.alive([owner], place.connect())
            own.new_owner(1, "application", 0)
            own.close()
            failed = 0
        finally:
            os._exit(failed)
    liveness.resume()
    assert os.waitpid(child, 0)[1] == 0
    assert place.holder(owner) == session
    place.notify(1)
    assert wakeup.wait(DEADLINE)
    assert liveness.new_owner(1, "application", 0)


def test_a_connection_that_is_at_work_at_a_fork_goes_on_in_the_parent_alone(place):
    lock = key(place.schema, Kind.VOLUME, 1)
    place.worker.execute("SELECT pg_advisory_lock(%s)", [lock])
    found = []
    with contextlib.closing(place.connect()) as busy:
        ask = "SELECT 7 FROM pg_advisory_lock(%s)"
        asking = threading.Thread(target=lambda: found.extend(busy.execute(ask, [lock]).fetchone()))
        asking.start()
        eventually(lambda: place.worker.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone())
        child = os.fork()
        if child == 0:
            failed = 1
            try:
                descriptors = [busy.fileno(), place.worker.fileno()]
                assert all(map(is_socket, descriptors))
                abandon_connection(busy)
                abandon_connection(place.worker)
                failed = int(any(map(is_socket, descriptors)))
            finally:
                os._exit(failed)
        assert os.waitpid(child, 0)[1] == 0
        place.worker.execute("SELECT pg_advisory_unlock(%s)", [lock])
        asking.join()
    assert found == [7]


def test_the_child_of_a_killed_process_does_not_keep_its_owner_alive(place):
    liveness = place.liveness()
    process, owner = place.child("forks")
    child = int(process.stdout.readline())
    assert liveness.alive([owner], place.worker)
    process.kill()
    process.wait()
    eventually(lambda: not liveness.alive([owner], place.worker))
    assert is_running(child)


def test_a_connection_that_was_under_way_at_a_fork_is_not_used(place):
    begun, go_on = threading.Event(), threading.Event()
    made = []

    def connect():
        made.append(place.connect())
        begun.set()
        assert go_on.wait(DEADLINE)
        return made[-1]

    liveness = place.liveness(connect)
    attaching = threading.Thread(target=liveness.new_owner, args=(1, "application", 0))
    attaching.start()
    assert begun.wait(DEADLINE)
    assert liveness.pause()
    liveness.resume()
    go_on.set()
    attaching.join()
    assert [each.closed for each in made] == [True, False]
