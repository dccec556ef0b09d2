"""Many threads at once: nothing lost, nothing doubled, and commits that they share."""

import contextlib
import sqlite3
import threading
from collections import Counter

import pytest
from sqlalchemy import text

from qmcore.errors import BadQueueError, NoSpaceError, NotOpenError, SystemFailureError
from qmcore.findings import Severity
from qmcore.probe import Point
from qmcore.purpose import Purpose
from tests.fix_store import Work, attachment_of, connection_of, drain, eventually, make_queue, noted
from tests.interrupts import at_every_line
from tests.store.differences import differs


def test_what_eight_threads_enqueue_eight_threads_dequeue_once(store):
    space = store.space(messages=10_000, pages=12_000)
    make_queue(space)
    each = 250
    done = threading.Event()

    def produce(who):
        for at in range(each):
            if at % 5:
                space.enqueue("Q", f"{who}-{at}")
            else:
                with space.transaction():
                    space.enqueue("Q", f"{who}-{at}")

    def consume():
        seen = []
        while True:
            last = done.is_set()
            message = space.dequeue("Q")
            if message is not None:
                seen.append(message.text)
            elif last:
                return seen

    consumers = Work(*[consume] * 8)
    Work(*[lambda who=who: produce(who) for who in range(8)]).results()
    done.set()
    seen = Counter(text for texts in consumers.results() for text in texts)
    assert seen == Counter(f"{who}-{at}" for who in range(8) for at in range(each))
    usage = space.usage("Q")
    assert (usage.messages, usage.enqueued, usage.dequeued, usage.pages) == (0, 8 * each, 8 * each, 0)


def test_transactions_of_eight_threads_lose_and_double_nothing(store):
    space = store.space(messages=10_000, pages=12_000)
    make_queue(space, retries=1_000)
    make_queue(space, "OUT")
    for at in range(400):
        space.enqueue("Q", str(at))

    def work():
        done = 0
        while True:
            with space.transaction() as transaction:
                message = space.dequeue("Q")
                if message is None:
                    return done
                space.enqueue("OUT", message.text)
                if (int(message.text) + message.retries) % 3 == 0:
                    transaction.rollback()
                else:
                    done += 1

    assert sum(Work(*[work] * 8).results()) == 400
    assert sorted(drain(space, "OUT"), key=int) == [str(at) for at in range(400)]
    assert store.device.space_usage("SPACE").transactions == 0


class Shared:
    """Works that are brought into one line behind a work that is stopped in the middle, and then let go together."""

    def __init__(self, space):
        self.volume = attachment_of(space).volume
        self.works = noted(space.probe, Point.AFTER_COMMIT)
        self.statements = []
        connection_of(space).set_trace_callback(self.statements.append)
        self._queued = noted(space.probe, Point.QUEUED)
        self._inside, self._go_on = threading.Event(), threading.Event()

    def run(self, *works):
        blocker = Work(lambda: self.volume.write(self._stop, Purpose.ADMINISTRATION))
        assert self._inside.wait(90)
        together = []
        for work in works:
            together.append(Work(work))
            # The one that is at work stands there too, until it is done.
            eventually(lambda: len(self._queued) == 1 + len(together), "it stands in line behind the others")
        self._go_on.set()
        results = [result for each in together for result in each.results()]
        blocker.results()
        return results

    def _stop(self, unit):
        self._inside.set()
        assert self._go_on.wait(90)

    @property
    def commits(self):
        """How many commits there were but for the one that was stopped."""
        return len(self.works) - 1


def half_and_failing(queue_id):
    """Return a work that changes something and then fails."""

    def work(unit):
        unit.counters.arrive(1, queue_id, count=100, pages=100, size=100)
        raise ZeroDivisionError

    return work


def refused_inside(space):
    """Return what stands in line, and is refused when its turn comes."""
    attachment = attachment_of(space)
    return lambda: attachment.volume.write(
        lambda unit: attachment.opened.definitions(unit).queue("NONE"), Purpose.ADMINISTRATION
    )


class TestGroupCommit:
    """The way of SQLite, where one writes at a time; sessions of PostgreSQL commit beside each other."""

    @pytest.fixture
    def store(self, sqlite_store):
        return sqlite_store

    def test_eight_threads_share_one_commit(self, space):
        shared = Shared(space)
        ids = shared.run(*[lambda at=at: space.enqueue("Q", str(at)) for at in range(8)])
        assert shared.commits == 1
        assert len(set(ids)) == 8
        assert sorted(drain(space)) == list("01234567")

    def test_they_share_one_sync_of_the_disk(self, file_store):
        space = file_store.space()
        make_queue(space)
        shared, syncs = Shared(space), noted(space.probe, Point.AFTER_SYNC)
        shared.run(*[lambda: space.enqueue("Q", b"")] * 8)
        assert 1 <= len(syncs) <= 2, "one for the work that was stopped, one for the eight"

    def test_those_who_come_while_the_disk_works_are_committed_together_behind_that(self, file_store):
        space = file_store.space()
        make_queue(space)
        at_work, go_on = threading.Event(), threading.Event()
        volume = attachment_of(space).volume

        def slow(_commit):
            at_work.set()
            assert go_on.wait(90)

        space.probe.at(Point.BEFORE_SYNC, slow)
        first = Work(lambda: space.enqueue("Q", "first"))
        assert at_work.wait(90)
        works, queued = noted(space.probe, Point.AFTER_COMMIT), noted(space.probe, Point.QUEUED)
        others = Work(*[lambda: space.enqueue("Q", "x")] * 4)
        eventually(lambda: len(queued) == 4, "all stand in line")
        assert volume.read(lambda _: "done") == "done", "who needs nothing of the disk does not wait for it"
        go_on.set()
        assert all(isinstance(each, str) for each in first.results() + others.results())
        assert works == [4]
        assert drain(space) == ["first", *"xxxx"]

    def test_what_is_committed_is_not_done_again_where_the_tidying_after_it_fails(self, file_store, monkeypatch):
        from qmstorage.sqlite import wal

        shared, ran = Shared(file_store.space()), []

        def fails(self, connection):
            raise sqlite3.OperationalError("disk I/O error")

        def work(name):
            def run(unit):
                ran.append(name)
                unit.brought_many = True

            return run

        monkeypatch.setattr(wal.Log, "keep_short", fails)
        works = (work(name) for name in ("another's", "mine"))
        shared.run(*[lambda each=each: shared.volume.write(each, Purpose.ADMINISTRATION) for each in works])
        assert sorted(ran) == ["another's", "mine"]
        assert shared.works[1:] == [2]
        shared.volume.write(work("later"), Purpose.ADMINISTRATION)
        assert shared.works[2:] == [1], "nothing else stands in line"

    def test_each_enqueue_is_synced_and_what_a_transaction_holds_is_not(self, file_store):
        space = file_store.space()
        make_queue(space, retries=5)
        syncs = noted(space.probe, Point.AFTER_SYNC)
        for wanted in (1, 2, 3):
            space.enqueue("Q", b"")
            assert len(syncs) == wanted
        space.dequeue("Q")
        assert len(syncs) == 4
        with space.transaction() as transaction:
            space.dequeue("Q")
            space.enqueue("Q", b"")
            assert len(syncs) == 4
            transaction.rollback()
        assert len(syncs) == 4
        with space.transaction():
            space.dequeue("Q")
            space.enqueue("Q", b"")
        assert len(syncs) == 5
        list(space.messages("Q"))
        assert len(syncs) == 5

    def test_a_refusal_of_one_does_not_hurt_the_others(self, store):
        space = store.space(messages=8)
        make_queue(space)
        shared = Shared(space)

        def good(at):
            return lambda: space.enqueue("Q", str(at))

        results = shared.run(good(0), refused_inside(space), good(1), refused_inside(space), good(2))
        assert shared.commits == 1
        assert [type(results[at]) for at in (1, 3)] == [BadQueueError, BadQueueError]
        assert sorted(drain(space)) == ["0", "1", "2"]

    def test_a_full_queue_space_refuses_those_that_come_last_and_no_others(self, store):
        space = store.space(messages=5)
        make_queue(space)
        results = Shared(space).run(*[lambda: space.enqueue("Q", b"")] * 8)
        assert sum(isinstance(result, NoSpaceError) for result in results) == 3
        usage = space.usage("Q")
        assert (usage.messages, usage.enqueued) == (5, 5)

    def test_what_a_refused_work_did_before_is_undone(self, space):
        volume, half_and_fail = attachment_of(space).volume, half_and_failing(space.queue("Q").id)
        shared = Shared(space)
        results = shared.run(
            lambda: volume.write(half_and_fail, Purpose.ADMINISTRATION), lambda: space.enqueue("Q", "x")
        )
        assert isinstance(results[0], ZeroDivisionError)
        usage = space.usage("Q")
        assert (usage.messages, usage.enqueued, usage.pages) == (1, 1, 1)

    def test_an_error_of_the_store_in_one_work_does_not_hurt_the_others(self, space):
        volume = attachment_of(space).volume

        def break_the_store(unit):
            unit.run(text("INSERT INTO space SELECT * FROM space"))

        shared = Shared(space)
        results = shared.run(
            lambda: space.enqueue("Q", "a"),
            lambda: volume.write(break_the_store, Purpose.ADMINISTRATION),
            lambda: space.enqueue("Q", "b"),
        )
        assert isinstance(results[1], SystemFailureError)
        assert isinstance(results[1].__cause__, sqlite3.IntegrityError)
        assert sorted(drain(space)) == ["a", "b"]
        assert space.usage("Q").enqueued == 2

    def test_a_work_that_looks_first_and_fails_all_the_same_is_undone_and_does_not_hurt_the_others(self, space):
        from qmstorage.sqlite import group_commit

        volume, half_and_fail = attachment_of(space).volume, half_and_failing(space.queue("Q").id)
        shared = Shared(space)
        results = shared.run(
            lambda: space.enqueue("Q", "a"),
            lambda: volume.done(group_commit.Work(half_and_fail, looks_first=True)),
            lambda: space.enqueue("Q", "b"),
            refused_inside(space),
        )
        assert isinstance(results[1], ZeroDivisionError)
        assert isinstance(results[3], BadQueueError)
        assert results[3].__context__ is None, "it has nothing to do with what another was refused"
        assert sorted(drain(space)) == ["a", "b"]
        usage = space.usage("Q")
        assert (usage.messages, usage.enqueued, usage.pages) == (0, 2, 0)

    def test_what_most_calls_ask_for_needs_no_savepoints(self, space):
        space.enqueue("Q", "known")
        shared = Shared(space)
        shared.run(*[lambda: space.enqueue("Q", b"")] * 4, *[lambda: space.dequeue("Q")] * 4)
        assert shared.commits == 1
        assert "SAVEPOINT job" not in shared.statements

    def test_the_books_balance_whatever_is_committed_together(self, file_store):
        space, other = file_store.space(), file_store.space("OTHER", messages=3)
        for name in ("Q", "R"):
            make_queue(space, name, retries=3)
        make_queue(other)
        for each in (space, other):
            each.enqueue("Q", "first")
            each.enqueue_many("Q", ["second"])
        space.enqueue("R", "third")

        def transact():
            with space.transaction():
                space.dequeue("R")
                space.enqueue("Q", "of a transaction")

        results = Shared(space).run(
            lambda: space.enqueue("Q", "a"),
            lambda: other.enqueue("Q", "b"),
            lambda: space.enqueue_many("Q", ["c", "d"]),
            transact,
            lambda: space.dequeue("Q"),
            lambda: space.enqueue("R", "urgent", priority=99),
            lambda: other.enqueue("Q", "too many"),
            lambda: space.enqueue("R", "e"),
            lambda: space.remove("Q"),
            lambda: space.dequeue("R"),
            lambda: space.enqueue("Q", "f"),
        )
        assert [type(result) for result in results if isinstance(result, Exception)] == [NoSpaceError]
        assert sorted(drain(other)) == ["b", "first", "second"]
        assert not [each.sentence for each in file_store.device.check() if each.severity is Severity.ERROR]
        assert sum(space.usage(name).messages for name in ("Q", "R")) == 6
        assert sorted([*drain(space), *drain(space, "R")]) == ["a", "c", "d", "e", "f", "of a transaction"]

    def test_nobody_who_sleeps_while_another_leads_is_forgotten(self, file_store, monkeypatch):
        from qmstorage.sqlite import group_commit

        # So that nobody looks by himself before the test is over.
        monkeypatch.setattr(group_commit, "_LOOK_AGAIN_SECONDS", 3600)
        space = file_store.space(messages=10_000, pages=12_000)
        make_queue(space)
        make_queue(space, "OUT")

        def autocommit():
            for _ in range(200):
                space.enqueue("Q", b"")

        def transact():
            for _ in range(100):
                with space.transaction():
                    space.enqueue("OUT", b"")
                    space.dequeue("Q")

        Work(*[autocommit] * 6, *[transact] * 4).results()
        assert space.usage("Q").enqueued == 1200
        assert space.usage("OUT").enqueued == 400

    def test_others_are_served_wherever_the_one_who_leads_is_interrupted(self, file_store):
        from qmstorage.sqlite import group_commit

        space = file_store.space(messages=10_000, pages=12_000)
        make_queue(space)
        done, may_end = [0, 0], threading.Event()

        def another(who):
            while not may_end.is_set():
                space.enqueue("Q", b"")
                space.dequeue("Q")
                done[who] += 1

        others = Work(*[lambda who=who: another(who) for who in range(2)])
        for _ in at_every_line(group_commit, lambda: space.enqueue("Q", b"")):
            before = list(done)
            eventually(lambda: done[0] > before[0] and done[1] > before[1], "the others go on")  # noqa: B023 - asked at once
        may_end.set()
        assert others.results() == [None, None]
        queued = noted(space.probe, Point.QUEUED)
        space.enqueue("Q", b"")
        assert queued == [1], "nobody stands in line any more"

    def test_errors_of_several_threads_are_each_their_own(self, space):
        shared = Shared(space)
        results = shared.run(*[refused_inside(space)] * 4)
        assert len({id(error) for error in results}) == 4

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
    def test_whoever_is_interrupted_while_he_works_for_all_leaves_the_others_to_themselves(self, space, error):
        volume, interrupted = attachment_of(space).volume, []

        def interrupt(unit):
            if not interrupted:
                interrupted.append(threading.get_ident())
                raise error
            return "done after all"

        shared = Shared(space)
        results = shared.run(
            lambda: space.enqueue("Q", "a"),
            lambda: volume.write(interrupt, Purpose.ADMINISTRATION),
            lambda: space.enqueue("Q", "b"),
        )
        assert sum(isinstance(result, error) for result in results) == 1
        enqueued = [text for text, result in zip("a-b", results, strict=True) if text != "-" and type(result) is str]
        assert sorted(drain(space)) == enqueued
        assert isinstance(results[1], error) or results[1] == "done after all"


def test_threads_that_open_and_close_handles_do_not_disturb_each_other(store, space):
    def work():
        for _ in range(20):
            with store.device.open_space("SPACE") as opened:
                opened.enqueue("Q", "x")
                wait = 30 if differs(store, "empty") else None
                assert opened.dequeue("Q", wait=wait) is not None
        return True

    assert Work(*[work] * 6).results() == [True] * 6
    assert store.device.space_usage("SPACE").processes == 1
    assert space.usage("Q").messages == 0


def test_a_device_that_is_closed_while_threads_work_says_so_and_loses_nothing(file_store):
    space = file_store.space(messages=100_000, pages=15_000)
    make_queue(space)
    acknowledged = [[] for _ in range(4)]
    begun = threading.Semaphore(0)

    def work(mine):
        while True:
            mine.append(space.enqueue("Q", b""))
            begun.release()

    threads = Work(*[lambda mine=mine: work(mine) for mine in acknowledged])
    for _ in range(200):
        begun.acquire()
    file_store.device.close()
    assert {type(error).__name__ for error in threads.results()} == {"NotOpenError"}
    other = file_store.another().open_space("SPACE")
    there = {info.msgid for info in other.messages("Q")}
    assert {msgid for mine in acknowledged for msgid in mine} <= there


def test_who_is_just_attaching_when_the_device_is_closed_does_not_stay_attached(shared_store):
    space = shared_store.space()
    device, begun, goes_on = shared_store.another(), threading.Event(), threading.Event()

    def stand(_works):
        device.probe.leave(Point.BEFORE_WRITE)
        begun.set()
        assert goes_on.wait(10)

    def attach():
        with contextlib.suppress(NotOpenError):
            device.open_space("SPACE", role="late")

    def close():
        assert begun.wait(10)
        device.close()

    def let_go():
        eventually(lambda: "closed" in repr(device), "the device is being closed")
        goes_on.set()

    device.probe.at(Point.BEFORE_WRITE, stand)
    assert Work(attach, close, let_go).results() == [None] * 3
    assert [each.role for each in space.device.attached("SPACE")] == ["application"]
