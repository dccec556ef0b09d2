"""Bodies that are too large for one statement: they are stored separately, one chunk in each row."""

from __future__ import annotations

import io

from qmcore.damage import damaged
from qmcore.errors import SystemFailureError
from qmcore.message import BODY_MAX, Body
from qmstorage.schema import chunk
from qmstorage.sql import delete, select
from qmstorage.statements import given, insert_into
from qmstorage.unit_part import StorePart

IN_ROW_MAX = 1024 * 1024
"""Bytes of the largest body that is stored in the row of its message."""

_CHUNK = 1024 * 1024
_ADD = insert_into(chunk)
_READ = select(chunk.c.content).where(given(chunk.c.body_id, "of_body")).order_by(chunk.c.number)
_REMOVE = delete(chunk).where(given(chunk.c.body_id, "of_body"))


def incomplete(body_id: object, found: int, size: int) -> SystemFailureError:
    """Return the diagnostic for a separate body that has fewer or more bytes than it should."""
    return damaged(body_id, f"its body has {found} bytes, and should have {size}")


class Bodies(StorePart):
    """Bodies that are stored separately. At most one chunk of a body is ever in memory a second time."""

    def put(self, body_id: int, body: Body) -> None:
        """Store a body separately, by the number of its message."""
        content = memoryview(body or b"")
        for number, at in enumerate(range(0, len(content), _CHUNK)):
            self.run(_ADD, body_id=body_id, number=number, content=content[at : at + _CHUNK])

    def whole(self, body_id: int, size: int) -> bytes:
        """Return a separate body of `size` bytes."""
        content = self.read(body_id, size)
        if len(content) != size:
            raise incomplete(body_id, len(content), size)
        return content

    def read(self, body_id: int, size: int) -> bytes:
        """Return what there is of a body that is kept apart, which should have `size` bytes."""
        # A buffer of this kind returns its bytes at the end without copying them. It gets its full size at once: the C
        # library may copy a smaller one to make it larger.
        with io.BytesIO() as buffer:
            if 0 < size <= BODY_MAX:
                buffer.seek(size - 1)
                buffer.write(b"\0")
                buffer.seek(0)
            for (content,) in self.run(_READ, of_body=body_id):
                buffer.write(content)
            if buffer.tell() < size:
                buffer.truncate()
            return buffer.getvalue()

    def discard(self, body_id: int) -> None:
        """Delete a separate body."""
        self.run(_REMOVE, of_body=body_id)
