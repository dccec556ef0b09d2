"""The texts of statements that are compiled when the package is built, one file for each dialect.

A statement is found by how it is declared (see `sql`), so that one which was changed since is not found, and compiled
when it is run. What all of them rest on, the tables and the elements of our own, goes into a checksum in the file.
"""

from __future__ import annotations

import functools
import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import sqlalchemy

SCHEMA: Final = "some_schema_of_qmadmin"
"""Stands in a text for the schema of the tables."""

FUNCTIONS: Final = "some_functions_of_qmadmin"
"""Stands in a text for the schema of the functions that a store has beside its tables."""

BODY_HOLDS: Final = "qm_body_holds"
"""The function that SQLite tests bodies with: a body, or NULL, and the text of a condition."""

_FOUNDATIONS: Final = ("definition_tables.py", "transaction_tables.py", "schema.py", "elements.py", "compiling.py")
_HERE: Final = Path(__file__).parent

__loader__: Any


class Dialect(NamedTuple):
    """How a store writes SQL."""

    name: str
    package: str
    """The modules of the store."""
    loaded: Callable[[], sqlalchemy.Dialect]
    """Returns SQLAlchemy's dialect, which is loaded where something is compiled."""
    is_typed: bool = False
    """Whether the types of values matter."""


class Text(NamedTuple):
    """The text of a statement on tables in `SCHEMA`, its constants, and the types of its values where they matter."""

    text: str
    constants: dict[str, Any]
    kinds: dict[str, str]

    def on(self, schema: str, functions: str = "") -> str:
        """Return the text for tables in a schema, whose name is quoted; "" are those of the volume itself.

        `functions` is the schema of the functions, where that is another one.
        """
        text = self.text.replace(SCHEMA, schema) if schema else self.text.replace(f"{SCHEMA}.", "")
        return text.replace(FUNCTIONS, functions or schema)


def find(statement: object, dialect: Dialect) -> Text | None:
    """Return the text of a statement; None where it was not compiled when the package was built."""
    found = read(dialect).get(key(statement))
    return None if found is None else Text(*found)


def key(statement: object) -> str:
    """Return what a statement is found by; no two in a file have the same."""
    declared = repr(statement).encode()
    return f"{zlib.crc32(declared):08x}{zlib.adler32(declared):08x}"


def path_of(dialect: Dialect) -> Path:
    """Return the path of the file with the texts in a dialect."""
    return _HERE / f"texts-{dialect.name}.json"


def foundations() -> int:
    """Return a checksum of the modules that all statements rest on."""
    return zlib.crc32(b"".join([_content(_HERE / name) for name in _FOUNDATIONS]))


def _content(path: Path) -> bytes:
    # By what has loaded this module: on the machines of a cluster the package is a zip.
    content: bytes = __loader__.get_data(str(path))
    return content


@functools.cache
def read(dialect: Dialect) -> Mapping[str, list[Any]]:
    """Return what was compiled, by the keys of the statements."""
    try:
        whole = json.loads(_content(path_of(dialect)))
        # In a checkout it may be of other sources.
        return whole["texts"] if whole["of"] == foundations() else {}
    except (OSError, ValueError):
        return {}
