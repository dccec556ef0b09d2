"""Refusals of qmadmin before its first command: conflicting options, and a path that cannot be a device."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING

from qmadmin.shell import notices
from qmadmin.shell.notices import UsageError
from qmadmin.shell.session import file_of
from qmcore.errors import QueueError

if TYPE_CHECKING:
    from qmadmin.console.results import Notice

OPTIONS = "[-f FILE | -c COMMAND ...] [OPTION ...]"
USAGE = f"Usage: qmadmin {OPTIONS} [DEVICE]"
NO_DEVICE = (
    "Name the device, as in: qmadmin QUE\n"
    "It is a file, which need not exist yet, or a URL of PostgreSQL.\n"
    "The environment variable QMCONFIG may name it too."
)


class StartError(Exception):
    """The program cannot start. `more` says what to do."""

    def __init__(self, notice: Notice, more: str = USAGE) -> None:
        super().__init__(notice.text)
        self.notice = notice
        self.more = more


def check_status(device: str) -> None:
    """Refuse a path that cannot be a device, or a device of another user that cannot be read.

    It may be a file, a slice of a disk, or an unused name in an existing directory. Only its status is read: a process
    that has a device open must not open and close its file.
    """
    path = file_of(device)
    if path is None:
        _check_url(device)
        return
    try:
        found = path.stat()
    except FileNotFoundError:
        if path.parent.is_dir():
            return
        raise StartError(
            notices.NO_STATUS(device=device), f"The directory '{path.parent}' does not exist; create it first."
        ) from None
    except OSError as error:
        raise StartError(notices.NO_STATUS(device=device), f"{error.strerror}.") from None
    if stat.S_ISDIR(found.st_mode):
        raise StartError(notices.NO_STATUS(device=device), "It is a directory; name a file in it.")
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISBLK(found.st_mode) or stat.S_ISCHR(found.st_mode)):
        raise StartError(notices.NO_STATUS(device=device), "It is neither a file nor a slice of a disk.")
    if found.st_uid != os.geteuid() and not (found.st_size and os.access(path, os.R_OK)):
        raise StartError(
            notices.NOT_THE_OWNER(user=os.geteuid(), owner=found.st_uid), f"Run qmadmin as the owner of '{device}'."
        )


def _check_url(device: str) -> None:
    """Refuse a URL that is malformed, or of an unsupported kind; no server is contacted yet."""
    from qmadmin.volume_makers import path_of

    try:
        path_of(device)
    except QueueError as error:
        raise StartError(UsageError(error.message).notice, error.hint) from None


def refuse_together(given: Mapping[str, bool]) -> None:
    """Refuse two options that both give the source of the commands."""
    first, second, *_ = [*(flag for flag, is_given in given.items() if is_given), "", ""]
    if second:
        raise StartError(UsageError(f"Options {first} and {second} exclude each other").notice)


def refuse_without(upgrade: bool, given: Mapping[str, bool]) -> None:
    """Refuse options of an upgrade without --upgrade."""
    for flag, is_given in given.items():
        if is_given and not upgrade:
            raise StartError(UsageError(f"Option {flag} belongs to --upgrade, which is missing").notice)
