"""The state machine of transactions over two volumes: what coordinators and administrators do, beside plain lists."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from qmadmin.space import QueueSpace
from qmcore.errors import HeuristicError, ProtocolError, UnknownXidError
from qmcore.message import State
from qmcore.probe import Point, Probe
from qmcore.records import Outcome
from tests.fix_distributed import Pair, make_pair
from tests.fix_store import attachment_of, eventually
from tests.store.distributed_child import Answer, Coordinator
from tests.store.distributed_model import SPACES, Ledger, Transacting

DECIDES = "qmcore.acts.deciding:decide"
BEFORE = [
    ("qmcore.acts.preparing:begin", "call"),
    ("qmcore.acts.preparing:prepare", "call"),
    ("qmcore.acts.preparing:prepare", "return"),
    (DECIDES, "call"),
]
"""Steps before the decision."""
AFTER = [
    (DECIDES, "return"),
    ("qmcore.acts.recovering:complete", "call"),
    ("qmcore.acts.recovering:complete", "return"),
]
"""Steps behind it."""

actors = st.integers(0, 2)
names = st.sampled_from(SPACES)
operations = st.lists(st.tuples(st.sampled_from(["put", "take", "take"]), names), min_size=1, max_size=4)


@dataclasses.dataclass(eq=False)
class Suspended:
    """A transaction that a coordinator has suspended in a queue space, and that is still its own."""

    token: str
    transaction: Transacting
    owner: int
    id: str


@dataclasses.dataclass(eq=False)
class Halted:
    """A coordinator that stands still in the middle of its commit."""

    transaction: Transacting
    place: tuple[str, str]
    is_refused: bool = False
    """Whether it was given up."""

    @property
    def is_decided(self) -> bool:
        return self.place in AFTER


class TwoVolumesMachine(RuleBasedStateMachine):
    """Two queue spaces on volumes of their own, three coordinators, and the lists."""

    kinds = "file-file"

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        shm = Path("/dev/shm")  # a disk that needs no time to sync, where there is one
        where = self.stack.enter_context(tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None))
        # What recovery has committed, at a decider, or of a branch: it opens devices of its own.
        self.recovered: list[object] = []
        patch = self.stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(Probe, "actions", {Point.AFTER_COMMIT: (self.note_recovery,)})
        self.pair: Pair = make_pair(self.kinds, Path(where), self.url())
        self.ledger = Ledger()
        self.coordinators: dict[int, Coordinator] = {}
        self.open: dict[int, Transacting] = {}
        self.halted: dict[int, Halted] = {}
        self.suspended: list[Suspended] = []
        self.numbers = itertools.count(1)

    def url(self) -> str:
        """Return what a schema on a server is named after, for kinds with one."""
        return ""

    def note_recovery(self, fact: object) -> None:
        """Note a commit of the thread that ends what is in doubt."""
        if threading.current_thread().name == "qmadmin-recovery":
            self.recovered.append(fact)

    def teardown(self) -> None:
        try:
            for actor in list(self.coordinators):
                self.die(actor)
            self.pair.wait_until_settled()
            self.compare()
        finally:
            for coordinator in self.coordinators.values():
                coordinator.kill()
            self.pair.close()
            self.stack.close()

    def space(self, name: str) -> QueueSpace:
        return self.pair.a if name == "A" else self.pair.b

    def coordinator(self, actor: int) -> Coordinator:
        """Return a coordinator, which is started at its first work and after its death."""
        if actor not in self.coordinators:
            self.coordinators[actor] = Coordinator(self.pair.configs)
        return self.coordinators[actor]

    @initialize(count=st.integers(2, 6))
    def begin_with(self, count: int) -> None:
        for name in SPACES:
            self.space(name).change_queue("Q", retries=1_000)
        for at in range(count):
            self.put_alone(SPACES[at % 2])

    # ---- work -------------------------------------------------------------------------------------------------------

    @rule(name=names)
    def put_alone(self, name: str) -> None:
        message = f"m{next(self.numbers)}"
        self.space(name).enqueue("Q", message, corrid=message)
        self.ledger.put(name, message)

    @rule(name=names)
    def take_alone(self, name: str) -> None:
        found = self.space(name).dequeue("Q")
        assert (None if found is None else found.text) == self.ledger.take(name)

    @rule(actor=actors, spaces=st.sampled_from(["AB", "AB", "BA", "A", "B"]), work=operations)
    def work(self, actor: int, spaces: str, work: list[tuple[str, str]]) -> None:
        """Have a coordinator do something in its transaction, which it begins if it has none."""
        if actor in self.halted:
            return
        coordinator = self.coordinator(actor)
        if actor not in self.open:
            assert coordinator.ask("begin", spaces) == ("done", None)
            self.open[actor] = Transacting(spaces)
        if (mine := self.open[actor]).is_aborted:
            return
        for verb, name in work:
            if name not in mine.names:
                continue
            if verb == "take":
                assert coordinator.ask("take", name) == ("done", self.ledger.take(name, mine))
            else:
                message = f"m{next(self.numbers)}"
                assert coordinator.ask("put", name, message) == ("done", None)
                self.ledger.put(name, message, mine)

    def some(self, data: Any, whom: dict[int, Any]) -> int:
        return int(data.draw(st.sampled_from(sorted(whom))))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def roll_back(self, data: Any) -> None:
        actor = self.some(data, self.open)
        assert self.coordinators[actor].ask("rollback") == ("done", None)
        self.ledger.roll_back(self.open.pop(actor))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def commit(self, data: Any) -> None:
        actor = self.some(data, self.open)
        mine = self.open.pop(actor)
        self.ended(mine, self.coordinators[actor].ask("commit"), is_refused=mine.is_aborted)

    @rule(
        actor=actors,
        spaces=st.sampled_from(["AB", "BA"]),
        verbs=st.tuples(*[st.sampled_from(["put", "take", "take"])] * 2),
        place=st.sampled_from([*BEFORE, (DECIDES, "call"), *AFTER]),
        meddles=st.booleans(),
    )
    def stand_still(
        self, actor: int, spaces: str, verbs: tuple[str, str], place: tuple[str, str], meddles: bool
    ) -> None:
        """Have a coordinator work on both, and stand still at a step of its commit, if that comes to it."""
        if actor in self.halted or actor in self.open:
            return
        self.work(actor, spaces, list(zip(verbs, spaces, strict=True)))
        mine = self.open.pop(actor)
        if (answer := self.coordinators[actor].ask("commit", *place))[0] != "halted":
            self.ended(mine, answer, is_refused=False)
            return
        self.halted[actor] = Halted(mine, place)
        if place in AFTER:
            self.follow(actor, meddles=meddles)

    def follow(self, actor: int, *, meddles: bool) -> None:
        """See that what is decided follows without its coordinator, whoever meddles."""
        mine = self.halted[actor].transaction
        for name, xid in self.in_doubt(actor) if meddles else ():
            # Recovery may come first.
            with contextlib.suppress(UnknownXidError), pytest.raises(ProtocolError, match="has decided"):
                self.space(name).abort_transaction(xid)
            with contextlib.suppress(UnknownXidError):
                assert self.space(name).commit_transaction(xid) is False

        def has_followed() -> bool:
            self.look()
            return not self.in_doubt(actor)

        eventually(has_followed, "the commit of what was decided")
        self.ledger.commit(mine)

    def ended(self, mine: Transacting, answer: Answer, *, is_refused: bool) -> None:
        """Have the lists do what a commit has done."""
        if is_refused:
            assert answer == ("refused", "AbortedError")
            # Of what an administrator has left to it.
            self.ledger.roll_back(mine, counts=False)
        else:
            assert answer == ("done", None)
            self.ledger.commit(mine)

    def in_doubt(self, actor: int) -> list[tuple[str, str]]:
        """Return where a coordinator that stands still has prepared branches, and what they are named."""
        pid = self.coordinators[actor].pid
        return [
            (name, info.name)
            for name in SPACES
            for info in self.space(name).transactions()
            if info.state is Outcome.PREPARED and info.owner and info.owner.pid == pid
        ]

    @precondition(lambda self: self.halted)
    @rule(data=st.data())
    def go_on(self, data: Any) -> None:
        """Let a coordinator go on that stood still; where it was given up, it is refused."""
        actor = self.some(data, self.halted)
        halted = self.halted.pop(actor)
        self.ended(halted.transaction, self.coordinators[actor].ask("go_on"), is_refused=halted.is_refused)
        self.forget_heuristic()

    # ---- suspending -------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.ones_to_suspend())
    @rule(data=st.data())
    def suspend(self, data: Any) -> None:
        actor = self.some(data, self.ones_to_suspend())
        mine = self.open.pop(actor)
        status, token = self.coordinators[actor].ask("suspend")
        assert status == "done", token
        known = {each.id for each in self.suspended}
        (info,) = [
            info
            for info in self.space(mine.names).transactions()
            if info.suspended_us is not None and info.id not in known
        ]
        self.suspended.append(Suspended(token, mine, actor, info.id))

    def ones_to_suspend(self) -> dict[int, Transacting]:
        return {actor: mine for actor, mine in self.open.items() if len(mine.names) == 1 and not mine.is_aborted}

    @precondition(lambda self: self.suspended)
    @rule(actor=actors, data=st.data())
    def resume(self, actor: int, data: Any) -> None:
        if actor in self.open or actor in self.halted:
            return
        one = data.draw(st.sampled_from(self.suspended))
        answer = self.coordinator(actor).ask("resume", one.transaction.names, one.token)
        self.suspended.remove(one)
        if one.transaction.is_aborted:
            assert answer == ("refused", "NotSuspendedError")
        else:
            assert answer == ("done", None)
            self.open[actor] = one.transaction

    # ---- death and recovery -----------------------------------------------------------------------------------------

    @precondition(lambda self: self.coordinators)
    @rule(data=st.data())
    def kill(self, data: Any) -> None:
        """Kill a coordinator, wherever it stands."""
        self.die(self.some(data, self.coordinators))

    def die(self, actor: int) -> None:
        self.coordinators.pop(actor).kill()
        halted = self.halted.pop(actor, None)
        if halted is not None:
            (self.ledger.commit if halted.is_decided else self.ledger.roll_back)(halted.transaction)
        mine = self.open.pop(actor, None)
        if mine is not None:
            self.ledger.roll_back(mine)
        self.lose_suspended(actor)
        self.settle()

    def lose_suspended(self, actor: int) -> None:
        """Let go of what a coordinator has suspended."""
        for one in [one for one in self.suspended if one.owner == actor]:
            self.ledger.roll_back(one.transaction)
            self.suspended.remove(one)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), after=st.sampled_from([0.0, 0.001, 0.002, 0.004]))
    def kill_in_its_commit(self, data: Any, after: float) -> None:
        """Kill a coordinator anywhere in its commit: all of it is done, or nothing of it."""
        actor = self.some(data, self.open)
        if self.open[actor].is_aborted:
            # How far it comes with its rollback decides whether that was a try.
            return
        mine = self.open.pop(actor)
        self.coordinators[actor].begin("commit")
        self.coordinators.pop(actor).kill(after)
        self.lose_suspended(actor)
        self.settle()
        seen = {name: self.ready(name) for name in mine.names}
        rolled_back, committed = (
            {name: self.ledger.ready_after(name, mine, commits=commits) for name in mine.names}
            for commits in (False, True)
        )
        assert seen in (rolled_back, committed)
        (self.ledger.commit if seen == committed else self.ledger.roll_back)(mine)

    @rule()
    def open_again(self) -> None:
        """Close both devices, and open them as another process would."""
        self.pair.close()
        self.pair.open()

    def settle(self) -> None:
        """Wait until nothing is left of coordinators that have died."""

        def is_settled() -> bool:
            self.look()
            return all(
                info.lives or info.state.is_heuristic for name in SPACES for info in self.space(name).transactions()
            )

        eventually(is_settled, "the end of what the dead have left")
        self.forget_heuristic()

    def look(self) -> None:
        self.pair.work()
        for name in SPACES:
            attachment_of(self.space(name)).do_housekeeping(now=True)

    # ---- administrators ---------------------------------------------------------------------------------------------

    @precondition(lambda self: self.open)
    @rule(data=st.data(), name=names)
    def abort(self, data: Any, name: str) -> None:
        """Abort what a coordinator works on, in one of the queue spaces."""
        actor = self.some(data, self.open)
        mine, pid = self.open[actor], self.coordinators[actor].pid
        suspended = {one.id for one in self.suspended}
        for info in self.space(name).transactions():
            if info.owner.pid == pid and info.id not in suspended:
                assert self.space(name).abort_transaction(info.id) is False
                mine.is_aborted = True
                self.ledger.roll_back(mine, name)

    @precondition(lambda self: self.suspended)
    @rule(data=st.data())
    def abort_suspended(self, data: Any) -> None:
        one = data.draw(st.sampled_from(self.suspended))
        mine = one.transaction
        if not mine.is_aborted:
            assert self.space(mine.names).abort_transaction(one.id) is False
            mine.is_aborted = True
            self.ledger.roll_back(mine)

    @precondition(lambda self: self.ones_in_doubt())
    @rule(data=st.data(), commits=st.booleans())
    def end_what_is_in_doubt(self, data: Any, commits: bool) -> None:
        """End the prepared branch of a coordinator that stands still before its decision."""
        actor = self.some(data, self.ones_in_doubt())
        halted = self.halted[actor]
        ((name, xid),) = self.in_doubt(actor)
        if commits:
            # It may be decided otherwise.
            assert self.space(name).commit_transaction(xid) is True
            self.ledger.commit(halted.transaction, name)
        else:
            # The coordinator is given up at the decider, so that it cannot.
            assert self.space(name).abort_transaction(xid) is False
            halted.is_refused = True
            self.ledger.roll_back(halted.transaction)

    @precondition(lambda self: self.ones_in_doubt())
    @rule()
    def wait_for_recovery(self) -> None:
        """Let recovery ask about what is in doubt: a coordinator that lives is waited for, whoever asks."""
        before = len(self.recovered)

        def has_asked() -> bool:
            self.look()
            return len(self.recovered) > before

        eventually(has_asked, "recovery asks the decider")

    def ones_in_doubt(self) -> dict[int, Halted]:
        """Return the coordinators that stand still between the last preparation and the decision."""
        return {
            actor: halted
            for actor, halted in self.halted.items()
            if halted.place == (DECIDES, "call") and self.in_doubt(actor)
        }

    def forget_heuristic(self) -> None:
        """Forget what was ended without the decision, when it is compared; what was ended so goes by itself."""
        standing = [self.coordinators[actor].pid for actor in self.halted]

        def is_forgotten() -> bool:
            self.look()
            left = 0
            for space in map(self.space, SPACES):
                for info in space.transactions():
                    if info.state.is_heuristic and not (info.owner and info.owner.pid in standing):
                        left += 1
                        if info.decided:
                            with contextlib.suppress(HeuristicError):
                                space.tpc_forget(info.xid)
            return left == 0

        eventually(is_forgotten, "the comparison of heuristic ends")

    # ---- what must hold at all times --------------------------------------------------------------------------------

    def ready(self, name: str) -> list[tuple[str, int]]:
        return [
            ((info.corrid or b"").decode(), info.retries)
            for info in self.space(name).messages("Q")
            if info.state is State.READY
        ]

    @invariant()
    def compare(self) -> None:
        for name in SPACES:
            infos = list(self.space(name).messages("Q"))
            assert self.ready(name) == self.ledger.ready(name)
            held = sorted((info.corrid or b"").decode() for info in infos if info.state is State.HELD)
            assert held == self.ledger.held(name)
            usage = self.space(name).usage("Q")
            assert (usage.enqueued, usage.dequeued) == (self.ledger.enqueued[name], self.ledger.dequeued[name])
            assert (usage.messages, usage.ready, usage.held) == (len(infos), len(infos) - len(held), len(held))
