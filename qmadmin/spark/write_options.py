"""The options with which a DataFrame is written to a queue."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Mapping
from typing import ClassVar, Self

from qmadmin.spark.source_options import named, reachable
from qmadmin.transfer.import_planning import Existing
from qmcore import names
from qmcore.errors import InvalidArgumentError
from qmcore.order import QueueOrder


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where messages go, and what becomes of those that are there.

    `staging` is a directory for what the tasks have written before it is stored; on a cluster all machines share it.
    `existing` says what becomes of the queue where it is there: refused, replaced, or appended to. Where it is not, one
    is made with `order`.
    """

    device: str
    space: str
    queue: str
    staging: str
    existing: Existing
    order: QueueOrder

    NAMES: ClassVar[tuple[str, ...]] = ("device", "space", "queue", "staging", "existing", "order")

    @classmethod
    def read(cls, options: Mapping[str, str], *, overwrite: bool) -> Self:
        """Read the options as Spark gives them: texts, whose names may be written in small or large letters."""
        given = named(options)
        for name in sorted(set(given) - set(cls.NAMES) - {"path"}):
            raise InvalidArgumentError(
                f"writing to the data source qspace has no option {name!r}", hint=f"It has {', '.join(cls.NAMES)}."
            )
        for name in ("device", "space", "queue"):
            if not given.get(name):
                raise InvalidArgumentError(f"writing to the data source qspace needs the option {name!r}")
        existing = Existing.REPLACE if overwrite else Existing.APPEND
        if "existing" in given:
            existing = _existing(given["existing"], overwrite=overwrite)
        return cls(
            device=reachable(given["device"]),
            space=names.space_name(given["space"]),
            queue=names.queue_name(given["queue"]),
            staging=os.path.abspath(given.get("staging") or tempfile.gettempdir()),
            existing=existing,
            order=QueueOrder.parse(given.get("order", "fifo")),
        )


def _existing(text: str, *, overwrite: bool) -> Existing:
    if overwrite or text.lower() not in (Existing.REFUSE.value, Existing.APPEND.value):
        raise InvalidArgumentError(
            f"the option 'existing' must be refuse or append, got {text!r}",
            hint="The mode overwrite replaces the queue, and has no such option.",
        )
    return Existing(text.lower())
