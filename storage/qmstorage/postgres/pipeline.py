"""Statements that are sent together: the server goes on with the next without waiting until we have read the last.

The driver's own pipeline costs as much time as the server needs for a message, so that libpq is used directly here.
"""

from __future__ import annotations

import functools
import itertools
import re
import struct
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import psycopg
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, Format
from psycopg.waiting import Ready, Wait

from qmstorage.postgres import translate
from qmstorage.postgres.row_arrays import SENT, Buffer, Packed
from qmstorage.postgres.tables import TYPE_NAMES

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

    from qmstorage.postgres.connection_timeouts import WatchedConnection
    from qmstorage.statements import Statement, Texts

_FORGOTTEN: Final = translate.FORGOTTEN.encode()

_NUMBERS: Final = itertools.count(1)
"""Makes the names of prepared statements unique. None is given twice: a session whose statements were discarded may
have some of them again, of which we no longer know."""

_Kind: TypeAlias = tuple[int, Callable[[Any], Buffer]]
_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


class Step(NamedTuple):
    """A statement that a session has prepared, or prepares now, and its values as they are sent."""

    command: Command
    values: list[Buffer | None]


class Command:
    """A statement that each session prepares when it first runs it, and the types of its values: none here.

    Parsing one as short as BEGIN takes the server as long as running it.
    """

    def __init__(self, name: str, text: str) -> None:
        self.name = name.encode()
        self.text = text.encode()
        self.types: list[int] = []
        self.formats: list[int] = []


BEGIN, COMMIT = (Step(Command(f"qm_{word}", word), []) for word in ("BEGIN", "COMMIT"))


class WithValues(Command):
    """A statement with values, which stand in it by their names; it returns rows, perhaps none."""

    def __init__(self, name: str, text: str, kinds: Mapping[str, _Kind], constants: Mapping[str, Any] = _NONE) -> None:
        names = list(dict.fromkeys(_PLACE.findall(text)))
        numbers = {each: f"${number}" for number, each in enumerate(names, 1)}
        super().__init__(name, _PLACE.sub(lambda place: numbers[place[1]], text))
        self.types = [kinds[each][0] for each in names]
        self.formats = [Format.BINARY] * len(names)
        self.names = names
        self._constants = constants
        self._sent = [(each, kinds[each][1]) for each in names]

    def step(self, values: Mapping[str, Any]) -> Step:
        """Return the statement with its values, which are given by their names; there may be others."""
        if self._constants:
            values = {**values, **self._constants}
        return Step(self, [None if (value := values[name]) is None else send(value) for name, send in self._sent])


class Prepared(WithValues):
    """A statement of SQLAlchemy's."""

    def __init__(self, name: str, statement: Statement, texts: Texts) -> None:
        text, constants = texts[statement]
        kinds = {each: _binary(kind) for each, kind in texts.kinds(statement).items()}
        super().__init__(name, text, kinds, constants)


class Call(WithValues):
    """A call of a function, by the names that the server has for the types of its values."""

    def __init__(self, name: str, text: str, types: Mapping[str, str]) -> None:
        super().__init__(name, text, {each: _named(kind) for each, kind in types.items()})
        self.for_cursor = text
        """The text in which values stand by their names."""
        self._packed = [each for each, kind in types.items() if kind.removesuffix("[]") not in SENT]

    def values_for_cursor(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values as a cursor of the driver takes them."""
        packed = {each: Packed(values[each]) for each in self._packed if values[each] is not None}
        return {**values, **packed}


_PLACE: Final = re.compile(r"%\((\w+)\)s")


def _binary(kind: str) -> _Kind:
    """Return the number that the server gives a type of our columns, and how a value is sent to it."""
    name = kind.removesuffix("[]")
    return _named(TYPE_NAMES[name] + kind[len(name) :])


def _named(kind: str) -> _Kind:
    """Return the same by what the server calls the type; 0, which lets it find out, for one that is not its own."""
    name = kind.removesuffix("[]")
    if name not in SENT:
        return 0, SENT["bytea"]
    found = psycopg.adapters.types[name]
    if name == kind:
        return found.oid, SENT[name]
    return found.array_oid, functools.partial(_array, found.oid, SENT[name])


_ARRAY: Final = struct.Struct("!iiIii")
"""How an array begins: one dimension, nulls allowed, the type of its elements, how many, counted from 1."""

_LENGTH: Final = struct.Struct("!i").pack
_NULL: Final = _LENGTH(-1)


def _array(oid: int, send: Callable[[Any], Buffer], values: Sequence[Any]) -> bytes:
    parts: list[Buffer] = [_ARRAY.pack(1, 1, oid, len(values), 1)]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            sent = send(value)
            parts += (_LENGTH(len(sent)), sent)
    return b"".join(parts)


class Pipeline:
    """Sends statements together on a session's connection.

        with session.pipeline as pipeline:
            pipeline.send(lock, insertion)
            pipeline.sync()
            pipeline.wait()
        found = pipeline.rows(1)

    It is used again and again; what the last use has found stays until the next begins. What is sent between two syncs
    is one transaction, unless there are BEGIN and COMMIT, which may be further apart.
    """

    def __init__(self, connection: WatchedConnection) -> None:
        self._connection = connection
        self._driver: PGconn = connection.pgconn
        self._reader = Transformer(connection)
        # The statements that the session has prepared, and under which names; those that it prepares in this use.
        self._known: dict[bytes, bytes] = {}
        self._new: dict[bytes, bytes] = {}
        # What each unanswered command prepares, None where it prepares nothing.
        self._expected: deque[bytes | None] = deque()
        self._results: list[PGresult] = []
        self._tables: list[PGresult] = []
        self._refusal: PGresult | None = None
        self._syncs = 0
        self.is_past_first_sync = False
        """Whether the server has done what was sent before the first sync, and has committed it if that was all."""

    def __enter__(self) -> Pipeline:
        self._new.clear()
        self._expected.clear()
        self._results = []
        self._tables = []
        self._refusal = None
        self._syncs = 0
        self.is_past_first_sync = False
        try:
            self._driver.enter_pipeline_mode()
        except BaseException:
            # An interrupt may come after it: the session must not stay in this mode.
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        try:
            self._driver.exit_pipeline_mode()
        except psycopg.Error:
            # Something is still under way that will not be read. The server undoes what is not committed.
            self._driver.finish()

    def send(self, *steps: Step) -> None:
        """Send statements."""
        for command, values in steps:
            name = self._known.get(command.name) or self._new.get(command.name)
            if name is None:
                name = self._new[command.name] = b"%s_%d" % (command.name, next(_NUMBERS))
                self._driver.send_prepare(name, command.text, command.types)
                self._expected.append(command.name)
            self._driver.send_query_prepared(name, values, command.formats, result_format=Format.BINARY)
            self._expected.append(None)

    def sync(self) -> None:
        """Ask for the answers; a transaction without BEGIN is committed, once all of it has worked."""
        self._driver.pipeline_sync()
        self._syncs += 1

    def wait(self) -> None:
        """Wait for all answers. Raises the driver's error for the first thing that the server refuses."""
        try:
            self._connection.wait(self._read())
        finally:
            self._note_results()
        if self._refusal is None:
            return
        if self._refusal.error_field(DiagnosticField.SQLSTATE) == _FORGOTTEN:
            self._known.clear()
        raise error_from_result(self._refusal, "utf-8")

    def commit(self) -> None:
        """Commit what was begun before."""
        with self:
            self.send(COMMIT)
            self.sync()
            self.wait()

    @property
    def answered(self) -> int:
        """How many statements have given rows."""
        return len(self._tables)

    def rows(self, at: int) -> list[Any]:
        """Return the rows that a statement has given, by its place among all that were sent and give rows."""
        table = self._tables[at]
        self._reader.set_pgresult(table)
        try:
            return self._reader.load_rows(0, table.ntuples, tuple)
        finally:
            # It would keep them until it reads others.
            self._reader.set_pgresult(None)

    def values(self, at: int) -> list[bytes | None]:
        """Return the first row of a statement as the server has sent it, which is quicker; nothing if it has none."""
        table = self._tables[at]
        return [] if table.ntuples == 0 else list(map(table.get_value, itertools.repeat(0), range(table.nfields)))

    def _read(self) -> Generator[Wait, Ready, None]:
        """Do what the driver waits for."""
        driver = self._driver
        while driver.flush():
            if (yield Wait.RW) & Ready.R:
                driver.consume_input()
        while self._syncs:
            while driver.is_busy():
                yield Wait.R
                driver.consume_input()
            result = driver.get_result()
            if result is not None:
                self._results.append(result)
                if result.status == ExecStatus.PIPELINE_SYNC:
                    self._syncs -= 1
            elif driver.status == ConnStatus.BAD:
                # It may be lost without an error, and then never returns anything.
                raise psycopg.OperationalError("the connection to the server was lost")

    def _note_results(self) -> None:
        """Note what the results say that have come so far."""
        for result in self._results:
            status = result.status
            if status == ExecStatus.PIPELINE_SYNC:
                self.is_past_first_sync = self.is_past_first_sync or self._refusal is None
                continue
            # The server may also end the session where nothing is expected.
            prepares = self._expected.popleft() if self._expected else None
            if status == ExecStatus.TUPLES_OK:
                self._tables.append(result)
            elif status == ExecStatus.COMMAND_OK:
                if prepares is not None:
                    self._known[prepares] = self._new[prepares]
            elif status != ExecStatus.PIPELINE_ABORTED:
                self._refusal = self._refusal or result
        self._results = []
