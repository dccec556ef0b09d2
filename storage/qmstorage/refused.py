"""How a refused command ends the database transaction in which others were executed before it."""

from __future__ import annotations

from qmcore.refusals import Refused


class RefusedError(Exception):
    """A command was refused after something was changed, which is to be undone."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused)
        self.refused = refused
