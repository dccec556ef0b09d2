"""What a consumer does when its store fails: it opens the device again, however long that takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from qmcore.redacted import redacted

if TYPE_CHECKING:
    from logging import Logger

    from qmadmin.consumers.consumer import Stop
    from qmcore.errors import QueueError

_FIRST_DELAY: Final = 1.0
_LONGEST_DELAY: Final = 60.0


def reopen_until_stopped(
    serve: Callable[[], QueueError | None],
    stop: Stop,
    logger: Logger,
    told: Callable[[str], None] = lambda _text: None,
) -> None:
    """Call `serve`, which opens the device, again and again until a stop is requested or it returns no error.

    The delay between two calls grows from a second to a minute; `told` is called with what is being done.
    """
    delay, began = _FIRST_DELAY, time.monotonic()
    while (error := serve()) is not None and not stop.asked:
        if time.monotonic() - began > 2 * _LONGEST_DELAY:
            delay = _FIRST_DELAY
        began = time.monotonic()
        logger.error("%s: %s; the device is opened again in %g seconds", error.name, error.message, delay)
        told(f"The device is opened again: {redacted(error.message)}")
        stop.sleep(delay)
        delay = min(delay * 2, _LONGEST_DELAY)
