"""The services in Python, which fail, hang and die at random. It is copied to where the forwarders look for it.

A request says its name and whether it is good; a bad one fails each time. The answer says the name of the request.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from typing import TYPE_CHECKING

from qmadmin.forwarder import Failure, Unavailable, enqueue

if TYPE_CHECKING:
    from qmadmin import Message

FAILS, IS_AWAY, HANGS, DIES = 0.06, 0.005, 0.01, 0.003
"""How often a call does so, of 1."""

HANG_SECONDS = 4.0
"""Longer than a call may take."""


def answer(request: Message) -> str:
    """Answer a request, as a rule."""
    time.sleep(_begun(request))
    return _answered(request)


async def answer_later(request: Message) -> str:
    """Answer a request, as a rule, while others are answered."""
    await asyncio.sleep(_begun(request) or random.random() * 0.02)  # noqa: S311 - nothing secret
    return _answered(request)


def step(request: Message) -> None:
    """Hand a request on to the next service, and leave the answer to that."""
    # It is there only if this call succeeds, whatever happens behind it.
    queues = {"reply_queue": request.headers["answer-to"], "failure_queue": request.failure_queue}
    enqueue("PYTHON", request.body, corrid=request.corrid, **queues)
    time.sleep(_begun(request))


def _begun(request: Message) -> float:
    """Return how long the call takes, unless it fails or dies."""
    chance = random.random()  # noqa: S311 - nothing secret
    if request.text.endswith(" bad"):
        if chance < 0.5:
            raise Failure("the request is bad", permanent=True, body="it is bad" if chance < 0.3 else None)
        raise ValueError("the request is bad")
    if (chance := chance - FAILS) < 0:
        said = random.choice([None, "not today"])  # noqa: S311
        raise Failure("at random", retry_after=random.choice([None, 0.2]), body=said)  # noqa: S311
    if (chance := chance - IS_AWAY) < 0:
        raise Unavailable("at random", retry_after=random.choice([None, 0.2]))  # noqa: S311
    if (chance := chance - HANGS) < 0:
        return HANG_SECONDS
    if chance < DIES:
        os.kill(os.getpid(), signal.SIGKILL)
    return 0.0


def _answered(request: Message) -> str:
    return f"answer to {request.text.partition(' ')[0]}"
