"""What a volume does in one commit by what its unit can do, or in the transaction of the application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qmstorage.postgres.unit import ours
from qmstorage.refused import RefusedError

if TYPE_CHECKING:
    from qmcore.purpose import Purpose
    from qmcore.transitions import Command, Refused, Result
    from qmstorage.postgres.volume import PostgresVolume


def run(
    volume: PostgresVolume, commands: Sequence[Command], on: object, purpose: Purpose | None
) -> Sequence[Result] | Refused:
    """Execute commands, all or none: in a commit of ours, or in the transaction of the application's connection."""
    try:
        if on is not None:
            return volume.write_on(on, lambda unit: ours(unit).execute(commands))
        if purpose is None:
            return volume.read(lambda unit: ours(unit).execute(commands))
        return volume.write(lambda unit: ours(unit).execute(commands), purpose)
    except RefusedError as error:
        return error.refused
