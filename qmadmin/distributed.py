"""Transactions over several queue spaces, of one device or of several, on whatever machines they are."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Self, TypeAlias

from qmadmin.attachment import attachment_of
from qmadmin.device import Device
from qmadmin.opening import database_of
from qmadmin.over_volumes import in_memory, taken_twice
from qmadmin.recovery import recovery_of
from qmadmin.space import QueueSpace
from qmadmin.transacting import Transaction, join, refuse_nesting
from qmadmin.volume_makers import MEMORY
from qmcore.acts import deciding
from qmcore.acts.deciding import Answer, Decider, Place, Question
from qmcore.acts.returning import Cause, Ending
from qmcore.errors import InvalidArgumentError, ProtocolError
from qmcore.times import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta

    from qmadmin.application_databases import Databases
    from qmadmin.connections import DatabaseConnection
    from qmadmin.participating import Part
    from qmcore.application_database import ApplicationDatabase

Resource: TypeAlias = "QueueSpace | Device | DatabaseConnection"


class _OverResources(Transaction):
    """A transaction that the calls on several queue spaces belong to, and what is done on connections."""

    def __init__(
        self,
        resources: Sequence[QueueSpace | Device],
        databases: Sequence[ApplicationDatabase],
        timeout: float | timedelta | None,
        decider: object,
        *,
        completes: bool,
    ) -> None:
        super().__init__(_device_of(resources[0]), timeout)
        self._resources = resources
        self._covers = list(map(_covered, resources))
        self._decider = attachment_of(decider) if isinstance(decider, QueueSpace) else None
        self._completes = completes
        if databases:
            its = self.databases = databases_of(self, resources[0], decider)
            for database in databases:
                its.take(database)

    def __enter__(self) -> Self:
        for device, space in self._covers:
            refuse_nesting(device, space)
        try:
            self._open_databases()
            for device, name in self._covers:
                join(self, weakref.ref(self), device, name)
        except BaseException:
            self._roll_back_databases()
            raise
        return self

    def begin(self) -> Self:
        """Begin the transactions of the databases, for calls that join it one by one."""
        try:
            self._open_databases()
        except BaseException:
            self._roll_back_databases()
            raise
        return self

    def _open_databases(self) -> None:
        if self.databases is not None:
            spaces = [resource for resource in self._resources if isinstance(resource, QueueSpace)]
            self.databases.open([attachment_of(space) for space in spaces])

    def join_context(self) -> None:
        """Make the calls of this thread on its queue spaces belong to the transaction from now on."""
        for device, space in self._covers:
            join(self, lambda: self, device, space)


def databases_of(transaction: Transaction, first: QueueSpace | Device, decider: object = None) -> Databases:
    """Return the databases of a transaction, of which the first device keeps what is known."""
    from qmadmin.application_databases import Databases
    from qmadmin.recovering_databases import DatabaseRecovery

    device = _device_of(first)
    recovery = recovery_of(device)

    # A cycle would keep a transaction that was forgotten, and so its messages.
    its = weakref.ref(transaction)

    def spare_part() -> Part:
        found, space = its(), decider if isinstance(decider, QueueSpace) else first
        device = _device_of(space)
        name = space.name if isinstance(space, QueueSpace) else next(iter(device.probe.attachments), None)
        if name is None or found is None:
            raise ProtocolError(
                "databases that can all prepare need a queue space to decide, and the transaction has none",
                hint="Give a queue space, or name one of the connections as decider.",
            )
        attachment = device.attachment(name, "application")
        return attachment, found.branch(attachment)

    def recover(database: ApplicationDatabase, at_hand: Sequence[ApplicationDatabase]) -> None:
        known = {each.name: recovery.known(each) for each in at_hand}
        DatabaseRecovery(database, known, at_hand).run_beside_work()

    return Databases(recovery.known, spare_part, recover, device.clock.now(), decider)


def transaction(
    *resources: Resource,
    timeout: float | timedelta | None = None,
    complete: bool = False,
    decider: QueueSpace | DatabaseConnection | None = None,
) -> Transaction:
    """Return a transaction over several resources, to be used as `with qmadmin.transaction(orders, bills) as tx:`.

    The resources are queue spaces of any devices, of which there is at least one; a device stands for all that it has;
    and connections of the application: a Connection or Session of SQLAlchemy, to whatever database, a connection of
    psycopg 3 or sqlite3, `django.db.connection`, or a connection of any other driver that has the calls of PEP 249 for
    two phases (tpc_begin, tpc_recover and the others). Calls of the thread on the queue spaces belong to the
    transaction, and so does what the application does on the connections, none of which may have a transaction open
    when the block begins. It commits all that was done together, or nothing of it, also where a process or a machine
    fails at any moment. The application commits and rolls back nothing by itself.

    Queue spaces on one volume are committed in one database transaction, and so is a queue space in the very database
    of a connection, which nothing else can belong to then. Of several resources one decides, by its own commit, which
    has to be on the disk: `decider`, else a database that cannot prepare, which needs the table that
    `create_decision_table` makes, else a queue space that has given a message, else the first. An SQLite file cannot
    prepare, a server of PostgreSQL only with `max_prepared_transactions`, and any other only by a driver with those
    calls: of such databases there may be one. What has changed nothing takes no part in this. A database of which no
    more is known than PEP 249 says needs that table in any case, by which it is known again, and counts as changed.

    After the decision nothing refuses: what cannot be reached then follows by itself, a database as `recover` says, and
    `tx.complete` is False. With `complete` the commit waits for all of them, at most until `timeout` seconds are
    over, after which a transaction that is not decided is rolled back.

    Raises InvalidArgumentError for what is no resource, or is named twice, and for a connection that is closed, has a
    transaction open, or commits by itself; ProtocolError inside another transaction on one of the queue spaces, and
    where a database cannot take part. The commit raises what that of a queue space does, AbortedError where a database
    refuses, ProtocolError where the application has ended the transaction on a connection, and OutcomeUnknownError
    where it cannot be known whether it is decided: `outcome` tells that later, and all wait for it by themselves.
    Where one database transaction is all there is, nobody can tell: its messages are gone, or back without a try.
    """
    spaces, databases = _checked(resources)
    if decider is not None and not isinstance(decider, QueueSpace):
        if not any(database.connection is decider for database in databases):
            raise _no_resource(decider)
    elif decider is not None and not any(_covers(resource, decider) for resource in spaces):
        raise _no_resource(decider)
    if isinstance(decider, QueueSpace) and not attachment_of(decider).is_durable:
        raise InvalidArgumentError(
            f"queue space {decider.name!r} cannot decide, because its device is relaxed: its commits need not be on the"
            " disk",
            hint="Name a queue space of a device with full durability.",
        )
    return _OverResources(spaces, databases, timeout, decider, completes=complete)


def begun(over: Transaction) -> Transaction:
    """Begin the transactions of the databases of one over several resources, for calls that join it one by one."""
    return over.begin() if isinstance(over, _OverResources) else over


def _no_resource(decider: object) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the decider {decider!r} is none of the resources of the transaction",
        hint="Name one of its queue spaces, or of its connections.",
    )


def outcome(decider: QueueSpace | DatabaseConnection, gtrid: str) -> bool | None:
    """Return whether a transaction is committed of which OutcomeUnknownError has told the `gtrid` (`error.facts`).

    `decider` is the queue space that the error has named, or a connection to the database, which has no transaction
    open. None where that is not decided yet, or cannot be known any more, because an earlier state of the decider was
    restored. Ask within a day: after that what was committed may be forgotten, and counts as rolled back. Raises
    InvalidArgumentError for a text that is no such identifier, or is not of this decider.
    """
    try:
        identifier, era, decisions = gtrid.split("-")
        asked = bytes.fromhex(identifier)
        its = int(era, 16), int(decisions, 16)
    except (AttributeError, ValueError):
        raise InvalidArgumentError(f"{gtrid!r} is not the identifier of a transaction over several resources") from None
    if not isinstance(decider, QueueSpace):
        return _outcome_in(database_of(decider), gtrid, asked, its)
    attachment = attachment_of(decider)
    if not deciding.has_begun(attachment.opened.space, asked):
        raise _decides_not(f"queue space {decider.name!r}", gtrid)
    question = Question(asked, Decider(attachment.place, attachment.volume.instance, *its))
    answers = deciding.ask(attachment.volume, attachment.opened, [question], Ending(Cause.DEATH))
    return _SAID.get(answers[asked])


_SAID = {Answer.COMMITTED: True, Answer.ROLLED_BACK: False}


def _outcome_in(database: ApplicationDatabase, gtrid: str, asked: bytes, its: tuple[int, int]) -> bool | None:
    """Return what a database says of a transaction; one that is not decided never will be after that."""
    from qmadmin.application_databases import KnownDatabase
    from qmadmin.participating import ask

    database.open()
    try:
        known = KnownDatabase(database.facts(), SystemClock())
        if not known.facts.table or not asked.startswith(known.facts.table):
            raise _decides_not(f"database {database.name!r}", gtrid)
        decider = Decider(Place(database.name, ""), known.facts.instance, *its)
        return _SAID.get(ask(database, known, {asked: decider})[asked])
    finally:
        database.roll_back()


def _decides_not(what: str, gtrid: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{what} does not decide on transaction {gtrid}", hint="Ask the one that the error has named."
    )


def _checked(resources: Sequence[Resource]) -> tuple[list[QueueSpace | Device], list[ApplicationDatabase]]:
    """Return the queue spaces and devices of a transaction, and the databases of its connections."""
    spaces = [resource for resource in resources if isinstance(resource, QueueSpace | Device)]
    databases = [database_of(resource) for resource in resources if not isinstance(resource, QueueSpace | Device)]
    if not spaces:
        raise InvalidArgumentError("a transaction over several resources needs at least one queue space or device")
    all_of_them = list(map(_covered, spaces))
    for at, (device, name) in enumerate(all_of_them):
        for other, its_name in all_of_them[:at]:
            if (name is None or its_name is None or name == its_name) and _is_same(device, other):
                raise taken_twice(repr(spaces[at]))
    devices = dict.fromkeys(device for device, _ in all_of_them)
    if databases or len(devices) > 1:
        refuse_memory(devices)
    return spaces, databases


def refuse_memory(devices: Iterable[Device]) -> None:
    """Refuse a device in memory, in a transaction that is not of it alone."""
    if any(device.path == MEMORY for device in devices):
        raise in_memory()


def _device_of(resource: QueueSpace | Device) -> Device:
    return resource.device if isinstance(resource, QueueSpace) else resource


def _covered(resource: QueueSpace | Device) -> tuple[Device, str | None]:
    return (resource.device, resource.name) if isinstance(resource, QueueSpace) else (resource, None)


def _covers(resource: QueueSpace | Device, other: QueueSpace | Device) -> bool:
    (device, name), (its_device, its_name) = _covered(resource), _covered(other)
    return name in (None, its_name) and _is_same(device, its_device)


def _is_same(device: Device, other: Device) -> bool:
    return device is other or (device.path == other.path and device.path != MEMORY)
