"""Somebody sets the clock of a PostgreSQL server while transactions with a timeout are open."""

import pytest

from qmadmin import create_device, open_device
from qmadmin.device import Device
from qmadmin.space import QueueSpace
from qmcore.errors import AbortedError
from qmstorage.postgres import liveness_queries
from tests.cluster import Cluster
from tests.fix_postgres import or_do_without
from tests.fix_store import eventually, make_queue, space_definition

HOUR = 3600

REPLACED = """
CREATE TABLE public.clock AS SELECT interval '0' AS ahead;
SET allow_system_table_mods = on;
ALTER FUNCTION pg_catalog.clock_timestamp() RENAME TO clock_timestamp_of_the_machine;
CREATE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
'SELECT pg_catalog.clock_timestamp_of_the_machine() + ahead FROM public.clock';
"""
"""The server's clock is the machine's, which tests leave alone. So in this database it says what a table says."""


class SettableServer:
    """A device on a server whose clock tests set. It has the queues `Q`, with a message "x", `R`, and `S`."""

    def __init__(self, cluster: Cluster, database: str) -> None:
        self._cluster = cluster
        self._database = database
        cluster.sql(f"CREATE DATABASE {database} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'")
        with cluster.connect(database) as connection:
            connection.execute(REPLACED)
        self.url = cluster.url(database)
        self._devices: dict[QueueSpace, Device] = {}
        with create_device(self.url, 5_000) as device:
            device.create_space(space_definition())
            with device.open_space("SPACE") as space:
                for name in "QRS":
                    make_queue(space, name, retries=3)
                space.enqueue("Q", "x")

    def set_clock(self, seconds, *noticed_by):
        """Set the clock so far ahead of where it is, and let processes ask for the time."""
        with self._cluster.connect(self._database) as connection:
            connection.execute(f"UPDATE public.clock SET ahead = ahead + interval '{seconds} seconds'")
            for space in noticed_by:
                self._devices[space].clock.learn(liveness_queries.reading(connection))

    def process(self):
        """Open the device as another process does, and return the queue space."""
        device = open_device(self.url)
        space = device.open_space("SPACE")
        self._devices[space] = device
        return space

    def close(self):
        for device in self._devices.values():
            device.close()
        self._cluster.sql(f"DROP DATABASE {self._database} WITH (FORCE)")


@pytest.fixture(scope="module")
def cluster(postgres_server):
    """A server on which the tests may do whatever they like in databases of their own."""
    if isinstance(postgres_server, Cluster):
        yield postgres_server
        return
    with or_do_without():
        made = Cluster.of_its_own()
    yield made
    made.close()


@pytest.fixture
def server(cluster, worker_database, schema_numbers):
    made = SettableServer(cluster, f"{worker_database}_{next(schema_numbers)}")
    yield made
    made.close()


STEPS = pytest.mark.parametrize("seconds", [HOUR, -HOUR], ids=["forward", "back"])
NOTICED = pytest.mark.parametrize("knows", [True, False], ids=["noticed", "not-noticed-yet"])


class TestAProcessThatWasConnectedBefore:
    @STEPS
    @NOTICED
    def test_leaves_a_transaction_alone_that_has_time(self, server, seconds, knows):
        owner, other = server.process(), server.process()
        with owner.transaction(timeout=600):
            assert owner.dequeue("Q").text == "x"
            server.set_clock(seconds, *[other] * knows)
            assert other.dequeue("Q") is None
        assert other.usage("Q").messages == 0

    @STEPS
    @NOTICED
    def test_leaves_one_alone_that_was_begun_after_the_step_by_who_knows_of_it(self, server, seconds, knows):
        other = server.process()
        server.set_clock(seconds, *[other] * knows)
        owner = server.process()
        with owner.transaction(timeout=600):
            assert owner.dequeue("Q").text == "x"
            assert other.dequeue("Q") is None
        assert other.usage("Q").messages == 0

    @STEPS
    def test_leaves_one_alone_that_was_begun_after_the_step_by_who_does_not_know_of_it_yet(self, server, seconds):
        owner, other = server.process(), server.process()
        server.set_clock(seconds, other)
        with owner.transaction(timeout=600):
            assert owner.dequeue("Q").text == "x"
            assert other.dequeue("Q") is None
        assert other.usage("Q").messages == 0

    @STEPS
    @NOTICED
    def test_ends_one_whose_time_is_over(self, server, seconds, knows):
        owner, other = server.process(), server.process()
        with pytest.raises(AbortedError), owner.transaction(timeout=0.3):
            assert owner.dequeue("Q").text == "x"
            server.set_clock(seconds, *[other] * knows)
            eventually(lambda: other.dequeue("Q") is not None, "the transaction is rolled back")

    @STEPS
    def test_leaves_one_alone_that_takes_its_first_message_after_the_step(self, server, seconds):
        owner, other = server.process(), server.process()
        with owner.transaction(timeout=600):
            server.set_clock(seconds, owner, other)
            assert owner.dequeue("Q").text == "x"
            assert other.dequeue("Q") is None
        assert other.usage("Q").messages == 0

    @STEPS
    def test_ends_one_that_took_its_first_message_after_the_step_when_its_time_is_over(self, server, seconds):
        owner, other = server.process(), server.process()
        with pytest.raises(AbortedError), owner.transaction(timeout=1):
            server.set_clock(seconds, owner, other)
            assert owner.dequeue("Q").text == "x"
            eventually(lambda: other.dequeue("Q") is not None, "the transaction is rolled back")

    @STEPS
    def test_ends_one_that_was_begun_after_the_step_when_its_time_is_over(self, server, seconds):
        other = server.process()
        server.set_clock(seconds, other)
        owner = server.process()
        with pytest.raises(AbortedError), owner.transaction(timeout=0.3):
            assert owner.dequeue("Q").text == "x"
            eventually(lambda: other.dequeue("Q") is not None, "the transaction is rolled back")

    def test_knows_of_each_of_several_steps(self, server):
        owner, other = server.process(), server.process()
        with owner.transaction(timeout=600):
            assert owner.dequeue("Q").text == "x"
            for seconds in (HOUR, -2 * HOUR, HOUR, 5 * HOUR):
                server.set_clock(seconds, other)
                assert other.dequeue("Q") is None
        assert other.usage("Q").messages == 0


class TestAProcessThatConnectsLater:
    """What was open when the clock was set has its times moved by its own process, for those who know of nothing."""

    def moved(self, server, owner, seconds, queue="Q"):
        """Set the clock, and return when the process of the transaction has moved its times."""
        (before,) = owner.transactions()
        server.set_clock(seconds, owner)
        # What is to hear of a queue sees to it; it would come to that by itself within ten seconds.
        assert owner.dequeue(queue, wait=0.01) is None
        eventually(lambda: owner.transactions()[0].deadline != before.deadline, "the times are moved")
        (after,) = owner.transactions()
        assert (after.deadline - before.deadline).total_seconds() == pytest.approx(seconds, abs=60)
        assert after.since - before.since == after.deadline - before.deadline

    @STEPS
    def test_leaves_a_transaction_alone_that_has_time(self, server, seconds):
        owner, other = server.process(), server.process()
        with owner.transaction(timeout=600):
            assert owner.dequeue("Q").text == "x"
            self.moved(server, owner, seconds)
            assert server.process().dequeue("Q") is None
            assert other.dequeue("Q") is None
        assert other.usage("Q").messages == 0

    @STEPS
    def test_ends_one_whose_time_is_over(self, server, seconds):
        owner = server.process()
        with pytest.raises(AbortedError), owner.transaction(timeout=3):
            assert owner.dequeue("Q").text == "x"
            self.moved(server, owner, seconds)
            other = server.process()
            eventually(lambda: other.dequeue("Q") is not None, "the transaction is rolled back")

    @STEPS
    def test_finds_the_times_moved_by_each_of_several_steps_and_by_none_twice(self, server, seconds):
        owner = server.process()
        with owner.transaction(timeout=600):
            assert owner.dequeue("Q").text == "x"
            for queue, each in ("Q", seconds), ("R", -2 * seconds), ("S", 3 * seconds):
                self.moved(server, owner, each, queue)
                assert server.process().dequeue("Q") is None
        assert owner.usage("Q").messages == 0

    @STEPS
    def test_finds_the_times_as_they_were_of_one_that_was_begun_after_the_step(self, server, seconds):
        owner = server.process()
        server.set_clock(seconds, owner)
        with owner.transaction(timeout=600):
            assert owner.dequeue("Q").text == "x"
            (before,) = owner.transactions()
            assert owner.dequeue("Q", wait=0.01) is None
            assert server.process().dequeue("Q") is None
            assert owner.transactions() == [before]
