"""The schema version that this release can work with: its own, and no other."""

from __future__ import annotations

from typing import Final

from qmcore.errors import ReleaseError
from qmstorage.schema import VERSION

UNDER_WAY: Final = 9000
"""Added to the version that a device had, as long as some of its files are upgraded and others are not yet.

To earlier releases that is a newer version, which they refuse.
"""


def reached(found: int) -> int:
    """Return the version of the tables of a device whose recorded version is `found`."""
    return found - UNDER_WAY if found > UNDER_WAY else found


# shlex is loaded for a refusal only: nearly every start is without one.
def refuse_other(found: int, path: str) -> None:
    """Raise ReleaseError for a volume of another schema version than that of this release; `path` names it."""
    if UNDER_WAY < found < UNDER_WAY + VERSION:
        import shlex

        raise ReleaseError(
            f"the upgrade of device {path!r} was cut short: finish it with qmadmin --upgrade {shlex.quote(path)}",
            hint="All messages are there; until then no release opens the device.",
            path=path,
        )
    if found > VERSION:
        raise ReleaseError(
            f"device {path!r} has schema version {found}, newer than version {VERSION} of this release:"
            " use the release of qmadmin that wrote it, or a newer one",
            hint="qmadmin --version shows what is installed.",
            path=path,
        )
    if found < VERSION:
        import shlex

        raise ReleaseError(
            f"device {path!r} has schema version {found}, older than version {VERSION} of this release:"
            f" upgrade it with qmadmin --upgrade {shlex.quote(path)}",
            hint="A backup is made first; --plan shows what will be done.",
            path=path,
        )
