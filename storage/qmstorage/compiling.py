"""What SQLAlchemy compiles a statement to, and which statements are compiled when the package is built.

Loaded, and SQLAlchemy with it, only where a text is not known yet.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import ARRAY, TextClause
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import UpdateBase
from sqlalchemy.sql.selectable import SelectBase

from qmstorage import sql, texts

if TYPE_CHECKING:
    from sqlalchemy.sql import ClauseElement
    from sqlalchemy.types import TypeEngine


_PACKAGE: Final = "qmstorage"


def compiled(statement: ClauseElement, dialect: texts.Dialect) -> texts.Text:
    """Return the text of a statement, its constants and the types of its values."""
    made = sql.made(statement).compile(
        dialect=dialect.loaded(), schema_translate_map={None: texts.SCHEMA}, render_schema_translate=True
    )
    assert isinstance(made, SQLCompiler)  # noqa: S101 - statements of this package are not DDL
    binds = {str(name): bind for bind, name in made.bind_names.items()}
    constants = {name: bind.value for name, bind in binds.items() if not bind.required}
    kinds = {name: _kind(bind.type) for name, bind in binds.items()} if dialect.is_typed else {}
    return texts.Text(str(made), constants, kinds)


def _kind(of: TypeEngine[Any]) -> str:
    return f"{_kind(of.item_type)}[]" if isinstance(of, ARRAY) else type(of).__name__


def write(dialect: texts.Dialect) -> Path:
    """Write the file with the texts of all constant statements of a store, and return its path."""
    path = texts.path_of(dialect)
    new = path.with_suffix(f".{os.getpid()}.new")
    new.write_text(content(dialect), encoding="utf-8")
    # Whoever reads it meanwhile sees one or the other.
    return new.replace(path)


def content(dialect: texts.Dialect) -> str:
    """Return what the file with the texts has to say."""
    found: dict[str, texts.Text] = {}
    for each in statements(dialect):
        text = compiled(each, dialect)
        assert found.setdefault(texts.key(each), text) == text  # noqa: S101 - the key is a checksum
    whole = {"of": texts.foundations(), "texts": dict(sorted(found.items()))}
    return json.dumps(whole, indent=0, ensure_ascii=False) + "\n"


def statements(dialect: texts.Dialect) -> Iterator[ClauseElement]:
    """Yield the statements that are constants of modules: of those of the store, and of what it has in common."""
    seen: set[int] = set()
    for package in (_PACKAGE, dialect.package):
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
            if not module.ispkg:
                yield from _in(vars(importlib.import_module(module.name)), seen)


def _in(value: Any, seen: set[int]) -> Iterator[ClauseElement]:
    """Yield the statements in a value, whatever it is put together from."""
    if id(value) in seen:
        return
    seen.add(id(value))
    made = sql.made(value) if sql.is_declared(value) else None
    if isinstance(made, SelectBase | UpdateBase | TextClause):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _in(each, seen)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _in(each, seen)
    elif type(value).__module__.startswith(f"{_PACKAGE}.") and made is None:
        for name in getattr(type(value), "__slots__", None) or vars(value):
            yield from _in(getattr(value, name, None), seen)
