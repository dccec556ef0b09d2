"""The protocol that commits several participants together, as a model that `tests/exhaustive.py` explores.

One participant is the decider: its own commit is the decision. The others, the branches, are prepared before. What a
coordinator leaves is ended by recoverers, which ask the decider, and by an administrator. A state is a frozen value; a
step of an actor is a function that yields each state that may follow, and says what guards it. A step is one database
transaction of one participant. The steps of all actors come in any order.

What is assumed:

- A participant's log is a sequence. A synced step makes durable what stands before it, too; a crash loses the end of
  what was not synced since. `rows` are what a participant had after each step since its last sync; the last is what it
  has.
- Whoever reads acts later, and anything may happen between. What was read, and is to be acted on, is a job.
- Nobody knows whether a coordinator lives: it is taken for dead at any time, and goes on at any time. So there are no
  clocks and no locks here, and a coordinator that was stopped is one whose next step comes late.
- A request that was sent may arrive after its connection has broken, and after its sender has died.
- Whoever cannot reach a participant takes no step there.

Branches are alike, and recoverers are: so the branches of a state are sorted, and jobs belong to branches, not to who
does them, and are sorted too. States that differ in names only are one. No rule names a branch or a recoverer, so that
nothing is lost by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tests.exhaustive import Explored, explore, trace, without_an_end

# ---- what a participant has -----------------------------------------------------------------------------------------

ACTIVE = "active"
ROLLED_BACK = "rolled back"  # whoever looks finds nothing; of what never came into being, too

# A branch.
PREPARED = "prepared"
COMMITTED = "committed"  # whoever looks finds nothing
READ_ONLY = "read-only"  # it had changed nothing, and was over with its prepare
HCO, HAB = "HCO", "HAB"  # ended by an administrator without the decision, and not compared with it since
HCO_DIFFERS, HAB_DIFFERS = "HCO, but was rolled back", "HAB, but was committed"
TWICE = "rolled back, and committed"
REPORTED = "heuristic, reported"  # the difference is known; whoever looks finds nothing
RESTORED = "restored"  # prepared, in a copy, and marked by the restore

# The decider. Of what it no longer has the model knows more than those who ask.
NOTHING = "nothing"
DECIDED = "decision"
FORGOTTEN = "decision removed"
OPPOSITE = "opposite record"
SET_BACK, SET_BACK_DECIDED = "set back", "set back, was committed"
ACTIVE_AGAIN = "set back to active, was committed"

# ---- the coordinator ------------------------------------------------------------------------------------------------

BEGUN = "begun"
PREPARING = "preparing"
DECIDING = "deciding"  # the deciding commit is sent
UNKNOWN = "outcome unknown"
SAYS_COMMITTED, SAYS_ROLLED_BACK = "says committed", "says rolled back"
DEAD = "dead"

# ---- jobs: what was read and is to be acted on ----------------------------------------------------------------------

END_AT_DECIDER = "end it at the decider"
ROLL_BACK = "roll back"
COMMIT = "commit"
NOTE = "note as done"
BY_HAND = {HCO: "commit by hand", HAB: "roll back by hand"}

AS_DECIDED = {
    COMMIT: {PREPARED: COMMITTED, HCO: COMMITTED, HAB: HAB_DIFFERS},
    ROLL_BACK: {PREPARED: ROLLED_BACK, HAB: ROLLED_BACK, HCO: HCO_DIFFERS},
}
"""What becomes of a row when the outcome reaches it; what was ended by hand is compared. Others stay as they are."""


class Branch(NamedTuple):
    """A participant that is not the decider; what the coordinator and the decider know of it; the jobs about it."""

    rows: tuple[str, ...]
    voted: bool = False
    done: bool = False  # noted beside the decision: this branch has followed it, for good
    jobs: tuple[str, ...] = ()

    def wrote(self, row: str, *, synced: bool) -> Branch:
        """Return it after a step that leaves a row; one that changes nothing may be a synced step, too."""
        rows = (row,) if synced else self.rows if row == self.rows[-1] else (*self.rows, row)
        return Branch(rows, self.voted, self.done, self.jobs)

    def to_do(self, job: str | None, instead_of: str | None = None) -> Branch:
        """Return it with a job, if any, in place of one that is done."""
        left = [*self.jobs]
        if instead_of is not None:
            left.remove(instead_of)
        return Branch(self.rows, self.voted, self.done, tuple(sorted(left if job is None else [*left, job])))


class State(NamedTuple):
    """All that there is."""

    decider: tuple[str, ...]
    coordinator: str
    under_way: bool  # the deciding commit was sent, and may still arrive
    branches: tuple[Branch, ...]

    def __str__(self) -> str:
        shown = [f"decider: {', unsynced '.join(self.decider)}", f"coordinator: {self.coordinator}"]
        shown[1] += ", its commit under way" * self.under_way
        for branch in self.branches:
            known = ", voted" * branch.voted + ", done" * branch.done
            jobs = "".join(f"; to do: {job}" for job in branch.jobs)
            shown.append(f"branch: {', unsynced '.join(branch.rows)}{known}{jobs}")
        return " | ".join(shown)


class Protocol(NamedTuple):
    """How many take part, what the decider is, and which rule, if any, is left out.

    The decider is a queue space, or an application's database: there nothing is seen of the coordinator's branch before
    the decision, as it is the transaction that a connection has open; what ends it is the opposite record, under the
    key that the decision would have.
    """

    branches: int = 2
    recoverers: int = 2
    administrators: int = 1
    database: bool = False
    restores: bool = False
    without: str = ""

    def has(self, rule: str) -> bool:
        """Return whether a rule holds."""
        return rule != self.without

    def start(self) -> State:
        """Return the state in the beginning: each branch has done its work, and nothing is prepared."""
        return State((NOTHING,), BEGUN, False, (Branch((ACTIVE,)),) * self.branches)


Steps = Iterator[tuple[str, State]]


def with_branch(state: State, index: int, branch: Branch) -> State:
    """Return a state with another value of one branch."""
    branches = sorted((*state.branches[:index], branch, *state.branches[index + 1 :]))
    return State(state.decider, state.coordinator, state.under_way, tuple(branches))


# ---- the decider ----------------------------------------------------------------------------------------------------


def answer(protocol: Protocol, state: State) -> str | None:
    """Return what is to be done next about a branch, to whoever asks the decider; None where it presumes nothing."""
    row = state.decider[-1]
    if row == DECIDED:
        return COMMIT
    if row.startswith(SET_BACK) and row != ACTIVE_AGAIN:
        # The branch names a beginning that the decider does not know.
        return None if protocol.has("a decider set back presumes nothing") else ROLL_BACK
    if row == NOTHING and not protocol.has("the beginning that a branch names is durable"):
        return None
    undecided = row in (ACTIVE, ACTIVE_AGAIN) or (protocol.database and row == NOTHING)
    asked = protocol.has("the decider is asked whether the coordinator lives")
    return END_AT_DECIDER if undecided and asked and protocol.has("it is ended at the decider first") else ROLL_BACK


def ended_at_decider(protocol: Protocol, state: State) -> tuple[tuple[str, ...], str | None]:
    """Return the decider's rows after an end of the coordinator's branch there, and what is to be done next.

    WHERE active, or the opposite record under the decision's key; where that meets no row, what is there holds. Synced.
    """
    row = state.decider[-1]
    if row == ACTIVE or (protocol.database and row == NOTHING):
        ended = OPPOSITE if protocol.database else ROLLED_BACK
        return ((ended,) if protocol.has("its end at the decider is synced") else (*state.decider, ended)), ROLL_BACK
    if row == ACTIVE_AGAIN:
        return (SET_BACK_DECIDED,), ROLL_BACK
    return state.decider, COMMIT if row == DECIDED else None if row.startswith(SET_BACK) else ROLL_BACK


def decides(protocol: Protocol, state: State) -> Steps:
    """Let the deciding commit arrive: WHERE active, with the decision, synced. Its reply may be lost."""
    if not state.under_way:
        return
    free = state.decider[-1] == (NOTHING if protocol.database else ACTIVE)
    free = free or not protocol.has("the deciding commit names the active branch")
    decided = (DECIDED,) if protocol.has("the decision is synced") else (*state.decider, DECIDED)
    decider, says = (decided, SAYS_COMMITTED) if free else (state.decider, SAYS_ROLLED_BACK)
    arrives = f"the deciding commit {'is done' if free else 'is refused'}"
    if state.coordinator == DECIDING:
        yield arrives, State(decider, says, False, state.branches)
        yield f"{arrives}, without a reply", State(decider, UNKNOWN, False, state.branches)
    else:
        yield arrives, State(decider, state.coordinator, False, state.branches)


def removes(protocol: Protocol, state: State) -> Steps:
    """Remove the decision, unsynced, when all branches are done and the caller knows, or is dead; remove the opposite
    record when nobody can decide any more."""
    decider, says, under_way, branches = state
    known = says not in (DECIDING, UNKNOWN) or not protocol.has("a decision stays until the caller knows it")
    if decider[-1] == DECIDED and known and all(branch.done for branch in branches):
        yield "the decision is removed, unsynced", State((*decider, FORGOTTEN), says, under_way, branches)
    if decider[-1] == OPPOSITE:
        gone = says in (DEAD, SAYS_ROLLED_BACK) or not protocol.has("an opposite record outlives the coordinator")
        if gone and not (under_way and protocol.has("an opposite record outlives what the coordinator sent")):
            yield "the opposite record is removed, unsynced", State((*decider, NOTHING), says, under_way, branches)


# ---- the coordinator ------------------------------------------------------------------------------------------------


def coordinates(protocol: Protocol, state: State) -> Steps:
    """Record its branch, prepare the others, decide; it may give up before it decides, and die at any time.

    One that dies before it has recorded its branch leaves what any transaction leaves; so this is not among the steps.
    """
    decider, says, under_way, branches = state
    if says == BEGUN:
        rows = decider if protocol.database else (*decider, ACTIVE)
        yield "the coordinator records its branch at the decider, unsynced", State(rows, PREPARING, False, branches)
        return
    if says == PREPARING:
        if all(branch.voted for branch in branches):
            yield "the coordinator sends the deciding commit", State(decider, DECIDING, True, branches)
        yield "the coordinator gives up", State(decider, SAYS_ROLLED_BACK, False, branches)
        if decider[-1] == ACTIVE:
            ended = (*decider, ROLLED_BACK)
            yield "the coordinator gives up, and rolls back unsynced", State(ended, SAYS_ROLLED_BACK, False, branches)
        if decider[-1] == NOTHING and not protocol.has("a branch that is gone is not recorded again"):
            yield "the coordinator records its branch again", State((*decider, ACTIVE), says, under_way, branches)
    if says == DECIDING:
        yield "the coordinator's connection breaks", State(decider, UNKNOWN, under_way, branches)
    if says == UNKNOWN:
        # What is only read may become untrue by what is under way; so the end at the decider is tried.
        rows, job = ended_at_decider(protocol, state)
        rows = rows if protocol.has("an unknown outcome is looked up by an end at the decider") else decider
        if job is not None:
            found = SAYS_COMMITTED if job == COMMIT else SAYS_ROLLED_BACK
            yield "the coordinator looks the outcome up", State(rows, found, under_way, branches)
    if says not in (DEAD, SAYS_ROLLED_BACK):
        yield "the coordinator dies", State(decider, DEAD, under_way, branches)


def follows(protocol: Protocol, state: State) -> Steps:
    """Let a branch prepare, WHERE active, synced, maybe late; and follow the coordinator, unsynced."""
    says = state.coordinator
    early = says == BEGUN and not protocol.has("the decider's branch is recorded before any prepare")
    for index, branch in enumerate(state.branches):
        row = branch.rows[-1]
        if row == ACTIVE and (says != BEGUN or early):
            prepared = branch.wrote(PREPARED, synced=protocol.has("a prepare is synced"))
            yield "a branch prepares, without a reply", with_branch(state, index, prepared)
            if says == PREPARING or early:
                yield "a branch prepares", with_branch(state, index, prepared._replace(voted=True))
                read_only = Branch((READ_ONLY,), True, True, branch.jobs)
                yield "a branch is read-only", with_branch(state, index, read_only)
        if row == PREPARED and says == PREPARING and not branch.voted:
            yield "the coordinator asks for a vote again", with_branch(state, index, branch._replace(voted=True))
        job = {SAYS_COMMITTED: COMMIT, SAYS_ROLLED_BACK: ROLL_BACK}.get(says, NOTE)
        if row in AS_DECIDED.get(job, ()):
            ended = branch.wrote(AS_DECIDED[job][row], synced=False)
            if job == COMMIT and not protocol.has("a branch is looked at before it is noted as done"):
                ended = ended.to_do(NOTE)
            yield f"a branch follows the coordinator: {job}, unsynced", with_branch(state, index, ended)


# ---- recoverers and the administrator -------------------------------------------------------------------------------


def asks(protocol: Protocol, state: State) -> Steps:
    """Let a recoverer ask the decider about a branch that waits or was ended by hand, or see there one to be done."""
    jobs = [job for branch in state.branches for job in branch.jobs if job not in BY_HAND.values()]
    told = answer(protocol, state)
    if told is None or len(jobs) >= protocol.recoverers:
        return
    for index, branch in enumerate(state.branches):
        if branch.rows[-1] in (PREPARED, HCO, HAB) or (told == COMMIT and not branch.done):
            yield f"a recoverer asks the decider, and is to {told}", with_branch(state, index, branch.to_do(told))


def recovers(protocol: Protocol, state: State) -> Steps:
    """Let a recoverer do what it is to do since it asked."""
    for index, branch in enumerate(state.branches):
        row = branch.rows[-1]
        if END_AT_DECIDER in branch.jobs:
            rows, then = ended_at_decider(protocol, state)
            ended = with_branch(state, index, branch.to_do(then, END_AT_DECIDER))
            yield "a recoverer ends the coordinator's branch at the decider", ended._replace(decider=rows)
        if ROLL_BACK in branch.jobs:
            rolled_back = branch.wrote(AS_DECIDED[ROLL_BACK].get(row, row), synced=False).to_do(None, ROLL_BACK)
            yield "a recoverer rolls a branch back, unsynced", with_branch(state, index, rolled_back)
        if COMMIT in branch.jobs:
            committed = followed(protocol, branch).to_do(NOTE, COMMIT)
            yield "a recoverer commits a branch, or finds none, synced", with_branch(state, index, committed)
        if NOTE in branch.jobs:
            looked_at = protocol.has("a branch is looked at before it is noted as done")
            done = branch.done or (state.decider[-1] == DECIDED and (looked_at or len(branch.rows) == 1))
            noted = branch._replace(done=done).to_do(None, NOTE)
            yield "a recoverer notes a branch as done", with_branch(state, index, noted)


def followed(protocol: Protocol, branch: Branch) -> Branch:
    """Return a branch after a synced step that commits it, WHERE prepared; compares what was ended by hand; or finds
    nothing, which is durable then, too."""
    row = branch.rows[-1]
    found = AS_DECIDED[COMMIT].get(row, row)
    if row == HAB and not protocol.has("a heuristic end is compared before the branch is noted as done"):
        found = HAB
    if row == HAB and not protocol.has("a commit names the state that it ends"):
        found = TWICE
    return branch.wrote(found, synced=protocol.has("what is noted as done was synced"))


def administers(protocol: Protocol, state: State) -> Steps:
    """Let the administrator ask the decider about a branch, and end it later; let qforgettrans forget what differs.

    An outcome that is known is carried out as a recoverer does it; its opposite is refused, and is no step. Undecided:
    qaborttrans ends it at the decider first, qcommittrans is heuristic. Not reached, or set back: both are.
    """
    jobs = [job for branch in state.branches for job in branch.jobs]
    free = len(jobs) < protocol.recoverers + protocol.administrators and not {*jobs}.intersection(BY_HAND.values())
    told = answer(protocol, state)
    if told == END_AT_DECIDER and not protocol.has("qaborttrans ends it at the decider first"):
        told = ROLL_BACK
    for index, branch in enumerate(state.branches):
        row = branch.rows[-1]
        if free and protocol.administrators and row in (PREPARED, RESTORED):
            if told is not None and row == PREPARED:
                yield f"the administrator asks, and is to {told}", with_branch(state, index, branch.to_do(told))
            for job in BY_HAND.values():
                yield f"the administrator is to {job}", with_branch(state, index, branch.to_do(job))
        for end, job in BY_HAND.items():
            if job in branch.jobs:
                ended = ended_by_hand(protocol, branch, end).to_do(None, job)
                yield f"the administrator ends a branch as {end}, synced", with_branch(state, index, ended)
        if row in (HCO_DIFFERS, HAB_DIFFERS) or (row in (HCO, HAB) and state.decider[-1].startswith(SET_BACK)):
            yield "qforgettrans", with_branch(state, index, branch.wrote(REPORTED, synced=True))
        if row in (HCO, HAB) and not protocol.has("a heuristic end is compared before it is forgotten"):
            lost = branch.wrote({HCO: COMMITTED, HAB: ROLLED_BACK}[row], synced=True)
            yield "qforgettrans, before it was compared", with_branch(state, index, lost)


def ended_by_hand(protocol: Protocol, branch: Branch, end: str) -> Branch:
    """Return a branch that was ended without the decision: WHERE prepared, synced, and recorded in its row."""
    found = {PREPARED: end, RESTORED: REPORTED}.get(branch.rows[-1], branch.rows[-1])
    if found == end and not protocol.has("a heuristic end is recorded"):
        found = {HCO: COMMITTED, HAB: ROLLED_BACK}[end]
    return branch.wrote(found, synced=True)


# ---- the world ------------------------------------------------------------------------------------------------------


def crashes(protocol: Protocol, state: State) -> Steps:
    """Let a participant lose an end of what is not synced; the decider may lose its notes, and an open transaction."""
    decider, says, under_way, branches = state
    if protocol.database:
        says = {PREPARING: SAYS_ROLLED_BACK, DECIDING: UNKNOWN}.get(says, says)
        under_way = False
    unnoted = tuple(sorted(branch._replace(done=branch.rows[-1] == READ_ONLY) for branch in branches))
    for length in range(1, len(decider) + 1):
        yield "the decider crashes", State(decider[:length], says, under_way, branches)
        yield "the decider crashes, and loses its notes", State(decider[:length], says, under_way, unnoted)
    for index, branch in enumerate(branches):
        for length in range(1, len(branch.rows)):
            lost = branch._replace(rows=branch.rows[:length])
            yield "a branch's participant crashes", with_branch(state, index, lost)


def ends_the_active(protocol: Protocol, state: State) -> Steps:
    """Let a participant end an active branch whose owner it takes for dead: the decider synced, others as they like."""
    for index, branch in enumerate(state.branches):
        if branch.rows[-1] == ACTIVE:
            ended = branch.wrote(ROLLED_BACK, synced=True)
            yield "a participant ends an active branch", with_branch(state, index, ended)
    if state.decider[-1] in (ACTIVE, ACTIVE_AGAIN):
        rows, _ = ended_at_decider(protocol, state)
        yield "the decider ends its active branch", state._replace(decider=rows)


def restores(protocol: Protocol, state: State) -> Steps:
    """Set the decider back to before this transaction; put a copy with a prepared branch in a participant's place."""
    row = state.decider[-1]
    decided = is_decided(state)
    if not protocol.restores:
        return
    if row != NOTHING and (not row.startswith(SET_BACK) or row == ACTIVE_AGAIN):
        yield "the decider is set back", state._replace(decider=(SET_BACK_DECIDED if decided else SET_BACK,))
    if row in (DECIDED, FORGOTTEN) and not protocol.has("no decider is set back to between beginning and decision"):
        yield "the decider is set back, to where it was active", state._replace(decider=(ACTIVE_AGAIN,))
    if row in (SET_BACK, SET_BACK_DECIDED) and not protocol.has("no later beginning is taken for that of a branch"):
        yield "others raise the decider's counter", state._replace(decider=(FORGOTTEN if decided else ROLLED_BACK,))
    for index, branch in enumerate(state.branches):
        if branch.rows[-1] in (COMMITTED, ROLLED_BACK) and branch.voted:
            copy = branch.wrote(RESTORED if protocol.has("a restored branch is marked") else PREPARED, synced=True)
            yield "a copy of a participant is restored", with_branch(state, index, copy)


Actor = Callable[[Protocol, State], Steps]
BY_ITSELF: tuple[Actor, ...] = (asks, recovers, removes, decides, ends_the_active)
ACTORS: tuple[Actor, ...] = (*BY_ITSELF, coordinates, follows, administers, crashes, restores)


def steps_of(protocol: Protocol, state: State, actors: Iterable[Actor] = ACTORS) -> Steps:
    """Yield what may follow a state."""
    return (step for actor in actors for step in actor(protocol, state))


# ---- what must hold -------------------------------------------------------------------------------------------------


def is_decided(state: State) -> bool:
    """Return whether the decision was made, whoever still knows it."""
    return state.decider[-1] in (DECIDED, FORGOTTEN, SET_BACK_DECIDED, ACTIVE_AGAIN)


def wrong(state: State) -> str | None:
    """Return what must not be: a branch or a caller that is not as was decided, and nobody is told."""
    decided = is_decided(state)
    if state.coordinator == (SAYS_ROLLED_BACK if decided else SAYS_COMMITTED):
        return "the caller was told the opposite"
    rows = {branch.rows[-1] for branch in state.branches}
    if TWICE in rows:
        return "a branch is ended twice"
    if (ROLLED_BACK if decided else COMMITTED) in rows:
        return "a branch is not as was decided"
    if (HCO_DIFFERS if decided else HAB_DIFFERS) in rows:
        return "a difference is recorded that is none"
    return None


def is_over(state: State) -> bool:
    """Return whether nothing is left that waits; what a decider set back presumes nothing of waits for a person."""
    waiting = (ACTIVE,) if state.decider[-1].startswith(SET_BACK) else (ACTIVE, PREPARED, HCO, HAB)
    left = any(branch.rows[-1] in waiting for branch in state.branches)
    return not left and not state.under_way and state.decider[-1] not in (ACTIVE, ACTIVE_AGAIN, DECIDED, OPPOSITE)


def explored(protocol: Protocol) -> Explored[State]:
    """Explore all that may happen; then whether, once the coordinator does no more, all comes to an end by itself."""
    found = explore(protocol.start(), lambda state: steps_of(protocol, state), wrong)
    if found.wrong is not None:
        return found
    left = [state for state in found.states if state.coordinator in (DEAD, SAYS_COMMITTED, SAYS_ROLLED_BACK)]
    stuck = without_an_end(left, lambda state: steps_of(protocol, state, BY_ITSELF), is_over)
    if stuck is None:
        return found
    return Explored(found.states, "something waits for ever", trace(found.states, stuck))
