"""Where processes hand works to each other: the one that has the writer does those of others too, in the same commit.

Each commit has to be synced, and each process that waits for the writer has to be woken. A process that finds the gate
closed posts its request, and sleeps; the process inside looks, just before its commit, what was posted. So there is one
commit for several works, and none of them waits for a turn.

Only a process inside SQLite's own lock takes a work, answers it, or takes back its own: the gate alone keeps nobody
out. Commits with works of others are counted in the same transaction, one number for each, and the answers name that
number: where the database has it, they are committed, whatever has become of the process. So nothing is done twice, and
nothing is left undone:

- the process that does the work may die at any step: the next one finds that the number was not committed, and does it
  again, or that it was, and then the owner takes the answer and syncs it itself;
- it may be stopped: the owner gives up as it would before the gate, and is told that the outcome is unknown if its work
  was taken;
- the owner may die: no process works for one that is gone;
- a work may fail: all is undone, it is marked as declined, and its owner does it alone.
"""

from __future__ import annotations

import functools
import os
import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from qmcore.errors import NotOpenError
from qmstorage.sqlite import files, translate
from qmstorage.sqlite.handoff_memory import Places, open_places, stamp

if TYPE_CHECKING:
    from types import ModuleType

    from qmcore.transitions import Command
    from qmstorage.sqlite.unit import SqliteUnit
    from qmstorage.sqlite.writer_gate import Surroundings, WriterGate

_STATE, _TAKEN, _ANSWERED, _DECLINED = 3, 1, 2, 3
"""How far a work is, in the last two bits of the word that says which it is."""

_LOOK_MILLISECONDS: Final = 2
"""After which an owner that sleeps checks whether the gate is open: the process that was to wake it may be gone."""

_SYNC_SECONDS: Final = 0.05
"""How long an owner leaves it to another process to sync what that one has committed."""

_FULL_SECONDS: Final = 1.0
"""After which a process that found all places taken looks for one again."""

_WITHDRAWING_SECONDS: Final = 0.01
"""After which a work that was withdrawn and is not taken will not be, by far more than two processors need."""


class Answer(NamedTuple):
    """What came of a work, and whether it is on the disk."""

    content: bytes
    synced: bool


Served: TypeAlias = tuple[int, int]
"""A work of another process: its place and its number."""


class Handoff:
    """The handoff between the processes of a volume, as one of them sees it."""

    def __init__(self, places: Places, path: str, file: tuple[int, int]) -> None:
        self.places = places
        self._path = path
        self._file = stamp(file)
        self._place: int | None = None
        self._number = 0
        self.asked = 0
        """The number of the work that is posted; 0: what was posted last has come to its end."""
        self._full_until = 0.0
        self._given_up = ""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        # A name that is no file, so that nothing is left of a process that dies, and that nobody has after it: those
        # that the kernel gives come again.
        self._socket.bind(f"\0qm{os.urandom(6).hex()}")
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    # ---- the owner of a work -----------------------------------------------------------------------------------------

    def post(self, request: Command) -> bool:
        """Leave a work to the process that has the writer; return whether that is possible."""
        if self._place is None and not self._takes_place():
            return False
        content = self._requests.packed(request)
        if content is None or self._place is None:
            return False
        self._number += 1
        self.asked = self._number
        self.places.ask(self._place, self.asked, content)
        self.places.posted[self._place] = self.asked
        return True

    def wait(self, gate: WriterGate) -> Answer | None:
        """Wait until another has done the work, and return its answer; None: the gate is open, and the caller inside.

        Raises what the gate raises to whoever waits in vain; OutcomeUnknownError, where the work was begun by then.
        """
        place, number, places = self._place, self.asked, self.places
        assert place is not None  # noqa: S101 - it was posted
        end = time.monotonic() + translate.BUSY_SECONDS
        synced_by = 0.0
        while True:
            # A process that was itself stopped for long checks before it gives up.
            is_over = time.monotonic() > end
            if places.synced[place] == number or 0 < synced_by < time.monotonic():
                found = places.answered(place, number)
                if found is not None:
                    return Answer(found[1], places.synced[place] == number)
            elif places.committed[place] == number:
                synced_by = synced_by or time.monotonic() + _SYNC_SECONDS
                end = max(end, synced_by + _SYNC_SECONDS)
                is_over = time.monotonic() > end
            elif places.taken[place] == number << 2 | _DECLINED:
                self.take_off()
                gate.enter()
                return None
            elif gate.try_enter():
                return None
            if is_over:
                self._give_up(gate)
            self._rest()
            if self._given_up:
                raise NotOpenError(self._given_up, path=self._path)

    def withdraw(self) -> bool:
        """Take back what was posted, if anything; return whether it was begun, so that its outcome is unknown."""
        place, number = self._place, self.asked
        if place is None or not number or self._given_up:
            return False
        self.take_off()
        time.sleep(_WITHDRAWING_SECONDS)
        return self.places.taken[place] in (number << 2 | _TAKEN, number << 2 | _ANSWERED)

    def take_off(self) -> None:
        """Withdraw what was posted, if anything was, so that it is not begun any more."""
        if self._place is not None and self.asked and not self._given_up:
            self.places.withdrawn[self._place] = self.asked
            self.places.posted[self._place] = 0
        self.asked = 0

    def take_back(self, unit: SqliteUnit) -> Answer | None:
        """Take back what was posted, inside, unless another has done it: then return the answer."""
        place, number = self._place, self.asked
        if place is None or not number:
            return None
        if self.places.taken[place] >> 2 == number and self._is_done(place, number, unit):
            found = self.places.answered(place, number)
            if found is None:
                raise translate.answer_lost(self._path)
            return Answer(found[1], self.places.synced[place] == number)
        self.take_off()
        return None

    # ---- who has the writer ------------------------------------------------------------------------------------------

    def serve(self, unit: SqliteUnit, served: list[Served], has_changed: Callable[[], bool]) -> None:
        """Do what was posted, in the transaction of the caller, who commits it; `served` tells what was begun.

        `has_changed` tells whether anything has been changed in that transaction.
        """
        places, run = self.places, self._requests.run
        contents = []
        # All of them are looked at before this commit is counted, with which the answers of one that died would seem
        # to be committed.
        for place, number in places.posts():
            content = self._takes(place, number, unit)
            if content is not None:
                served.append((place, number))
                contents.append(content)
        commit = 0
        for work, content in zip(tuple(served), contents, strict=True):
            place, number = work
            answer = run(unit, content)
            if answer is None:
                places.taken[place] = number << 2 | _DECLINED
                served.remove(work)
                continue
            if not commit and has_changed():
                # The file may have been lost with the power, and the database not.
                commit = places.last_commit = unit.counters.count_handoff_commit(places.id, places.last_commit + 1)
            # What has changed nothing, and was told of nothing that this commit changes, is good without it.
            places.answer(place, number, commit, answer)
            places.taken[place] = number << 2 | _ANSWERED

    def decline(self, served: Sequence[Served]) -> None:
        """Leave works to their owners, inside: they, or another, have spoilt the transaction."""
        for place, number in served:
            self.places.taken[place] = number << 2 | _DECLINED

    def note_committed(self, served: Sequence[Served]) -> None:
        """Say that works are committed."""
        for place, number in served:
            self.places.committed[place] = number

    def tell(self, served: Sequence[Served]) -> None:
        """Say that works are on the disk, and wake their owners."""
        for place, number in served:
            if self._given_up:
                # A signal handler has forked. Those are the parent's to tell.
                return
            self.places.synced[place] = number
            self.places.wake(self._socket, place)

    def call(self) -> None:
        """Wake the first of those whose work nobody has taken."""
        for place, number in self.places.posts():
            if self.places.taken[place] >> 2 != number:
                self.places.wake(self._socket, place)
                return

    # ---- its end -----------------------------------------------------------------------------------------------------

    def outcome(self, answer: Answer) -> Any:
        """Return what the work that was posted returns, by its answer; after that, it has come to its end."""
        try:
            found = self._requests.outcome(answer.content)
        except Exception as error:
            raise translate.answer_lost(self._path) from error
        self.take_off()
        return found

    def close(self) -> None:
        """Give it up."""
        self._socket.close()
        self.places.close()

    def give_to_parent(self, reason: str) -> None:
        """Let nobody wait on, in a forked process, for what the parent has asked."""
        self._given_up = reason

    def abandon(self) -> None:
        """Close what a fork has left us of the parent's."""
        self._socket.close()
        self.places.abandon()

    @functools.cached_property
    def _requests(self) -> ModuleType:
        """What packs works and does them, which is loaded when processes first meet: most programs are alone."""
        from qmstorage.sqlite import handoff_requests

        return handoff_requests

    # ---- steps -------------------------------------------------------------------------------------------------------

    def _takes_place(self) -> bool:
        if time.monotonic() < self._full_until:
            return False
        claimed = self.places.claim(self._file, self._socket)
        if claimed is None:
            self._full_until = time.monotonic() + _FULL_SECONDS
            return False
        self._place, self._number = claimed
        return True

    def _takes(self, place: int, number: int, unit: SqliteUnit) -> bytes | None:
        """Take a work and return what is asked; None where it is not to be done."""
        places = self.places
        if not places.is_alive(place):
            # Or each commit would look at it. A process that has just taken the place finds that its work is not taken.
            places.posted[place] = 0
            return None
        if not places.has_open(place, self._file):
            # Only who has the same file open knows what became of it, and may touch it.
            return None
        word = places.taken[place]
        is_done = word >> 2 == number and (word & _STATE == _DECLINED or self._is_done(place, number, unit))
        content = None if is_done else places.asked(place, number)
        if content is None:
            return None
        places.taken[place] = number << 2 | _TAKEN
        # After that: its owner withdraws it first and looks then whether it is taken.
        if places.withdrawn[place] >= number:
            places.taken[place] = number << 2 | _DECLINED
            return None
        return content

    def _is_done(self, place: int, number: int, unit: SqliteUnit) -> bool:
        """Return whether a work that was taken is committed; if not, forget that it was taken."""
        places = self.places
        if places.committed[place] == number:
            return True
        if places.taken[place] & _STATE == _ANSWERED:
            found = places.answered(place, number)
            # An answer that cannot be read is damaged: it must not be done again, and its owner is told.
            if found is None or found[0] <= unit.counters.handoff_commit(places.id):
                return True
        # Before a later commit is counted, with which its number would seem to be committed.
        places.taken[place] = 0
        return False

    def _rest(self) -> None:
        """Sleep until woken, or until it is time to look."""
        if self._poll.poll(_LOOK_MILLISECONDS):
            try:
                self._socket.recv(1)
            except BlockingIOError:
                return

    def _give_up(self, gate: WriterGate) -> None:
        if self.withdraw():
            raise translate.left_unknown(self._path, gate.holder())
        raise translate.gate_closed(self._path, gate.holder())


def open_handoff(surroundings: Surroundings, path: str) -> Handoff | None:
    """Return the handoff of a volume; None where it has none."""
    file = files.identity(path)
    places = None if file is None else open_places(surroundings)
    if file is None or places is None:
        return None
    try:
        return Handoff(places, path, file)
    except OSError:
        # There is no descriptor for another socket.
        places.close()
        return None
