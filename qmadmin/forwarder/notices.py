"""The sentences of Tuxedo's message catalogue that concern the forwarder."""

from __future__ import annotations

from qmadmin.console.results import Entry, Severity


def _warning(number: int, form: str) -> Entry:
    return Entry(number, Severity.WARN, form)


TRANTIME_NOT_NUMERIC = _warning(1602, "-t option ignored as argument must be numeric")
TRANTIME_TOO_LARGE = _warning(1603, "-t option ignored as argument is too large (must be below {limit})")
IDLETIME_NOT_NUMERIC = _warning(1604, "-i option ignored as argument must be numeric")

CATALOGUE = (TRANTIME_NOT_NUMERIC, TRANTIME_TOO_LARGE, IDLETIME_NOT_NUMERIC)
"""All of them by number."""
