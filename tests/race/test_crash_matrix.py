"""The crash matrix: whoever ends in the middle of a commit over several participants, all of it is done, or nothing.

Afterwards recovery alone has ended all that was in doubt, and nothing is left over.
"""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from tests.fix_crashes import AFTER, BEFORE, ON_SERVER, PAIRS, UNSYNCED, party, steps, triples
from tests.fix_store import eventually

needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no /proc that tells of files")


LOSING = [step for step in steps(party("file+sqlite!")) if str(step) in ("prepare-AFTER_SYNC", "sqlite.commit-return")]
"""Where the file may lose what a prepared branch knows of it, and the decision itself."""


def cells(which=lambda its: True):
    """Return pairs of participants with the steps of their commits."""
    return [pytest.param(its, step, id=f"{its}-{step}") for its in PAIRS if which(its) for step in steps(its)]


def has_server(its):
    """Return whether a server takes part."""
    return bool(set(its.kinds) & set(ON_SERVER))


def disks(its):
    """Return which participants that are files lose what was not synced: each by itself, and all."""
    return [(at,) for at in its.files if len(its.files) > 1] + [tuple(its.files)]


def power_cells():
    return [
        pytest.param(its, step, which, id=f"{its}-{step}-{'and'.join(map(str, which))}")
        for its in PAIRS
        for step in steps(its)
        for which in disks(its)
        if its.files
    ]


def expected(its, step, which=()):
    """Return whether all is committed, where the disks of such participants have lost what was not synced."""
    return {BEFORE: False, AFTER: True, UNSYNCED: its.decider not in which}[step.phase]


def die(crash, step, which=None):
    """Let the process die, and the machine of some participants lose power."""
    child = crash.run(step, loses_power=which is not None)
    said = child.lines_left()
    assert crash.mark.exists(), said
    if which is not None:
        crash.cut_power(which)
    found = crash.recovered()
    assert found is expected(crash.party, step, which or ())
    if said:
        assert found


def lose_servers(crash, step, coordinator_too, monkeypatch):
    """Let the servers lose power, and the coordinator with them, or it goes on, and has to tell the truth."""
    if coordinator_too:
        # Whoever does not come back with the server is given up at once.
        monkeypatch.setattr("qmstorage.postgres.liveness_queries.GRACE_SECONDS", 0.0)
    child = crash.run(step, number=signal.SIGSTOP)
    eventually(crash.mark.exists, "it stands still")
    for server in crash.servers:
        server.cut_power()
    if coordinator_too:
        child.process.kill()
        child.process.wait(60)
    else:
        child.signal(signal.SIGCONT)
    for server in crash.servers:
        server.start()
    crash.check_told("" if coordinator_too else child.line(), step)


@pytest.mark.matrix(every=20)
@pytest.mark.parametrize(("its", "step"), cells())
def test_a_coordinator_that_is_killed_at_any_step_leaves_all_or_nothing(crash_of, its, step):
    die(crash_of(its), step)


@needs_proc
@pytest.mark.matrix(every=30)
@pytest.mark.parametrize(("its", "step", "which"), power_cells())
def test_a_machine_that_loses_power_at_any_step_leaves_all_or_nothing(crash_of, its, step, which):
    die(crash_of(its), step, which)


@needs_proc
@pytest.mark.matrix(every=120)
@pytest.mark.parametrize(("its", "step", "which"), power_cells())
def test_what_recovery_has_done_is_not_lost_with_the_power(crash_of, its, step, which):
    crash = crash_of(its)
    crash.run(step, loses_power=True).lines_left()
    crash.recover_apart()
    crash.cut_power(which)
    assert crash.recovered() is (step.phase != BEFORE)


@pytest.mark.matrix(every=40)
@pytest.mark.parametrize(("its", "step"), cells(has_server))
@pytest.mark.parametrize("coordinator_too", [False, True], ids=["server", "both"])
def test_servers_that_lose_power_at_any_step_leave_all_or_nothing_and_the_coordinator_tells_the_truth(
    crash_of, its, step, coordinator_too, monkeypatch
):
    lose_servers(crash_of(its), step, coordinator_too, monkeypatch)


@needs_proc
@pytest.mark.parametrize("keeps_log", [False, True])
@pytest.mark.parametrize("step", LOSING, ids=str)
def test_a_file_of_the_application_that_loses_power_has_what_it_has_decided_and_what_others_know_of_it(
    crash_of, step, keeps_log
):
    crash = crash_of(party("file+sqlite!"))
    if keeps_log:
        crash.keep_log()
    die(crash, step, (1,))


@pytest.mark.matrix(every=33)
@pytest.mark.parametrize("number", range(100))
def test_so_it_is_with_three_participants_of_any_kind(crash_of, request, number, monkeypatch):
    seed = request.config.getoption("randomly_seed", 0)
    drawn = random.Random(f"{seed}-{number}")
    its = drawn.choice(triples())
    step = drawn.choice(steps(its))
    ways = ["kill", *(["power"] if its.files else []), *(["server", "both"] if has_server(its) else [])]
    way = drawn.choice(ways)
    print(f"seed {seed}, number {number}: {its}, {step}, {way}")
    if way == "kill":
        die(crash_of(its), step)
    elif way == "power":
        die(crash_of(its), step, drawn.choice(disks(its)))
    else:
        lose_servers(crash_of(its), step, way == "both", monkeypatch)


def test_a_queue_space_that_would_only_decide_keeps_nothing_while_a_coordinator_lives_that_has_rolled_back(
    crash_of, monkeypatch
):
    its = party("idle!+server+server")
    (step,) = (each for each in steps(its) if str(each) == "begin-AFTER_COMMIT")
    lose_servers(crash_of(its), step, False, monkeypatch)
