"""What a store does to messages, in a transaction of one session beside those of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import psycopg

from qmcore.purpose import WrongPurposeError
from qmcore.refusals import Reason, Refused
from qmcore.transitions import (
    Admit,
    Arrival,
    Claim,
    Claimed,
    Command,
    Commit,
    Committed,
    Dispose,
    Disposed,
    Empty,
    Enqueue,
    Enqueued,
    Reached,
    Result,
)
from qmcore.two_phase import Begin, Decide, Prepare
from qmstorage import disposing
from qmstorage.claiming import begin_holding
from qmstorage.decisions import decide
from qmstorage.postgres import arriving, claiming, settling
from qmstorage.postgres.pipeline import Call
from qmstorage.refused import RefusedError
from qmstorage.settling import begin, follow, prepare, spill
from qmstorage.statements import Row
from qmstorage.unit import SqlUnit


class Transitions(SqlUnit):
    """What a store does to messages: one function of the server for each transition, whoever asks."""

    schema: str
    lock_key: int
    slot: int
    row_type: int
    heard: list[str]
    awaited: dict[int, bool]
    """Whether somebody waits for a queue that messages have come to, where the server has said so."""

    def execute(self, commands: Sequence[Command]) -> Sequence[Result]:
        """Execute commands, and return what came of each.

        Raises RefusedError where one is refused: the caller undoes the others.
        """
        results: list[Result] = []
        for command in commands:
            try:
                result: Result | Refused = _VERBS[type(command)](self, command)
            except RefusedError as error:
                result = error.refused
            if isinstance(result, Refused):
                raise RefusedError(result._replace(command=len(results)))
            results.append(result)
        return results

    def claim(self, command: Claim) -> Claimed | Empty | Refused:
        """Take messages out of a queue: they go for good, or a transaction holds them."""
        return claiming.claim(self, command)

    def enqueue(self, command: Enqueue) -> Enqueued | Refused:
        """Let messages arrive in a queue."""
        if command.holder is not None:
            return spill(self, command, begin_holding)
        if not self.purpose.settles:
            raise WrongPurposeError(self.purpose, "lets messages arrive")
        space_id, has_apart = command.guard.space_id, False
        has_memory = self.memory(space_id) is not None

        def keep_apart(arrival: Arrival, number: int) -> None:
            nonlocal has_apart
            has_apart = True
            store = self.memory(space_id) if arrival.terms.memory else self
            assert store is not None  # noqa: S101 - the message is there
            store.bodies.put(number, arrival.body)

        def call(kind: arriving.Kind, values: dict[str, Any]) -> list[int] | None:
            found: list[int] | None = self.ask(arriving.call_of(self.schema, kind), values)[0][0]
            return found

        result = arriving.enqueue(command, self, has_memory, self.clock.now(), call, keep_apart)
        if isinstance(result, Refused):
            return result
        enqueued, answer = result
        self.heard.append(answer.transaction_number)
        arriving.note(self, command.route, is_awaited=answer.is_awaited)
        if has_apart:
            # Who waits is asked after the commit: the answer is old by then.
            self.awaited.clear()
        return enqueued

    def settle(self, command: Commit) -> Committed | Refused:
        """Commit a transaction: what it holds goes, and what it brings arrives."""
        return settling.commit(self, command)

    def dispose(self, command: Dispose) -> Disposed | Refused:
        """Dispose of messages of a queue that were looked at just now."""
        return disposing.dispose(self, command, self.clock.now())

    def follow(self, command: Commit) -> Sequence[Reached]:
        """Do in memory what a commit meant that the disk has seen alone; return the capacity commands to start."""
        return follow(self, command, self.clock.now())

    def ask(self, call: Call, values: dict[str, Any]) -> list[Row]:
        """Call a function of the server, and return the rows that it gives."""
        try:
            self.cursor.execute(call.for_cursor, call.values_for_cursor(values))
            return self.cursor.fetchall()
        except psycopg.Error as error:
            refused = refused_by(error)
            if refused is None:
                raise
            raise RefusedError(refused) from error


def asks_first(command: Command) -> bool:
    """Return whether a command begins with a call of a function, which takes the lock of the volume."""
    if isinstance(command, Enqueue):
        return command.holder is None
    return isinstance(command, Commit) or (isinstance(command, Claim) and claiming.is_of_first(command))


def asks_only(unit: Transitions, command: Command) -> tuple[Call, dict[str, Any]] | None:
    """Return the call by which a command is done, where it takes no other statement; else None."""
    if isinstance(command, Commit):
        return settling.asks_only(unit, command)
    if isinstance(command, Claim) and claiming.is_one_call(command):
        return claiming.asked(command, unit, unit.clock.now(), unit.purpose)
    return None


def refused_by(error: psycopg.Error) -> Refused | None:
    """Return the refusal of a function that it has told by an error, which undoes all; None where it is another one."""
    if error.sqlstate != _REFUSAL:
        return None
    reason, used, limit, wanted = map(int, (error.diag.message_detail or "").split())
    return Refused(Reason(reason), used, limit, wanted)


_REFUSAL: Final = "Q0001"
_VERBS: Final[dict[type, Callable[[Transitions, Any], Result | Refused]]] = {
    Enqueue: Transitions.enqueue,
    Claim: claiming.claim,
    Admit: settling.admit,
    Commit: settling.commit,
    Dispose: Transitions.dispose,
    Begin: begin,
    Prepare: prepare,
    Decide: decide,
}
