"""Which schema versions this release can work with: its own, and no other."""

from __future__ import annotations

from qmcore.errors import ReleaseError
from qmstorage import schema


def refuse_other(found: int, path: str) -> None:
    """Raise ReleaseError for a volume of another schema version; `path` is what the volume is called."""
    if found > schema.VERSION:
        raise ReleaseError(
            f"device {path!r} has schema version {found}, newer than version {schema.VERSION} of this release:"
            " use the release of qmadmin that wrote it, or a newer one",
            hint="qmadmin --version shows what is installed.",
            path=path,
        )
    if found < schema.VERSION:
        # Loaded for a refusal only: nearly every start is without one.
        import shlex

        raise ReleaseError(
            f"device {path!r} has schema version {found}, older than version {schema.VERSION} of this release:"
            f" upgrade it with qmadmin --upgrade {shlex.quote(path)}",
            hint="A backup is made first; --plan shows what will be done.",
            path=path,
        )
