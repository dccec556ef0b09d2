"""Each attribute of a queue is taken through every face: by each it can be given, and by each it can be read.

A queue stands for each attribute, which it has as its name, and of which it has a value that is no default.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from qmadmin import mib
from qmadmin.opening import create_device, open_device
from qmadmin.spark.device_tables import queue_batch
from qmadmin.transfer.exporting import ExportOptions, export
from qmadmin.transfer.import_planning import Existing, ImportOptions
from qmadmin.transfer.importing import load_archive
from qmadmin.transfer.selecting import ArchiveSelection
from qmcore.attributes import made
from qmcore.queue import ATTRIBUTES, FIGURES, Queue, QueueDefinition
from tests.fix_shell import ROOT, Ran, Shell
from tests.fix_store import space_definition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

QS = {"TA_APPQSPACENAME": "SPACE"}


@dataclasses.dataclass(frozen=True)
class Sample:
    """A value that is no default, and how each face writes it.

    `given` is an option of qcreate, a parameter by its name, or the command that follows; `attribute` is that of the
    MIB and `told` its value; `label` and `shown` are what people see in qinfo, and `key` is that of its JSON.
    """

    value: Any
    given: str
    attribute: str
    told: str | int
    label: str
    shown: str
    key: str = ""
    column: str = ""


SAMPLES = {
    "name": Sample("name", "", "TA_APPQNAME", "name", "Queue 'name'", "", "queue", "queue"),
    "order": Sample("priority,lifo", "qorder priority,lifo", "TA_APPQORDER", "PRIO,LIFO", "Order", "priority,lifo"),
    "out_of_order": Sample(
        "top,msgid", "out_of_order top,msgid", "TA_OUTOFORDER", "TOP,MSGID", "Out-of-order", "top,msgid"
    ),
    "retries": Sample(3, "retries 3", "TA_MAXRETRIES", 3, "Retries", "3", column="retry_limit"),
    "retry_delay": Sample(60, "delay 1m", "TA_RETRYDELAY", 60, "Retry delay", "60 seconds"),
    "high": Sample("80%", "high 80%", "TA_CMDHW", "80%", "High limit", "80%"),
    "low": Sample("10%", "low 10%", "TA_CMDLW", "10%", "Low limit", "10%"),
    "command": Sample("true", "cmd true", "TA_CMD", "true", "Capacity command", "true"),
    "memory_high": Sample("80%", "-n 80%,0%", "TA_CMDNONPERSISTHW", "80%", "Memory high limit", "80%"),
    "memory_low": Sample("10%", "-n 100%,10%", "TA_CMDNONPERSISTLW", "10%", "Memory low limit", "10%"),
    "memory_command": Sample("false", "-n 100%,0%,false", "TA_CMDNONPERSIST", "false", "Memory command", "false"),
    "delivery": Sample("nonpersist", "-d nonpersist", "TA_DEFDELIVERYPOLICY", "NONPERSIST", "Delivery", "nonpersist"),
    "expiration": Sample(60, "-e +1m", "TA_DEFEXPIRATIONTIME", "+60", "Expiration", "+60 seconds"),
    "error_queue": Sample("ERR", "-E ERR", "TA_ERRORQNAME", "ERR", "Error queue", "ERR"),
    "keep_expired": Sample(True, "-x y", "TA_KEEPEXPIRED", "Y", "Expired messages", "go to the error queue"),
    "grouping": Sample(True, "-g", "TA_GROUPING", "Y", "Groups", "yes", "groups"),
    "retention": Sample(5, "-R 5", "TA_RETENTION", 5, "Retention", "5 seconds"),
    "retry_growth": Sample("linear", "-G linear", "TA_RETRYGROWTH", "LINEAR", "Retry growth", "linear"),
    "retry_factor": Sample(1.5, "-F 1.5", "TA_RETRYFACTOR", "1.5", "Retry factor", "1.5"),
    "retry_maximum": Sample(60, "-M 1m", "TA_RETRYMAXDELAY", 60, "Retry maximum", "60 seconds"),
    "retry_jitter": Sample(0.25, "-J .25", "TA_RETRYJITTER", "0.25", "Retry jitter", "0.25"),
    "default_delay": Sample(5, "-D 5", "TA_DEFDELAY", 5, "Default delay", "5 seconds"),
    "multiple_consumers": Sample(True, "-m", "TA_MULTICONSUMER", "Y", "Several consumers", "yes"),
    "enqueue_enabled": Sample(False, "qstop -e enqueue_enabled", "TA_ENQUEUING", "STOPPED", "Enqueuing", "stopped"),
    "dequeue_enabled": Sample(False, "qstop -d dequeue_enabled", "TA_DEQUEUING", "STOPPED", "Dequeuing", "stopped"),
}
VALUES = {name: sample.value for name, sample in SAMPLES.items()}
SWITCHES = {"enqueue_enabled": "enqueue", "dequeue_enabled": "dequeue"}
SEVERAL = "multiple_consumers"
FIXED = {name for name, known in ATTRIBUTES.items() if known.fixed}
DEFAULTS = {
    "qorder": "fifo", "out_of_order": "none", "retries": "0", "delay": "0", "high": "100%", "low": "0%", "cmd": '""',
}  # fmt: skip


def test_each_attribute_has_a_sample_so_that_all_faces_are_tried():
    assert list(SAMPLES) == list(ATTRIBUTES)


# ---- how it is given -------------------------------------------------------------------------------------------------


def by_the_api(shell: Shell) -> None:
    with open_device(shell.device) as device, device.open_space("SPACE") as space:
        for name in SAMPLES:
            space.create_queue(wanted(name).definition)
            if name in SWITCHES:
                space.stop_queue(name, **{side: switch == name for switch, side in SWITCHES.items()})


def by_qcreate(shell: Shell) -> None:
    lines = []
    for name in SAMPLES:
        option, given, then = written(name)
        lines += [f"qcreate {option} {name} {' '.join(given.values())}", then]
    done(shell.run("\n".join(["qopen SPACE", *lines])))


def by_qchange(shell: Shell) -> None:
    lines = []
    for name in SAMPLES:
        option, given, then = written(name)
        order, *others = given.values()
        fixed, option = (option, "") if name in FIXED else ("", option)
        lines += [
            f'qcreate {fixed} {name} {order} none 0 0 100% 0% ""',
            f"qchange {option} {name} {' '.join(others)}",
            then,
        ]
    done(shell.run("\n".join(["qopen SPACE", *lines])))


def by_the_mib(shell: Shell) -> None:
    for name in SAMPLES:
        mib.set(shell.device, "T_APPQ", new(name) | in_the_mib(name))


def by_changes_in_the_mib(shell: Shell) -> None:
    for name in SAMPLES:
        mib.set(shell.device, "T_APPQ", new(name) | (in_the_mib(name) if name in FIXED else {}))
        mib.set(shell.device, "T_APPQ", QS | {"TA_APPQNAME": name} | in_the_mib(name))


def by_an_import(shell: Shell) -> None:
    (shell.directory / "other").mkdir()
    other = Shell(shell.directory / "other")
    with create_device(other.device, 4_000) as device:
        device.create_space(space_definition("SPACE", queues=len(SAMPLES), memory=20 * 4096))
    by_the_api(other)
    # An archive cannot hold the queue that is for several consumers: it is made anew.
    others = ArchiveSelection(queues=tuple(name for name in SAMPLES if name != SEVERAL))
    export(other.device, shell.directory / "archive", ExportOptions(selection=others))
    load_archive(shell.directory / "archive", shell.device, ImportOptions(start=True, existing=Existing.APPEND))
    with open_device(shell.device) as device, device.open_space("SPACE") as space:
        space.create_queue(wanted(SEVERAL).definition)


def written(name: str) -> tuple[str, dict[str, str], str]:
    """Return the option, the parameters, and the command that follows, which give a queue its value."""
    how = SAMPLES[name].given
    first, _, rest = how.partition(" ")
    given = DEFAULTS | ({first: rest} if first in DEFAULTS else {})
    return how if how.startswith("-") else "", given, how if first == "qstop" else ""


def in_the_mib(name: str) -> dict[str, str | int]:
    return {SAMPLES[name].attribute: SAMPLES[name].told}


def new(name: str) -> dict[str, str | int]:
    return QS | {"TA_APPQNAME": name, "TA_STATE": "NEW"}


def wanted(name: str) -> Queue:
    values = Queue(1, 1, QueueDefinition(name=name)).attributes | {name: SAMPLES[name].value}
    return Queue(1, 1, made(QueueDefinition, values), *(values[switch] for switch in SWITCHES))


def done(ran: Ran) -> None:
    assert ran.status == 0, ran.both


# ---- how it is read --------------------------------------------------------------------------------------------------

WAYS = (by_the_api, by_qcreate, by_qchange, by_the_mib, by_changes_in_the_mib, by_an_import)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_is_given_by_one_face_is_read_by_all(shell: Shell, memory_dir: Path, way: Callable[[Shell], None]):
    with create_device(shell.device, 4_000) as device:
        device.create_space(space_definition("SPACE", queues=len(SAMPLES), memory=20 * 4096))
    way(shell)
    with open_device(shell.device) as device, device.open_space("SPACE") as space:
        assert {queue.name: queue.attributes for queue in space.queues()} == {
            name: wanted(name).attributes for name in SAMPLES
        }
    told = {found["TA_APPQNAME"]: found for found in mib.get(shell.device, "T_APPQ", QS)}
    assert {name: told[name][sample.attribute] for name, sample in SAMPLES.items()} == {
        name: sample.told for name, sample in SAMPLES.items()
    }
    shown = shell.run("verbose on\nqopen SPACE\nqinfo\n").out
    for name, sample in SAMPLES.items():
        record = re.split(r"^(?=Queue ')", shown.partition(f"Queue '{name}'\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
        label, text = re.escape(sample.label), re.escape(sample.shown)
        assert name == "name" or re.search(rf"^ *{label}: +{text}$", record, re.MULTILINE), record
    rows = json.loads(shell.run("verbose on\nqopen SPACE\nformat json\nqinfo\n").out.splitlines()[-1])["rows"]
    records = {record["queue"]: record for record in rows}
    assert {name: records[name][sample.key or name] for name, sample in SAMPLES.items()} == VALUES
    table = {row["queue"]: row for row in queue_batch(shell.device, ArchiveSelection()).to_pylist()}
    assert {name: table[name][sample.column or name] for name, sample in SAMPLES.items()} == VALUES


COUNTED = {
    "messages": ("", "messages"), "ready": ("TA_CURREADY", "ready"), "delayed": ("TA_CURDELAYED", "delayed"),
    "parked": ("TA_CURPARKED", "parked"), "held": ("TA_CURHELD", "held"), "pages": ("TA_CURBLOCKS", "pages"),
    "size": ("TA_CURBYTES", "bytes"),
    "enqueued": ("TA_NUMENQUEUED", "enqueued"), "dequeued": ("TA_NUMDEQUEUED", "dequeued"),
    "expired": ("TA_NUMEXPIRED", "expired"), "discarded": ("TA_NUMDISCARDED", "discarded"),
    "moved": ("TA_NUMMOVED", "moved"), "nonpersistent": ("TA_CURNONPERSISTMSG", "nonpersistent"),
    "memory_pages": ("", ""),
}  # fmt: skip
"""How the MIB and the other faces call what is counted of a queue; what is not there is counted otherwise."""


def test_what_is_counted_of_a_queue_is_told_by_all_faces(shell: Shell, memory_dir: Path):
    with create_device(shell.device, 4_000) as device:
        device.create_space(space_definition("SPACE", memory=20 * 4096))
        with device.open_space("SPACE") as space:
            space.create_queue(QueueDefinition(name="Q", retries=1))
            space.create_queue(QueueDefinition(name="E"))
            space.enqueue_many("Q", ["a", "bb", "ccc", "dddd", "eeeee"])
            space.enqueue("Q", "later", delay=3600)
            space.enqueue("Q", "kept in memory", persistent=False)
            space.dequeue("Q")
            space.move("Q", "E", condition="size = 2")
            with space.transaction() as transaction:
                space.dequeue("Q")
                transaction.rollback(park=True)
            with space.transaction():
                space.dequeue("Q")
                assert_told(shell, dataclasses.asdict(space.usage("Q")))


def assert_told(shell: Shell, counted: dict[str, Any]):
    assert [name for name in COUNTED if not counted[name]] == ["expired", "discarded"]
    (found,) = mib.get(shell.device, "T_APPQ", QS | {"TA_APPQNAME": "Q"})
    rows = json.loads(shell.run("verbose on\nqopen SPACE\nformat json\nqinfo Q\n").out.splitlines()[-1])["rows"]
    (row,) = queue_batch(shell.device, ArchiveSelection(queues=("Q",))).to_pylist()
    assert list(COUNTED) == list(FIGURES)
    for name, (attribute, key) in COUNTED.items():
        assert not attribute or found[attribute] == counted[name]
        assert rows[0][key or name] == row[key or name] == counted[name]


@pytest.mark.parametrize("name", SAMPLES)
def test_each_has_its_place_in_the_pages(name: str):
    sample = SAMPLES[name]
    for page, word in (
        ("qmadmin-mib.5", sample.attribute),
        ("qmadmin-archive.5", name),
        ("qmspark.1", sample.column or name),
        ("qmadmin.1", sample.key or name),
    ):
        text = re.sub(r"\\f[BIR]", "", (ROOT / "man" / page).read_text())
        assert re.search(rf"\b{word}\b", text), page
