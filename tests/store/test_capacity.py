"""Capacity limits of queues: the command runs once at the high limit, and again only after the low one was reached."""

import dataclasses
import os
import sys
from pathlib import Path

import pytest

from qmadmin import capacity
from qmadmin.opening import open_device
from qmcore import numbers
from qmcore.acts.purging import CarriedMessage, remove_carried
from qmcore.limits import MEMORY_UNITS, Threshold, parse_high, parse_low
from qmcore.message import State
from qmcore.purpose import Purpose
from qmcore.queue import Delivery, QueueDefinition
from tests.fix_store import Work, attachment_of, drain, make_queue, name_for_commands

PAGE = 4096


def limits(high, low="0", command="notify", units=None):
    upper = parse_high(high, units) if units else parse_high(high)
    return Threshold(upper, parse_low(low, upper), command)


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(memory_dir, trusted):
    pass


@pytest.fixture
def started(monkeypatch):
    """The events whose commands would have been started: the programs themselves are tested elsewhere."""
    events = []
    monkeypatch.setattr(capacity, "start", events.append)
    return events


@pytest.fixture
def space(store):
    # 21 pages are overhead.
    return store.space(pages=1_021 + 3, memory=100 * PAGE, error_queue="ERRORS", queues=20)


def limited(space, high, low="0", name="Q", **changes):
    return make_queue(space, name, threshold=limits(high, low), **changes)


def fill(space, count, queue="Q", body=b"x", **how):
    for _ in range(count):
        space.enqueue(queue, body, **how)


class TestLevels:
    # One page is one message; 4 pages of 1,003 are 0 %.
    @pytest.mark.parametrize(
        ("high", "low", "body", "before", "value", "down_to"),
        [
            ("5m", "2m", b"x", 4, 5, 2),
            ("50b", "20b", b"0123456789", 4, 50, 2),
            ("10B", "4B", bytes(PAGE), 4, 10, 2),
            ("1%", "0%", bytes(PAGE), 5, 1, 0),
        ],
    )
    def test_once_at_high_and_again_only_after_low(self, space, started, high, low, body, before, value, down_to):
        limited(space, high, low)
        fill(space, before, body=body)
        assert started == []
        fill(space, 1, body=body)
        assert [(event.level, event.value, event.delivery) for event in started] == [(high, value, "persist")]
        fill(space, 3, body=body)
        while space.usage("Q").messages > down_to + 1:
            space.dequeue("Q")
        fill(space, 10, body=body)
        assert len(started) == 1, "above low it is not armed again"
        while space.usage("Q").messages > down_to:
            space.dequeue("Q")
        fill(space, before - down_to, body=body)
        assert len(started) == 1
        fill(space, 1, body=body)
        assert len(started) == 2

    @pytest.mark.parametrize(
        ("high", "low", "body", "before", "value", "down_to"),
        [
            ("50b", "20b", b"0123456789", 4, 50, 2),
            ("5B", "2B", b"x", 4, 5, 2),
            ("5%", "2%", b"x", 4, 5, 2),
        ],
    )
    def test_in_memory_too(self, space, started, high, low, body, before, value, down_to):
        make_queue(space, "Q", memory_threshold=limits(high, low, units=MEMORY_UNITS), delivery=Delivery.NONPERSIST)
        fill(space, before, body=body)
        fill(space, 20, body=body, persistent=True)
        assert started == []
        fill(space, 1, body=body)
        assert [(event.level, event.value, event.delivery) for event in started] == [(high, value, "nonpersist")]
        while space.usage("Q").nonpersistent > down_to:
            space.dequeue("Q")
        fill(space, before - down_to, body=body)
        assert len(started) == 1
        fill(space, 1, body=body)
        assert len(started) == 2

    def test_a_number_of_messages_counts_both(self, space, started):
        limited(space, "4m")
        fill(space, 2)
        fill(space, 1, persistent=False)
        assert started == []
        fill(space, 1, persistent=False)
        assert [event.value for event in started] == [4]

    def test_the_two_limits_of_a_queue_are_apart(self, space, started):
        make_queue(
            space,
            "Q",
            threshold=limits("3B", command="disk"),
            memory_threshold=limits("3B", command="memory", units=MEMORY_UNITS),
        )
        fill(space, 3, persistent=False)
        assert [event.command for event in started] == ["memory"]
        fill(space, 3)
        assert [event.command for event in started] == ["memory", "disk"]

    def test_the_limits_of_other_queues_are_their_own(self, space, started):
        limited(space, "3m")
        limited(space, "3m", name="OTHER")
        fill(space, 2)
        fill(space, 2, "OTHER")
        assert started == []
        fill(space, 1, "OTHER")
        assert [event.queue for event in started] == ["OTHER"]

    def test_without_a_command_nothing_runs(self, space, started):
        make_queue(space, "Q", threshold=limits("2m", command=""))
        fill(space, 5)
        assert started == []

    def test_the_command_gets_to_know_what_happened(self, space, started, store):
        limited(space, "2m")
        fill(space, 2)
        (event,) = started
        assert event == capacity.CapacityEvent(
            device=store.path,
            space="SPACE",
            queue="Q",
            command="notify",
            level="2m",
            value=2,
            delivery="persist",
        )


class TestWays:
    def test_many_at_once_cross_it_once(self, space, started):
        limited(space, "3m")
        space.enqueue_many("Q", [b"x"] * 10)
        assert [event.value for event in started] == [10]

    def test_a_transaction_crosses_it_when_it_commits(self, space, started):
        limited(space, "3m")
        with space.transaction():
            fill(space, 5)
            assert started == []
        assert [event.value for event in started] == [5]

    def test_a_rollback_does_not(self, space, started):
        limited(space, "3m")
        with space.transaction() as transaction:
            fill(space, 5)
            transaction.rollback()
        assert started == []

    def test_a_transaction_that_consumes_as_much_as_it_brings_does_not(self, space, started):
        limited(space, "3m")
        fill(space, 2)
        with space.transaction():
            space.dequeue("Q")
            fill(space, 1)
        assert started == []

    def test_a_transaction_that_spills_crosses_it_when_it_commits(self, store, started):
        opened = store.space("LARGE", pages=19_000)
        limited(opened, "3m")
        with opened.transaction():
            fill(opened, 12, body=bytes(1_000_000))
            assert started == []
        assert [event.value for event in started] == [12]

    @pytest.mark.parametrize("persistent", [True, False])
    def test_the_way_to_the_error_queue_does(self, space, started, persistent):
        make_queue(space, "Q")
        limited(space, "2m", name="ERRORS")
        fill(space, 2, persistent=persistent)
        with space.transaction() as transaction:
            drain(space)
            transaction.rollback()
        assert [(event.queue, event.value) for event in started] == [("ERRORS", 2)]

    def test_messages_that_have_expired_when_they_come_do_not_count(self, space, started, clock):
        limited(space, "3m")
        fill(space, 2)
        fill(space, 5, expires_at=clock.moment(-1))
        assert started == []
        fill(space, 1)
        assert [event.value for event in started] == [3]

    def test_many_threads_that_cross_it_together_run_it_once(self, space, started):
        limited(space, "10m")
        Work(*[lambda: fill(space, 5)] * 8).results()
        assert len(started) == 1


class TestArmedAgain:
    """By all ways that messages go."""

    def crossed(self, space, started, **how):
        limited(space, "3m", "1m")
        fill(space, 3, **how)
        assert len(started) == 1

    def crosses_again(self, space, started):
        fill(space, 3)
        assert len(started) == 2

    def test_by_a_purge(self, space, started):
        self.crossed(space, started)
        space.purge("Q")
        self.crosses_again(space, started)

    def test_by_the_removal_of_what_was_carried_away(self, space, started):
        self.crossed(space, started)
        attached = attachment_of(space)
        messages = [CarriedMessage(number, key, 0) for number, key in self.keys(attached)]
        assert (
            attached.volume.write(lambda unit: remove_carried(unit, attached.opened, "Q", messages), Purpose.MESSAGES)
            == 3
        )
        self.crosses_again(space, started)

    def keys(self, attached):
        def found(unit):
            queue = attached.opened.definitions(unit).queue("Q")
            return unit.listing.cursors(attached.opened.space, queue, State.READY, None, 10)

        return [(numbers.sequence(number), key) for key, number in attached.volume.read(found)]

    def test_by_expiry(self, space, started, clock):
        self.crossed(space, started, expires_in=5)
        clock.advance(6)
        assert space.dequeue("Q") is None
        self.crosses_again(space, started)

    def test_by_expiry_that_nobody_has_looked_at(self, space, started, clock):
        self.crossed(space, started, expires_in=5)
        clock.advance(6)
        self.crosses_again(space, started)

    def test_by_many_dequeues_at_once(self, space, started):
        self.crossed(space, started)
        space.dequeue_many("Q", 3)
        self.crosses_again(space, started)

    def test_by_the_commit_of_a_consumer_and_not_before(self, space, started):
        self.crossed(space, started)
        with space.transaction():
            drain(space)
            fill(space, 3, transactional=False)
            assert len(started) == 1
        drain(space)
        self.crosses_again(space, started)

    def test_by_the_way_to_the_error_queue(self, space, started):
        make_queue(space, "ERRORS")
        self.crossed(space, started)
        with space.transaction() as transaction:
            drain(space)
            transaction.rollback()
        self.crosses_again(space, started)

    def test_by_ipcrm(self, space, started, store):
        make_queue(space, "Q", memory_threshold=limits("3B", "1B", units=MEMORY_UNITS), threshold=limits("3m", "1m"))
        for times in (1, 2):
            fill(space, 3, persistent=False)
            assert [event.delivery for event in started].count("nonpersist") == times
            assert [event.delivery for event in started].count("persist") == times
            store.device.clear_memory("SPACE", force=True)

    def test_by_destroying_the_queue(self, space, started):
        self.crossed(space, started)
        space.destroy_queue("Q", purge=True)
        limited(space, "3m", "1m")
        self.crosses_again(space, started)

    def test_by_new_limits_and_not_by_another_change(self, space, started):
        self.crossed(space, started)
        old = space.queue("Q").definition
        space.change_queue(dataclasses.replace(old, retries=7))
        fill(space, 1)
        assert len(started) == 1
        space.change_queue(dataclasses.replace(old, threshold=limits("5m", "1m")))
        fill(space, 1)
        assert [event.level for event in started] == ["3m", "5m"]

    def test_where_the_queue_was_emptied_before_the_command_was_started(self, space, monkeypatch):
        """Whoever is to start the command is slower than the consumers."""
        events = []

        def start(event):
            events.append(event)
            drain(space)

        monkeypatch.setattr(capacity, "start", start)
        limited(space, "3m", "1m")
        for times in (1, 2, 3):
            fill(space, 3)
            assert len(events) == times


class TestSwitchedOff:
    def test_nothing_runs_and_it_is_logged(self, space, store, started, caplog):
        assert store.device.runs_commands()
        store.device.set_commands(enabled=False)
        assert not store.device.runs_commands()
        limited(space, "3m")
        fill(space, 5)
        assert started == []
        assert "queue 'Q' of queue space 'SPACE' has reached 3m (3), and its command is switched off" in caplog.text

    def test_switched_on_again_it_runs_when_the_limit_is_reached_again(self, space, store, started):
        store.device.set_commands(enabled=False)
        limited(space, "3m")
        fill(space, 3)
        store.device.set_commands(enabled=True)
        fill(space, 3)
        assert started == []
        drain(space)
        fill(space, 3)
        assert len(started) == 1


class TestDevicesThatOthersCanWrite:
    """What stands in them may be anybody's, and does not run as whoever enqueues."""

    @pytest.fixture(autouse=True)
    def _nothing_is_named(self, monkeypatch):
        monkeypatch.setenv("QMADMIN_TOML", os.devnull)

    @pytest.fixture
    def shared(self, store, space):
        """The queue space on a device that others can write; a file is made so."""
        if store.kind == "memory":
            pytest.skip("a device in memory belongs to one process")
        if store.kind == "file":
            Path(store.path).chmod(0o660)
        return space

    def test_nothing_runs_by_itself_and_it_is_logged(self, shared, started, caplog):
        limited(shared, "3m")
        caplog.clear()
        fill(shared, 5)
        assert started == []
        (line,) = [record.message for record in caplog.records if record.name == "qmadmin.capacity"]
        assert "its command 'notify' is not run, as it may be another user's" in line
        assert "in [capacity] of your settings, qmadmin.toml(5)" in line

    @pytest.mark.parametrize("threshold", ["threshold", "memory_threshold"])
    def test_setting_a_command_is_warned_about_in_the_log(self, shared, caplog, threshold):
        units = {"units": MEMORY_UNITS} if threshold == "memory_threshold" else {}
        created = shared.create_queue(QueueDefinition(name="Q", **{threshold: limits("3B", **units)}))
        assert self.warnings(caplog) == ["queue 'Q' of queue space 'SPACE': its command 'notify' is not run"]
        shared.change_queue(dataclasses.replace(created.definition, **{threshold: limits("3B", "0", "mail", **units)}))
        assert self.warnings(caplog)[1:] == ["queue 'Q' of queue space 'SPACE': its command 'mail' is not run"]

    @staticmethod
    def warnings(caplog):
        return [record.message.partition(",")[0] for record in caplog.records if record.name == "qmadmin.capacity"]

    def test_nothing_is_warned_about_where_it_will_run(self, shared, trusted, monkeypatch, caplog):
        monkeypatch.setenv("QMADMIN_TOML", str(trusted))
        limited(shared, "3m")
        make_queue(shared, "WITHOUT")
        assert self.warnings(caplog) == []

    def test_it_runs_where_nobody_else_can_write(self, space, store, started):
        if store.kind == "postgres":
            pytest.skip("who can write there, nobody knows")
        limited(space, "3m")
        fill(space, 3)
        assert len(started) == 1

    @pytest.mark.parametrize("suffix", ["-wal", "-shm"])
    def test_a_file_beside_the_device_counts_too(self, file_store, started, suffix):
        space = file_store.space()
        Path(file_store.path + suffix).chmod(0o606)
        limited(space, "3m")
        fill(space, 3)
        assert started == []

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
    def test_not_even_root_runs_what_stands_in_a_file_of_another_user(self, file_store, started):
        space = file_store.space()
        os.chown(file_store.path, 65534, -1)
        assert "belongs to user" in file_store.device.command_refusal("SPACE", "notify")
        limited(space, "3m")
        fill(space, 3)
        assert started == []

    @pytest.mark.parametrize("named", ["the device", "the command"])
    def test_what_the_users_own_settings_name_runs(self, shared, store, started, tmp_path, monkeypatch, named):
        names = {"devices": [store.path]} if named == "the device" else {"commands": ["notify"]}
        name_for_commands(tmp_path, monkeypatch, **names)
        limited(shared, "3m")
        fill(shared, 3)
        assert len(started) == 1

    def test_other_devices_and_commands_in_the_settings_say_nothing(self, shared, started, tmp_path, monkeypatch):
        name_for_commands(tmp_path, monkeypatch, devices=["QUE", "mysql://x", "~"], commands=["notify x", ""])
        limited(shared, "3m")
        fill(shared, 3)
        assert started == []

    def test_settings_that_others_can_write_are_not_believed(self, shared, trusted, started, monkeypatch, caplog):
        trusted.chmod(0o620)
        monkeypatch.setenv("QMADMIN_TOML", str(trusted))
        limited(shared, "3m")
        fill(shared, 3)
        assert started == []
        assert f"others may write the settings file {str(trusted)!r} too" in caplog.text

    def test_settings_with_a_fault_are_told_and_nothing_runs(self, shared, trusted, started, monkeypatch, caplog):
        trusted.write_text("[capacity]\ndevices = 1\n")
        monkeypatch.setenv("QMADMIN_TOML", str(trusted))
        limited(shared, "3m")
        fill(shared, 3)
        assert started == []
        assert "devices in [capacity] must be a list of texts" in caplog.text

    @pytest.mark.parametrize("threshold", ["threshold", "memory_threshold"])
    def test_the_doctor_names_the_queues(self, shared, store, threshold):
        units = {"units": MEMORY_UNITS} if threshold == "memory_threshold" else {}
        make_queue(shared, "Q", retries=1, **{threshold: limits("3B", **units)})
        (found,) = [each for each in store.device.check() if each.check == "commands-refused"]
        assert "the capacity commands of Q do not run as this user" in found.sentence


class TestClaims:
    DIES = """
from qmadmin import capacity
capacity.start = lambda event: os.kill(os.getpid(), signal.SIGKILL)
space = open_device(sys.argv[1]).open_space("SPACE")
for _ in range(3):
    space.enqueue("LIMITED", b"x")
"""

    def test_one_of_a_process_that_died_before_it_started_the_command_is_run_once_by_another(
        self, real_device, start, started
    ):
        with real_device.open_space("SPACE") as space:
            limited(space, "3m", name="LIMITED")
            child = start(self.DIES, real_device.path)
            child.process.wait(90)
            for _ in range(3):
                attachment_of(space).do_housekeeping(now=True)
            assert [(event.queue, event.value) for event in started] == [("LIMITED", 3)]
            fill(space, 3, "LIMITED")
            assert len(started) == 1

    @pytest.mark.parametrize("ended", ["emptied", "destroyed"])
    def test_one_whose_queue_was_emptied_or_destroyed_meanwhile(self, real_device, start, started, ended):
        with real_device.open_space("SPACE") as space:
            limited(space, "3m", name="LIMITED")
            child = start(self.DIES, real_device.path)
            child.process.wait(90)
            if ended == "emptied":
                assert len(space.dequeue_many("LIMITED", 9)) == 3
            attachment_of(space).do_housekeeping(now=True)
            assert len(started) == 1
            if ended == "destroyed":
                space.destroy_queue("LIMITED", force=True)
                limited(space, "3m", name="LIMITED")
            fill(space, 3, "LIMITED")
            assert len(started) == 2

    def test_a_command_that_cannot_be_started_costs_no_message(self, space, monkeypatch, caplog):
        for name in ("executable", "exec_prefix", "base_exec_prefix"):
            monkeypatch.setattr(sys, name, "/nowhere")
        limited(space, "3m")
        fill(space, 3)
        assert space.usage("Q").messages == 3
        assert "cannot be started: there is no Python interpreter at /nowhere" in caplog.text


def test_the_command_gets_what_happened_in_its_environment(real_device, tmp_path):
    from tests.fix_store import eventually

    said, script = tmp_path / "said", tmp_path / "c"
    facts = "$QMCONFIG $QM_SPACE $QM_QUEUE $QM_LEVEL $QM_VALUE $QM_DELIVERY"
    script.write_text(f"echo {facts} > {said}.new\nmv {said}.new {said}\n")
    with real_device.open_space("SPACE") as space:
        make_queue(space, "LIMITED", threshold=limits("3m", command=f". {script}"))
        fill(space, 3, "LIMITED")
    eventually(said.exists, "the command has run")
    where, *rest = said.read_text().split()
    assert rest == ["SPACE", "LIMITED", "3m", "3", "persist"]
    with open_device(where) as opened:
        assert opened.path == real_device.path
