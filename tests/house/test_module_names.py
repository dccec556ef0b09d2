"""A module's name says what it is for: it stands once on a floor, and means the same wherever floors share it."""

from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = ("shell", "forwarder", "spark")
OF_EACH_PROGRAM = {"program", "options", "settings", "errors"}

SHARED = {
    "audit": "the record of destructive acts",
    "bodies": "the bodies of messages",
    "declare": "how the parts of a face are declared",
    "device": "what QMCONFIG names",
    "disposing": "what becomes of messages that were taken out of their states",
    "forwarding": "how messages are forwarded",
    "importing": "loading an archive into a device",
    "imports": "imports that were begun, and how far they are",
    "kinds": "the kinds of values that arguments have",
    "listing": "listing the messages of a queue",
    "maintenance": "keeping a device in order",
    "messages": "messages and their states",
    "opening": "opening a device or a volume",
    "participating": "taking part in transactions over several resources",
    "queues": "queues as administrators define them",
    "rows": "messages as rows",
    "schedules": "schedules as administrators define them",
    "selection": "which messages are meant",
    "session": "what a program keeps from command to command",
    "snapshot": "a device as it was at one moment",
    "space": "a queue space",
    "spaces": "queue spaces as administrators define them",
    "subscriptions": "consumers of queues for several",
    "suspending": "suspending transactions, for others to go on with them",
    "transactions": "transactions of a queue space",
    "transitions": "what is done to messages",
    "two_phase": "branches of distributed transactions",
    "upgrade": "taking a device to the newest schema",
    "watching": "looking at queues again and again",
    "writing": "writing messages",
}
"""Names that several floors have, and what each means on all of them."""


def floor_of(module):
    package, *folders = module.relative_to(ROOT).parts
    if package == "qmadmin":
        return folders[0] if folders[0] in PROGRAMS else "library"
    return package


def modules():
    for package in ("core/qmcore", "storage/qmstorage", "qmadmin"):
        for module in (ROOT / package).rglob("*.py"):
            if module.stem != "__init__" and "migrations" not in module.parts:
                yield module


def test_no_name_stands_twice_on_a_floor():
    found = defaultdict(list)
    for module in modules():
        # What differs on a store stands beside what the stores share, under the same name.
        if floor_of(module) != "storage":
            found[floor_of(module), module.stem].append(str(module.relative_to(ROOT)))
    assert [names for names in found.values() if len(names) > 1] == []


def test_what_a_name_means_on_several_floors_is_written_down():
    floors = defaultdict(set)
    for module in modules():
        floors[module.stem].add(floor_of(module))
    shared = {name for name, found in floors.items() if len(found) > 1}
    assert shared - OF_EACH_PROGRAM == SHARED.keys()
