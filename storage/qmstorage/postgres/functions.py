"""The functions of a volume on PostgreSQL: `functions.sql` beside this has their texts, and says what each does.

They belong to the schema version, as the tables do: what a volume has is what this release would make.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qmstorage import rows
from qmstorage.postgres.tables import memory_schema, quoted

if TYPE_CHECKING:
    import psycopg

_SOURCE: Final = re.compile(r"\$function\$(.*)\$function\$", re.DOTALL)
_NAME: Final = re.compile(r"CREATE FUNCTION \{device\}\.(\w+)\(")
_STORE: Final = "{store}"
"""What stands in the text of a function for the schema of the disk, and in its twin for that of the memory."""
_FORGETTING: Final = re.compile(r"FORGET FROM (\{\w+\})")
_PIECE: Final = re.compile(r"^PIECE (\w+) AS \$piece\$\n(.*?)\n\$piece\$;\n", re.DOTALL | re.MULTILINE)
_THERE: Final = """
SELECT proname, prosrc, oid::regprocedure::text FROM pg_proc
WHERE pronamespace = to_regnamespace(%s) AND proname = ANY(%s)
"""


def creation(schema: str) -> Iterator[str]:
    """Yield the statements that make the functions of a volume, where they are not there."""
    for text in _texts().values():
        yield _in_schema(text, schema)


def replacement(connection: psycopg.Connection[Any], schema: str) -> Iterator[str]:
    """Yield the statements that make those functions of a volume again that it lacks, or has in another form."""
    for name, signatures in differing(connection, schema).items():
        yield from (f"DROP FUNCTION {signature}" for signature in signatures)
        yield _in_schema(_texts()[name], schema)


def differing(connection: psycopg.Connection[Any], schema: str) -> dict[str, list[str]]:
    """Return the functions that a volume lacks, or has in another form: by their names, what is there to be dropped."""
    there: dict[str, list[tuple[str, str]]] = {name: [] for name in _texts()}
    for name, source, signature in connection.execute(_THERE, [quoted(schema), list(there)]):
        there[name].append((source, signature))
    return {
        name: [signature for _, signature in found]
        for name, found in there.items()
        if [source for source, _ in found] != [_source(_in_schema(_texts()[name], schema))]
    }


def _in_schema(text: str, schema: str) -> str:
    return text.replace("{device}", quoted(schema)).replace("{memory}", quoted(memory_schema(schema)))


def _source(text: str) -> str:
    """Return what the server keeps of the text of a function."""
    found = _SOURCE.search(text)
    assert found is not None  # noqa: S101 - each is written so
    return found[1]


@functools.cache
def _texts() -> dict[str, str]:
    text = Path(__file__).with_suffix(".sql").read_text()
    text = _FORGETTING.sub(lambda found: rows.FORGETTING.format(found[1]), text)
    for name, piece in _PIECE.findall(text):
        text = text.replace(f"{{{name}}}", piece)
        text = re.sub(rf"{{{name} of ({{\w+}})}}", functools.partial(_piece_of, piece), text)
    text = _PIECE.sub("", text)
    starts = [found.start() for found in _NAME.finditer(text)]
    parts = [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
    texts = {_NAME.findall(part)[0]: part[: part.rindex("$function$;") + len("$function$")] for part in parts}
    twins = {f"{name}_memory": _in_memory(text) for name, text in texts.items() if _STORE in text}
    return {name: text.replace(_STORE, "{device}") for name, text in texts.items()} | twins


def _piece_of(piece: str, found: re.Match[str]) -> str:
    return piece.replace("{of}", found[1])


def _in_memory(text: str) -> str:
    """Return the function that does in the memory what one does on disk."""
    return _NAME.sub(r"CREATE FUNCTION {device}.\1_memory(", text).replace(_STORE, "{memory}")
