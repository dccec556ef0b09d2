"""The application: its handlers move amounts, and fail, put off, hang, exit and die at random.

The body of a message is an amount. A call that succeeds divides it: one part goes on as a message of its own, the other
one is the reply. Whatever happens, the sum of all amounts stays what was enqueued.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import qmadmin
from qmadmin.forwarder import enqueue
from soaking.consuming.site import CALL_SECONDS, DEVICE, DONE, EXIT_STATUS, HANDLERS, RETRIES, SPACE

app = qmadmin.App(os.environ[DEVICE], space=SPACE)


def _fail() -> None:
    raise ValueError("at random")


def _fail_for_good() -> None:
    raise qmadmin.Failure("at random", permanent=True)


def _fail_for_a_while() -> None:
    raise qmadmin.Failure("at random", retry_after=random.random() / 5)  # noqa: S311 - nothing secret


def _snooze() -> None:
    raise qmadmin.Snooze(random.random() / 5)  # noqa: S311


def _park() -> None:
    raise qmadmin.Park("at random")


def _be_away() -> None:
    raise qmadmin.Unavailable("at random", retry_after=0.05)


def _spin() -> None:
    end = time.monotonic() + 4 * CALL_SECONDS
    while time.monotonic() < end:
        pass


def _exit() -> None:
    sys.exit("at random")


def _end_the_process() -> None:
    os._exit(EXIT_STATUS)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


ACTS: dict[Callable[[], object], float] = {
    _fail: 0.04,
    _fail_for_good: 0.01,
    _fail_for_a_while: 0.03,
    _snooze: 0.03,
    _park: 0.02,
    _be_away: 0.005,
    _spin: 0.005,
    # Nothing can end it: its thread is given up, and the process goes on.
    threading.Event().wait: 0.0005,
    _exit: 0.01,
    _end_the_process: 0.002,
    _die: 0.003,
    lambda: None: 0.8,
}
"""What a call does besides, and how often."""


def _act() -> None:
    (act,) = random.choices(list(ACTS), list(ACTS.values()))  # noqa: S311
    act()


def _divided(message: qmadmin.Message) -> str:
    """Divide an amount between a follow-up message and the reply, before or after something happens."""
    amount = int(message.text)
    part = random.randint(0, amount)  # noqa: S311
    _act()
    enqueue(DONE, str(part))
    _act()
    return str(amount - part)


def _outside(message: qmadmin.Message) -> str:
    """Answer with the whole amount: what is enqueued outside the transaction would stay if the call fails."""
    _act()
    return message.text


async def _awaited(message: qmadmin.Message) -> str:
    await asyncio.sleep(random.random() / 100)  # noqa: S311
    if random.random() < 0.01:  # noqa: S311
        await asyncio.sleep(4 * CALL_SECONDS)
    amount = int(message.text)
    enqueue(DONE, str(amount // 2))
    if random.random() < 0.1:  # noqa: S311
        _fail()
    return str(amount - amount // 2)


def _gives_up(message: qmadmin.Message) -> str:
    """Fail with the amount as the answer, which stands for the message then.

    One that is out of tries would go to the error queue too.
    """
    if message.retries < RETRIES and random.random() < 0.3:  # noqa: S311
        raise qmadmin.Failure("at random", body=message.text)
    return _divided(message)


FUNCTIONS: dict[str, Callable[[qmadmin.Message], object]] = {
    "outside": _outside,
    "coroutines": _awaited,
    "gives_up": _gives_up,
}

for queue, options in HANDLERS.items():
    app.handler(queue, timeout=CALL_SECONDS, **options)(FUNCTIONS.get(queue, _divided))


@app.around_calls
@contextlib.contextmanager
def _around(_message: qmadmin.Message) -> Iterator[None]:
    if random.random() < 0.01:  # noqa: S311
        raise ConnectionError("at random")
    yield
    if random.random() < 0.01:  # noqa: S311
        _spin()


@app.on_failure
def _heard(_message: qmadmin.Message, error: BaseException) -> None:
    if random.random() < 0.1:  # noqa: S311
        raise RuntimeError("at random") from error
