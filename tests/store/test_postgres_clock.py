"""On PostgreSQL all go by the server's clock, whatever that of their own machine says."""

import contextlib
import time

import pytest

from qmadmin import create_device, open_device
from qmcore.times import MICROS, SystemClock
from qmstorage.postgres.clock import Reading, ServerClock, elapsed
from qmstorage.postgres.liveness import Patience, Presence
from tests.fix_store import eventually, make_queue, space_definition

HOUR = 3600


@pytest.fixture
def wrong(monkeypatch):
    """Let the clock of this machine be an hour ahead."""
    right = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right() + HOUR * 10**9)


def seconds_between(clock, other):
    return abs(clock.now() - other.now()) / MICROS


def test_a_client_whose_clock_is_an_hour_ahead_expires_nothing_of_others(database_url, request):
    with create_device(database_url, 5_000) as device:
        device.create_space(space_definition())
        with device.open_space("SPACE") as space:
            make_queue(space)
            space.enqueue("Q", "worth something for ten minutes", expires_in=600)
            request.getfixturevalue("wrong")
            with open_device(database_url) as ahead, ahead.open_space("SPACE") as its:
                assert its.dequeue("Q", corrid="none") is None
                its.enqueue("Q", "in ten minutes", delay=600)
            usage = space.usage("Q")
            assert (usage.ready, usage.delayed, usage.expired) == (1, 1, 0)
            (delayed,) = [each for each in space.messages("Q") if each.available_us is not None]
            assert 0 <= delayed.available_us - device.clock.now() <= 600 * MICROS


def test_what_a_device_says_of_its_age_is_the_servers_time_too(database_url, wrong):
    with create_device(database_url, 5_000) as device:
        assert seconds_between(device.clock, SystemClock()) > HOUR / 2
        assert device.info.created_at <= device.clock.now()


def test_a_sign_of_life_sets_the_clock(database_url):
    from qmstorage.postgres import connection_timeouts
    from qmstorage.postgres.address import Address

    clock = ServerClock()
    clock.learn(Reading(0, 0, 0))
    address = Address.parse(database_url)
    patience = Patience(ping_seconds=0.01)
    presence = Presence(lambda: connection_timeouts.connected(address), "nowhere", patience, clock=clock)
    with contextlib.closing(presence):
        presence.listen(presence.bell().address, 1)
        eventually(lambda: seconds_between(clock, SystemClock()) < HOUR, "the clock is set")


def test_a_session_that_has_asked_for_other_things_asks_for_the_time_when_nobody_has_for_long(database_url):
    from qmstorage.postgres import connection_timeouts
    from qmstorage.postgres.address import Address

    clock, long_ago = ServerClock(), -10 * HOUR * MICROS
    clock.learn(Reading(long_ago, long_ago, long_ago))
    address = Address.parse(database_url)
    patience = Patience(ping_seconds=HOUR)
    presence = Presence(lambda: connection_timeouts.connected(address), "nowhere", patience, clock=clock)
    with contextlib.closing(presence):
        presence.listen(presence.bell().address, 1)
        eventually(lambda: seconds_between(clock, SystemClock()) < HOUR, "the clock is set")


class TestReadings:
    def test_the_first_one_is_taken_at_its_middle(self):
        clock = ServerClock()
        assert not clock.is_set
        begun = elapsed()
        clock.learn(Reading(begun, begun + HOUR * MICROS, begun + 10))
        assert clock.is_set
        assert clock.now() - elapsed() - HOUR * MICROS in range(-1_000_000, 0)

    def test_one_that_took_long_moves_nothing_that_it_allows(self):
        clock = ServerClock()
        clock.learn(Reading(1000, 1000, 1000))
        clock.learn(Reading(2000, 2500, 9000))
        assert abs(clock.now() - elapsed()) < MICROS

    def test_a_step_of_the_servers_clock_is_followed(self):
        clock = ServerClock()
        clock.learn(Reading(1000, 1000, 1000))
        clock.learn(Reading(2000, 2000 + HOUR * MICROS, 2000))
        assert abs(clock.now() - elapsed() - HOUR * MICROS) < MICROS

    def test_no_step_of_the_machines_clock_moves_it(self, request):
        clock = ServerClock()
        clock.learn(Reading(elapsed(), SystemClock().now(), elapsed()))
        before = clock.now()
        request.getfixturevalue("wrong")
        assert clock.now() - before < HOUR * MICROS // 2
        assert clock.steady() - before < HOUR * MICROS // 2
