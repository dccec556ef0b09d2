"""A standby that takes over while transactions are in doubt: recovery goes on there, as a failover is no restore."""

from __future__ import annotations

import contextlib
import signal
from types import SimpleNamespace

import pytest

from tests.cluster import Cluster
from tests.fix_crashes import AFTER, Crash, Servers, party, steps
from tests.fix_postgres import login_of, or_do_without
from tests.fix_store import eventually

PARTIES = ["file!+postgres", "postgres!+file", "postgres!+postgres", "file+server!", "file!+server"]
DECISIVE = {"decide-BEFORE_WRITE", "decide-AFTER_COMMIT", "postgres.commit-call", "postgres.commit-return"}
"""Where all is prepared and nothing is decided, and where it is decided and nobody has followed."""

CELLS = [
    pytest.param(its, step, id=f"{its}-{step}")
    for its in map(party, PARTIES)
    for step in steps(its)
    if str(step).replace("participants", "postgres") in DECISIVE
]


@pytest.fixture
def replicated(monkeypatch):
    """A server and its standby, without which nothing is acknowledged there, under the URL of both."""
    with or_do_without():
        cluster = Cluster.of_its_own()
    with contextlib.closing(cluster):
        for at in range(2):
            cluster.sql(f"CREATE DATABASE shop{at}")
        standby = cluster.standby()
        cluster.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        cluster.sql("SELECT pg_reload_conf()")
        eventually(lambda: cluster.sql("SHOW synchronous_standby_names") == [("*",)], "replication is synchronous")
        for name, value in login_of(cluster.url()).items():
            monkeypatch.setenv(name, value)
        one = f"127.0.0.1:{cluster.port}"

        def url(database=None):
            both = cluster.url(database).replace(one, f"{one},127.0.0.1:{standby.port}")
            return f"{both}?target_session_attrs=read-write"

        yield cluster, standby, Servers(lambda: SimpleNamespace(url=url), lambda: None)


@pytest.mark.matrix(every=5)
@pytest.mark.parametrize(("its", "step"), CELLS)
def test_a_coordinator_that_survives_it_tells_the_truth(replicated, start, tmp_path, its, step):
    cluster, standby, servers = replicated
    crash = Crash(its, tmp_path, servers, 1, start)
    child = crash.run(step, number=signal.SIGSTOP)
    eventually(crash.mark.exists, "it stands still")
    cluster.cut_power()
    standby.promote()
    child.signal(signal.SIGCONT)
    crash.check_told(child.line(), step)


@pytest.mark.matrix(every=5)
@pytest.mark.parametrize(("its", "step"), CELLS)
def test_recovery_goes_on_where_the_standby_has_taken_over(replicated, start, tmp_path, monkeypatch, its, step):
    cluster, standby, servers = replicated
    monkeypatch.setattr("qmstorage.postgres.liveness_queries.GRACE_SECONDS", 0.0)
    crash = Crash(its, tmp_path, servers, 1, start)
    child = crash.run(step, number=signal.SIGSTOP)
    eventually(crash.mark.exists, "it stands still")
    cluster.cut_power()
    child.process.kill()
    child.process.wait(60)
    standby.promote()
    assert crash.recovered() is (step.phase == AFTER or step.doom.place == "AFTER_COMMIT")
