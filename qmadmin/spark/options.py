"""The options of qmspark, each declared once: a command takes the groups that it has a use for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from qmadmin.console.formats import Format
from qmadmin.options import Option
from qmadmin.settings import ShellSettings
from qmadmin.spark.kinds import (
    Age,
    Bounded,
    ConditionText,
    Master,
    Memory,
    Named,
    QueueRenamed,
    Shift,
    SpaceRenamed,
    SparkSetting,
    States,
)

Command = TypeVar("Command", bound=Callable[..., Any])
Declared = Callable[[Any], Any]

_CENTURY: Final = 36_525 * 86_400
"""Seconds."""

_SPACE = click.option(
    "--space",
    "spaces",
    cls=Option,
    metavar="PATTERN",
    multiple=True,
    help="Only queue spaces whose names match.",
    more="A pattern is like those for file names, with `*`, `?` and `[...]`; quote it, so that the shell does not"
    " expand it. May be given several times.",
)
_QUEUE = click.option(
    "--queue",
    "queues",
    cls=Option,
    metavar="PATTERN",
    multiple=True,
    help="Only queues whose names match.",
    more="May be given several times.",
)
_STATE = click.option(
    "--state",
    "states",
    cls=Option,
    metavar="STATE[,STATE...]",
    multiple=True,
    type=States("ready", "delayed", "held", "consumed"),
    help="Only messages in these states: ready, delayed, held, consumed.",
    more="Open transactions have `held` messages; `consumed` ones were consumed and are retained.",
)
_CONTENT = (
    click.option(
        "--definitions-only", "definitions", cls=Option, is_flag=True, help="Queue spaces and queues, no messages."
    ),
    click.option(
        "--messages-only",
        "messages",
        cls=Option,
        is_flag=True,
        help="Messages, no definitions.",
        more="An import appends them to queues that must exist already. So does any import of an archive that was"
        " exported with this option.",
    ),
)
_WHERE = (
    click.option(
        "--where",
        "condition",
        cls=Option,
        metavar="CONDITION",
        type=ConditionText(),
        help="Only messages for which a condition is true.",
        more="It has the grammar of `qmadmin-queue`(7), such as `\"priority > 50 AND header.region = 'eu'\"`.",
    ),
    click.option(
        "--older-than",
        "older",
        cls=Option,
        metavar="AGE",
        type=Age(),
        help="Only messages of at least this age: 90, 90s, 15m, 2h, 7d.",
        more="The age of a message in an archive is its age when the archive was made.",
    ),
    click.option(
        "--newer-than",
        "newer",
        cls=Option,
        metavar="AGE",
        type=Age(),
        help="Only messages of at most this age.",
    ),
    click.option(
        "--count",
        "count",
        cls=Option,
        metavar="NUMBER",
        type=click.IntRange(1),
        help="At most this many messages of each queue, in its order.",
        more="Ready messages come first, then held, delayed and consumed ones.",
    ),
)
_KEY = click.option(
    "--key",
    "key",
    cls=Option,
    metavar="FILE",
    type=Named(dir_okay=False),
    help="The file of the key that signs the archive.",
    more="Anyone who has the same key can check that nobody has altered the archive. The file has 16 to 4096 bytes.",
)
_RATE = click.option(
    "--rate",
    "rate",
    cls=Option,
    metavar="NUMBER",
    type=Bounded(0.001, 1_000_000_000),
    help="At most this many messages a second: 0.001 to 1000000000.",
)
_DRY_RUN = click.option(
    "--dry-run",
    "dry_run",
    cls=Option,
    is_flag=True,
    help="Report what would be done, with the numbers, and change nothing.",
)

RENAMING: Final[tuple[Declared, ...]] = (
    click.option(
        "--rename",
        "space_names",
        cls=Option,
        metavar="OLD=NEW",
        multiple=True,
        type=SpaceRenamed(),
        help="Call the queue space OLD of the archive NEW on the device.",
    ),
    click.option(
        "--rename-queue",
        "queue_names",
        cls=Option,
        metavar="[SPACE/]OLD=NEW",
        multiple=True,
        type=QueueRenamed(),
        help="Call the queue OLD of the archive NEW on the device.",
        more="With SPACE, the name of a queue space in the archive, only the queue of that queue space.",
    ),
)

_PROCESSES = click.option(
    "--processes",
    "processes",
    cls=Option,
    metavar="NUMBER",
    type=click.IntRange(1, 1024),
    help="Work in this many processes on this machine [default: one for each processor].",
    more="The program itself does small jobs.",
)
_MASTER = click.option(
    "--master",
    "master",
    cls=Option,
    metavar="MASTER",
    type=Master(),
    help="Work on Spark: local[N], or the address of a cluster.",
    more="Without it, Java is neither needed nor started, unless the archive is at an address. Under `spark-submit` the"
    " work is done on its Spark.",
)
_PARTITIONS = click.option(
    "--partitions",
    "partitions",
    cls=Option,
    metavar="NUMBER",
    type=click.IntRange(1, 100_000),
    help="On Spark: how many tasks work at a time [default: one for each processor].",
)
_MEMORY = click.option(
    "--memory",
    "memory",
    cls=Option,
    metavar="SIZE",
    type=Memory(),
    help="On Spark: the memory of the driver, and of each executor, such as 4g.",
)
_SETTINGS = click.option(
    "--conf",
    "settings",
    cls=Option,
    metavar="NAME=VALUE",
    multiple=True,
    type=SparkSetting(),
    help="On Spark: a setting of Spark.",
)

SPARK: Final[tuple[Declared, ...]] = (_MASTER, _PARTITIONS, _MEMORY, _SETTINGS)
"""Those of commands that only Spark can do."""

WORKERS: Final[tuple[Declared, ...]] = (_PROCESSES, *SPARK)

OUTPUT: Final[tuple[Declared, ...]] = (
    click.option(
        "--format",
        "form",
        cls=Option,
        metavar="FORMAT",
        type=click.Choice(["auto", *(form.value for form in Format)]),
        setting=ShellSettings.format,
        help="Write the result as table, plain, json or csv.",
        more="JSON is one document; CSV has a line for each queue.",
    ),
    click.option(
        "-q",
        "--quiet",
        "quiet",
        cls=Option,
        is_flag=True,
        help="Print only errors and warnings.",
    ),
    click.help_option("-h", "--help", help="Print a summary of the options."),
)

EXPORT: Final[tuple[Declared, ...]] = (
    _SPACE,
    _QUEUE,
    _STATE,
    *_WHERE,
    *_CONTENT,
    click.option(
        "--transactions",
        "outstanding",
        cls=Option,
        metavar="refuse|leave-out|as-rolled-back",
        type=click.Choice(["refuse", "leave-out", "as-rolled-back"]),
        default="refuse",
        help="What to do with messages that open transactions have [default: refuse].",
        more="`refuse`: export nothing if there are any. `leave-out`: leave them out, as if the transactions had"
        " committed. `as-rolled-back`: export them in their places, as if the transactions had rolled back. Messages"
        " that transactions have enqueued and not committed are always left out. The archive records how many there"
        " were.",
    ),
    _KEY,
    _RATE,
    click.option(
        "--resume",
        "again",
        cls=Option,
        is_flag=True,
        help="Start again in a directory where an export was interrupted.",
        more="What the interrupted export wrote is removed, because the queues have changed since. With --remove, and"
        " an archive that is complete, only the removal is resumed; with --move, all steps that remain.",
    ),
    click.option(
        "--remove",
        "remove",
        cls=Option,
        is_flag=True,
        help="After the export, remove the exported messages from the device.",
        more="The archive is verified first. Messages that were dequeued, changed or tried since the export, and"
        " consumed ones that are retained, stay on the device.",
    ),
    click.option(
        "--move",
        "destination",
        cls=Option,
        metavar="DEVICE",
        type=Named(),
        help="Move everything to that device, by way of the archive.",
        more="The queues are stopped, exported, imported at the destination and compared; then they are emptied and"
        " stay stopped. If anything fails before the messages have arrived, the queues are started again with all their"
        " messages.",
    ),
    click.option(
        "--start",
        "start",
        cls=Option,
        is_flag=True,
        help="With --move: start the queues at the destination that were started here.",
    ),
    _DRY_RUN,
)

IMPORT: Final[tuple[Declared, ...]] = (
    _SPACE,
    _QUEUE,
    _STATE,
    *_WHERE,
    *_CONTENT,
    click.option(
        "--existing",
        "existing",
        cls=Option,
        metavar="refuse|skip|replace|append",
        type=click.Choice(["refuse", "skip", "replace", "append"]),
        default="refuse",
        help="What to do with a queue that exists already [default: refuse].",
        more="`refuse`: import nothing. `skip`: leave it as it is. `replace`: destroy it and put the imported queue in"
        " its place at the same moment. `append`: add the messages to it, behind its own unless its order places them"
        " otherwise. They are first loaded unseen and verified, and then merged in batches, each message once; the"
        " merge as a whole is not atomic.",
    ),
    *RENAMING,
    click.option(
        "--start",
        "start",
        cls=Option,
        is_flag=True,
        help="Start the queues that were started when they were exported.",
        more="Without it, imported queues are stopped for dequeuing until `qstart` of `qmadmin`(1) starts them.",
    ),
    click.option(
        "--times",
        "times",
        cls=Option,
        metavar="keep|shift|recompute",
        type=click.Choice(["keep", "shift", "recompute"]),
        default="keep",
        help="What to do with the times of messages [default: keep].",
        more="`keep`: they stay as they are. `shift`: all are moved by the time since the archive was made, or by"
        " --shift-by, so that a message that had an hour to wait then has an hour to wait now. `recompute`: messages"
        " count as enqueued now, and their delays and lifetimes begin again.",
    ),
    click.option(
        "--shift-by",
        "shift_by",
        cls=Option,
        metavar="SECONDS",
        type=Shift(-_CENTURY, _CENTURY),
        help="With --times shift: by how much, such as 90, 2h or -1d, at most 100 years; less than 0 is earlier.",
        more="A time outside the years 1 to 9999 becomes the first or the last moment of that range.",
    ),
    click.option(
        "--again",
        "again",
        cls=Option,
        is_flag=True,
        help="Import queues of this archive again that were imported before.",
        more="They are refused otherwise, so that no message is loaded twice.",
    ),
    click.option(
        "--resume",
        "resume",
        cls=Option,
        is_flag=True,
        help="Only resume an import that was interrupted.",
        more="The same command resumes it without this option too; with it, the command is refused if there is nothing"
        " to resume.",
    ),
    click.option(
        "--abandon",
        "abandon",
        cls=Option,
        is_flag=True,
        help="Give up an import that was interrupted, and remove what it loaded.",
        more="--space then selects queue spaces of the device.",
    ),
    click.option(
        "--abandon-all",
        "abandon_all",
        cls=Option,
        is_flag=True,
        help="Give up all imports that were interrupted; name no archive.",
        more="--space then selects queue spaces of the device. With --dry-run the number of these imports is printed.",
    ),
    _KEY,
    _RATE,
    _DRY_RUN,
)

QUERY: Final[tuple[Declared, ...]] = (
    click.option(
        "--limit",
        "limit",
        cls=Option,
        metavar="NUMBER",
        type=click.IntRange(1, 1_000_000),
        default=1_000,
        help="At most this many rows [default: 1000].",
        more="A notice says if there are more.",
    ),
    click.option(
        "--no-bodies",
        "bare",
        cls=Option,
        is_flag=True,
        help="Leave out the column body, which is faster.",
    ),
    _KEY,
)
VERIFY: Final[tuple[Declared, ...]] = (*RENAMING, _KEY)
SHOW: Final[tuple[Declared, ...]] = (_KEY, _MASTER, _MEMORY, _SETTINGS)
"""Spark is for an archive at an address only."""


def with_options(*declared: Declared) -> Callable[[Command], Command]:
    """Declare options for a command, in their order."""

    def declare(command: Command) -> Command:
        for option in reversed(declared):
            command = option(command)
        return command

    return declare
