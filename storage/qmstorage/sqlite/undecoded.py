"""Texts of a damaged file that are not UTF-8: they cost the message that has them, not a whole listing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from qmcore import message_rows
from qmcore.space import Space
from qmstorage.messages import Messages


class Undecoded(Messages):
    """Reads that survive texts that cannot be decoded."""

    _is_strict = False

    @contextlib.contextmanager
    def undecoded(self) -> Iterator[None]:
        """Read texts that are not UTF-8 as something that no rule allows, instead of refusing them."""
        connection = self.cursor.connection
        before, connection.text_factory = connection.text_factory, _text
        self._is_strict = True
        try:
            yield
        finally:
            connection.text_factory, self._is_strict = before, False

    def check(self, row: Sequence[Any], retries: object, space: Space, queue_name: str) -> None:
        """Refuse a row without its body of which no message can be made."""
        if self._is_strict:
            message_rows.check_strictly(row, space, queue_name)
        super().check(row, retries, space, queue_name)


def _text(raw: bytes) -> str | bytes:
    """Return a text, or the bytes of what is not one: no column of texts may have those."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
