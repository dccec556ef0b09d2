"""Whether those can be reached who decide on branches in doubt: a look, which changes nothing and waits for no lock."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from qmcore.acts import deciding, recovering
from qmcore.acts.deciding import Answer, Decider, Place, Question
from qmcore.attached import DeciderReach, DeciderSeen
from qmcore.errors import QueueError

if TYPE_CHECKING:
    from qmadmin.recovery import Recovery
    from qmcore.port import Volume
    from qmcore.records import TransactionRecord
    from qmcore.xid import Xid

logger = logging.getLogger("qmadmin.transacting")

_LOOK_SECONDS: Final = 6.0
"""How long all of them may take together: a server has five seconds to answer."""


def seen(recovery: Recovery, volume: Volume, records: Iterable[TransactionRecord]) -> dict[int, DeciderSeen]:
    """Return whether the deciders of branches can be reached now, by the numbers of their transactions.

    The records are those of branches on the volume; of one that another coordinator ends nothing is returned, and of
    one that presumes an abort only that it is a copy.
    """
    found: dict[int, DeciderSeen] = {}
    by_place: dict[Place, dict[int, tuple[Xid, Decider]]] = {}
    for record in records:
        xid, decider = record.xid, Decider.of(record.decider)
        if xid is None or not record.decider or record.decided:
            continue
        if decider is None and record.state.is_heuristic:
            # Nobody compares it.
            continue
        if recovering.is_copy(volume, xid):
            found[record.id] = DeciderSeen(DeciderReach.NEVER, recovering.COPIED)
        elif decider is not None:
            by_place.setdefault(decider.place, {})[record.id] = xid, decider
    looks = [_Look(recovery, place, its) for place, its in by_place.items()]
    end = time.monotonic() + _LOOK_SECONDS
    for look in looks:
        found |= look.result(end)
    return found


class _Look:
    """A look at one decider, by a thread that nobody waits for in the end: a name may take long to be resolved."""

    def __init__(self, recovery: Recovery, place: Place, branches: Mapping[int, tuple[Xid, Decider]]) -> None:
        self._recovery = recovery
        self._place = place
        self._branches = branches
        self._found: dict[int, DeciderSeen] = {}
        self._thread = threading.Thread(target=self._run, name="qmadmin-look", daemon=True)
        self._thread.start()

    def result(self, end: float) -> dict[int, DeciderSeen]:
        """Return what was seen until a time."""
        self._thread.join(max(end - time.monotonic(), 0.0))
        late = DeciderSeen(DeciderReach.NO, f"{self._place} did not answer within {_LOOK_SECONDS:g} seconds")
        return self._found or dict.fromkeys(self._branches, late)

    def _run(self) -> None:
        try:
            with self._recovery.looked_at(self._place) as (volume, space):
                questions = [Question(xid.gtrid, decider) for xid, decider in self._branches.values()]
                answers = deciding.foreseen(volume, space.id, questions)
                self._found = {
                    number: self._seen(answers[xid.gtrid], is_its=deciding.has_begun(space, xid.gtrid))
                    for number, (xid, _) in self._branches.items()
                }
        except QueueError as error:
            self._note_unreached(str(error))
        except Exception as error:
            logger.exception("whether %s can be reached was not found out", self._place)
            self._note_unreached(f"{type(error).__name__}: {error}")

    def _note_unreached(self, why: str) -> None:
        self._found = dict.fromkeys(self._branches, DeciderSeen(DeciderReach.NO, f"{self._place}: {why}"))

    def _seen(self, answer: Answer, *, is_its: bool) -> DeciderSeen:
        if not is_its:
            return DeciderSeen(DeciderReach.NO, f"{self._place} is not the one that decides on it")
        if answer is Answer.UNKNOWN:
            return DeciderSeen(
                DeciderReach.NEVER, f"an earlier state of {self._place}, which decides, was restored, or a copy"
            )
        return DeciderSeen(DeciderReach.YES, "")
