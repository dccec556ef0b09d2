"""Bodies that are kept apart, on PostgreSQL."""

from __future__ import annotations

from qmstorage.bodies import Bodies
from qmstorage.schema import chunk
from qmstorage.sql import select
from qmstorage.statements import given

_CONTENT = select(chunk.c.content).where(given(chunk.c.body_id, "of_body"), given(chunk.c.number, "at"))


class SharedBodies(Bodies):
    """Bodies that are kept apart. The driver would read all rows at once, so that they are asked for one by one."""

    def read(self, body_id: int, size: int) -> bytes:
        """Return what there is of a body that is kept apart, which should have `size` bytes."""
        content, at = bytearray(), 0
        while len(content) < size:
            part = self.one(_CONTENT, of_body=body_id, at=at)
            if part is None:
                break
            content += part[0]
            at += 1
        return bytes(content)
