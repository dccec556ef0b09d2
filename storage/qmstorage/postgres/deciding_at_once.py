"""The table of decisions in a database of PostgreSQL: a decision and the commit of its transaction are one message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import psycopg

from qmcore.application_database import TABLE
from qmstorage import decision_table
from qmstorage.decision_table import COUNT
from qmstorage.postgres.one_journey import send, with_values

if TYPE_CHECKING:
    from qmstorage.participating_connections import ParticipatingConnection
    from qmstorage.postgres.participating import Participant

_DECIDE: Final = (
    f"WITH counted AS ({COUNT} RETURNING decisions) INSERT INTO {TABLE} (id, kind, decisions, told, written_at)"  # noqa: S608
    " VALUES ((SELECT CAST(:id AS VARCHAR(40)) FROM counted), :kind, :n, :told, :at)"
    " RETURNING (SELECT decisions FROM counted)"
)
"""Counts and inserts. The key is null, and refused, where nothing can be counted."""
_NULL: Final = "23502"
"""The state of the server where the key of a row is null."""


class DecisionTable(decision_table.DecisionTable):
    """The table, with the connection of the participant."""

    def __init__(self, participant: Participant, connection: ParticipatingConnection) -> None:
        super().__init__(participant)
        self._participant = participant
        self._connection = connection

    def write(self, era: Mapping[str, object], row: Mapping[str, object], *, commits: bool) -> int | None:
        """Count and insert; where nothing is to be done before the commit, commit as well."""
        # The driver refuses it in a block of its own, and does not tell of one.
        is_in_block = getattr(self._connection.driver, "_num_transactions", 0)
        if not commits or is_in_block or not self._connection.commits_plainly:
            return super().write(era, row, commits=commits)
        return self.commit_with({**row, **era})

    def commit_with(self, values: Mapping[str, object]) -> int | None:
        """Send all of it in one journey, which is on the disk then."""
        its, driver = self._participant, self._connection.driver
        its.is_commit_sent = True
        durable = [text for text, _ in its.to_be_durable]
        try:
            *_, found, _ = send(driver, *durable, with_values(driver, _DECIDE, values), "COMMIT")
        except psycopg.IntegrityError as error:
            if error.diag.table_name != TABLE:
                # A constraint of the application's that is checked at the commit.
                raise its.refusal(error) from error
            if error.sqlstate == _NULL:
                return None
            raise
        its.is_committed = True
        return int(found.get_value(0, 0) or 0)
