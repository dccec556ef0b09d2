"""The unit of work: every verb of the port, in one database transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from qmcore.definitions import CHANGES
from qmcore.numbers import random_number
from qmcore.purpose import Purpose, alone
from qmcore.queue import Delivery, Queue
from qmcore.records import Use
from qmcore.times import Clock, SystemClock
from qmstorage import rows
from qmstorage.auditing import Audit
from qmstorage.bodies import Bodies
from qmstorage.bulk_load import BulkLoad
from qmstorage.bulk_read import BulkRead
from qmstorage.capacity_commands import CapacityCommands
from qmstorage.counters import Counters, Highest
from qmstorage.device import Device
from qmstorage.history import History
from qmstorage.holdings import Holdings
from qmstorage.imports import Imports
from qmstorage.listing import Listing
from qmstorage.messages import Messages
from qmstorage.owners import Owners, Waits
from qmstorage.queues import Queues
from qmstorage.schedules import Schedules
from qmstorage.schema import IN_MEMORY, VERSION, counter, due, held, ready
from qmstorage.shares import Shares
from qmstorage.soundness import Damage, Soundness
from qmstorage.spaces import Spaces
from qmstorage.sql import bindparam, delete, update
from qmstorage.statements import Cursor, Runner, Texts, given
from qmstorage.states import States
from qmstorage.transactions import Transactions
from qmstorage.unit_part import LastingPartOf, PartOf

_EMPTY_QUEUE = rows.emptying((ready, due, held))
_NOTHING = Use(0, 0, 0)
_CLEAR = [delete(table) for table in IN_MEMORY]

_IS_MAIN = (given(counter.c.space_id, "space_id"), counter.c.queue_id == 0, counter.c.slot == 0)
_CHANGE_GENERATION = update(counter).where(*_IS_MAIN).values(generation=bindparam("new_generation"))


class MemoryStore(Runner):
    """The non-persistent messages of a queue space, in its memory."""

    delivery = Delivery.NONPERSIST
    in_memory = True
    purpose = Purpose.ADMINISTRATION
    """Who works in memory works on the disk, too, and has been asked there."""

    listing = PartOf(Listing)
    bulk_read = PartOf(BulkRead)
    bulk_load = PartOf(BulkLoad)
    soundness = PartOf(Soundness)
    damage = PartOf(Damage)
    counters = LastingPartOf(Counters)
    states = LastingPartOf(States)
    messages = LastingPartOf(Messages)
    bodies = LastingPartOf(Bodies)
    holdings = LastingPartOf(Holdings)
    shares = LastingPartOf(Shares)

    def abandon(self, space_id: int, queue_id: int) -> None:
        """Delete all messages of a queue and count it no longer."""
        for statement in _EMPTY_QUEUE:
            self.run(statement, of_queue=queue_id)
        self.counters.remove(space_id, queue_id)

    def clear(self, space_id: int, queues: Sequence[Queue]) -> None:
        """Delete all messages, and reset the counters."""
        for statement in _CLEAR:
            self.run(statement)
        for queue_id in (0, *(queue.id for queue in queues)):
            self.counters.add(space_id, queue_id)


class SqlUnit(Runner):
    """One short database transaction on a volume."""

    delivery = Delivery.PERSIST
    in_memory = False
    commits_memory = False
    purpose = Purpose.ADMINISTRATION
    """What the work is for that is done here; this is for whoever has opened a file or schema for himself."""
    schema_version = VERSION
    """That of all volumes of this kind: one of another version is not opened."""
    clock: Clock = SystemClock()
    """What the volume goes by."""

    listing = PartOf(Listing)
    bulk_read = PartOf(BulkRead)
    bulk_load = PartOf(BulkLoad)
    soundness = PartOf(Soundness)
    damage = PartOf(Damage)
    counters = LastingPartOf(Counters)
    states = LastingPartOf(States)
    messages = LastingPartOf(Messages)
    bodies = LastingPartOf(Bodies)
    holdings = LastingPartOf(Holdings)
    shares = LastingPartOf(Shares)
    history = PartOf(History)
    capacity_commands = PartOf(CapacityCommands)
    device = PartOf(Device)
    audit = PartOf(Audit)
    spaces = PartOf(Spaces)
    queues = PartOf(Queues)
    schedules = PartOf(Schedules)
    imports = PartOf(Imports)
    highest = PartOf(Highest)
    owners = PartOf(Owners)
    waits = PartOf(Waits)
    transactions = LastingPartOf(Transactions)

    def __init__(
        self,
        cursor: Cursor,
        texts: Texts,
        memories: Mapping[int, Texts] | None = None,
        elsewhere: Mapping[int, Use] | None = None,
    ) -> None:
        super().__init__(cursor, texts)
        # Others may attach more of them.
        self._memories = {} if memories is None else memories
        self._stores: dict[int, MemoryStore] = {}
        self._elsewhere = elsewhere or {}
        self.actions: list[Callable[[], None]] = []
        self._generations: dict[int, int] = {}

    def memory(self, space_id: int) -> MemoryStore | None:
        """Return the store of a queue space's non-persistent messages, where it has one and this process can use it."""
        texts = self._memories.get(space_id)
        if texts is None:
            return None
        # Always the same one, so that what is done in it can be done together, as long as that memory is attached.
        found = self._stores.get(space_id)
        if found is None or found.texts is not texts:
            found = self._stores[space_id] = self.memory_of(texts)
        return found

    def memory_of(self, texts: Texts) -> MemoryStore:
        """Return the store of non-persistent messages that the texts lead to."""
        return MemoryStore(self.cursor, texts, self.notifications)

    def place_of(self, space_id: int, queue_id: int, candidates: Sequence[int]) -> bytes | None:
        """Return the order key of the first of these messages that is still to be consumed from the queue."""
        stores = (self, self.memory(space_id))
        keys = (
            store.messages.key_of(queue_id, number) for number in candidates for store in stores if store is not None
        )
        return next((key for key in keys if key is not None), None)

    def memory_level(self, space_id: int) -> Use:
        """Return how much the memory of a queue space holds, also where this unit has no part in it."""
        memory = self.memory(space_id)
        return self._elsewhere.get(space_id, _NOTHING) if memory is None else memory.counters.level(space_id)

    def generation(self, space_id: int) -> int | None:
        """Return a number that changes with each change of a definition; None where the queue space is gone."""
        known = self._generations.get(space_id)
        if known is None:
            known = self.counters.generation(space_id)
            if known is not None:
                self._generations[space_id] = known
        return known

    @alone
    def change_generation(self, space_id: int) -> None:
        """Change the generation, so that every process reads the definitions of a queue space again."""
        # At random, not by counting: a number that was used in a transaction which then failed must not be reused, nor
        # one of a destroyed queue space whose own number is reused.
        self.run(_CHANGE_GENERATION, space_id=space_id, new_generation=random_number())
        self.note_changes()

    def note_changes(self) -> None:
        """Have everybody of this process read the definitions again, ourselves at once."""
        self._generations.clear()
        self.afterwards(CHANGES.note)

    def afterwards(self, action: Callable[[], None]) -> None:
        """Have something done by whoever asked for the unit, once it is committed."""
        self.actions.append(action)
