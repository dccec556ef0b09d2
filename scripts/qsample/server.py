"""The service of the sample application."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qmadmin import Message


def upper(request: Message) -> str:
    """Return the text of the request in upper case."""
    return request.text.upper()
