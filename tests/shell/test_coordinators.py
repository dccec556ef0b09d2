"""What the shell shows of transactions over several volumes, and of those who coordinate them."""

import contextlib
import json
import os
import re
import sqlite3
from pathlib import Path

import pytest

import qmadmin
from qmadmin.opening import create_device, open_device
from qmadmin.participating import DecidingDatabase
from qmcore.acts import deciding, recovering
from qmcore.attached import DeciderReach
from qmcore.errors import OperatingSystemError, UnknownXidError
from qmcore.findings import Severity
from tests.fix_crashes import die_deciding
from tests.fix_store import drain, eventually, make_queue, space_definition
from tests.race.test_coordinator_copies import copy


@pytest.fixture
def shells(pair, shell):
    """Give the rows of a command of the shell on the first or the second device."""

    def document(at, *commands):
        shell.device = shell.environ["QMCONFIG"] = pair.configs[at]
        ran = shell.run("format json\n" + "".join(f"{command}\n" for command in commands))
        return json.loads(ran.out.splitlines()[-1])

    def rows(at, *commands):
        return document(at, *commands)["rows"]

    rows.document = document
    return rows


def coordinators(rows):
    return [row for row in rows if row["kind"] == "coordinator"]


@pytest.mark.parametrize("pair", ["file-file", "file-postgres"], indirect=True)
def test_ipcs_shows_the_coordinator_where_it_decides_and_where_a_branch_is_prepared(pair, shells, before_decision):
    seen = []
    before_decision(lambda: seen.extend(coordinators(shells(at, f"ipcs {name}")) for at, name in enumerate("AB")))
    with qmadmin.transaction(pair.a, pair.b, decider=pair.a):
        pair.a.enqueue("OUT", "x")
        pair.b.enqueue("OUT", "x")
    (at_a,), (at_b,) = seen
    for row in (at_a, at_b):
        assert (row["pid"], row["host"], row["state"]) == (os.getpid(), os.uname().nodename, "alive")
        assert row["since"]
        assert row["age"] >= 0
    # The branches have the identifier of the transaction, and B's has a qualifier.
    assert re.fullmatch(r"1364022360:[0-9a-f]{32}:", at_a["name"])
    assert re.fullmatch(at_a["name"] + "[0-9a-f]{32}", at_b["name"])
    pair.wait_until_settled()
    assert [coordinators(shells(at, f"ipcs {name}")) for at, name in enumerate("AB")] == [[], []]


@pytest.mark.parametrize("pair", ["file-file"], indirect=True)
def test_ipcs_says_where_the_coordinator_is_dead(pair, shells, start, tmp_path):
    pair.a.enqueue("Q", "x")
    pair.close()
    child = die_deciding(pair.configs, start, tmp_path, "call")
    (row,) = coordinators(shells(1, "ipcs B"))
    assert (row["pid"], row["state"]) == (child.pid, "dead")
    pair.open()
    pair.wait_until_settled()


@pytest.mark.parametrize("pair", ["file-file"], indirect=True)
def test_the_branch_of_another_coordinator_is_none_of_them(pair, shells):
    pair.a.tpc_begin((7, "order", "1"))
    pair.a.enqueue("OUT", "x")
    pair.a.tpc_prepare()
    assert coordinators(shells(0, "ipcs A")) == []
    pair.a.tpc_rollback()


@contextlib.contextmanager
def in_doubt(pair, start, tmp_path):
    """Give the pair with a branch in B whose coordinator has died before it decided in A, which nobody has open."""
    pair.a.enqueue("Q", "x")
    pair.close()
    die_deciding(pair.configs, start, tmp_path, "call")
    yield pair
    pair.open()
    pair.wait_until_settled()


@pytest.mark.parametrize("pair", ["file-file", "file-postgres"], indirect=True)
def test_qprinttrans_says_whether_the_decider_can_be_reached(pair, shells, start, tmp_path):
    with in_doubt(pair, start, tmp_path):
        pair.hide()
        document = shells.document(1, "qopen B", "qprinttrans")
        (row,) = document["rows"]
        assert (row["decider"], row["reached"]) == (f"A on {pair.configs[0]}", "no")
        (notice,) = document["notices"]
        assert notice["severity"] == "WARN"
        why = f"queue space 'A' on '{pair.configs[0]}': there is no device"
        assert notice["text"].startswith(f"transaction {row['xid']} waits for its decider: {why}")
        pair.bring_back()
        with open_device(pair.configs[1]) as device:
            (info,) = device.transactions("B", ask_deciders=True)
            assert (info.reached, info.unreached) == (DeciderReach.YES, "")
            # Who does not ask waits for nobody.
            assert [each.reached for each in device.transactions("B")] == [None]
        # It was a look: the branch of the dead coordinator is there, and recovery ends it.
        with open_device(pair.configs[0]) as device:
            assert len(device.transactions("A")) == 1


@pytest.mark.parametrize("pair", ["file-file"], indirect=True)
def test_qprinttrans_says_that_somebody_else_is_there(pair, shells, start, tmp_path):
    with in_doubt(pair, start, tmp_path):
        pair.hide()
        with create_device(pair.configs[0]) as device:
            device.create_space(space_definition("A"))
        (row,) = shells(1, "qopen B", "qprinttrans")
        assert row["reached"] == "no"
        with open_device(pair.configs[1]) as device:
            (info,) = device.transactions("B", ask_deciders=True)
            assert info.unreached == f"queue space 'A' on '{pair.configs[0]}' is not the one that decides on it"
        pair.bring_back()


@pytest.mark.parametrize("pair", ["file-file"], indirect=True)
def test_what_only_an_administrator_can_end_is_never_reached(pair, shells, start, tmp_path):
    with in_doubt(pair, start, tmp_path):
        copied = str(tmp_path / "COPY")
        copy(pair.configs[1], copied)
        with open_device(copied) as device:
            (info,) = device.transactions("B", ask_deciders=True)
            assert (info.reached, "it was prepared in another place" in info.unreached) == (DeciderReach.NEVER, True)
            (found,) = [each for each in device.check("B") if each.check.startswith("transaction-")]
            assert (found.severity, found.check) == (Severity.WARNING, "transaction-undecidable")
            assert found.target == f"transaction {info.name}"
            assert found.advice.endswith(f"type qcommittrans {info.name} or qaborttrans {info.name}")


def test_qcheck_says_after_a_minute_that_a_decider_cannot_be_reached(shared_store, tmp_path, before_decision):
    store = shared_store
    space = store.space()
    make_queue(space, "Q")
    with create_device(tmp_path / "OTHER", clock=store.clock) as device:
        device.create_space(space_definition("B"))
        other = device.open_space("B")
        make_queue(other, "Q")

        def look():
            (tmp_path / "OTHER").rename(tmp_path / "AWAY")
            for seconds, checks in ((60, []), (1, ["transaction-decider"])):
                store.clock.advance(seconds)
                found = [each for each in store.another().check("SPACE") if each.check.startswith("transaction-")]
                assert [each.check for each in found] == checks
            assert "cannot be reached: queue space 'B' on " in found[0].sentence
            assert found[0].advice.startswith("Bring that back")
            (tmp_path / "AWAY").rename(tmp_path / "OTHER")

        before_decision(look)
        with qmadmin.transaction(space, other, decider=other):
            space.enqueue("Q", "x")
            other.enqueue("Q", "x")


def test_a_database_of_the_application_is_waited_for_until_somebody_connects_to_it(
    shared_store, tmp_path, monkeypatch, caplog
):
    store, decide = shared_store, DecidingDatabase.decide
    space = store.space()
    make_queue(space, "Q")

    def look(*arguments):
        device = store.another()
        with device.open_space("SPACE") as other:
            (info,) = other.transactions()
            assert info.decider == f"database {str(tmp_path / 'books.db')!r}"
            for seconds, checks in ((60, []), (1, ["transaction-decider"])):
                store.clock.advance(seconds)
                found = [each for each in device.check("SPACE") if each.check.startswith("transaction-")]
                assert [each.check for each in found] == checks
            assert found[0].advice.startswith("Run the application, or call qmadmin.recover with a connection to it")
            eventually(lambda: not other.dequeue("Q") and "call qmadmin.recover" in caplog.text, "the log says it")
            assert "qcommittrans" not in caplog.text
        decide(*arguments)

    with contextlib.closing(sqlite3.connect(tmp_path / "books.db")) as connection:
        qmadmin.create_decision_table(connection)
        connection.execute("CREATE TABLE book (title TEXT)")
        connection.commit()
        monkeypatch.setattr(DecidingDatabase, "decide", look)
        with qmadmin.transaction(space, connection):
            space.enqueue("Q", "x")
            connection.execute("INSERT INTO book VALUES ('x')")
    assert drain(space) == ["x"]


def test_a_look_at_a_decider_that_fails_in_any_way_says_why(
    shared_store, tmp_path, monkeypatch, caplog, before_decision
):
    store = shared_store
    space = store.space()
    make_queue(space, "Q")
    with create_device(tmp_path / "OTHER", clock=store.clock) as device:
        device.create_space(space_definition("B"))
        other = device.open_space("B")
        make_queue(other, "Q")

        def fails(*_arguments):
            raise LookupError("what nobody thought of")

        def look():
            with monkeypatch.context() as patch:
                patch.setattr(deciding, "foreseen", fails)
                (info,) = store.another().transactions("SPACE", ask_deciders=True)
            assert info.reached is DeciderReach.NO
            assert info.unreached.endswith("LookupError: what nobody thought of")
            assert "was not found out" in caplog.text

        before_decision(look)
        with qmadmin.transaction(space, other, decider=other):
            space.enqueue("Q", "x")
            other.enqueue("Q", "x")


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_decision_that_was_not_told_for_an_hour_is_found_and_given_up(
    shared_store, tmp_path, monkeypatch, comes_back
):
    store, gone, away = shared_store, tmp_path / "OTHER", tmp_path / "AWAY"
    space = store.space()
    make_queue(space, "Q")
    with create_device(gone, clock=store.clock) as device:
        device.create_space(space_definition("B"))
        other = device.open_space("B")
        make_queue(other, "Q")

        def fail(*_arguments):
            gone.rename(away)
            raise OperatingSystemError("it is gone")

        with monkeypatch.context() as patch, qmadmin.transaction(space, other, decider=space) as tx:
            space.enqueue("Q", "x")
            other.enqueue("Q", "x")
            patch.setattr(recovering, "complete", fail)
            tx.commit()
        (info,) = space.decisions()
        assert (tx.complete, info.participant, info.decided) == (False, f"B on {gone}", store.clock.moment())
        for seconds, checks in ((3600, []), (1, ["transaction-untold"])):
            store.clock.advance(seconds)
            found = [each for each in store.another().check("SPACE") if each.check.startswith("transaction-")]
            assert [each.check for each in found] == checks
        assert found[0].advice.endswith(f"type qforgettrans {info.xid}")
        if comes_back:
            away.rename(gone)
        # Then recovery may come first.
        with contextlib.suppress(UnknownXidError):
            space.tpc_forget(info.xid)
            outcome = space.device.audited(1)[0].outcome
            assert outcome == (f"B on {gone} was told" if comes_back else f"given up: B on {gone} was not told")
        assert (space.decisions(), drain(space)) == ([], ["x"])
        if comes_back:
            assert drain(other) == ["x"]
        else:
            away.rename(gone)


@pytest.mark.parametrize("pair", ["file-file"], indirect=True)
def test_qforgettrans_gives_a_decision_up_by_the_xid_of_the_branch(pair, shell, start, tmp_path):
    pair.a.enqueue("Q", "x")
    pair.close()
    die_deciding(pair.configs, start, tmp_path, "return")
    Path(pair.configs[1]).rename(tmp_path / "AWAY")
    shell.device = shell.environ["QMCONFIG"] = pair.configs[0]
    with open_device(pair.configs[0]) as device:
        (info,) = device.decisions("A")
    ran = shell.run(f"qopen A\nqforgettrans -n {info.xid}\nqforgettrans -y {info.xid}\nqforgettrans -y {info.xid}\n")
    asked = f"Forget that B on {pair.configs[1]} is to be told of transaction {info.xid}, which was decided "
    assert f"Dry run, nothing is done: {asked}" in ran.out
    assert f"Transaction {info.xid} forgotten\n" in ran.out
    assert f"queue space 'A' has no transaction {info.xid}; it may have ended" in ran.err
