"""The services in Python, which fail, hang and die at random. It is copied to where the forwarders look for it.

A request says its name and whether it is good; a bad one fails each time. The answer says the name of the request.
"""

from __future__ import annotations

import os
import random
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qmadmin import Message

FAILS, HANGS, DIES = 0.06, 0.01, 0.003
"""How often a call does so, of 1."""

HANG_SECONDS = 4.0
"""Longer than a call may take."""


def answer(request: Message) -> str:
    """Answer a request, as a rule."""
    name, _, fate = request.text.partition(" ")
    chance = random.random()  # noqa: S311 - nothing secret
    if fate == "bad":
        raise ValueError("the request is bad")
    if chance < FAILS:
        raise RuntimeError("at random")
    if chance < FAILS + HANGS:
        time.sleep(HANG_SECONDS)
    elif chance < FAILS + HANGS + DIES:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"answer to {name}"
