"""Errors of the driver and the server as diagnostics of the queue manager. No other module examines driver errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from qmcore.errors import (
    BadResourceError,
    InvalidArgumentError,
    NotADeviceError,
    OperatingSystemError,
    OutcomeUnknownError,
    QueueError,
    ReleaseError,
    SystemFailureError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

OLDEST_SERVER: Final = 140000
"""The oldest supported version of a server, as PostgreSQL writes versions: 14.0."""

NOT_A_DEVICE = "{shown!r} is not a qmadmin device"
NAME_ANOTHER = "Name another schema, or create a device with crdl."


class _Entry(NamedTuple):
    kind: type[QueueError]
    message: str
    hint: str = ""
    blocked: bool = False
    unreachable: bool = False
    """Whether it is the server or the network that is away, and may come back."""


_OTHERWISE = _Entry(SystemFailureError, "the store of device {shown!r} failed: {words}")
_UNREACHABLE = _Entry(
    OperatingSystemError,
    "the server of device {shown!r} cannot be reached: {words}",
    "Check host and port, and whether the server runs and lets this machine connect.",
    unreachable=True,
)
_REFUSED = _Entry(
    OperatingSystemError,
    "the server of device {shown!r} refuses the connection: {words}",
    "Check the user, the password and the database, and pg_hba.conf of the server.",
)
_REFUSED_IN_OTHER_WORDS = _REFUSED._replace(unreachable=True)
"""In another language the server may just as well say that it is starting: a wait goes on."""

_LOST = _Entry(
    SystemFailureError,
    "the connection to device {shown!r} was lost: {words}",
    "Repeat the operation when the server is back; nothing of it was done.",
    unreachable=True,
)
_WRONG_PASSWORD = _Entry(
    OperatingSystemError,
    "the server of device {shown!r} does not accept the user or the password: {words}",
    "Give the password in a file: passfile=/path in the URL, or ~/.pgpass.",
)
_NO_PASSWORD = _Entry(
    OperatingSystemError,
    "the server of device {shown!r} wants a password, and none was given",
    "Give it in a file: passfile=/path in the URL, or ~/.pgpass.",
)
_NO_DATABASE = _Entry(
    BadResourceError,
    "the server of device {shown!r} has no such database: {words}",
    "Check the name, or create the database with createdb.",
)
_MISSING_RIGHT = _Entry(
    OperatingSystemError,
    "device {shown!r} cannot be used with the rights of this user: {words}",
    "crdl needs CREATE on the database; all else USAGE on the schema, and SELECT, INSERT, UPDATE and DELETE on its"
    " tables, and EXECUTE on its functions.",
)
_TOO_MANY = _Entry(
    OperatingSystemError,
    "the server of device {shown!r} has all its connections in use: {words}",
    "Close other clients, or raise max_connections of the server, or the limit of the user or the database.",
    unreachable=True,
)
_DISK_FULL = _Entry(
    OperatingSystemError,
    "there is no room left on the disk of the server for device {shown!r}; the operation was undone",
    "Free disk space there; nothing that was accepted before is lost.",
)
_READ_ONLY = _Entry(
    OperatingSystemError,
    "device {shown!r} cannot be written: the server is a standby, or allows only reading",
    "Name the primary server, or both with target_session_attrs=read-write; check default_transaction_read_only.",
)
_BUSY = _Entry(
    SystemFailureError,
    "device {shown!r} stayed locked by others for too long: {words}",
    "Look for a long transaction in pg_stat_activity.",
    blocked=True,
)
_CANCELLED = _Entry(
    SystemFailureError,
    "a statement on device {shown!r} was ended by others: {words}",
    "Repeat the operation; nothing of it was done. Look for who calls pg_cancel_backend, or for a"
    " statement_timeout of the application's own connection.",
    blocked=True,
)
_CONFLICT = _Entry(
    SystemFailureError,
    "others on device {shown!r} were in the way again and again: {words}",
    "Repeat the operation.",
    blocked=True,
)
_CONFLICT_IN_JOINED = _Entry(
    SystemFailureError,
    "others on device {shown!r} were in the way of the application's transaction: {words}",
    "Roll back the application's transaction, and run all of it again.",
    blocked=True,
)
_LOST_IN_JOINED = _LOST._replace(
    hint="The application's transaction is rolled back; run all of it again when the server is back."
)
_ABORTED = _Entry(
    SystemFailureError,
    "a transaction on device {shown!r} is undone, because a statement in it had failed: {words}",
    "Repeat the operation; nothing of it was done. The log of the server shows the statement that failed.",
)
_NOT_A_DEVICE = _Entry(NotADeviceError, NOT_A_DEVICE, NAME_ANOTHER)
_BAD_TEXT = _Entry(
    InvalidArgumentError,
    "a text for device {shown!r} has a character that PostgreSQL cannot keep, such as NUL",
    "Put it into the body of the message, which may be any bytes.",
)
_TOO_LARGE = _Entry(InvalidArgumentError, "device {shown!r} cannot keep something that large: {words}")

_BY_STATE: Final[dict[str, _Entry]] = {
    "21000": _OTHERWISE,
    "22021": _BAD_TEXT,
    "22P05": _BAD_TEXT,
    "25006": _READ_ONLY,
    "25P02": _ABORTED,
    "28000": _WRONG_PASSWORD,
    "28P01": _WRONG_PASSWORD,
    "3D000": _NO_DATABASE,
    "3F000": _NOT_A_DEVICE,
    "42P01": _NOT_A_DEVICE,
    "42703": _NOT_A_DEVICE,
    "42501": _MISSING_RIGHT,
    "53000": _OTHERWISE,
    "53100": _DISK_FULL,
    "53200": _Entry(
        OperatingSystemError,
        "the server of device {shown!r} has no memory left: {words}",
        "Give it more memory, or let fewer clients work at a time; the operation was undone.",
    ),
    "53300": _TOO_MANY,
    "53400": _Entry(OperatingSystemError, "a limit of the server of device {shown!r} is reached: {words}"),
    "55P03": _BUSY,
    "57014": _CANCELLED,
    "57P03": _UNREACHABLE,
    "57P04": _NO_DATABASE,
    "58P01": _Entry(SystemFailureError, "the server of device {shown!r} lacks a file: {words}"),
    "58030": _Entry(OperatingSystemError, "the server of device {shown!r} cannot read or write its disk: {words}"),
    "XX001": _Entry(SystemFailureError, "device {shown!r} is damaged: {words}", "Restore it from a backup."),
    "XX002": _Entry(SystemFailureError, "device {shown!r} is damaged: {words}", "Rebuild its indexes: REINDEX."),
}
_BY_CLASS: Final[dict[str, _Entry]] = {"08": _LOST, "40": _CONFLICT, "54": _TOO_LARGE, "57": _LOST}
"""By the first two characters of the state, which are its class."""

_IN_JOINED: Final = {_CONFLICT: _CONFLICT_IN_JOINED, _LOST: _LOST_IN_JOINED, _ABORTED: _OTHERWISE}
"""What is said instead in a transaction of the application: one call of it cannot be repeated by itself."""

FORGOTTEN: Final = "26000"
"""The session has no such prepared statement: the driver discards all of them at times, as after a rollback."""
_RETRIABLE: Final = frozenset({"40001", "40P01", FORGOTTEN})
_UNIQUE_VIOLATION: Final = "23505"
_ENDED_IDLE: Final = frozenset({"25P03", "57P05"})
_LOST_STATES: Final = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03", "57P04"})
"""States with which a server ends the session."""

_BY_WORDS: Final[tuple[tuple[str, _Entry], ...]] = (
    (r"no password supplied", _NO_PASSWORD),
    (r"password authentication failed|authentication failed for user|role \".*\" does not exist", _WRONG_PASSWORD),
    (
        (
            r"no pg_hba\.conf entry|pg_hba\.conf rejects|not permitted to log in|unrecognized configuration parameter"
            r"|permission denied to set|cannot connect to invalid database|no such (user|database)"
        ),
        _REFUSED,
    ),
    (r"permission denied for database", _MISSING_RIGHT),
    (r"database \".*\" does not exist|not currently accepting connections", _NO_DATABASE),
    (r"too many (clients|connections)|connection slots", _TOO_MANY),
    (
        r"not in hot standby|session is (not )?read-only|server is in hot standby",
        _Entry(
            OperatingSystemError,
            "no server of device {shown!r} is of the kind that target_session_attrs asks for: {words}",
            "Check which server is the primary; name all of them in the URL, with commas between them.",
            unreachable=True,
        ),
    ),
    # The connection ended in the middle of it, as with a server that is restarted behind a load balancer.
    (
        (
            r"\bSSL (error: unexpected eof|SYSCALL error|connection has been closed)"
            r"|could not send (SSL|GSSAPI) negotiation packet"
        ),
        _UNREACHABLE,
    ),
    (
        r"\bSSL\b|certificate|GSSAPI",
        _Entry(
            OperatingSystemError,
            "no secure connection to the server of device {shown!r} can be made: {words}",
            "Check the parameters that begin with ssl, and the certificates.",
        ),
    ),
    (
        r"definition of service|service file",
        _Entry(
            BadResourceError,
            "the service of device {shown!r} is not described: {words}",
            "Services are described in ~/.pg_service.conf, or in the file that PGSERVICEFILE names.",
        ),
    ),
    (
        r"invalid \S+ value|invalid (integer|port)|invalid connection option|could not match \d+ (host|port)",
        _Entry(InvalidArgumentError, "the URL of device {shown!r} cannot be used: {words}"),
    ),
    # It starts, recovers, stands by, or shuts down: 57P03, of which the driver has only the words.
    (r"the database system is ", _UNREACHABLE),
)
"""What is known only from the words of a connection attempt, for which there is no state."""

_SSL_HAS_ENDED: Final = r"\bSSL (error|SYSCALL error|connection has been closed)"
"""What libpq says of a connection that was made, and is lost."""

_FROM_SERVER: Final = re.compile(r"failed: \w+: {1,2}(.*)")
"""How libpq passes on what the server says, in any language: a severity, and the sentence."""


def from_psycopg(error: psycopg.Error, shown: str, *, joined: bool = False) -> QueueError:
    """Return the diagnostic for an error of the driver or the server on the device that is `shown` so.

    `joined`: it occurred in a transaction of the application.
    """
    entry = _entry(error)
    if joined:
        entry = _IN_JOINED.get(entry, entry)
    said = words(error)
    return entry.kind(
        entry.message.format(shown=shown, words=said).rstrip(".: "),
        hint=entry.hint,
        path=shown,
        sqlstate=error.sqlstate,
        blocked=entry.blocked,
        unreachable=entry.unreachable,
    )


def is_retriable(error: psycopg.Error) -> bool:
    """Return whether others, or the driver, have undone the transaction, so that it may be tried again."""
    return error.sqlstate in _RETRIABLE


def is_taken_meanwhile(error: psycopg.Error) -> bool:
    """Return whether another session has recorded an xid since it was looked for: the next look finds that."""
    return error.sqlstate == _UNIQUE_VIOLATION and error.diag.constraint_name == "trans_by_xid"


def was_idle(error: psycopg.Error) -> bool:
    """Return whether the server has ended the session before the last statement, because none came in time."""
    return error.sqlstate in _ENDED_IDLE


def is_connection_lost(error: psycopg.Error) -> bool:
    """Return whether the session is gone, or the server is about to end it: another one is needed."""
    import psycopg as driver

    if error.sqlstate is not None:
        return error.sqlstate.startswith("08") or error.sqlstate in _LOST_STATES
    if error.pgconn is not None:
        return bool(error.pgconn.status == driver.pq.ConnStatus.BAD)
    return isinstance(error, driver.OperationalError | driver.InterfaceError)


def aborted() -> psycopg.Error:
    """Return the error of a commit in a transaction in which a statement has failed: nothing is done.

    The server would end it with a rollback, and not call that an error. So whoever commits looks for the status INERROR
    first, which the driver knows by itself.
    """
    import psycopg as driver

    return driver.errors.InFailedSqlTransaction("its transaction is aborted")


def outcome_unknown(error: psycopg.Error, shown: str) -> QueueError:
    """Return the diagnostic for a session that was lost while its commit was under way."""
    return OutcomeUnknownError(
        f"the connection to device {shown!r} was lost while a commit was under way ({words(error)}); whether it was"
        " done is unknown",
        path=shown,
    )


def not_alone(pids: Sequence[int], shown: str) -> QueueError:
    """Return the diagnostic for other sessions of the server that do not come to an end."""
    return SystemFailureError(
        f"device {shown!r} is in use by sessions of the server ({', '.join(map(str, pids)) or 'others'}) that have not"
        " come to an end",
        hint="Look for a program that has joined messages to a transaction of its own and has not ended it.",
        path=shown,
        blocked=True,
        pids=list(pids),
    )


def not_a_device(shown: str) -> QueueError:
    """Return the diagnostic for a schema that is absent, or holds something else."""
    return NotADeviceError(NOT_A_DEVICE.format(shown=shown), hint=NAME_ANOTHER, path=shown)


def read_only(shown: str) -> QueueError:
    """Return the diagnostic for a write to a device that is open for reading only."""
    return OperatingSystemError(_READ_ONLY.message.format(shown=shown), hint=_READ_ONLY.hint, path=shown)


def on_standby(shown: str) -> QueueError:
    """Return the diagnostic for a device that was open for writing and is on a standby now, which may take over."""
    return OperatingSystemError(
        _READ_ONLY.message.format(shown=shown), hint=_READ_ONLY.hint, path=shown, unreachable=True
    )


def hidden(shown: str) -> QueueError:
    """Return the diagnostic for sessions that may not see themselves, because they have taken on another role."""
    return OperatingSystemError(
        f"a session on device {shown!r} may not see in pg_stat_activity when it began: its role is another one than"
        " that of its user",
        hint="Grant pg_read_all_stats to that role, or do without SET role, also in ALTER ROLE and in the URL.",
        path=shown,
    )


def refuse_old_server(version: int, shown: str) -> None:
    """Refuse a server before PostgreSQL 14; `version` is what the driver calls `server_version`, such as 150004."""
    if version < OLDEST_SERVER:
        number = f"{version // 10000}.{version % 10000}" if version >= 100000 else f"9.{version // 100 % 100}"
        raise ReleaseError(
            f"the server of device {shown!r} is PostgreSQL {number}; the oldest that is supported is"
            f" {OLDEST_SERVER // 10000}",
            hint="Upgrade the server.",
            path=shown,
            version=version,
        )


# ---- steps ----------------------------------------------------------------------------------------------------------


def _entry(error: psycopg.Error) -> _Entry:
    state = error.sqlstate
    if state is not None:
        return _BY_STATE.get(state) or _BY_CLASS.get(state[:2], _OTHERWISE)
    import psycopg as driver

    if isinstance(error, driver.DataError):
        # The driver itself refuses a NUL, before the server sees it.
        return _BAD_TEXT
    if isinstance(error, driver.OperationalError | driver.InterfaceError):
        return _of_connection(error, driver.pq.ConnStatus.BAD)
    return _OTHERWISE


def _of_connection(error: psycopg.Error, bad: int) -> _Entry:
    """Return what a failure of the connection is, for which libpq gives no state, only words."""
    text = _last_attempt(str(error))
    connecting = re.match(r"connection (failed|is bad|timeout)|failed to resolve", text)
    if not connecting and re.search(_SSL_HAS_ENDED, text):
        return _LOST
    for pattern, entry in _BY_WORDS:
        if re.search(pattern, text):
            return entry
    if not connecting:
        is_gone = error.pgconn is None or error.pgconn.status == bad
        return _LOST if is_gone else _OTHERWISE
    if error.pgconn is not None and error.pgconn.needs_password:
        return _NO_PASSWORD
    # Whatever the server says in its own language, it was reached.
    return _REFUSED_IN_OTHER_WORDS if _FROM_SERVER.search(text) else _UNREACHABLE


def words(error: psycopg.Error) -> str:
    """Return what the server or libpq says, in one line: no statement, no data, nothing that was sent to it."""
    if error.sqlstate is not None and error.diag.message_primary:
        return _in_one_line(error.diag.message_primary)
    text = _last_attempt(str(error))
    said = _FROM_SERVER.search(text)
    if said:
        return _in_one_line(said[1])
    return _in_one_line(
        re.sub(r"^(connection (failed|is bad|timeout expired)|(consuming|sending) \w+ failed): ", "", text)
    )


def _last_attempt(text: str) -> str:
    """Return what was said about the last of several hosts, without libpq's questions and the driver's list."""
    return text.partition("\nMultiple connection attempts failed")[0].partition("\n\t")[0]


def _in_one_line(text: str) -> str:
    line = " ".join(text.split())
    return (line if len(line) <= 300 else line[:297] + "...").rstrip(".")
