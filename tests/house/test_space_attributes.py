"""Each attribute of a queue space is taken through every face: by each it can be given, and by each it can be read.

A queue space stands for each attribute, of which it has a value that is no default.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from qmadmin import mib
from qmadmin.opening import create_device, open_device
from qmadmin.spark.device_tables import space_batch
from qmadmin.transfer.exporting import export
from qmadmin.transfer.importing import load_archive
from qmadmin.transfer.selecting import ArchiveSelection
from qmcore.attributes import made
from qmcore.space import ATTRIBUTES, SpaceDefinition
from tests.fix_shell import ROOT, Ran, Shell
from tests.house.test_queue_attributes import Sample

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PAGE = 4096
WITHOUT_EFFECT = "Without effect"

SAMPLES = {
    "name": Sample("S0", "", "TA_APPQSPACENAME", "S0", "Queue space 'S0'", "", "queue_space", "space"),
    "ipc_key": Sample(54_321, "ipckey 54321", "TA_IPCKEY", 54_321, "IPC key", "54321", "ipckey"),
    "pages": Sample(104, "pages 107", "TA_MAXPAGES", 104, "Pages", "104"),
    "queues": Sample(7, "queues 7", "TA_MAXQUEUES", 7, "Queues", "0 of 7 in use", column="queue_limit"),
    "transactions": Sample(
        7,
        "trans 7",
        "TA_MAXTRANS",
        7,
        "Concurrent transactions",
        "0 of 7 in use",
        column="transaction_limit",
    ),
    "processes": Sample(7, "procs 7", "TA_MAXPROC", 7, "Concurrent processes", "0 of 7 in use", column="process_limit"),
    "messages": Sample(7, "messages 7", "TA_MAXMSG", 7, "Messages", "0 of 7 in use", column="message_limit"),
    "error_queue": Sample("ERR", "errorq ERR", "TA_ERRORQNAME", "ERR", "Error queue", "ERR"),
    "blocking": Sample(7, "blocking 7", "TA_BLOCKING", 7, "Blocking factor", "7"),
    "actions": Sample(7, "-A 7", "TA_MAXACTIONS", 7, "Additional actions", "0 of 7 in use", column="action_limit"),
    "memory": Sample(
        2 * PAGE,
        "-n 2B",
        "TA_MEMNONPERSIST",
        f"{2 * PAGE}b",
        "Non-persistent memory",
        f"0 of {2 * PAGE} bytes in use",
        column="memory_limit",
    ),
    "overflow": Sample(7, "-o 7", "TA_MEMOVERFLOW", 7, "Overflow memory", "7 bytes", "overflow_memory"),
    "handles": Sample(7, "-H 7", "TA_MAXHANDLES", 7, WITHOUT_EFFECT, "handles 7"),
    "cursors": Sample(7, "-C 7", "TA_MAXCURSORS", 7, WITHOUT_EFFECT, "cursors 7"),
    "owners": Sample(7, "-O 7", "TA_MAXOWNERS", 7, WITHOUT_EFFECT, "owners 7"),
    "temporary_queues": Sample(7, "-Q 7", "TA_MAXTMPQUEUES", 7, WITHOUT_EFFECT, "temporary queues 7"),
    "filter_memory": Sample(7, "-f 7", "TA_MEMFILTERS", 7, WITHOUT_EFFECT, "filter memory 7"),
    "initialized": Sample(True, "inityn y", "TA_FORCEINIT", "Y", "Initialized", "yes"),
}
SPACES = {name: f"S{number}" for number, name in enumerate(SAMPLES)}
VALUES = {name: sample.value for name, sample in SAMPLES.items()}
DEFAULTS = {
    "ipckey": "1", "pages": "100", "queues": "5", "trans": "5", "procs": "5", "messages": "5", "errorq": '""',
    "inityn": "n", "blocking": "16",
}  # fmt: skip
REQUIRED = {
    "TA_IPCKEY": 1, "TA_MAXPAGES": 100, "TA_MAXQUEUES": 5, "TA_MAXTRANS": 5, "TA_MAXPROC": 5, "TA_MAXMSG": 5,
}  # fmt: skip


def test_each_attribute_has_a_sample_so_that_all_faces_are_tried():
    assert list(SAMPLES) == list(ATTRIBUTES)


# ---- how it is given -------------------------------------------------------------------------------------------------


def by_the_api(shell: Shell) -> None:
    with open_device(shell.device) as device:
        for name in SAMPLES:
            device.create_space(wanted(name), initialize=name == "initialized")


def by_qspacecreate(shell: Shell) -> None:
    for name, space in SPACES.items():
        option, given = written(name)
        done(shell.run(f"qspacecreate {option} {space} {' '.join(given.values())}\n"))


def by_qspacechange(shell: Shell) -> None:
    for name, space in SPACES.items():
        option, given = written(name)
        pages, queues = given.pop("pages"), given.pop("queues")
        plainest = f'1 {pages} 5 5 5 5 "" n 16'
        change = f"qspacechange -q {queues} {option} {space} {' '.join(given.values())}"
        done(shell.run(f"qspacecreate {space} {plainest}\n{change}\n"))


def by_the_mib(shell: Shell) -> None:
    for name in SAMPLES:
        mib.set(shell.device, "T_APPQSPACE", new(name) | in_the_mib(name))


def by_changes_in_the_mib(shell: Shell) -> None:
    for name, space in SPACES.items():
        mib.set(shell.device, "T_APPQSPACE", new(name))
        mib.set(shell.device, "T_APPQSPACE", {"TA_APPQSPACENAME": space} | in_the_mib(name))


def by_an_import(shell: Shell) -> None:
    (shell.directory / "other").mkdir()
    other = Shell(shell.directory / "other")
    create_device(other.device, 4_000).close()
    by_the_api(other)
    export(other.device, shell.directory / "archive")
    load_archive(shell.directory / "archive", shell.device)


def written(name: str) -> tuple[str, dict[str, str]]:
    """Return the option and the parameters which give a queue space its value."""
    how = SAMPLES[name].given
    first, _, rest = how.partition(" ")
    return how if how.startswith("-") else "", DEFAULTS | ({first: rest} if first in DEFAULTS else {})


def in_the_mib(name: str) -> dict[str, str | int]:
    return {SAMPLES[name].attribute: SAMPLES[name].told}


def new(name: str) -> dict[str, str | int]:
    return {"TA_APPQSPACENAME": SPACES[name], "TA_STATE": "NEW"} | REQUIRED


def wanted(name: str) -> SpaceDefinition:
    plainest = {"name": SPACES[name], "ipc_key": 1, "pages": 100, "error_queue": "", "blocking": 16, "actions": 64}
    limits = dict.fromkeys(("queues", "transactions", "processes", "messages"), 5)
    return made(SpaceDefinition, dict.fromkeys(ATTRIBUTES, 0) | plainest | limits | {name: VALUES[name]})


def done(ran: Ran) -> None:
    assert ran.status == 0, ran.both


# ---- how it is read --------------------------------------------------------------------------------------------------

WAYS = (by_the_api, by_qspacecreate, by_qspacechange, by_the_mib, by_changes_in_the_mib, by_an_import)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_is_given_by_one_face_is_read_by_all(shell: Shell, memory_dir: Path, way: Callable[[Shell], None]):
    create_device(shell.device, 4_000).close()
    way(shell)
    with open_device(shell.device) as device:
        spaces = {space.name: space for space in device.spaces()}
    assert {name: spaces[space].definition for name, space in SPACES.items()} == {
        name: wanted(name) for name in SAMPLES
    }
    # An archive does not say what a device has allocated.
    samples = {name: sample for name, sample in SAMPLES.items() if way is not by_an_import or name != "initialized"}
    values = {name: sample.value for name, sample in samples.items()}
    assert {name: spaces[SPACES[name]].attributes[name] for name in samples} == values
    told = {found["TA_APPQSPACENAME"]: found for found in mib.get(shell.device, "T_APPQSPACE")}
    assert {name: told[SPACES[name]][sample.attribute] for name, sample in samples.items()} == {
        name: sample.told for name, sample in samples.items()
    }
    shown = shell.run("verbose on\nqspacelist\n\n").out
    for name, sample in samples.items():
        record = re.split(
            r"^(?=Queue space ')", shown.partition(f"Queue space '{SPACES[name]}'\n")[2], maxsplit=1, flags=re.MULTILINE
        )[0]
        label, text = re.escape(sample.label), re.escape(sample.shown)
        assert name == "name" or re.search(rf"^ *{label}: +{text}", record, re.MULTILINE), record
    rows = json.loads(shell.run("verbose on\nformat json\nqspacelist\n\n").out.splitlines()[-1])["rows"]
    records = {record["queue_space"]: record for record in rows}
    assert {name: records[SPACES[name]][sample.key or name] for name, sample in samples.items()} == values
    table = {row["space"]: row for row in space_batch(shell.device, ArchiveSelection()).to_pylist()}
    assert {name: table[SPACES[name]][sample.column or name] for name, sample in samples.items()} == values


@pytest.mark.parametrize("name", SAMPLES)
def test_each_has_its_place_in_the_pages(name: str):
    sample = SAMPLES[name]
    for page, word in (
        ("qmadmin-mib.5", sample.attribute),
        ("qmadmin-archive.5", name),
        ("qmspark.1", sample.column or name),
        ("qmadmin.1", sample.key or name),
    ):
        if page != "qmadmin-archive.5" or name != "initialized":
            text = re.sub(r"\\f[BIR]", "", (ROOT / "man" / page).read_text())
            assert re.search(rf"\b{word}\b", text), page
