"""`qmadmin --upgrade`: a device of an earlier release becomes one of this release, after a backup."""

from __future__ import annotations

import itertools
import os
import shlex
import sys
import time
from typing import TYPE_CHECKING, TextIO

from qmadmin.audit import recorded_as
from qmadmin.console import count, span
from qmadmin.console.process import Exit, say
from qmadmin.opening import can_back_up, open_device, plan_upgrade, upgrade_device
from qmadmin.paths import absolute
from qmadmin.version import __version__
from qmadmin.volume_makers import path_of
from qmcore.errors import InvalidArgumentError, QueueError
from qmcore.values import dataclass

if TYPE_CHECKING:
    from qmcore.upgrade import UpgradePlan

_RELEASES = {1: "0.1.0"}
"""The last release of each earlier schema version."""


@dataclass(frozen=True, slots=True)
class Choices:
    """How an upgrade is to be done: only planned, without a question, and where the device is saved before.

    `backup` is None for a name that is made of the device's.
    """

    plan: bool = False
    yes: bool = False
    backup: str | None = None
    backed_up: bool = False


def run(device: str, choices: Choices, out: TextIO) -> Exit:
    """Upgrade a device, tell what is done, and return the exit status."""
    try:
        return _run(device, choices, out)
    except QueueError as error:
        say(f"ERROR: {error.message}", error.hint)
        return Exit.FAILED


def _run(device: str, choices: Choices, out: TextIO) -> Exit:
    plan = plan_upgrade(device)
    if plan.version == plan.target:
        print(f"Device {plan.path} has schema version {plan.version} already, that of this release.", file=out)
        return Exit.OK
    backup = _backup_of(device, plan, choices)
    print(_told(plan, backup), file=out, flush=True)
    if choices.plan:
        return Exit.OK
    plan.refuse_attached()
    if backup is None and not (choices.backed_up or plan.under_way):
        raise InvalidArgumentError(
            f"device {plan.path!r} cannot be saved before its upgrade: pg_dump is not installed",
            hint=f"Save it with: {plan.backup_command}  Then say so with --backed-up.",
        )
    if not choices.yes and not _is_confirmed(out):
        print("Device not upgraded", file=out)
        return Exit.FAILED
    with recorded_as("qmadmin --upgrade"):
        upgrade_device(device, plan, backup, progress=_progress)
    if backup is not None:
        print(f"Saved as {backup}", file=out)
    print(f"Device {plan.path} upgraded to schema version {plan.target}", file=out)
    print(_way_back(device, plan, backup), file=out, flush=True)
    # Told before: what may go wrong with the memory undoes nothing.
    _upgrade_memory(device)
    return Exit.OK


def _backup_of(device: str, plan: UpgradePlan, choices: Choices) -> str | None:
    """Return where the device is saved before; None where we do not save it."""
    if choices.backed_up or plan.under_way or not can_back_up(device):
        return None
    if choices.backup is not None:
        return absolute(choices.backup)
    moment = time.strftime("%Y%m%d-%H%M%S")
    if _is_file(device):
        return _free(f"{plan.path}.backup-{moment}")
    return _free(absolute(f"{plan.volumes[0][0]}-backup-{moment}"), ".dump")


def _free(name: str, end: str = "") -> str:
    """Return a path that nothing has: an attempt that was killed may have saved the device in the same second."""
    numbers = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
    return next(path for number in numbers if not os.path.lexists(path := f"{name}{number}{end}"))


def _told(plan: UpgradePlan, backup: str | None) -> str:
    volumes = "\n             ".join(f"{path} ({count(size)} bytes)" for path, size in plan.volumes)
    room = f"{backup}: at most {count(plan.size)} bytes, about {span(plan.seconds)}"
    saved = "made before the upgrade began, which was cut short" if plan.under_way else "not made here"
    lines = [
        f"Device {plan.path} has schema version {plan.version}; qmadmin {__version__} has version {plan.target}.",
        f"  Volumes:   {volumes}",
        f"  Backup:    {room if backup else saved}",
        f"  Upgrade:   {_how(plan)}; takes an instant, however much is stored",
        f"  Attached:  {', '.join(plan.attached) or 'no process'}",
    ]
    return "\n".join(lines)


def _how(plan: UpgradePlan) -> str:
    if plan.under_way:
        return "what is left to do"
    if plan.groups == 1:
        return "all volumes together or none"
    return (
        f"in {plan.groups} groups of volumes, one after the other; if it is cut short between two, every release"
        " refuses the device until the same command has finished it"
    )


def _way_back(device: str, plan: UpgradePlan, backup: str | None) -> str:
    """Return what to do to have the device as it was."""
    release = f"qmadmin {_RELEASES[plan.version]}" if plan.version in _RELEASES else "the release that had made it"
    if backup is None:
        return f"To go back, restore what was saved before, and use {release}."
    if _is_file(device):
        moved = "; ".join(f"mv {shlex.quote(path)} {shlex.quote(path + '.upgraded')}" for path, _ in plan.volumes)
        restored = shlex.quote(f"qrestore -y {shlex.quote(backup)}")
        return f"To go back: {moved}\nand with {release}: qmadmin {shlex.quote(plan.path)} -c {restored}"
    return (
        f"To go back: pg_restore --clean --if-exists --dbname='URL of the database' {shlex.quote(backup)}\n"
        f"and go on with {release}."
    )


def _upgrade_memory(device: str) -> None:
    """Upgrade the memory of queue spaces, which is done by whoever attaches it, and which readers could not do."""
    with open_device(device) as opened:
        for name in [space.name for space in opened.spaces() if opened.memory_files(space.name)]:
            opened.space_usage(name)


def _is_confirmed(out: TextIO) -> bool:
    if not sys.stdin or not sys.stdin.isatty():
        raise InvalidArgumentError(
            "an upgrade asks for confirmation, and the standard input is not a terminal", hint="Confirm it with -y."
        )
    out.write("Upgrade the device? (y, n [default=n]): ")
    out.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _progress(percent: int) -> None:
    """Show how much of the backup is done, at a terminal."""
    if sys.stderr and sys.stderr.isatty():
        sys.stderr.write(f"\rSaving and checking: {percent} %" + ("\n" if percent == 100 else ""))
        sys.stderr.flush()


def _is_file(device: str) -> bool:
    return "://" not in path_of(device)
