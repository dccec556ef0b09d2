"""The options of qmspark, each declared once: a command takes the groups that it has a use for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from qmadmin.options import Option
from qmadmin.settings import ShellSettings
from qmadmin.shell.formats import Format
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
    help="Only queue spaces whose names fit.",
    more="A pattern is as of file names: `*`, `?` and `[...]`; quote it from the shell. May be given several times.",
)
_QUEUE = click.option(
    "--queue",
    "queues",
    cls=Option,
    metavar="PATTERN",
    multiple=True,
    help="Only queues whose names fit.",
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
    more="`held` are those that open transactions have, `consumed` those that a queue keeps for the record.",
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
        more="An import appends to queues that have to be there, also one of an archive that was exported so.",
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
        help="Only messages that were enqueued at least so long ago: 90, 90s, 15m, 2h, 7d.",
        more="The age of a message in an archive is that which it had when the archive was made.",
    ),
    click.option(
        "--newer-than",
        "newer",
        cls=Option,
        metavar="AGE",
        type=Age(),
        help="Only messages that were enqueued at most so long ago.",
    ),
    click.option(
        "--count",
        "count",
        cls=Option,
        metavar="NUMBER",
        type=click.IntRange(1),
        help="At most so many messages of each queue, in its order.",
        more="Ready ones come first, then those that open transactions have, delayed ones, consumed ones.",
    ),
)
_KEY = click.option(
    "--key",
    "key",
    cls=Option,
    metavar="FILE",
    type=Named(dir_okay=False),
    help="The file of the key that signs the archive.",
    more="Anyone with the same key can tell that nobody has altered the archive. It has 16 to 4096 bytes.",
)
_RATE = click.option(
    "--rate",
    "rate",
    cls=Option,
    metavar="NUMBER",
    type=Bounded(0.001, 1_000_000_000),
    help="At most so many messages a second: 0.001 to 1000000000.",
)
_DRY_RUN = click.option(
    "--dry-run",
    "dry_run",
    cls=Option,
    is_flag=True,
    help="Say what would be done, with the numbers; change nothing.",
)

RENAMING: Final[tuple[Declared, ...]] = (
    click.option(
        "--rename",
        "space_names",
        cls=Option,
        metavar="OLD=NEW",
        multiple=True,
        type=SpaceRenamed(),
        help="The queue space OLD of the archive is called NEW on the device.",
    ),
    click.option(
        "--rename-queue",
        "queue_names",
        cls=Option,
        metavar="[SPACE/]OLD=NEW",
        multiple=True,
        type=QueueRenamed(),
        help="The queue OLD of the archive is called NEW on the device.",
        more="With the name of a queue space, as it is in the archive, only there.",
    ),
)

_PROCESSES = click.option(
    "--processes",
    "processes",
    cls=Option,
    metavar="NUMBER",
    type=click.IntRange(1, 1024),
    help="Work in so many processes of this machine [default: one on each processor].",
    more="What is small is done by the program itself.",
)
_MASTER = click.option(
    "--master",
    "master",
    cls=Option,
    metavar="MASTER",
    type=Master(),
    help="Work on Spark: local[N], or the address of a cluster.",
    more="Without it no Java is needed and none is started, unless the archive is at an address. Under"
    " `spark-submit` the work is done on its Spark.",
)
_PARTITIONS = click.option(
    "--partitions",
    "partitions",
    cls=Option,
    metavar="NUMBER",
    type=click.IntRange(1, 100_000),
    help="On Spark: how many tasks work at a time [default: one on each processor].",
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
        help="Say nothing but what is wrong.",
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
        help="What becomes of messages that open transactions have [default: refuse].",
        more="`refuse`: nothing is exported while there is one. `leave-out`: they are left out, as if the transactions"
        " had committed. `as-rolled-back`: they are carried in their places, as if the transactions had rolled back."
        " What transactions are to enqueue is always left out. The archive tells how many there were.",
    ),
    _KEY,
    _RATE,
    click.option(
        "--resume",
        "again",
        cls=Option,
        is_flag=True,
        help="Begin again in a directory where an export was cut short.",
        more="What that has written is removed, for the queues stand differently by now. With --remove, and an archive"
        " that is complete, only the removal is gone on with; with --move all that is still to be done.",
    ),
    click.option(
        "--remove",
        "remove",
        cls=Option,
        is_flag=True,
        help="Then remove from the device exactly what the archive has.",
        more="The archive is verified before. What was dequeued, changed or tried since the export is left alone, and"
        " so is what is kept for the record.",
    ),
    click.option(
        "--move",
        "destination",
        cls=Option,
        metavar="DEVICE",
        type=Named(),
        help="Move it all to that device, by way of the archive.",
        more="The queues are stopped, exported, imported there and compared; then they are emptied and stay stopped."
        " Where anything fails before that they are started again, and still have everything.",
    ),
    click.option(
        "--start",
        "start",
        cls=Option,
        is_flag=True,
        help="With --move: let messages be dequeued there where they could be here.",
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
        help="What becomes of a queue that is there already [default: refuse].",
        more="`refuse`: nothing is imported. `skip`: it stays as it is. `replace`: it is destroyed, and the imported"
        " one takes its place at the same moment. `append`: it gets the messages, behind its own where its order says"
        " nothing else. They are verified and hidden first, and then merged some at a time, each once: the merge as a"
        " whole is not atomic.",
    ),
    *RENAMING,
    click.option(
        "--start",
        "start",
        cls=Option,
        is_flag=True,
        help="Let messages be dequeued where that was so in the archive.",
        more="Without it imported queues are stopped for dequeuing, until `qstart` of `qmadmin`(1).",
    ),
    click.option(
        "--times",
        "times",
        cls=Option,
        metavar="keep|shift|recompute",
        type=click.Choice(["keep", "shift", "recompute"]),
        default="keep",
        help="What becomes of the times of messages [default: keep].",
        more="`shift`: all move by what has passed since the archive was made, or by what --shift-by says, so that what"
        " was to wait for an hour then waits for an hour now. `recompute`: messages are enqueued now, and their delays"
        " and lifetimes begin again.",
    ),
    click.option(
        "--shift-by",
        "shift_by",
        cls=Option,
        metavar="SECONDS",
        type=Shift(-_CENTURY, _CENTURY),
        help="With --times shift: by how much, such as 90, 2h or -1d, at most 100 years; less than 0 is earlier.",
        more="A time that would leave the years 1 to 9999 becomes the first or the last one that there is.",
    ),
    click.option(
        "--again",
        "again",
        cls=Option,
        is_flag=True,
        help="Also queues that were imported from this archive before.",
        more="They are refused otherwise, so that no message is there twice.",
    ),
    click.option(
        "--resume",
        "resume",
        cls=Option,
        is_flag=True,
        help="Only go on with an import that was cut short.",
        more="The same command goes on without it too; with it, it is refused where there is nothing to go on with.",
    ),
    click.option(
        "--abandon",
        "abandon",
        cls=Option,
        is_flag=True,
        help="Give up an import that was cut short, and remove what it has loaded.",
        more="--space then means queue spaces of the device.",
    ),
    click.option(
        "--abandon-all",
        "abandon_all",
        cls=Option,
        is_flag=True,
        help="Give up all imports that were cut short; no archive is named.",
        more="--space means queue spaces of the device. --dry-run says how many imports it would be.",
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
        help="At most so many rows [default: 1000].",
        more="A remark says where there would be more.",
    ),
    click.option(
        "--no-bodies",
        "bare",
        cls=Option,
        is_flag=True,
        help="Leave the column body out, which is faster.",
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
