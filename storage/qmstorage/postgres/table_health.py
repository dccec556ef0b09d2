"""What can be wrong with the tables of a volume on PostgreSQL: dead rows, settings, indexes, owners and rights."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from qmcore.device import DeviceInfo
from qmcore.findings import Finding, Severity
from qmcore.times import MICROS, show
from qmcore.values import dataclass
from qmstorage.postgres import functions
from qmstorage.postgres.tables import DEAD_ROWS, SETTINGS, memory_schema, quoted
from qmstorage.schema import IN_MEMORY, metadata
from qmstorage.sql import made

if TYPE_CHECKING:
    import psycopg

    from qmstorage.postgres.address import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """From which values on something is reported."""

    open_seconds: float = 300
    """How long a transaction may be open."""
    old_transactions: int = 1_000_000
    """For how many transactions a standby may keep dead rows."""
    kept_log: int = 2**30
    """Bytes of log that may be kept for a replication slot that nobody reads."""
    near_percent: int = 80
    """Connections in use, of those that there can be."""
    frozen_age: int = 500_000_000
    frozen_age_most: int = 1_500_000_000
    flow: float = 100
    """Messages a second that are a flow."""
    dead_at_head: int = 30_000
    """Dead rows in front of a queue, at which a dequeue begins to take longer."""
    dead_rows: int = 5 * DEAD_ROWS
    vacuum_seconds: float = 3600
    """How long dead rows may wait for autovacuum that is due."""
    large_bytes: int = 64 * 2**20
    large_times: int = 20
    """How many times the size of its rows a table may be, above `large_bytes`."""


_TABLES = """
SELECT c.relname, coalesce(parent.relname, c.relname), n.nspname, c.relkind = 'p', c.relpersistence::text,
       coalesce(c.reloptions, '{}'), c.relowner = n.nspowner, pg_get_userbyid(c.relowner), pg_get_userbyid(n.nspowner),
       pg_total_relation_size(c.oid), coalesce(s.n_live_tup, 0), coalesce(s.n_dead_tup, 0),
       greatest(s.last_vacuum, s.last_autovacuum),
       coalesce((SELECT bool_or(grantee = 0) FROM aclexplode(c.relacl)), false),
       coalesce((SELECT array_agg(i.relname || CASE WHEN x.indisvalid THEN '' ELSE '!' END)
                 FROM pg_index AS x JOIN pg_class AS i ON i.oid = x.indexrelid WHERE x.indrelid = c.oid), '{}'),
       c.oid
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_inherits AS h ON h.inhrelid = c.oid LEFT JOIN pg_class AS parent ON parent.oid = h.inhparent
LEFT JOIN pg_stat_all_tables AS s ON s.relid = c.oid
WHERE n.nspname = ANY(%s) AND c.relkind IN ('r', 'p') ORDER BY n.nspname, c.relname
"""
_ROLE = "SELECT count(*) FROM pg_roles WHERE rolname = %s"
_LACKS = """
SELECT right_, count(*)
FROM unnest(%s::oid[]) AS of_table, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS right_
WHERE NOT has_table_privilege(%s, of_table, right_) GROUP BY right_ ORDER BY right_
"""
_LACKS_SCHEMA = (
    "SELECT nspname FROM pg_namespace WHERE nspname = ANY(%s) AND NOT has_schema_privilege(%s, oid, 'USAGE')"
)
_LACKS_SEQUENCE = """
SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = to_regnamespace(%s)
AND CASE c.relkind WHEN 'S' THEN NOT has_sequence_privilege(%s, c.oid, 'USAGE') ELSE false END
"""
_LACKS_FUNCTION = """
SELECT count(*) FROM pg_proc WHERE pronamespace = to_regnamespace(%s) AND NOT has_function_privilege(%s, oid, 'EXECUTE')
"""
_SINCE = "SELECT pg_postmaster_start_time(), now()"


@dataclass(frozen=True, slots=True)
class _Table:
    """A table as the server knows it."""

    name: str
    kind: str
    schema: str
    is_parent: bool
    persistence: str
    options: list[str]
    is_schemas: bool
    owner: str
    schema_owner: str
    size: int
    live: int
    dead: int
    vacuumed: dt.datetime | None
    is_public: bool
    indexes: list[str]
    oid: int

    @property
    def target(self) -> str:
        return f"table {self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        return f"{quoted(self.schema)}.{self.name}"


def examined(
    connection: psycopg.Connection[Any], address: Address, info: DeviceInfo, limits: Limits
) -> Iterator[Finding]:
    """Yield what is wrong with the tables of a volume."""
    schemas = [address.schema, memory_schema(address.schema)]
    tables = [_Table(*row) for row in connection.execute(_TABLES, [schemas])]
    started, now = connection.execute(_SINCE).fetchone() or (None, None)
    for table in tables:
        yield from _dead(table, limits, started, now)
        yield from _swollen(table, limits)
        yield from _settings(table)
        yield from _logged(table, address)
        yield from _owned(table)
    yield from _missing_tables(tables, schemas)
    yield from _indexes(tables, schemas)
    yield from _functions(connection, address.schema)
    yield from _rights(connection, tables, schemas, info.group)


def found(severity: Severity, check: str, target: str, sentence: str, advice: str) -> Finding:
    """Return a finding."""
    return Finding(severity=severity, check=check, target=target, sentence=sentence, advice=advice)


# ---- bloat ----------------------------------------------------------------------------------------------------------


def _dead(table: _Table, limits: Limits, started: Any, now: Any) -> Iterator[Finding]:
    threshold = min(DEAD_ROWS, limits.dead_rows) if table.kind in SETTINGS else limits.dead_rows
    if table.dead < threshold:
        return
    if table.vacuumed is None:
        last = "it has not been vacuumed since the server counts"
    else:
        last = f"it was vacuumed last at {show(int(table.vacuumed.timestamp() * MICROS))}"
    waits = (now - max(table.vacuumed or started, started)).total_seconds()
    if table.dead >= limits.dead_rows:
        check, what = "dead-rows", f"it has {table.dead} dead rows beside {table.live} live ones"
    elif waits >= limits.vacuum_seconds:
        check, what = "vacuum-late", f"its {table.dead} dead rows have waited for autovacuum for long"
    else:
        return
    yield found(
        Severity.WARNING,
        check,
        table.target,
        f"{what}; {last}",
        f"Look for what holds vacuum back, or for too few workers of autovacuum; VACUUM {table.quoted} removes what can"
        " be removed.",
    )


def _swollen(table: _Table, limits: Limits) -> Iterator[Finding]:
    # The average size of a row is not known for a table that is nearly empty, so it is taken to be large.
    rows = max(table.live, 1) * (8192 if table.kind in ("message", "chunk") else 256)
    if table.is_parent or table.size < limits.large_bytes or table.size < rows * limits.large_times:
        return
    yield found(
        Severity.INFO,
        "table-large",
        table.target,
        f"it takes {table.size // 2**20} MiB for {table.live} rows; the room is used again for what comes",
        f"VACUUM FULL {table.quoted}, while no program uses the device, gives it back to the disk.",
    )


# ---- definitions ----------------------------------------------------------------------------------------------------


def _settings(table: _Table) -> Iterator[Finding]:
    wanted = SETTINGS.get(table.kind)
    if wanted is None or table.is_parent:
        return
    expected = {pair.replace(" ", "") for pair in wanted.split(",")}
    if expected == set(table.options):
        return
    differing = sorted(set(table.options) - expected)
    missing = sorted(expected - set(table.options))
    names = ", ".join(sorted({pair.partition("=")[0] for pair in (*differing, *missing)}))
    strange = [pair.partition("=")[0] for pair in differing if pair.partition("=")[0] not in wanted]
    reset = f"; ALTER TABLE {table.quoted} RESET ({', '.join(strange)})" if strange else ""
    yield found(
        Severity.ERROR if "autovacuum_enabled=false" in table.options else Severity.WARNING,
        "table-settings",
        table.target,
        f"its storage parameters are not those that keep it fast: {names}",
        f"ALTER TABLE {table.quoted} SET ({wanted}){reset}",
    )


def _logged(table: _Table, address: Address) -> Iterator[Finding]:
    if table.schema == address.schema and table.persistence == "u":
        yield found(
            Severity.ERROR,
            "not-logged",
            table.target,
            "it is not logged: a crash of the server empties it, and a standby has nothing of it",
            f"ALTER TABLE {table.quoted} SET LOGGED",
        )


def _owned(table: _Table) -> Iterator[Finding]:
    if not table.is_schemas:
        yield found(
            Severity.WARNING,
            "owner",
            table.target,
            f"it belongs to role {table.owner}, and its schema to {table.schema_owner}, who cannot maintain it",
            f"ALTER TABLE {table.quoted} OWNER TO {table.schema_owner}",
        )


def _missing_tables(tables: list[_Table], schemas: list[str]) -> Iterator[Finding]:
    wanted = {(schemas[0], name) for name in made(metadata).tables} | {(schemas[1], table.name) for table in IN_MEMORY}
    for schema, name in sorted(wanted - {(table.schema, table.name) for table in tables}):
        yield found(
            Severity.ERROR,
            "table-missing",
            f"table {schema}.{name}",
            "it is not there",
            "Restore the device from a backup.",
        )


def _indexes(tables: list[_Table], schemas: list[str]) -> Iterator[Finding]:
    from qmstorage.postgres.table_creation import indexes_of

    for table in tables:
        if table.kind != table.name or table.schema not in schemas or table.kind not in made(metadata).tables:
            continue
        for name, statement in indexes_of(table.kind, table.schema).items():
            if f"{name}!" in table.indexes:
                problem, remedy = "is not valid: it was not finished", f'REINDEX INDEX {quoted(table.schema)}."{name}"'
            elif name not in table.indexes:
                problem, remedy = "is missing", statement
            else:
                continue
            yield found(
                Severity.ERROR,
                "index-missing",
                table.target,
                f"its index {name} {problem}, and all of the table is read instead",
                remedy,
            )


def _functions(connection: psycopg.Connection[Any], schema: str) -> Iterator[Finding]:
    for name, there in functions.differing(connection, schema).items():
        yield found(
            Severity.ERROR,
            "function-altered" if there else "function-missing",
            f"function {schema}.{name}",
            f"it is not {'as it has to be' if there else 'there'}, and messages need it to come and go",
            "Open the device once as the role that owns it, which creates it again.",
        )


# ---- rights ---------------------------------------------------------------------------------------------------------


def _rights(
    connection: psycopg.Connection[Any], tables: list[_Table], schemas: list[str], group: str
) -> Iterator[Finding]:
    both = ", ".join(map(quoted, schemas))
    if any(table.is_public for table in tables):
        yield found(
            Severity.ERROR,
            "rights",
            f"schema {schemas[0]}",
            "every role of the database may read or write messages",
            f"REVOKE ALL ON ALL TABLES IN SCHEMA {both} FROM PUBLIC",
        )
    if not group:
        return
    if not (connection.execute(_ROLE, [group]).fetchone() or (0,))[0]:
        yield found(
            Severity.ERROR,
            "rights",
            f"role {group}",
            "the device is for it, and it does not exist",
            f'CREATE ROLE "{group}", and grant it the rights that qmadmin-queue(7) names.',
        )
        return
    oids = [table.oid for table in tables]
    lacking = [f"{right} on {count} tables" for right, count in connection.execute(_LACKS, [oids, group])]
    lacking += [f"USAGE on schema {name}" for (name,) in connection.execute(_LACKS_SCHEMA, [schemas, group])]
    sequences = connection.execute(_LACKS_SEQUENCE, [quoted(schemas[0]), group]).fetchall()
    lacking += [f"USAGE on {len(sequences)} sequences"] if sequences else []
    ((without,),) = connection.execute(_LACKS_FUNCTION, [quoted(schemas[0]), group]).fetchall()
    lacking += [f"EXECUTE on {without} functions"] if without else []
    if lacking:
        yield found(
            Severity.ERROR,
            "rights",
            f"role {group}",
            f"the device is for it, and it lacks rights: {', '.join(lacking)}",
            f'GRANT USAGE ON SCHEMA {both} TO "{group}"; GRANT ALL ON ALL TABLES IN SCHEMA {both} TO "{group}";'
            f' GRANT ALL ON ALL SEQUENCES IN SCHEMA {both} TO "{group}"; GRANT ALL ON ALL FUNCTIONS IN SCHEMA {both} TO'
            f' "{group}"',
        )
