"""Reading a device by many tasks of Spark that all see it as it stood at one moment."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import Final

from qmcore.errors import InvalidArgumentError

POSTGRESQL: Final = "postgresql"
"""The kind of device that more than one task can read like this."""


@contextlib.contextmanager
def held(device: str, spaces: Sequence[str] = ("*",)) -> Iterator[dict[str, str]]:
    """Hold a device on PostgreSQL as it stands now; give options of the data source with which tasks read that.

        with held(url) as options:
            spark.read.format("qspace").options(**options).option("partitions", 8).load()

    `device` is what QMCONFIG would say, `spaces` are patterns of names of queue spaces. Nobody is hindered, but what is
    deleted meanwhile takes room until the end. InvalidArgumentError for a device on SQLite, which one task reads as it
    stands at one moment without this.
    """
    from qmadmin.opening import open_device
    from qmadmin.transfer.picture import Reader
    from qmadmin.transfer.selecting import Selection

    with open_device(device) as opened:
        if opened.kind != POSTGRESQL:
            raise InvalidArgumentError(
                f"device {opened.path!r} is on SQLite, where no moment can be held for tasks that begin later",
                hint="Read it with one partition, which sees one moment, or export it into an archive.",
            )
        names = Selection(spaces=tuple(spaces)).chosen_spaces(
            [space.name for space in opened.spaces()], f"device {opened.path!r}"
        )
        with contextlib.closing(Reader(opened, names)) as reader:
            yield {"device": device, "space": ",".join(names), "snapshot": json.dumps(dict(reader.begin({})))}
