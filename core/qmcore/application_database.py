"""The database of an application as a participant in distributed transactions, as the coordinator asks it.

It takes part with one connection, in the transaction that this has open. Where it decides, a small table in it has the
decision. That is in the same transaction as what the application does there, so that it need not be able to prepare.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from qmcore.two_phase import Told

if TYPE_CHECKING:
    from qmcore.port import Volume
    from qmcore.xid import Xid

TABLE: Final = "qmadmin_decision"
"""The table with the decisions, which `qmadmin.create_decision_table` makes."""

OPPOSITES_KEPT_US: Final = 7 * 24 * 3600 * 10**6
"""How long it is kept that a transaction will not be decided: longer than any coordinator decides."""


class DatabaseFacts(NamedTuple):
    """What does not change of a database while a process works with it."""

    instance: str
    """What no copy of the database has."""
    cannot_prepare: str
    """Why it cannot prepare a transaction; empty where it can."""
    table: bytes
    """The identity of the table of decisions; empty where there is none."""
    xid_form: str = ""
    """How its driver takes identifiers of transactions, where that was found out."""


class WrittenDecision(NamedTuple):
    """A decision to commit that the table has, and all who are to be told of it."""

    gtrid: bytes
    told: Sequence[Told]
    decided_us: int


class DecisionTable(Protocol):
    """The table of decisions in a database of an application.

    All but `decide` is done in a transaction of its own, while the connection has none open.
    """

    def begin_era(self, era_id: int, now_us: int) -> None:
        """Begin to count decisions in an era; old ones go."""

    def counted(self, era_id: int) -> int | None:
        """Return how many decisions were made in an era; None where there is no such era."""

    def decide(
        self, gtrid: bytes, era_id: int, known: int, told: Sequence[Told], now_us: int, *, commits: bool = False
    ) -> int | None:
        """Write a decision in the transaction of the application; return how many there are now in the era.

        None where the era has fewer than are known. Raises AbortedError where others have ended it before. If it
        `commits`, the transaction is committed as `ApplicationDatabase.commit` does it, unless anything was refused; a
        server may be sent both together.
        """

    def decided(self, gtrids: Collection[bytes]) -> dict[bytes, bool]:
        """Return of which transactions it is written that they commit (True), or that they never will."""

    def oppose(self, gtrids: Collection[bytes], now_us: int) -> set[bytes]:
        """Write that transactions will never be decided; return those of which that holds now, on the disk."""

    def decisions(self, until_us: int, most: int) -> list[WrittenDecision]:
        """Return at most so many decisions from before a time, the oldest first."""

    def forget(self, gtrids: Collection[bytes], opposites_before_us: int) -> None:
        """Remove decisions, and what was written before a time of transactions that will not be decided."""


class ApplicationDatabase(Protocol):
    """The database of an application, with the connection that takes part.

    All but the ends of a transaction and `prepare` is done in a transaction of its own, while the connection
    has none open. Errors of the database are QueueErrors; AbortedError where it has refused, and nothing was done.
    """

    name: str
    """How it is shown: the path of a file, or a URL without user and password. A text that names this database."""

    @property
    def table(self) -> DecisionTable:
        """Its table of decisions, which may not be there."""

    connection: Any
    """What the application has given."""

    joinable: object
    """The connection by which calls on a queue space in the database join the transaction, once it is open."""

    has_begun: bool
    """Whether the transaction of the application has begun, in which the database is asked for nothing else."""

    is_named_at_begin: bool
    """Whether a transaction that it is to prepare begins under its identifier: who decides has to be known by then."""

    xid_form: str
    """That of its facts, as the process knows them."""

    lists_others: bool
    """Whether `prepared` may return transactions of other databases, too."""

    cannot_decide: str
    """Why it cannot decide, whether it has the table or not; empty where it can."""

    is_commit_sent: bool
    """Whether the commit of the transaction may be on its way, be it done or not."""

    def open(self, *, belongs: bool = False) -> None:
        """Take the connection for the transaction. Raises InvalidArgumentError where it has one open, or is closed.

        Where it `belongs` to others, who end it, it is the one that is open, or that the library begins.
        """

    def facts(self) -> DatabaseFacts:
        """Ask the database what it is, and can."""

    def begin(self, xid: Xid | None = None) -> None:
        """Begin the transaction of the application, which is named so where it `is_named_at_begin` and prepares."""

    def is_open(self) -> bool:
        """Return whether the connection is taken for the transaction, which has not ended."""

    def is_of(self, volume: Volume) -> bool:
        """Return whether a volume is in this very database: what is done there joins the transaction."""

    def has_changed(self) -> bool:
        """Return whether the transaction has changed anything.

        Raises ProtocolError where the application itself has ended it.
        """

    def commit(self) -> None:
        """Commit the transaction, on the disk.

        Raises OutcomeUnknownError where it is committed and may not be on the disk, AbortedError where it is refused.
        """

    def sync_committed(self) -> None:
        """Bring what others have committed on the connection to the disk, where that does not do it by itself."""

    def roll_back(self) -> None:
        """Roll it back, also when it is prepared; nothing is done where it has ended."""

    def leave(self) -> None:
        """Let go of the connection, which has no transaction open then; what is prepared stays prepared."""

    def let_go(self) -> None:
        """Have the driver roll back what it has open, unknown to the library, for other transactions until the end."""

    # ---- what decides --------------------------------------------------------------------------------------------

    def create_table(self) -> None:
        """Create it, in the transaction that is open on the connection, else in one that is committed."""

    # ---- what prepares -------------------------------------------------------------------------------------------

    def prepare(self, xid: Xid) -> None:
        """Prepare the transaction, on the disk."""

    def end_prepared(self, xid: Xid, *, commits: bool) -> None:
        """Commit or roll back what is prepared, on the disk; nothing is done where there is none."""

    def prepared(self) -> list[tuple[Xid, float | None]]:
        """Return the transactions of ours that are prepared in this database, and since how many seconds, if known."""
