"""SQLAlchemy Core, written down: what is declared with these names is made of SQLAlchemy when that is asked for.

Importing SQLAlchemy and making all statements with it is most of what a short command would do, and all that it needs
of them are the texts of a few, which are compiled when the package is built (see `texts`). So a declaration reads as
one of SQLAlchemy's, and to the type checker it is one; what stands there at run time notes what was called with what,
and `made` carries that out.

    FIND = select(queue).where(queue.c.id == bindparam("of_queue"))
    made(FIND).compile()

Nothing that has to be known of a statement to go on declaring is lost: a table knows its name and those of its columns.
"""

from __future__ import annotations

import itertools
import operator
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    from sqlalchemy import (
        ARRAY,
        CTE,
        BigInteger,
        Boolean,
        CheckConstraint,
        Column,
        ColumnElement,
        CompoundSelect,
        Double,
        ForeignKey,
        Index,
        Integer,
        LargeBinary,
        MetaData,
        Numeric,
        PrimaryKeyConstraint,
        Select,
        SmallInteger,
        String,
        Table,
        Text,
        UniqueConstraint,
        Update,
        and_,
        bindparam,
        case,
        cast,
        column,
        delete,
        distinct,
        exists,
        false,
        func,
        insert,
        literal,
        literal_column,
        not_,
        null,
        or_,
        select,
        text,
        true,
        tuple_,
        union,
        union_all,
        update,
    )
    from sqlalchemy.dialects import postgresql
    from sqlalchemy.sql import ClauseElement

    from qmstorage import elements

__all__ = [
    "ARRAY",
    "CTE",
    "BigInteger",
    "Boolean",
    "CheckConstraint",
    "ClauseElement",
    "Column",
    "ColumnElement",
    "CompoundSelect",
    "Double",
    "ForeignKey",
    "Index",
    "Integer",
    "LargeBinary",
    "MetaData",
    "Numeric",
    "PrimaryKeyConstraint",
    "Select",
    "SmallInteger",
    "String",
    "Table",
    "Text",
    "UniqueConstraint",
    "Update",
    "and_",
    "bindparam",
    "case",
    "cast",
    "column",
    "delete",
    "distinct",
    "elements",
    "exists",
    "false",
    "func",
    "insert",
    "is_declared",
    "literal",
    "literal_column",
    "made",
    "not_",
    "null",
    "or_",
    "postgresql",
    "select",
    "text",
    "true",
    "tuple_",
    "type_of",
    "union",
    "union_all",
    "update",
]

T = TypeVar("T")


def made(declared: T) -> T:
    """Return what SQLAlchemy makes of a declaration, the same each time; anything else as it is."""
    with _MAKING:
        found: T = _made(declared)
        return found


def is_declared(value: object) -> bool:
    """Return whether a value was declared with these names."""
    return isinstance(value, _Expression)


def type_of(column: ColumnElement[Any]) -> str:
    """Return the name of the type that a column of a table is declared with."""
    its: Any = column
    found = its.table._types[its.name]
    while not isinstance(found, _Name):
        found = found._of
    return found._name


_MAKING: Final = threading.RLock()
"""Two threads would otherwise make a table twice."""


def _made(value: Any) -> Any:
    if isinstance(value, _Expression):
        return value._make()
    if isinstance(value, list | tuple):
        return type(value)(itertools.chain.from_iterable(map(_each_made, value)))
    if isinstance(value, dict):
        return {_made(key): _made(each) for key, each in value.items()}
    return value


def _each_made(value: Any) -> Iterable[Any]:
    """Return what a value in a sequence is made into: itself, or all that it stands for."""
    return value.of._make() if isinstance(value, _All) else (_made(value),)


class _All(NamedTuple):
    """All that is in an expression."""

    of: _Expression


class _Expression:
    """What an expression is to be made of; its `repr` tells all of it, and is the same in every process.

    What has no underscore before it is an attribute of SQLAlchemy's.
    """

    __slots__ = ("__weakref__", "_found")

    _found: Any

    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> _Attribute:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Attribute(self, name)

    def __call__(self, *values: Any, **named: Any) -> _Call:
        return _Call(self, values, named)

    def __bool__(self) -> bool:
        raise TypeError("an expression is neither true nor false")

    def __iter__(self) -> Iterator[Any]:
        # A star in a call: how many there are is known when they are made.
        yield _All(self)

    def _make(self) -> Any:
        try:
            return self._found
        except AttributeError:
            self._found = self._made_of_parts()
            return self._found

    def _made_of_parts(self) -> Any:
        raise NotImplementedError


def _operation(name: str, *, reflected: bool = False) -> Callable[..., _Expression]:
    work = _Operator(name)

    def noted(one: _Expression, *other: Any) -> _Call:
        return _Call(work, (*other, one) if reflected else (one, *other), {})

    return noted


class _Operator(_Expression):
    """An operator of Python's."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name

    def _made_of_parts(self) -> Any:
        return getattr(operator, self._name)


for _name in (
    *("eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "floordiv", "mod"),
    *("and_", "or_", "invert", "neg", "getitem"),
):
    setattr(_Expression, f"__{_name.removesuffix('_')}__", _operation(_name))
for _name in ("add", "sub", "mul"):
    setattr(_Expression, f"__r{_name}__", _operation(_name, reflected=True))


class _Name(_Expression):
    """What SQLAlchemy, or `elements`, calls by a name."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name

    def _made_of_parts(self) -> Any:
        import sqlalchemy

        if self._name == "elements":
            from qmstorage import elements

            return elements
        if self._name == "postgresql":
            from sqlalchemy.dialects import postgresql

            return postgresql
        return getattr(sqlalchemy, self._name)


class _Attribute(_Expression):
    """An attribute of an expression."""

    __slots__ = ("_name", "_of")

    def __init__(self, of: _Expression, name: str) -> None:
        self._of = of
        self._name = name

    def __repr__(self) -> str:
        return f"{self._of!r}.{self._name}"

    def _made_of_parts(self) -> Any:
        return getattr(self._of._make(), self._name)


class _Call(_Expression):
    """A call with values."""

    __slots__ = ("_named", "_of", "_values")

    def __init__(self, of: _Expression, values: tuple[Any, ...], named: dict[str, Any]) -> None:
        self._of = of
        self._values = values
        self._named = named

    def __repr__(self) -> str:
        named = "".join([f"{name}={value!r}," for name, value in self._named.items()])
        return f"{self._of!r}{self._values!r}{named}"

    def __bool__(self) -> bool:
        # As SQLAlchemy does it: what looks for an expression among others compares them.
        if isinstance(self._of, _Operator) and self._of._name == "eq":
            return self._values[0] is self._values[1]
        return super().__bool__()

    def _made_of_parts(self) -> Any:
        return self._of._make()(*_made(self._values), **_made(self._named))


class _Tables(_Expression):
    """The tables of a schema, which are made together: their indexes and keys lead from one to the other."""

    __slots__ = ("_declared", "_named")

    def __init__(self, **named: Any) -> None:
        self._named = named
        self._declared: list[_Expression] = []

    def _made_of_parts(self) -> Any:
        import sqlalchemy

        self._found = sqlalchemy.MetaData(**self._named)
        for each in self._declared:
            each._make()
        return self._found


class _Columns:
    """The columns of a table: each an attribute, and in their order."""

    def __init__(self, columns: dict[str, _Column]) -> None:
        self.__dict__: dict[str, _Column] = columns

    def __getitem__(self, name: str) -> _Column:
        return self.__dict__[name]

    def __contains__(self, name: str) -> bool:
        return name in self.__dict__

    def __iter__(self) -> Iterator[_Column]:
        return iter(self.__dict__.values())

    def keys(self) -> list[str]:
        """Return the names of the columns."""
        return list(self.__dict__)

    def get(self, name: str, default: T) -> _Column | T:
        """Return the column of that name, or what to take where there is none."""
        return self.__dict__.get(name, default)


class _Table(_Expression):
    """A table, of which the names are known."""

    __slots__ = ("_options", "_parts", "_tables", "_types", "c", "columns", "name")

    def __init__(self, name: str, tables: _Tables, *parts: Any, **options: Any) -> None:
        self.name = name
        self._tables = tables
        self._parts = parts
        self._options = options
        columns = [part._values[:2] for part in parts if part._of is _COLUMN]
        self._types = dict(columns)
        self.c = self.columns = _Columns({each: _Column(self, each) for each, _ in columns})
        tables._declared.append(self)

    def __repr__(self) -> str:
        return self.name

    def _made_of_parts(self) -> Any:
        import sqlalchemy

        tables = self._tables._make()
        if self.name in tables.tables:
            return tables.tables[self.name]
        return sqlalchemy.Table(self.name, tables, *_made(self._parts), **_made(self._options))


class _Column(_Expression):
    """A column of a table."""

    __slots__ = ("name", "table")

    def __init__(self, table: _Table, name: str) -> None:
        self.table = table
        self.name = name

    def __repr__(self) -> str:
        return f"{self.table.name}.{self.name}"

    def _made_of_parts(self) -> Any:
        return self.table._make().c[self.name]


def _index(name: str, *columns: _Column, **options: Any) -> None:
    columns[0].table._tables._declared.append(_Call(_Name("Index"), (name, *columns), options))


_COLUMN = _Name("Column")

if not TYPE_CHECKING:
    Column, Index, MetaData, Table = _COLUMN, _index, _Tables, _Table

    def __getattr__(name: str) -> _Name:
        if name not in __all__:
            raise AttributeError(name)
        return globals().setdefault(name, _Name(name))
