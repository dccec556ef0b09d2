"""Which schema versions this release can work with: its own, and no other."""

from __future__ import annotations

import shlex

from qmcore.errors import ReleaseError
from qmstorage import schema


def refuse_other(found: int, path: str) -> None:
    """Raise ReleaseError for a volume of another schema version; `path` is what the volume is called."""
    if found > schema.VERSION:
        raise ReleaseError(
            f"device {path!r} has schema version {found}, newer than version {schema.VERSION} of this release",
            hint="Use the release of qmadmin that wrote it, or a newer one.",
            path=path,
        )
    if found < schema.VERSION:
        raise ReleaseError(
            f"device {path!r} has schema version {found}, older than version {schema.VERSION} of this release",
            hint=f"Upgrade it: qmadmin --upgrade {shlex.quote(path)}",
            path=path,
        )
