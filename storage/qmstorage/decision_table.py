"""The table in which a database of an application keeps decisions on distributed transactions.

It has texts and numbers only, so that one statement makes it everywhere. A row is the table's own identity, an era in
which a process counts its decisions, a decision to commit, or its opposite: both have the same key, so that whoever
comes second is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from qmcore.application_database import TABLE, WrittenDecision
from qmcore.errors import AbortedError
from qmcore.two_phase import Told

if TYPE_CHECKING:
    from sqlalchemy import Table as SqlTable

    from qmstorage.participants import Participant

CREATE: Final = f"""\
CREATE TABLE {TABLE} (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    kind VARCHAR(8) NOT NULL,
    decisions BIGINT NOT NULL,
    told TEXT NOT NULL,
    written_at BIGINT NOT NULL
)"""
"""The statement that makes the table. The pages have it, so that tools for migrations can run it."""


_TABLE_ROW: Final = "table"
_ERAS_KEPT_US: Final = 40 * 24 * 3600 * 10**6
_IDENTITY_BYTES: Final = 8

IDENTITY: Final = f"SELECT told FROM {TABLE} WHERE id = '{_TABLE_ROW}'"  # noqa: S608
"""What reads the identity of the table."""
# Each of them runs on any database of SQL: none needs more than the standard has.
_INSERT: Final = f"INSERT INTO {TABLE} (id, kind, decisions, told, written_at) VALUES (:id, :kind, :n, :told, :at)"  # noqa: S608
_COUNTED: Final = f"SELECT decisions FROM {TABLE} WHERE id = :id AND kind = 'era'"  # noqa: S608
COUNT: Final = f"UPDATE {TABLE} SET decisions = decisions + 1 WHERE id = :era AND kind = 'era' AND decisions >= :known"  # noqa: S608
_KIND: Final = f"SELECT kind FROM {TABLE} WHERE id = :id"  # noqa: S608
_DECISIONS: Final = (
    f"SELECT id, told, written_at FROM {TABLE} WHERE kind = 'commit' AND written_at < :until ORDER BY written_at, id"  # noqa: S608
)
_FORGET: Final = f"DELETE FROM {TABLE} WHERE kind = 'commit' AND id IN "  # noqa: S608
_AT_ONCE: Final = 200
"""How many decisions one statement removes."""
_FORGET_OLD: Final = f"DELETE FROM {TABLE} WHERE kind = :kind AND written_at < :before"  # noqa: S608
_NOBODY: Final = "[]"
"""Who is to be told of what is no decision; not an empty text, which some databases take for none."""


def described() -> SqlTable:
    """Return it as SQLAlchemy describes tables: with the types of a database that does not take the statement."""
    from sqlalchemy import BigInteger, Column, MetaData, String, Table, Text

    return Table(
        TABLE,
        MetaData(),
        Column("id", String(40), primary_key=True),
        Column("kind", String(8), nullable=False),
        Column("decisions", BigInteger, nullable=False),
        Column("told", Text, nullable=False),
        Column("written_at", BigInteger, nullable=False),
    )


class DecisionTable:
    """The table in the database of a participant."""

    def __init__(self, participant: Participant) -> None:
        self._its = participant

    def identity(self) -> bytes:
        """Return the identity of the table, which it gets when it is first used; the connection has nothing open."""
        found = self._its.alone(lambda: self._its.run(IDENTITY))
        if not found:
            row = {"id": _TABLE_ROW, "kind": _TABLE_ROW, "n": 0, "told": os.urandom(_IDENTITY_BYTES).hex(), "at": 0}
            try:
                self._its.alone(lambda: self._its.run(_INSERT, **row))
            except AbortedError:
                # Another process may have been first.
                if not self._its.alone(lambda: self._its.run(IDENTITY)):
                    raise
            found = self._its.alone(lambda: self._its.run(IDENTITY))
        return bytes.fromhex(found[0][0])

    def begin_era(self, era_id: int, now_us: int) -> None:
        """Begin to count decisions in an era; old ones go."""

        def begin() -> None:
            self._its.run(_FORGET_OLD, kind="era", before=now_us - _ERAS_KEPT_US)
            self._its.run(_INSERT, id=_of_era(era_id), kind="era", n=0, told=_NOBODY, at=now_us)

        self._its.alone(begin)

    def counted(self, era_id: int) -> int | None:
        """Return how many decisions were made in an era; None where there is no such era."""
        found = self._its.alone(lambda: self._its.run(_COUNTED, id=_of_era(era_id)))
        return int(found[0][0]) if found else None

    def decide(
        self, gtrid: bytes, era_id: int, known: int, told: Sequence[Told], now_us: int, *, commits: bool = False
    ) -> int | None:
        """Write a decision in the transaction of the application; return how many there are now in the era.

        None where the era has fewer than are known. Raises AbortedError where others have ended it before. If it
        `commits`, the transaction is committed, unless anything was refused.
        """
        row = {"id": gtrid.hex(), "kind": "commit", "n": 0, "told": _text_of(told), "at": now_us}
        era = {"era": _of_era(era_id), "known": known}

        def decide() -> int | None:
            try:
                return self.write(era, row, commits=commits)
            except self._its.integrity_error as error:
                raise AbortedError(
                    f"others have ended the transaction on {self._its.name!r}, because its process was taken for dead,"
                    " or was late",
                    hint="Begin it again; nothing of it remains.",
                ) from error

        decisions = self._its.do(decide)
        if commits and decisions is not None:
            self._its.commit()
        return decisions

    def write(self, era: Mapping[str, object], row: Mapping[str, object], *, commits: bool) -> int | None:
        """Count a decision in an era, and insert its row; return how many there are now, None where they are too few.

        If it `commits`, the transaction is about to be committed, and may be here.
        """
        del commits
        count = (COUNT, era), (_COUNTED, {"id": era["era"]})
        *_, counted, _ = self._its.run_all([*self._its.to_be_durable, *count, (_INSERT, row)])
        return int(counted[0][0]) if counted and int(counted[0][0]) > int(str(era["known"])) else None

    def decided(self, gtrids: Collection[bytes]) -> dict[bytes, bool]:
        """Return of which transactions it is written that they commit (True), or that they never will."""
        return self._its.alone(lambda: self._written(gtrids))

    def oppose(self, gtrids: Collection[bytes], now_us: int) -> set[bytes]:
        """Write that transactions will never be decided; return those of which that holds now, on the disk."""
        row = {"kind": "rollback", "n": 0, "told": _NOBODY, "at": now_us}

        def oppose(written: Collection[bytes] = ()) -> set[bytes]:
            # What is written first waits for others where it has to: who has only read cannot always write after them.
            missing = sorted({gtrid.hex() for gtrid in gtrids if gtrid not in written})
            self._its.run_all([(_INSERT, row | {"id": gtrid}) for gtrid in missing])
            return {gtrid for gtrid, commits in self._written(gtrids).items() if not commits}

        try:
            return self._its.alone(oppose)
        except AbortedError:
            # One of them is there already, which undoes the rest.
            written = self.decided(gtrids)
            return self._its.alone(lambda: oppose(written))

    def decisions(self, until_us: int, most: int) -> list[WrittenDecision]:
        """Return at most so many decisions from before a time, the oldest first."""
        rows = self._its.alone(lambda: self._its.run(_DECISIONS, until=until_us))
        return [WrittenDecision(bytes.fromhex(gtrid), _told_of(told), int(at)) for gtrid, told, at in rows[:most]]

    def forget(self, gtrids: Collection[bytes], opposites_before_us: int) -> None:
        """Remove decisions, and what was written before a time of transactions that will not be decided."""

        def forget() -> None:
            old = _FORGET_OLD, {"kind": "rollback", "before": opposites_before_us}
            its = sorted(gtrids)
            forget = [_FORGET + _list_of(its[at : at + _AT_ONCE]) for at in range(0, len(its), _AT_ONCE)]
            self._its.run_all([*((statement, {}) for statement in forget), old])

        self._its.alone(forget)

    def _written(self, gtrids: Collection[bytes]) -> dict[bytes, bool]:
        rows = self._its.run_all([(_KIND, {"id": gtrid.hex()}) for gtrid in gtrids])
        return {gtrid: found[0][0] == "commit" for gtrid, found in zip(gtrids, rows, strict=True) if found}


def _of_era(era_id: int) -> str:
    return f"era-{era_id:x}"


def _list_of(gtrids: Sequence[bytes]) -> str:
    return "(" + ", ".join(f"'{gtrid.hex()}'" for gtrid in gtrids) + ")"


def _text_of(told: Sequence[Told]) -> str:
    # In ASCII, which a connection has whatever its encoding.
    return json.dumps([[branch.hex(), place] for branch, place in told])


def _told_of(text: str) -> list[Told]:
    return [Told(bytes.fromhex(branch), place) for branch, place in json.loads(text)]
