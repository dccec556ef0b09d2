"""The tables of transactions, of those that were ended without their coordinators, and of decisions."""

from __future__ import annotations

from qmstorage.definition_tables import NARROW, NUMBER, metadata
from qmstorage.sql import BigInteger, Column, Index, Integer, LargeBinary, PrimaryKeyConstraint, Table, Text

trans = Table(
    "trans",
    metadata,
    Column("id", NUMBER, primary_key=True, autoincrement=False, comment="random, so that none is used twice"),
    Column("space_id", Integer, nullable=False),
    Column("owner_id", BigInteger, nullable=False),
    Column("state", Text, nullable=False, comment="active, prepared, or committed (until memory follows)"),
    Column("started_at", BigInteger, nullable=False),
    Column("deadline", BigInteger),
    Column("xid_format", BigInteger),
    Column("xid_global", LargeBinary),
    Column("xid_branch", LargeBinary),
    Column("prepared_at", BigInteger),
    Column("queues", Text, comment="numbers of those in which it has messages, once it is suspended or prepared"),
    Column("consumer", Text, comment="who has them, once it is prepared"),
    Column("nonpersistent", BigInteger, comment="messages in memory that it had as it was prepared"),
    Column("secret", Text, comment="by which it is resumed, while it is suspended"),
    Column("suspended_at", BigInteger),
    Column("decider", Text, comment="who decides on it, for recovery; none: another coordinator ends it"),
)
Index(
    "trans_by_xid",
    trans.c.space_id,
    trans.c.xid_format,
    trans.c.xid_global,
    trans.c.xid_branch,
    unique=True,
    sqlite_where=trans.c.xid_format.is_not(None),
)

heuristic = Table(
    "heuristic",
    metadata,
    Column("space_id", Integer, nullable=False),
    Column("xid_format", BigInteger, nullable=False),
    Column("xid_global", LargeBinary, nullable=False),
    Column("xid_branch", LargeBinary, nullable=False),
    Column("trans_id", BigInteger, nullable=False),
    Column("owner_id", BigInteger, nullable=False),
    Column("state", Text, nullable=False, comment="heuristic commit, heuristic rollback"),
    Column("started_at", BigInteger, nullable=False),
    Column("prepared_at", BigInteger, nullable=False),
    Column("consumer", Text, nullable=False),
    Column("ended_at", BigInteger, nullable=False),
    Column("ended_by", Text, nullable=False),
    Column("decider", Text, comment="as in trans"),
    Column("decided", Text, comment="committed, rolled back: what was decided, if it differs and is known"),
    PrimaryKeyConstraint("space_id", "xid_format", "xid_global", "xid_branch"),
    comment="how prepared transactions were ended without the decision of their coordinators, which are to be told",
    **NARROW,
)
decision = Table(
    "decision",
    metadata,
    Column("space_id", Integer, nullable=False),
    Column("xid_global", LargeBinary, nullable=False, comment="ends with the number of the branch that decided"),
    Column("xid_branch", LargeBinary, nullable=False, comment="who is to be told; empty: the caller"),
    Column("place", Text, nullable=False, comment="where that branch is prepared"),
    Column("decided_at", BigInteger, nullable=False),
    PrimaryKeyConstraint("space_id", "xid_global", "xid_branch"),
    comment="decisions to commit distributed transactions, as long as somebody is to be told",
    **NARROW,
)
era = Table(
    "era",
    metadata,
    Column("space_id", Integer, nullable=False),
    Column("id", BigInteger, nullable=False, comment="random, so that no restored copy has a later one"),
    Column("decisions", BigInteger, nullable=False),
    Column("began_at", BigInteger, nullable=False),
    PrimaryKeyConstraint("space_id", "id"),
    comment="how many decisions coordinators have made; fewer than a prepared branch knows of: the volume was set back",
    **NARROW,
)
