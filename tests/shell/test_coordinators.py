"""What the shell shows of transactions over several volumes, and of those who coordinate them."""

import json
import os
import re

import pytest

import qmadmin
from tests.race.test_coordinator_kill import DIE


@pytest.fixture
def shells(pair, shell):
    """Give the rows of a command of the shell on the first or the second device."""

    def rows(at, *commands):
        shell.device = shell.environ["QMCONFIG"] = pair.configs[at]
        ran = shell.run("format json\n" + "".join(f"{command}\n" for command in commands))
        return json.loads(ran.out.splitlines()[-1])["rows"]

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
    child = start(DIE, *pair.configs, "a", "qmcore.acts.deciding:decide", "call", tmp_path / "mark")
    child.lines_left()
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
