"""Each command that asks for confirmation leaves one record: the line as it was typed, its object, what came of it."""

import pytest

from qmadmin import UnknownXidError, open_device
from qmadmin.shell.catalogue import Catalogue

OPEN = "qopen QSPACE\nqset STRING\n"
LINES = {
    "chdl": (
        "chdl -f -y 1 {place}/EMPTY",
        "device list entry 1",
        "renamed from {place}/MORE to {place}/EMPTY, to make a new volume there: ",
    ),
    "dsdl": ("dsdl -y 1", "device list entry 1", "removed: {place}/MORE, offset 0, size 100"),
    "qspacedestroy": (
        "qspacedestroy -f -y QSPACE",
        "queue space QSPACE",
        "destroyed with 2 queues and 3 messages",
    ),
    "ipcrm": ("ipcrm -y QSPACE", "memory of queue space QSPACE", "done"),
    "qdestroy": ("qdestroy -p -y STRING", "queue QSPACE/STRING", "destroyed with 2 messages"),
    "qdeletemsg": ("qdeletemsg -y", "queue QSPACE/STRING", "2 messages deleted"),
    "qpurge": (
        "qpurge -y -r STRING",
        "queue QSPACE/STRING, with retained messages",
        "2 messages deleted; 0 retained messages deleted",
    ),
    "qchangeprio": (
        "qchangeprio -y 60",
        "queue QSPACE/STRING: priority 60",
        "priority of 2 messages changed",
    ),
    "qchangetime": (
        "qchangetime -y +60",
        "queue QSPACE/STRING: available 60 seconds from now",
        "time of availability of 2 messages changed",
    ),
    "qchangeexptime": (
        "qchangeexptime -y none",
        "queue QSPACE/STRING: expires never",
        "time of expiry of 2 messages changed",
    ),
    "qchangequeue": ("qchangequeue -y errq", "queue QSPACE/STRING: to queue errq", "2 messages moved"),
    "qunpark": ("qunpark -y errq", "queue QSPACE/errq: make parked messages available", "1 message unparked"),
    "qrequeue": (
        "qrequeue -y STRING",
        "queue QSPACE/STRING: back to the queues they came from",
        "0 messages moved back",
    ),
    "qscheduledelete": ("qscheduledelete -y tea", "schedule QSPACE/tea", "done"),
    "qrestore": ("qrestore -y {place}/B {place}/NEW", "device {place}/NEW", "restored from the backup made at "),
    "qimport": ("qimport -y -r COPY {place}/A", "import of archive ", "2 messages imported into queue space COPY"),
}
SCHEDULE = 'qschedulecreate tea STRING "every 1d" x'
"""It asks nothing, and is recorded, too."""
RECORDED_SCHEDULE = 'qschedulecreate tea STRING "every 1d" ***'
OF_TRANSACTIONS = {"qcommittrans", "qaborttrans", "qforgettrans"}
"""What needs somebody's transaction, which another test makes."""
OF_SUBSCRIPTIONS = {"qunsubscribe"}
"""What needs a queue for several consumers, which another test makes."""


@pytest.fixture
def prepared(laid_out):
    place = laid_out.directory
    (place / "EMPTY").touch()
    ran = laid_out.run(
        f"crdl {place}/MORE 0 100\n{OPEN}qput STRING a\nqput STRING b\nqexport {place}/A\nqbackup {place}/B\n"
        "qput -t 9999-12-31T23:59:59Z errq parked\n"
        f"{SCHEDULE}\n"
    )
    assert ran.status == 0, ran.both
    return laid_out


def records(path):
    with open_device(path) as device:
        found = [(entry.command, entry.target, entry.outcome) for entry in device.audited()[::-1]]
    return [record for record in found if record[0] != RECORDED_SCHEDULE]


def test_every_command_that_asks_is_here():
    asking = {command.name for command in Catalogue().commands if command.confirm is not None}
    assert asking == LINES.keys() | OF_TRANSACTIONS | OF_SUBSCRIPTIONS


@pytest.mark.parametrize("name", LINES)
def test_a_command_that_asks_is_recorded_once(prepared, name):
    line, target, outcome = (text.format(place=prepared.directory) for text in LINES[name])
    ran = prepared.run(f"{OPEN}{line}\n")
    assert ran.status == 0, ran.both
    ((command, about, came),) = records(prepared.directory / ("NEW" if name == "qrestore" else "QUE"))
    assert command == line
    assert about.startswith(target)
    assert came.startswith(outcome)


@pytest.mark.parametrize("name", LINES)
def test_a_command_that_is_not_confirmed_is_not_recorded(prepared, name):
    line = LINES[name][0].format(place=prepared.directory)
    prepared.run(f"{OPEN}{line.replace(' -y', ' -n')}\n{line.replace(' -y', '')}\nn\n")
    assert records(prepared.path) == []
    assert not (prepared.directory / "NEW").exists()


@pytest.mark.parametrize(
    ("command", "outcome"),
    [("qaborttrans", "rolled back with 1 message"), ("qcommittrans", "ERROR: transaction ")],
)
def test_the_end_of_a_transaction_by_others_is_recorded_once(prepared, command, outcome):
    with (
        open_device(prepared.device) as device,
        device.open_space("QSPACE") as space,
        space.transaction() as transaction,
    ):
        assert space.dequeue("STRING")
        prepared.run(f"{OPEN}qprinttrans\n{command} -y 0\n")
        transaction.rollback()
    ((line, about, came),) = records(prepared.path)
    assert line == f"{command} -y 0"
    assert about.startswith("transaction QSPACE/")
    assert came.startswith(outcome)


@pytest.mark.parametrize(
    ("commands", "outcomes"),
    [
        (
            ["qcommittrans -y 0", "qforgettrans -y 0"],
            ["committed heuristically with 2 messages", "forgotten: committed"],
        ),
        (
            ["qabort -y 7:67:62", "qforget -y 7:67:62"],
            ["rolled back heuristically with 2 messages", "forgotten: rolled"],
        ),
    ],
)
def test_the_end_of_a_branch_without_its_coordinator_is_recorded_and_so_is_that_it_is_forgotten(
    prepared, commands, outcomes
):
    with open_device(prepared.device) as device, device.open_space("QSPACE") as space:
        space.tpc_begin((7, "g", "b"))
        assert space.dequeue("STRING")
        space.enqueue("errq", "x")
        space.tpc_prepare()
        prepared.run(f"{OPEN}qprinttrans\n{commands[0]}\nqprinttrans\n{commands[1]}\n")
        assert space.transactions() == []
        with pytest.raises(UnknownXidError):
            space.tpc_rollback()
    for (line, about, came), command, outcome in zip(records(prepared.path), commands, outcomes, strict=True):
        assert (line, about) == (command, "transaction QSPACE/7:67:62")
        assert came.startswith(outcome)
