"""The arguments of the commands of qmspark, each declared once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import click

from qmadmin.options import Argument
from qmadmin.settings import ShellSettings
from qmadmin.spark.kinds import ArchivePath, Named
from qmadmin.spark.options import Declared

_DEVICE_MEANING = "The device: a file, or a URL of PostgreSQL."


def device_and_archive(command: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the arguments `device`, which may be left out, and `archive`, which is yet to be written."""

    @click.argument(
        "places",
        cls=Argument,
        metavar="[DEVICE] ARCHIVE",
        nargs=-1,
        type=Named(),
        meanings={
            "DEVICE": _DEVICE_MEANING,
            "ARCHIVE": "The directory of the archive, or its address, which must be empty or not exist.",
        },
        settings={"DEVICE": ShellSettings.device},
    )
    @functools.wraps(command)
    def called(*, places: tuple[str, ...], **given: Any) -> Any:
        if not 1 <= len(places) <= 2:
            raise click.UsageError("Give a device and the directory of an archive", click.get_current_context())
        archive = ArchivePath().convert(places[-1], None, click.get_current_context())
        return command(device=places[0] if len(places) > 1 else None, archive=archive, **given)

    return called


def archive_and_device(command: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the arguments `archive`, which only --abandon-all leaves out, and `device`, which may be left out."""

    @click.argument(
        "places",
        cls=Argument,
        metavar="ARCHIVE [DEVICE]",
        nargs=-1,
        type=Named(),
        meanings={
            "ARCHIVE": "The directory of the archive, or its address; none with --abandon-all.",
            "DEVICE": _DEVICE_MEANING,
        },
        settings={"DEVICE": ShellSettings.device},
    )
    @functools.wraps(command)
    def called(*, places: tuple[str, ...], abandon_all: bool, **given: Any) -> Any:
        context = click.get_current_context()
        if abandon_all:
            if len(places) > 1:
                raise click.UsageError("Give a device alone with --abandon-all", context)
            return command(archive=None, device=next(iter(places), None), abandon_all=True, **given)
        if not 1 <= len(places) <= 2:
            raise click.UsageError("Give the directory of an archive and a device", context)
        archive = ArchivePath().convert(places[0], None, context)
        return command(archive=archive, device=places[1] if len(places) > 1 else None, abandon_all=False, **given)

    return called


archive_argument: Final[Declared] = click.argument(
    "archive",
    cls=Argument,
    metavar="ARCHIVE",
    type=ArchivePath(),
    meanings={"ARCHIVE": "The directory of the archive, or its address, such as hdfs://host/directory."},
)


def place_and_query(command: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the arguments `place`, a device or an archive, which may be left out, and `sql`."""

    @click.argument(
        "words",
        cls=Argument,
        metavar="[DEVICE|ARCHIVE] SQL",
        nargs=-1,
        type=Named(),
        meanings={
            "DEVICE": _DEVICE_MEANING,
            "ARCHIVE": "The directory of an archive, or its address.",
            "SQL": "The query.",
        },
        settings={"DEVICE": ShellSettings.device},
    )
    @functools.wraps(command)
    def called(*, words: tuple[str, ...], **given: Any) -> Any:
        if not 1 <= len(words) <= 2:
            raise click.UsageError("Give a device or an archive, and a query", click.get_current_context())
        return command(place=words[0] if len(words) > 1 else None, sql=words[-1], **given)

    return called


def device_argument(meaning: str) -> Declared:
    """Declare an argument that names a device, and may be left out."""
    return click.argument(
        "device",
        cls=Argument,
        metavar="[DEVICE]",
        required=False,
        type=Named(),
        meanings={"DEVICE": meaning},
    )
