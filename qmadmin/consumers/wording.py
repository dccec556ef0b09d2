"""How a consumer calls itself and what it calls, in its log and in what it records with messages."""

from __future__ import annotations

import dataclasses
import logging


@dataclasses.dataclass(frozen=True, slots=True)
class Wording:
    """The words of one program: itself, what it has called with messages, its threads, and its log."""

    consumer: str = "the consumer"
    handler: str = "handler"
    thread: str = "qmadmin-consumer"
    logger: logging.Logger = dataclasses.field(default_factory=lambda: logging.getLogger("qmadmin.consumers"))
