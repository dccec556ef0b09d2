"""A process that commits over several participants, and meets its end on the way; else it goes on with recovery.

It moves a message and writes rows: the first queue space gives the message, the others get it, or the same one where
there is no other, and each database of the application gets a row.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import qmadmin
from qmadmin.device import Device
from qmadmin.space import QueueSpace
from tests import drivers, power
from tests.doom import Doom, meet


@dataclasses.dataclass(frozen=True)
class Participant:
    """What takes part: a queue space on a device, or the database of an application, which has no name.

    One that is `idle` is named in the transaction, and nothing is done on it. `driver` is that of a server.
    """

    name: str
    place: str
    idle: bool = False
    driver: str = "psycopg"


@dataclasses.dataclass(frozen=True)
class Plan:
    """What the process does. `disk` is where it keeps what is on the disk, if its machine is about to lose power."""

    participants: Sequence[Participant]
    decider: int
    doom: Doom
    mark: str
    disk: str = ""

    @property
    def told(self) -> str:
        """As it is told to the process."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def of(cls, told: str) -> Plan:
        """Return what was told."""
        said = json.loads(told)
        said["participants"] = [Participant(**each) for each in said["participants"]]
        return cls(**said | {"doom": Doom(**said["doom"])})


SOURCE = "from tests import crashing\ncrashing.run(sys.argv[1])\n"


def run(told: str) -> None:
    """Do as is told, and say what the commit has said."""
    plan = Plan.of(told)
    if plan.disk:
        power.keep(Path(plan.disk))
    with contextlib.ExitStack() as stack:
        resources = _opened(stack, plan.participants)
        spaces = [each for each in resources if isinstance(each, QueueSpace)]
        for space in spaces:
            # So that the definitions are known, and no transaction is the first one ever.
            with space.transaction():
                space.enqueue("OUT", "known")
            assert space.dequeue("OUT")
        try:
            with qmadmin.transaction(*resources, decider=resources[plan.decider]) as tx:
                _work([each for each, its in zip(resources, plan.participants, strict=True) if not its.idle])
                meet(plan.doom, Path(plan.mark))
        except qmadmin.QueueError as error:
            print(type(error).__name__, error.facts.get("gtrid", ""), flush=True)
        else:
            print("committed" if tx.complete else "decided", flush=True)
        while True:
            _recover(spaces, [each for each in plan.participants if not each.name])


RECOVERY = "from tests import crashing\ncrashing.recover(sys.argv[1])\n"


def recover(told: str) -> None:
    """Do what any program does after the end of another one, and say when nothing is in doubt any more."""
    plan = Plan.of(told)
    if plan.disk:
        power.keep(Path(plan.disk))
    with contextlib.ExitStack() as stack:
        spaces = [each for each in _opened(stack, plan.participants) if isinstance(each, QueueSpace)]
        databases = [each for each in plan.participants if not each.name]
        while _recover(spaces, databases) or any(space.tpc_recover() or space.decisions() for space in spaces):
            pass
        print("settled", flush=True)
        while True:
            _recover(spaces, databases)


def connected(place: str, driver: str = "psycopg") -> Any:
    """Return a connection to the database of an application: to a file, or by a URL of libpq and a driver."""
    return sqlite3.connect(place) if "://" not in place else drivers.connected(driver, place)


def _opened(stack: contextlib.ExitStack, participants: Sequence[Participant]) -> list[Any]:
    devices: dict[str, Device] = {}
    opened: list[Any] = []
    for each in participants:
        if not each.name:
            opened.append(stack.enter_context(contextlib.closing(connected(each.place, each.driver))))
            continue
        if each.place not in devices:
            devices[each.place] = stack.enter_context(qmadmin.open_device(each.place))
        opened.append(stack.enter_context(devices[each.place].open_space(each.name)))
    return opened


def _work(resources: Sequence[Any]) -> None:
    spaces = [each for each in resources if isinstance(each, QueueSpace)]
    if spaces:
        message = spaces[0].dequeue("Q")
        assert message is not None
        for space in spaces[1:] or spaces:
            space.enqueue("OUT", message.text)
    for each in resources:
        if not isinstance(each, QueueSpace):
            each.cursor().execute("INSERT INTO shop_order VALUES ('x')")


def _recover(spaces: Sequence[QueueSpace], databases: Sequence[Participant]) -> int:
    """Do what any program does; a server may be away. Return how much is in doubt in databases of the application."""
    left = len(databases)
    with contextlib.suppress(Exception), contextlib.ExitStack() as stack:
        connections = [
            stack.enter_context(contextlib.closing(connected(each.place, each.driver))) for each in databases
        ]
        if connections:
            left = qmadmin.recover(*connections)
    for space in spaces:
        with contextlib.suppress(Exception):
            space.dequeue("IDLE", wait=0.1)
    return left
