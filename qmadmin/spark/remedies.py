"""What to do about what the engine refuses, with the options of qmspark, of which the engine knows nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qmadmin.archive.faults import Fault

if TYPE_CHECKING:
    from qmcore.errors import QueueError

_OF_FACTS: Final = {
    "exists": "The options are --existing, --rename-queue and --rename.",
    "imported_before": "The option is --again.",
    "import_id": "--abandon gives it up, and --abandon-all imports of all archives.",
    "unfinished": "--resume begins again in this one.",
}
_OF_FAULTS: Final = {
    Fault.KEY_NEEDED: "The option is --key.",
}


def remedy(error: QueueError) -> str:
    """Return the hint of a diagnostic, and the options that do what it says."""
    more = [sentence for fact, sentence in _OF_FACTS.items() if fact in error.facts]
    more += [sentence for fault, sentence in _OF_FAULTS.items() if error.facts.get("fault") is fault]
    return " ".join([error.hint, *more]).strip()
