"""What to do about what the engine refuses, with the options of a program, of which the engine knows nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from qmcore.errors import QueueError


def remedy(error: QueueError, options: Mapping[str, str]) -> str:
    """Return the hint of a diagnostic and what options do about it, by its facts and the fault of an archive."""
    known = {*error.facts, str(error.facts.get("fault", ""))}
    return " ".join([error.hint, *(sentence for fact, sentence in options.items() if fact in known)]).strip()


@contextlib.contextmanager
def remedied(options: Mapping[str, str]) -> Iterator[None]:
    """Name in what the engine refuses the options that do something about it."""
    try:
        yield
    except QueueError as error:
        error.hint = remedy(error, options)
        raise
