"""The options and arguments of qmspark, each declared once; each command takes the groups that apply to it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from qmadmin.console.formats import Format
from qmadmin.options import Argument, Declared, option
from qmadmin.settings import ShellSettings
from qmadmin.spark.kinds import (
    AGE,
    CONDITION,
    MASTER,
    MEMORY,
    QUEUE_RENAMED,
    SPACE_RENAMED,
    SPARK_SETTING,
    ArchivePath,
    Bounded,
    Named,
    Shift,
    States,
)

_CENTURY: Final = 36_525 * 86_400
"""Seconds."""

_SPACE = option(
    "--space PATTERN",
    "spaces",
    multiple=True,
    help="Only queue spaces whose names match.",
    more="A pattern is like those for file names, with `*`, `?` and `[...]`; quote it, so that the shell does not"
    " expand it. May be given several times.",
)
_QUEUE = option(
    "--queue PATTERN",
    "queues",
    multiple=True,
    help="Only queues whose names match.",
    more="May be given several times.",
)
_STATE = option(
    "--state STATE[,STATE...]",
    "states",
    multiple=True,
    type=States("ready", "delayed", "parked", "held", "consumed"),
    help="Only messages in these states: ready, delayed, parked, held, consumed.",
    more="`parked` ones were put aside without a time, and are `delayed` in an archive; `held` ones are held by open"
    " transactions; `consumed` ones were consumed and are retained.",
)
_CONTENT = (
    option("--definitions-only", "definitions", help="Queue spaces and queues, no messages."),
    option(
        "--messages-only",
        "messages",
        help="Messages, no definitions.",
        more="An import appends them to queues that must exist already. So does any import of an archive that was"
        " exported with this option.",
    ),
)
_WHERE = (
    option(
        "--where CONDITION",
        "condition",
        type=CONDITION,
        help="Only messages for which a condition is true.",
        more="It has the grammar of `qmadmin-queue`(7), such as `\"priority > 50 AND header.region = 'eu'\"`.",
    ),
    option(
        "--older-than AGE",
        "older",
        type=AGE,
        help="Only messages of at least this age: 90, 90s, 15m, 2h, 7d.",
        more="The age of a message in an archive is its age when the archive was made.",
    ),
    option("--newer-than AGE", "newer", type=AGE, help="Only messages of at most this age."),
    option(
        "--count NUMBER",
        type=click.IntRange(1),
        help="At most this many messages of each queue, in its order.",
        more="Ready messages come first, then held, delayed and consumed ones.",
    ),
)
_KEY = option(
    "--key FILE",
    type=Named(dir_okay=False),
    help="The file of the key that signs the archive.",
    more="Anyone who has the same key can check that nobody has altered the archive. The file has 16 to 4096 bytes.",
)
_RATE = option(
    "--rate NUMBER",
    type=Bounded(0.001, 1_000_000_000),
    help="At most this many messages a second: 0.001 to 1000000000.",
)
_DRY_RUN = option("--dry-run", help="Report what would be done, with the numbers, and change nothing.")

RENAMING: Final[tuple[Declared, ...]] = (
    option(
        "--rename OLD=NEW",
        "space_names",
        multiple=True,
        type=SPACE_RENAMED,
        help="Call the queue space OLD of the archive NEW on the device.",
    ),
    option(
        "--rename-queue [SPACE/]OLD=NEW",
        "queue_names",
        multiple=True,
        type=QUEUE_RENAMED,
        help="Call the queue OLD of the archive NEW on the device.",
        more="With SPACE, the name of a queue space in the archive, only the queue of that queue space.",
    ),
)

_PROCESSES = option(
    "--processes NUMBER",
    type=click.IntRange(1, 1024),
    help="Work in this many processes on this machine [default: one for each processor].",
    more="The program itself does small jobs.",
)
_MASTER = option(
    "--master MASTER",
    type=MASTER,
    help="Work on Spark: local[N], or the address of a cluster.",
    more="Without it, Java is neither needed nor started, unless the archive is at an address. Under `spark-submit` the"
    " work is done on its Spark.",
)
_PARTITIONS = option(
    "--partitions NUMBER",
    type=click.IntRange(1, 100_000),
    help="On Spark: how many tasks work at a time [default: one for each processor].",
)
_MEMORY = option(
    "--memory SIZE", type=MEMORY, help="On Spark: the memory of the driver, and of each executor, such as 4g."
)
_SETTINGS = option(
    "--conf NAME=VALUE", "settings", multiple=True, type=SPARK_SETTING, help="On Spark: a setting of Spark."
)

SPARK: Final[tuple[Declared, ...]] = (_MASTER, _PARTITIONS, _MEMORY, _SETTINGS)
"""The options of commands that only Spark can carry out."""

WORKERS: Final[tuple[Declared, ...]] = (_PROCESSES, *SPARK)

OUTPUT: Final[tuple[Declared, ...]] = (
    option(
        "--format FORMAT",
        "form",
        type=click.Choice(["auto", *(form.value for form in Format)]),
        setting=ShellSettings.format,
        help="Write the result as table, plain, json or csv.",
        more="JSON is one document; CSV has a line for each queue.",
    ),
    option("-q, --quiet", help="Print only errors and warnings."),
    click.help_option("-h", "--help", help="Print a summary of the options."),
)

EXPORT: Final[tuple[Declared, ...]] = (
    _SPACE,
    _QUEUE,
    _STATE,
    *_WHERE,
    *_CONTENT,
    option(
        "--transactions refuse|leave-out|as-rolled-back|in-doubt-too",
        "outstanding",
        default="refuse",
        help="What to do with messages that open transactions hold [default: refuse].",
        more="`refuse`: export nothing if there are any. `leave-out`: leave them out, as if the transactions had"
        " committed. `as-rolled-back`: export them in their places, as if the transactions had rolled back; this is"
        " refused while a prepared one has any. `in-doubt-too`: the same, also those of prepared ones, which are there"
        " twice if these commit. Messages that transactions have enqueued and not committed are always left out. The"
        " archive records how many there were.",
    ),
    option(
        "--leave-out-missing",
        help="Leave out queue spaces whose volumes are missing.",
        more="Without it nothing is exported if the volume of a selected queue space is missing, or something else is"
        " in its place.",
    ),
    _KEY,
    _RATE,
    option(
        "--resume",
        "again",
        help="Start again in a directory where an export was interrupted.",
        more="What the interrupted export wrote is removed, because the queues have changed since. With --remove, and"
        " an archive that is complete, only the removal is resumed; with --move, all steps that remain.",
    ),
    option(
        "--remove",
        help="After the export, remove the exported messages from the device.",
        more="The archive is verified first. Messages that were dequeued, changed or tried since the export, and"
        " consumed ones that are retained, stay on the device.",
    ),
    option(
        "--move DEVICE",
        "destination",
        type=Named(),
        help="Move everything to that device, by way of the archive.",
        more="The queues are stopped, exported, imported at the destination and compared; then they are emptied and"
        " stay stopped. If anything fails before the messages have arrived, the queues are started again with all their"
        " messages.",
    ),
    option("--start", help="With --move: start the queues at the destination that were started here."),
    _DRY_RUN,
)

IMPORT: Final[tuple[Declared, ...]] = (
    _SPACE,
    _QUEUE,
    _STATE,
    *_WHERE,
    *_CONTENT,
    option(
        "--existing refuse|skip|replace|append",
        default="refuse",
        help="What to do with a queue that exists already [default: refuse].",
        more="`refuse`: import nothing. `skip`: leave it as it is. `replace`: destroy it and put the imported queue in"
        " its place at the same moment. `append`: add the messages to it, behind its own unless its order places them"
        " otherwise. They are first loaded unseen and verified, and then merged in batches, each message once; the"
        " merge as a whole is not atomic.",
    ),
    *RENAMING,
    option(
        "--start",
        help="Start the queues that were started when they were exported.",
        more="Without it, imported queues are stopped for dequeuing until `qstart` of `qmadmin`(1) starts them.",
    ),
    option(
        "--times keep|shift|recompute",
        default="keep",
        help="What to do with the times of messages [default: keep].",
        more="`keep`: they stay as they are. `shift`: all are moved by the time since the archive was made, or by"
        " --shift-by, so that a message that had an hour to wait then has an hour to wait now. `recompute`: messages"
        " count as enqueued now, and their delays and lifetimes begin again.",
    ),
    option(
        "--shift-by SECONDS",
        type=Shift(-_CENTURY, _CENTURY),
        help="With --times shift: by how much, such as 90, 2h or -1d, at most 100 years; less than 0 is earlier.",
        more="A time outside the years 1 to 9999 becomes the first or the last moment of that range.",
    ),
    option(
        "--again",
        help="Import queues of this archive again that were imported before.",
        more="They are refused otherwise, so that no message is loaded twice.",
    ),
    option(
        "--resume",
        help="Only resume an import that was interrupted.",
        more="The same command resumes it without this option too; with it, the command is refused if there is nothing"
        " to resume.",
    ),
    option(
        "--abandon",
        help="Give up an import that was interrupted, and remove what it loaded.",
        more="--space then selects queue spaces of the device.",
    ),
    option(
        "--abandon-all",
        help="Give up all imports that were interrupted; name no archive.",
        more="--space then selects queue spaces of the device. With --dry-run the number of these imports is printed.",
    ),
    _KEY,
    _RATE,
    _DRY_RUN,
)

QUERY: Final[tuple[Declared, ...]] = (
    option(
        "--limit NUMBER",
        type=click.IntRange(1, 1_000_000),
        default=1_000,
        help="At most this many rows [default: 1000].",
        more="A notice says if there are more.",
    ),
    option("--no-bodies", "bare", help="Leave out the column body, which is faster."),
    _KEY,
)
VERIFY: Final[tuple[Declared, ...]] = (*RENAMING, _KEY)
SHOW: Final[tuple[Declared, ...]] = (_KEY, _MASTER, _MEMORY, _SETTINGS)
"""Options that use Spark only for an archive at an address."""


# ---- arguments -------------------------------------------------------------------------------------------------------

_Take = Callable[[tuple[str, ...], Mapping[str, Any]], dict[str, Any]]
"""Converts the given words to parameters of a command; it gets the options too."""

_DEVICE: Final = "The device: a file, or a URL of PostgreSQL."


def _arguments(name: str, metavar: str, meanings: Mapping[str, str], take: _Take) -> Declared:
    """Declare arguments, the first or the last of which may be omitted."""

    def declare(command: Callable[..., Any]) -> Callable[..., Any]:
        @click.argument(
            name,
            cls=Argument,
            metavar=metavar,
            nargs=-1,
            type=Named(),
            meanings=meanings,
            settings={"DEVICE": ShellSettings.device},
        )
        @functools.wraps(command)
        def called(**given: Any) -> Any:
            words = given.pop(name)
            return command(**take(words, given), **given)

        return called

    return declare


def _usage_error(sentence: str) -> click.UsageError:
    return click.UsageError(sentence, click.get_current_context())


def _archive(word: str) -> Any:
    return ArchivePath().convert(word, None, click.get_current_context())


def _device_and_archive(words: tuple[str, ...], _given: Mapping[str, Any]) -> dict[str, Any]:
    if not 1 <= len(words) <= 2:
        raise _usage_error("Give a device and the directory of an archive")
    return {"device": words[0] if len(words) > 1 else None, "archive": _archive(words[-1])}


def _archive_and_device(words: tuple[str, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    if given["abandon_all"]:
        if len(words) > 1:
            raise _usage_error("Give a device alone with --abandon-all")
        return {"archive": None, "device": next(iter(words), None)}
    if not 1 <= len(words) <= 2:
        raise _usage_error("Give the directory of an archive and a device")
    return {"archive": _archive(words[0]), "device": words[1] if len(words) > 1 else None}


def _place_and_query(words: tuple[str, ...], _given: Mapping[str, Any]) -> dict[str, Any]:
    if not 1 <= len(words) <= 2:
        raise _usage_error("Give a device or an archive, and a query")
    return {"place": words[0] if len(words) > 1 else None, "sql": words[-1]}


device_and_archive = _arguments(
    "places",
    "[DEVICE] ARCHIVE",
    {"DEVICE": _DEVICE, "ARCHIVE": "The directory of the archive, or its address, which must be empty or not exist."},
    _device_and_archive,
)
"""The arguments `device` and `archive`, which does not exist yet."""

archive_and_device = _arguments(
    "places",
    "ARCHIVE [DEVICE]",
    {"ARCHIVE": "The directory of the archive, or its address; none with --abandon-all.", "DEVICE": _DEVICE},
    _archive_and_device,
)
"""The arguments `archive`, which is omitted only with --abandon-all, and `device`."""

place_and_query = _arguments(
    "words",
    "[DEVICE|ARCHIVE] SQL",
    {"DEVICE": _DEVICE, "ARCHIVE": "The directory of an archive, or its address.", "SQL": "The query."},
    _place_and_query,
)
"""The arguments `place`, a device or an archive, and `sql`."""

archive_argument: Final[Declared] = click.argument(
    "archive",
    cls=Argument,
    metavar="ARCHIVE",
    type=ArchivePath(),
    meanings={"ARCHIVE": "The directory of the archive, or its address, such as hdfs://host/directory."},
)
device_argument: Final[Declared] = click.argument(
    "device",
    cls=Argument,
    metavar="[DEVICE]",
    required=False,
    type=Named(),
    meanings={"DEVICE": "The device to compare with the archive; without it, only the archive is verified."},
)
