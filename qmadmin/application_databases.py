"""The databases of an application in a transaction over several resources, and what the process knows of them."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from qmadmin.over_volumes import taken_twice
from qmadmin.participating import DecidingDatabase, branch_of, chosen, decider_of
from qmcore.acts.deciding import ERA_US
from qmcore.acts.returning import PLAIN, Cause, Ending
from qmcore.application_database import TABLE, ApplicationDatabase, DatabaseFacts, WrittenDecision
from qmcore.errors import InvalidArgumentError, ProtocolError, QueueError
from qmcore.numbers import random_number
from qmcore.queue import Delivery
from qmcore.two_phase import Era

if TYPE_CHECKING:
    from qmadmin.attachment import Attachment
    from qmadmin.participating import Part
    from qmcore.acts.deciding import Decider
    from qmcore.acts.transaction_part import Branch
    from qmcore.port import Unit
    from qmcore.times import Clock
    from qmcore.xid import Xid

logger = logging.getLogger("qmadmin.transacting")

_ROUND_SECONDS: Final = 1.0
"""How often recovery looks into a database that transactions work with."""


class KnownDatabase:
    """What a process knows of a database that takes part in its transactions; safe for several threads."""

    def __init__(self, facts: DatabaseFacts, clock: Clock) -> None:
        self.facts = facts
        self.clock = clock
        self.is_outdated = False
        """Whether it is to be asked again, after it has refused."""
        self.era: Era | None = None
        """In which this process counts decisions there."""
        self.outcomes: dict[bytes, WrittenDecision] = {}
        """Decisions of this process, whose callers know them: they are removed once all branches have followed."""
        self._told: set[Xid] = set()
        self.next_round = 0.0
        """When recovery looks there again at the earliest."""
        self.volumes: dict[str, bool] = {}
        """Whether volumes are in it, by their paths."""
        self._prepared_since: dict[Xid, float] = {}
        """When transactions were first found prepared that do not tell since when they are."""

    @property
    def instances(self) -> tuple[str, ...]:
        """By what its branches know it, whatever driver has prepared them."""
        return self.facts.instance, self.facts.table.hex()

    def instance_of(self, decider: Decider) -> str:
        """Return by what a branch knows it that it decides; another instance where it is not that decider."""
        return next((each for each in self.instances if each == decider.instance), self.facts.instance)

    def prepared(self, database: ApplicationDatabase) -> list[tuple[Xid, float]]:
        """Return the transactions of ours that are prepared there, and for how many seconds at least."""
        now, before = time.monotonic(), self._prepared_since
        found = [(xid, seconds, before.get(xid, now)) for xid, seconds in database.prepared()]
        self._prepared_since = {xid: since for xid, seconds, since in found if seconds is None}
        return [(xid, now - since if seconds is None else seconds) for xid, seconds, since in found]

    def is_round_due(self) -> bool:
        """Return whether recovery is to look there now, and not again for a while."""
        is_due = time.monotonic() >= self.next_round
        if is_due:
            self.next_round = time.monotonic() + _ROUND_SECONDS
        return is_due

    def tell_once(self, xid: Xid, sentence: str) -> None:
        """Log why a transaction stays prepared, but not again at each attempt."""
        if xid not in self._told:
            self._told.add(xid)
            logger.warning(sentence)

    # Threads may do this at the same time: two eras, or a count that is behind, say less and nothing wrong.

    def current_era(self, database: ApplicationDatabase) -> Era:
        """Return the era in which decisions are counted, which begins now unless one has begun today."""
        now, era = self.clock.now(), self.era
        if era is None or now >= era.until_us:
            era = Era(random_number(), 0, now + ERA_US)
            database.table.begin_era(era.id, now)
            self.era = era
        return era

    def count(self, era_id: int, decisions: int) -> None:
        """Note how many decisions are on the disk now."""
        era = self.era
        if era is not None and era.id == era_id and era.decisions < decisions:
            self.era = era._replace(decisions=decisions)


class _Plan(NamedTuple):
    """Who decides, where that has to be known from the beginning: a queue space by its branch, or a database."""

    gtrid: bytes
    asked: Decider
    part: Part | None
    database: ApplicationDatabase | None


class Databases:
    """The databases that take part in one transaction."""

    def __init__(
        self,
        known: Callable[[ApplicationDatabase], KnownDatabase],
        spare_part: Callable[[], Part],
        recover: Callable[[ApplicationDatabase, Sequence[ApplicationDatabase]], None],
        started_us: int,
        decider: object = None,
    ) -> None:
        """Take what is known of each, what gives a branch where one is needed to decide, and what does recovery."""
        self._all: list[ApplicationDatabase] = []
        self.known = known
        self.spare_part = spare_part
        self.started_us = started_us
        self._recover = recover
        self._wanted = decider
        self.eras: dict[str, Era] = {}
        """In which those that may decide count decisions, by their names."""
        self.failure: Exception | None = None
        """What one of them, or the library of the application, has raised at the end of the transaction."""
        self.verdict = PLAIN
        """What is said of the message `verdict_msgid`, or of all, where one of them keeps it from its end."""
        self.verdict_msgid: str | None = None
        self.begun_as: dict[str, Xid] = {}
        """The identifiers under which databases have begun that have to, by their names."""
        self._plan: _Plan | None = None
        self._joined: ApplicationDatabase | None = None
        """The one that a queue space is in, so that messages are enqueued and dequeued on its connection."""

    @property
    def is_empty(self) -> bool:
        """Whether none takes part."""
        return not self._all

    @property
    def has_queue_space(self) -> bool:
        """Whether a queue space of the transaction is in one of them, so that all is done on its connection."""
        return self._joined is not None

    def take(self, database: ApplicationDatabase) -> None:
        """Have a database take part, which `open` opens; InvalidArgumentError where its connection does already."""
        if self.includes(database):
            raise taken_twice(repr(database.connection))
        self._all.append(database)

    def drop(self, database: ApplicationDatabase) -> None:
        """Have a database take no part, of which nothing is done yet."""
        self._roll_back([database], prepared=True)
        self._all.remove(database)
        self.begun_as.pop(getattr(database, "name", ""), None)
        if not self.begun_as:
            self._plan = None
        if self._joined is database:
            self._joined = None

    def open(self, attachments: Sequence[Attachment]) -> None:
        """Begin the transactions of the application; the caller rolls back where this raises.

        What has begun already goes on. The attachments are those of queue spaces that may be in one of the databases.
        """
        new = [each for each in self._all if not each.is_open()]
        for each in new:
            each.open()
            known = self.known(each)
            others = self._all[: self._all.index(each)]
            if any(self.known(other).facts.instance == known.facts.instance for other in others):
                raise taken_twice(f"database {each.name!r}")
            if any(self._is_joined(each, attachment) for attachment in attachments):
                self._joined = each
            elif self._may_decide(each):
                refuse_without_table(each, self.known(each), self._why(each))
                self.eras[each.name] = known.current_era(each)
        if self._joined is not None and len(self._all) > 1:
            raise _joined_alone(self._joined)
        for each in new:
            self._recover_now_and_then(each, self.known(each), new)
        named = [each for each in new if each.is_named_at_begin and not self._may_decide(each)]
        for each in new:
            if each not in named:
                each.begin()
        self._refuse_undecidable()
        if (plan := self._planned(named)) is not None:
            for each in named:
                xid = self.begun_as[each.name] = branch_of(plan.gtrid, self.known(each).facts.instance, plan.asked)
                each.begin(xid)

    def includes(self, database: ApplicationDatabase) -> bool:
        """Return whether the connection of a database takes part already."""
        return any(database.connection is each.connection for each in self._all)

    def enlist_earlier_work(self, attachment: Attachment, branch: Branch) -> None:
        """See to it that what is done in a queue space already can be committed together with the databases.

        It is on the connection, where the queue space is in that database. On SQLite nobody else can write there from
        now on: who has only read could not any more once others have.
        """
        if self._joined is None:
            if not any(map(self._may_decide, self._all)):
                chosen([(attachment, branch)], None)
            return
        if branch.pending or branch.spilled:
            raise ProtocolError(
                f"the transaction has enqueued messages in queue space {attachment.opened.space.name!r}, which would"
                " come to stand behind those that are enqueued on a connection to the same database",
                hint="Have the database take part before the first message is enqueued.",
            )

        def check(unit: Unit) -> None:
            if not unit.commits_memory and not {*branch.holds, *branch.brings} <= {Delivery.PERSIST}:
                raise InvalidArgumentError(
                    f"the transaction has non-persistent messages of queue space {attachment.opened.space.name!r},"
                    " which take no part in a transaction of the application in the same file",
                    hint="Keep the application's tables in a database of their own.",
                )

        attachment.volume.write_on(self._joined.joinable, check)

    def _planned(self, named: Sequence[ApplicationDatabase]) -> _Plan | None:
        """Return who decides, as soon as databases begin that have to know that; ProtocolError where it is too late."""
        deciding = next((each for each in self._all if each is not self._joined and self._may_decide(each)), None)
        if self._plan is not None and deciding is not self._plan.database:
            assert deciding is not None  # noqa: S101 - it has come since
            raise ProtocolError(
                f"database {deciding.name!r} has to decide: {self._why(deciding)}, but others have begun already, as"
                f" {self._plan.asked.place} decides",
                hint="Have it take part before the others.",
            )
        if self._plan is None and named:
            if deciding is not None:
                known = self.known(deciding)
                its = DecidingDatabase(deciding, known, self.eras[deciding.name], self.started_us)
                self._plan = _Plan(its.gtrid, its.begin(), None, deciding)
            else:
                part = chosen([self.spare_part()], None)
                self._plan = _Plan(*decider_of(part), part, None)
        return self._plan

    def planned(self, changed: Sequence[ApplicationDatabase]) -> _Plan | None:
        """Return who decides, where databases with changes have begun so."""
        return self._plan if any(each.name in self.begun_as for each in changed) else None

    def _recover_now_and_then(
        self, database: ApplicationDatabase, known: KnownDatabase, at_hand: Sequence[ApplicationDatabase]
    ) -> None:
        if not known.is_round_due():
            return
        try:
            self._recover(database, at_hand)
        except QueueError as error:
            logger.info("recovery with database %r goes on later: %s", database.name, error)

    def connection_for(self, attachment: Attachment) -> object:
        """Return the connection on which a queue space is worked in, because it is in that database; else None."""
        for each in self._begun():
            if self._is_joined(each, attachment):
                self._joined = each
                return each.joinable
        if self._joined is not None:
            raise _joined_alone(self._joined)
        return None

    def joined_with(self, parts: Sequence[Part]) -> ApplicationDatabase | None:
        """Return the one in which the queue spaces of some branches are, so that all is one database transaction."""
        joined = self._joined
        if joined is None or not parts or not all(self._is_joined(joined, attachment) for attachment, _ in parts):
            return None
        return joined

    def changed(self) -> list[ApplicationDatabase]:
        """Return those in which anything was changed; ProtocolError where the application has ended a transaction."""
        with self.noting_failure():
            return [each for each in self._begun() if each.has_changed()]

    def _begun(self) -> Sequence[ApplicationDatabase]:
        for each in self._all:
            if not each.is_open():
                raise ProtocolError(
                    "the transaction has not begun on its connections", hint="Use it as a block: with ... as tx."
                )
        return self._all

    def decider_of(self, changed: Sequence[ApplicationDatabase]) -> ApplicationDatabase | None:
        """Return the one that decides: one that cannot prepare, or that the application wants; None for no one."""
        return next((each for each in changed if self._may_decide(each)), None)

    def end_idle(self, changed: Sequence[ApplicationDatabase]) -> None:
        """End the transactions in which nothing was changed, before anything is decided."""
        with self.noting_failure():
            for each in self._all:
                if each not in changed:
                    each.commit()

    @contextlib.contextmanager
    def noting_failure(self) -> Iterator[None]:
        """Note what a database, or the library of the application, raises in the block, a step of the end."""
        try:
            yield
        except Exception as error:
            self.failure = error
            raise

    def ending_after(self, error: BaseException) -> Ending | None:
        """Return how messages go back after an error of the end; None where it is not of a database.

        What was done with the messages is why it was refused, and that was a try of them.
        """
        return Ending(Cause.ROLLBACK, str(error), self.verdict, self.verdict_msgid) if error is self.failure else None

    def roll_back(self, *, prepared: bool = True) -> None:
        """Roll back all that has not ended; what is prepared only if that is not decided, or about to be.

        What cannot be reached does so by itself, or waits for recovery.
        """
        self._roll_back(self._all, prepared=prepared)

    def _roll_back(self, databases: Sequence[ApplicationDatabase], *, prepared: bool) -> None:
        for each in databases:
            if each.is_open():
                try:
                    if prepared:
                        each.roll_back()
                    else:
                        each.leave()
                except Exception as error:  # noqa: BLE001 - of whatever library; the caller has an error already
                    logger.warning("the transaction on database %r is not rolled back: %s", each.name, error)

    # ---- who can decide ----------------------------------------------------------------------------------------------

    def _may_decide(self, database: ApplicationDatabase) -> bool:
        return bool(self.known(database).facts.cannot_prepare) or database.connection is self._wanted

    def _why(self, database: ApplicationDatabase) -> str:
        """Return why it has to decide."""
        return self.known(database).facts.cannot_prepare or "it is to decide"

    def _refuse_undecidable(self) -> None:
        """Refuse databases of which more than one would have to decide, or one that cannot."""
        deciding = [each for each in self._all if each is not self._joined and self._may_decide(each)]
        if deciding and self._wanted is not None and all(each.connection is not self._wanted for each in deciding):
            raise ProtocolError(
                f"another decider is wanted, but database {deciding[0].name!r} has to decide: {self._why(deciding[0])}",
                hint="Leave out decider=.",
            )
        for each in deciding:
            refuse_unable(each, self._why(each))
        if len(deciding) > 1:
            reasons = "; ".join(f"{each.name!r}: {self._why(each)}" for each in deciding)
            raise ProtocolError(
                f"at most one database of a transaction may be unable to prepare, as it decides; here are {reasons}",
                hint="Raise max_prepared_transactions of a server of PostgreSQL, or leave all but one out.",
            )

    def _is_joined(self, database: ApplicationDatabase, attachment: Attachment) -> bool:
        volumes, path = self.known(database).volumes, attachment.volume.path
        if path not in volumes:
            volumes[path] = database.is_of(attachment.volume)
        return volumes[path]


def refuse_without_table(database: ApplicationDatabase, known: KnownDatabase, why: str) -> None:
    """Refuse a database that has to decide, for a reason, and has no table for that."""
    if not known.facts.table:
        # It may have been made since.
        known.facts = database.facts()
    if not known.facts.table:
        raise ProtocolError(
            f"database {database.name!r} needs the table {TABLE} to take part: {why}, so that its own commit has to"
            " contain the decision",
            hint="Make it once with qmadmin.create_decision_table(connection).",
        )


def refuse_unable(database: ApplicationDatabase, why: str) -> None:
    """Refuse a database that has to decide, for a reason, and cannot."""
    if database.cannot_decide:
        raise ProtocolError(
            f"database {database.name!r} cannot take part: {why}, and it cannot decide: {database.cannot_decide}",
            hint="Mend one of both, or leave it out of the transaction.",
        )


def _joined_alone(database: ApplicationDatabase) -> ProtocolError:
    return ProtocolError(
        f"a queue space is in database {database.name!r}, whose connection takes part: both are one database"
        " transaction, to which nothing on other volumes or in other databases can belong",
        hint="Leave the other resources out, or keep the application's tables and the queue space in different"
        " databases.",
    )
