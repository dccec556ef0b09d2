"""The parts of a unit beside messages, noun by noun: what the engine asks of a store.

They belong to the port (`qmcore.port`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from qmcore.audit import AuditEntry
from qmcore.bulk_rows import Adopted
from qmcore.device import DeviceEntry, DeviceInfo, Extent
from qmcore.message import ConsumedMessage, Message
from qmcore.queue import ConsumerRecord, Queue, QueueDefinition
from qmcore.records import Cursor, Decision, Forwarding, ImportRecord, Owner, Part, Place, TransactionRecord, Use
from qmcore.schedule import Schedule
from qmcore.space import Limited, Space, SpaceDefinition
from qmcore.volume_record import VolumeRecord
from qmcore.xid import Xid

if TYPE_CHECKING:
    from qmcore.condition import Condition


class SpaceRecords(Protocol):
    """Queue spaces."""

    def find(self, name: str) -> Space | None:
        """Return the queue space of that name."""

    def listed(self) -> list[Space]:
        """Return all queue spaces of the volume by name."""

    def add(self, definition: SpaceDefinition, incarnation: str, created_us: int) -> Space:
        """Record a queue space, its counters at zero."""

    def change(self, space: Space) -> None:
        """Record what is new about a queue space, and change the generation."""

    def set_initialized(self, space_id: int) -> None:
        """Record that the disk of the queue space has been allocated."""

    def remove(self, space_id: int) -> None:
        """Remove a queue space with everything in it."""

    def adopt(self, space_id: int, adopted: Adopted) -> None:
        """Let message ids of another queue space be valid in this one, and change the generation.

        Their sequence numbers here are nobody else's.
        """

    def succeed(self, space_id: int, incarnation: str) -> None:
        """Give a queue space another incarnation, and change the generation."""


class QueueRecords(Protocol):
    """Queues."""

    @property
    def subscriptions(self) -> SubscriptionRecords:
        """Consumers of queues for several."""

    def of_space(self, space_id: int) -> list[Queue]:
        """Return the queues of a queue space by name."""

    def versions(self, space_id: int) -> dict[int, int]:
        """Return for each queue of a queue space, by its number, a number that changes with each change of it."""

    def find(self, queue_id: int) -> Queue:
        """Return a queue that exists, by its number."""

    def add(self, space_id: int, definition: QueueDefinition, created_us: int) -> Queue:
        """Record a queue, its counters at zero, and change the generation."""

    def change(self, queue: Queue) -> None:
        """Record what is new about a queue, and change the generation."""

    def remove(self, queue: Queue) -> None:
        """Remove a queue with the messages and counters that it has, and change the generation."""

    def empty(self, queue_id: int) -> None:
        """Delete all that stands in a queue, or for a consumer, with the messages: other consumers lose theirs too."""


class SubscriptionRecords(Protocol):
    """Consumers of queues for several."""

    def of_space(self, space_id: int) -> list[ConsumerRecord]:
        """Return the subscriptions of a queue space, those which have ended too until nothing is left of them."""

    def add(
        self, queue: Queue, full_name: str, now_us: int, rule: str = "", topics: Sequence[str] = ()
    ) -> ConsumerRecord:
        """Record a consumer of a queue, its counters at zero, and change the generation."""

    def change(self, consumer: Queue, rule: str, topics: Sequence[str]) -> None:
        """Record what a consumer wants from now on, and change the generation."""

    def end(self, consumer: Queue) -> None:
        """Record that a consumer has unsubscribed, whose name is free then, and change the generation."""

    def is_over(self, consumer: Queue) -> bool:
        """Return whether nothing stands for a consumer that has unsubscribed, and nothing more can come.

        What an open transaction has taken stands there until that is committed.
        """

    def remove(self, consumer: Queue) -> None:
        """Remove a consumer for which nothing stands, with its counters, and change the generation."""


class ScheduleRecords(Protocol):
    """Schedules."""

    def find(self, space_id: int, name: str) -> Schedule | None:
        """Return the schedule of that name."""

    def of_space(self, space_id: int) -> list[Schedule]:
        """Return the schedules of a queue space by name."""

    def queues(self, space_id: int) -> list[tuple[str, str]]:
        """Return the names of the schedules, in their order, each with the queue of its messages, which may be gone."""

    def due(self, space_id: int, now_us: int) -> list[str]:
        """Return the names of the schedules whose next moment is not after a time, the longest due first."""

    def add(self, space_id: int, schedule: Schedule) -> None:
        """Record a schedule."""

    def change(self, space_id: int, schedule: Schedule) -> None:
        """Record what is new about the schedule of that name."""

    def advance(self, space_id: int, name: str, moment_us: int, next_us: int | None) -> bool:
        """Advance a schedule from a due moment to the next one; False where it is not there, as others have done so."""

    def note_made(self, space_id: int, name: str, moment_us: int, msgid: str) -> None:
        """Record for which moment the last message was made, and its identifier."""

    def remove(self, space_id: int, name: str) -> None:
        """Remove a schedule."""


class DeviceRecords(Protocol):
    """The device list and the table of contents; only the volume that QMCONFIG names has them."""

    def info(self) -> DeviceInfo:
        """Return what the device records about itself."""

    def set_commands(self, *, enabled: bool) -> None:
        """Record whether capacity commands run."""

    def entries(self) -> list[DeviceEntry]:
        """Return the device list in the order of its indexes."""

    def add_entry(self, entry: DeviceEntry) -> None:
        """Add an entry to the device list."""

    def rename_entry(self, index: int, path: str) -> None:
        """Set the path of an entry of the device list."""

    def remove_entry(self, index: int) -> None:
        """Remove an entry from the device list."""

    def set_volume(self, index: int, volume: str, opened: int) -> None:
        """Set the identifier and the number of the volume of an entry."""

    def raise_entries(self, volume: str, opened: int) -> None:
        """Set the number of all entries of a volume, where it is lower."""

    def volume(self) -> VolumeRecord:
        """Return what the volume itself records about itself."""

    def set_opened(self, opened: int) -> None:
        """Set the number of the volume itself, where it is lower."""

    def join_device(self, info: DeviceInfo) -> None:
        """Make the volume itself one of another device, under an identifier that nobody else knows."""

    def extents(self) -> list[Extent]:
        """Return the table of contents."""

    def add_extents(self, extents: Iterable[Extent]) -> None:
        """Add rows to the table of contents."""

    def remove_extents(self, space: str) -> None:
        """Remove the rows of a queue space from the table of contents."""

    def remove_extent(self, extent: Extent) -> None:
        """Remove one row from the table of contents, if it is still there as it was."""


class AuditRecords(Protocol):
    """Destructive acts; only the volume that QMCONFIG names has them."""

    def add(self, entry: AuditEntry) -> int:
        """Record an act and return the number of the entry; the oldest beyond those that are kept are removed."""

    def set_outcome(self, entry: AuditEntry, outcome: str) -> None:
        """Record what came of an act, if it is recorded."""

    def last(self, limit: int) -> list[AuditEntry]:
        """Return the last `limit` acts, the newest first."""


class HighestRecords(Protocol):
    """The highest use of limits that is counted where it rises. Messages have counters of their own for it."""

    def of_space(self, space_id: int) -> Mapping[str, int]:
        """Return the highest use that was noted of each limit of a queue space; none for one that was never used."""

    def raise_to(self, space_id: int, limit: Limited, used: int) -> None:
        """Note how much of a limit is in use, unless more was noted before."""

    def forget(self, space_id: int) -> None:
        """Forget the highest use of a queue space, that of messages on disk too, and change the generation."""


class HistoryRecords(Protocol):
    """Messages that are kept after they were consumed."""

    def retain(self, place: Place, consumed_us: int, consumer: str) -> None:
        """Keep a message that was taken out of its states."""

    def of_queue(
        self, space: Space, queue: Queue, after: Cursor | None, limit: int, condition: Condition | None = None
    ) -> Part[ConsumedMessage]:
        """Return at most `limit` retained messages of the queue in the order of their consumption."""

    def recall(self, space: Space, queue: Queue, message_id: int, since_us: int) -> Message | None:
        """Return a retained message with its body, if it was consumed since a time."""

    def first_consumed(self) -> list[tuple[int, int]]:
        """Return when the first of the retained messages of each queue was consumed, of all queues that have any."""

    def has_outlived(self, queue_id: int, before_us: int) -> bool:
        """Return whether the queue has retained messages that were consumed before a time."""

    def forget(self, queue_id: int, before_us: int, limit: int) -> tuple[int, int]:
        """Delete at most `limit` messages that were consumed before a time; return how many, and their pages."""


class ImportRecords(Protocol):
    """Imports, what of them is loaded, and the queues that they hide."""

    def add(self, record: ImportRecord) -> None:
        """Record the start of an import."""

    def of_space(self, space_id: int) -> list[ImportRecord]:
        """Return the imports of a queue space, the oldest first."""

    def find(self, import_id: int) -> ImportRecord | None:
        """Return what is recorded of an import."""

    def set_stage(self, import_id: int, stage: str, ended_us: int | None = None) -> None:
        """Record how far an import is, and when it ended."""

    def remove(self, import_id: int) -> None:
        """Forget an import and its batches."""

    def add_batch(self, import_id: int, part: str, first_row: int, use: Use) -> bool:
        """Record that a batch is loaded; False where it was before. Waits for one that is being recorded."""

    def batches(self, import_id: int) -> list[tuple[str, int, Use | None]]:
        """Return the batches that are loaded; None for one that has to be loaded again."""

    def forget_batches(self, import_id: int) -> None:
        """Forget which batches were loaded."""

    def reload_batches(self, import_id: int, prefix: str) -> None:
        """Record that the batches of parts whose names begin with `prefix` have to be loaded again."""

    def reserve_block(self, space_id: int, least: int, count: int) -> int:
        """Reserve `count` consecutive sequence numbers, from `least` or later; return the first. The unit is alone."""

    def add_queue(self, queue: Queue, created_us: int, import_id: int) -> Queue:
        """Record a hidden queue of an import, its counters at zero."""

    def hidden_queues(self, space_id: int) -> list[tuple[int, Queue]]:
        """Return the hidden queues of a queue space, each with its import; less than 0 where the import replaced it."""

    def promised_queues(self, space_id: int) -> int:
        """Return how many queues imports will add whose names are not in use."""

    def reveal(self, queue: Queue) -> None:
        """Make a hidden queue visible, and change the generation."""

    def conceal(self, queue: Queue, import_id: int) -> None:
        """Hide a queue that an import has replaced, and change the generation."""


class DecisionRecords(Protocol):
    """Decisions to commit distributed transactions, each as long as somebody is to be told."""

    def begin_era(self, space_id: int, era_id: int, now_us: int) -> None:
        """Begin to count decisions in an era."""

    def counted(self, space_id: int, era_id: int) -> int | None:
        """Return how many decisions were made in an era; None where there is no such era."""

    def forget_old(self, space_id: int, callers_before_us: int, eras_before_us: int) -> None:
        """Forget callers who were to be told before a time, and eras that began before another one."""

    def has_work(self, space_id: int) -> bool:
        """Return whether anybody is to be told of a decision, or a heuristic end to be compared with one."""

    def is_decided(self, space_id: int, gtrid: bytes) -> bool:
        """Return whether there is a decision on a transaction."""

    def of_space(self, space_id: int, most: int) -> list[Decision]:
        """Return at most so many branches that are to be told, the longest first."""

    def forget(self, space_id: int, gtrid: bytes, branch: bytes) -> None:
        """Note that a branch, or the caller, need not be told any more."""


class TransactionRecords(Protocol):
    """Transactions, and what was decided on distributed ones."""

    @property
    def decisions(self) -> DecisionRecords:
        """Decisions on distributed transactions."""

    def end(self, transaction_id: int, owner_id: int) -> bool:
        """Remove the transaction if that owner still has it; False means that it was given up, or is committed."""

    def forget_committed(self, transaction_id: int) -> None:
        """Remove a committed transaction, because memory has followed it."""

    def is_active(self, transaction_id: int, owner_id: int) -> bool:
        """Return whether that owner still has the transaction, and it is active."""

    def suspend(self, transaction_id: int, owner_id: int, secret: str, now_us: int, queue_ids: Sequence[int]) -> bool:
        """Let an active transaction be resumed by a secret; False where that owner has it no more."""

    def resume(self, space_id: int, transaction_id: int, owner_id: int, secret: str) -> TransactionRecord | None:
        """Give the suspended transaction that has the secret, which is used up, to another owner.

        Return it, with the queues in which it has messages; None where there is none that has that secret.
        """

    def is_known(self, space_id: int, transaction_id: int) -> bool:
        """Return whether the queue space has the transaction, in whatever state it is."""

    def of_space(self, space_id: int) -> list[TransactionRecord]:
        """Return the transactions of a queue space."""

    def count(self, space_id: int) -> int:
        """Return how many transactions of the queue space are open."""

    def find(self, space_id: int, xid: Xid) -> TransactionRecord | None:
        """Return the transaction of a queue space that has an identifier, in whatever state it is."""

    def reopen(self, space_id: int, xid: Xid, transaction_id: int | None = None) -> TransactionRecord | None:
        """Make a prepared transaction active, and nameless, for the rest of the work, which ends it, and return it.

        Return None where there is none with that identifier, or it is another one than this. Who ends it at the same
        time waits, and finds it ended.
        """

    def add_heuristic(self, record: TransactionRecord) -> None:
        """Record how a transaction was ended without the decision of its coordinator."""

    def note_decided(self, space_id: int, xid: Xid, decided: str) -> None:
        """Record what was decided on a transaction that was ended otherwise."""

    def heuristics(self, space_id: int) -> list[TransactionRecord]:
        """Return those of a queue space that were ended so, the longest first."""

    def forget_uncompared(self, space_id: int, xid: Xid) -> None:
        """Remove such a record where it is not noted that otherwise was decided."""

    def forget_heuristic(self, space_id: int, xid: Xid) -> bool:
        """Remove such a record; False where there is none."""


class OwnerRecords(Protocol):
    """Those who are attached: each is the owner of transactions, waits and claims."""

    @property
    def forwardings(self) -> ForwardingRecords:
        """What forwarders report of their work."""

    def add(self, owner: Owner) -> None:
        """Record who is attached."""

    def is_attached(self, owner_id: int) -> bool:
        """Return whether the owner was not given up."""

    def of_space(self, space_id: int) -> list[Owner]:
        """Return who is attached to the queue space, longest first."""

    def remove(self, owner_id: int) -> list[str] | None:
        """Forget who was attached, what it told, and for what it waited; return the addresses of its wake-ups.

        None where it is forgotten already: it has left, or others have found it dead.
        """


class WaitRecords(Protocol):
    """Waits for messages of queues."""

    def add(self, queue_id: int, address: str, owner_id: int) -> None:
        """Record that a message of the queue is waited for, and the address of the wake-up."""

    def remove(self, queue_id: int, address: str) -> None:
        """Forget that a message of the queue is waited for."""

    def of_space(self, space_id: int) -> dict[int, int]:
        """Return who waits for messages of the queue space, and how many waits each has."""

    def pass_on(self, space_id: int, queue_id: int) -> None:
        """Have another of those told who wait in turn for a queue of that space, where it has a message for them.

        Whoever has waited in turn does this when it waits no longer: it may have been woken for what it leaves.
        """

    def notify(self, queue_id: int) -> None:
        """Have all told, once the unit is committed, who wait for the queue."""


class ForwardingRecords(Protocol):
    """What forwarders tell of their work on queues. It goes with its owner, and with its queue."""

    def report(self, owner_id: int, figures: Mapping[int, Forwarding], *, whole: bool) -> bool:
        """Record what an owner tells of its queues, by their numbers; False means that the owner was given up.

        `whole`: what it has told of other queues is forgotten.
        """

    def of_space(self, space_id: int) -> list[tuple[int, Forwarding]]:
        """Return what owners tell of the queues of a queue space, by the names of the queues, each with the owner."""
