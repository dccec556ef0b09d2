"""The protocol for several participants, explored exhaustively, and shown to need each of its rules.

The trace of a rule that is left out is printed: `scripts/test -n 0 -s tests/unit/test_two_phase_model.py -k RULE`.
"""

from typing import NamedTuple

import pytest

from tests.exhaustive import explore
from tests.two_phase_model import (
    ACTIVE,
    COMMITTED,
    DECIDED,
    FORGOTTEN,
    HAB_DIFFERS,
    HCO_DIFFERS,
    OPPOSITE,
    PREPARED,
    READ_ONLY,
    REPORTED,
    ROLLED_BACK,
    SAYS_COMMITTED,
    SAYS_ROLLED_BACK,
    UNKNOWN,
    Protocol,
    State,
    explored,
    is_over,
    steps_of,
)

SPACE, DATABASE = Protocol(branches=1), Protocol(branches=1, database=True)
HALF, TOLD_WRONGLY = "a branch is not as was decided", "the caller was told the opposite"
ENDED_TWICE, WAITS = "a branch is ended twice", "something waits for ever"


class Needed(NamedTuple):
    """A rule, what goes wrong without it, and with which decider that is seen."""

    rule: str
    wrong: str
    protocol: Protocol = SPACE


NEEDED = [
    # Before the decision.
    Needed("the decider's branch is recorded before any prepare", HALF),
    Needed("a prepare is synced", HALF),
    Needed("a branch that is gone is not recorded again", HALF),
    # The decision.
    Needed("the decision is synced", TOLD_WRONGLY),
    Needed("the deciding commit names the active branch", TOLD_WRONGLY),
    Needed("an unknown outcome is looked up by an end at the decider", TOLD_WRONGLY),
    Needed("an unknown outcome is looked up by an end at the decider", TOLD_WRONGLY, DATABASE),
    # Recovery: the first is fencing, with a database the opposite record.
    Needed("it is ended at the decider first", HALF),
    Needed("it is ended at the decider first", HALF, DATABASE),
    Needed("its end at the decider is synced", TOLD_WRONGLY),
    Needed("the decider is asked whether the coordinator lives", HALF),
    Needed("an opposite record outlives the coordinator", HALF, DATABASE),
    Needed("an opposite record outlives what the coordinator sent", TOLD_WRONGLY, DATABASE),
    Needed("a commit names the state that it ends", ENDED_TWICE),
    # The removal of the decision.
    Needed("a branch is looked at before it is noted as done", HALF),
    Needed("what is noted as done was synced", HALF),
    Needed("a decision stays until the caller knows it", TOLD_WRONGLY),
    # The administrator.
    Needed("qaborttrans ends it at the decider first", HALF),
    Needed("a heuristic end is recorded", HALF),
    Needed("a heuristic end is compared before the branch is noted as done", HALF),
    Needed("a heuristic end is compared before it is forgotten", HALF),
    # What is set back, and copies. Nothing shows the third: the manual says what to type then.
    Needed("a decider set back presumes nothing", HALF, SPACE._replace(restores=True)),
    Needed("no later beginning is taken for that of a branch", TOLD_WRONGLY, SPACE._replace(restores=True)),
    Needed("no decider is set back to between beginning and decision", TOLD_WRONGLY, SPACE._replace(restores=True)),
    Needed("the beginning that a branch names is durable", WAITS),
    Needed("a restored branch is marked", HALF, SPACE._replace(restores=True)),
]


@pytest.mark.parametrize("needed", NEEDED, ids=lambda needed: needed.rule + " (database)" * needed.protocol.database)
def test_without_one_of_its_rules_it_breaks(needed):
    found = explored(needed.protocol._replace(without=needed.rule))
    print(f"\nWithout the rule that {needed.rule}, {found.wrong}:\n{found.trace}")
    assert found.wrong == needed.wrong


@pytest.mark.parametrize("database", [False, True], ids=["queue space", "database"])
@pytest.mark.parametrize("branches", [0, 1, 2])
def test_all_participants_end_as_was_decided_and_nothing_is_left(branches, database):
    found = explored(Protocol(branches=branches, database=database))
    assert found.wrong is None, found.trace


@pytest.mark.parametrize("database", [False, True], ids=["queue space", "database"])
@pytest.mark.parametrize("branches", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_decider_set_back_and_copies_that_are_restored_end_nothing_by_themselves(branches, database):
    found = explored(Protocol(branches=branches, database=database, restores=True))
    assert found.wrong is None, found.trace


def test_what_may_come_of_it_is_among_the_states():
    states = explored(Protocol(branches=1)).states
    ends = {(state.decider[-1], state.coordinator, state.branches[0].rows[-1]) for state in states if is_over(state)}
    assert (FORGOTTEN, SAYS_COMMITTED, HAB_DIFFERS) in ends
    assert (ROLLED_BACK, SAYS_ROLLED_BACK, HCO_DIFFERS) in ends
    assert (FORGOTTEN, SAYS_COMMITTED, READ_ONLY) in ends
    assert {(FORGOTTEN, SAYS_COMMITTED, REPORTED), (ROLLED_BACK, SAYS_ROLLED_BACK, REPORTED)} <= ends
    assert {UNKNOWN, DECIDED} <= {value for state in states for value in (state.coordinator, state.decider[-1])}
    assert OPPOSITE in {state.decider[-1] for state in explored(DATABASE).states}


def test_which_of_two_branches_a_step_is_of_makes_no_difference():
    """So the branches of a state may be sorted."""
    protocol = Protocol(branches=2, recoverers=1)
    for state in explored(protocol).states:
        turned = state._replace(branches=state.branches[::-1])
        assert afterwards(protocol, turned) == afterwards(protocol, state), str(state)


def afterwards(protocol, state):
    """What may follow a state, whichever branch is the first."""
    return {(name, after._replace(branches=tuple(sorted(after.branches)))) for name, after in steps_of(protocol, state)}


class Backup(NamedTuple):
    """A backup of a decider and a branch, whose snapshots open one after the other, in either order."""

    state: State
    decider: str = ""
    branch: str = ""

    def steps(self, held):
        """What may follow; if `held`, nothing is decided and no decision removed between the two snapshots."""
        between = bool(self.decider) != bool(self.branch)
        for name, after in steps_of(SPACE, self.state):
            row = after.decider[-1]
            if not (held and between and row in (DECIDED, FORGOTTEN) and row != self.state.decider[-1]):
                yield name, self._replace(state=after)
        if not self.decider:
            yield "the decider's snapshot opens", self._replace(decider=self.state.decider[-1])
        if not self.branch:
            yield "the branch's snapshot opens", self._replace(branch=self.state.branches[0].rows[-1])

    def wrong(self):
        """What a restored device would have; what is active is rolled back there."""
        if not self.decider or not self.branch:
            return None
        decided = self.decider in (DECIDED, FORGOTTEN)
        if self.branch in ((ACTIVE, ROLLED_BACK) if decided else (COMMITTED, HAB_DIFFERS)):
            return HALF
        return WAITS if self.decider == FORGOTTEN and self.branch == PREPARED else None


def test_a_backup_is_of_one_moment_if_nothing_is_decided_and_no_decision_removed_between_its_snapshots():
    found = explore(Backup(SPACE.start()), lambda backup: backup.steps(held=True), Backup.wrong)
    assert found.wrong is None, found.trace
    found = explore(Backup(SPACE.start()), lambda backup: backup.steps(held=False), Backup.wrong)
    print(found.trace)
    assert found.wrong == HALF
