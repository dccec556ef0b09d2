"""Workers in Python: whatever a handler, a hook or a body is, nothing is lost, and one sentence says what was wrong."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import qmadmin
from qmcore.errors import InvalidArgumentError
from tests.fix_app import Order, bodies
from tests.fix_store import SOURCES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


def nested(levels: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


async def later(message: qmadmin.Message) -> str:
    return message.text


def failures(app: qmadmin.App) -> list[str]:
    return [info.origin.error or "" for info in app.space.messages("errors") if info.origin]


# ---- what a handler returns ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ({"price": math.nan}, 'the body\'s ["price"] is NaN, which JSON does not have'),
        ([1, -math.inf], "which JSON does not have"),
        ("\ud800", "its body has no UTF-8 form"),
        ({"name": "\ud800"}, 'the body\'s ["name"] has no UTF-8 form'),
        (nested(10_000), "is more than 256 levels deep"),
        ({1, 2}, "its answer cannot be encoded"),
        (qmadmin.Reply("x", headers={"a": 1}), "its reply cannot be queued"),  # type: ignore[dict-item]
    ],
    ids=["NaN", "infinity", "surrogate", "surrogate in JSON", "deep", "set", "header"],
)
def test_an_answer_that_cannot_be_a_message_is_a_failure_and_its_message_is_kept(
    app: qmadmin.App, answer: object, sentence: str, batch: int
) -> None:
    @app.handler("orders", retries=0, batch=batch)
    def ship(message: qmadmin.Message) -> object:
        return answer if message.text == "bad" else "good"

    app.space.create_queue("answers")
    for body in ("bad", "good"):
        ship.enqueue(body, reply_queue="answers")
    app.run(until_empty=True)
    (failure,) = failures(app)
    assert sentence in failure
    assert bodies(app, "errors") == ["bad"]
    assert bodies(app, "answers") == ["good"]


def test_a_number_of_any_size_is_an_answer(app: qmadmin.App) -> None:
    app.space.create_queue("answers")
    app.handler("orders")(lambda message: 2**70).enqueue("a vase", reply_queue="answers")
    app.run(until_empty=True)
    assert bodies(app, "answers") == [str(2**70)]


# ---- bodies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b'{"number": NaN}', "is not JSON: it has NaN"),
        (b'{"number": "\\ud800"}', "has no UTF-8 form"),
        (b'{"number":' * 10_000 + b"1" + b"}" * 10_000, "is more than 256 levels deep"),
        (b"\xff", "is not UTF-8 at byte 0"),
        (b"", "is not JSON"),
        (b"[1]", "the body must be Order, got [1]"),
    ],
    ids=["NaN", "surrogate", "deep", "bytes", "empty", "list"],
)
def test_a_body_that_is_not_what_is_annotated_is_not_handled_and_kept(
    app: qmadmin.App, body: bytes, sentence: str
) -> None:
    handled = []

    @app.handler("orders")
    def ship(order: Order) -> None:
        handled.append(order)

    app.space.enqueue("orders", body)
    app.run(until_empty=True)
    assert handled == []
    (failure,) = failures(app)
    assert sentence in failure
    assert [bytes(message.body or b"") for message in app.space.dequeue_many("errors", 10)] == [body]


# ---- coroutines and functions ----------------------------------------------------------------------------------------


def test_a_function_that_returns_a_coroutine_has_failed_and_is_told_to_be_one(app: qmadmin.App) -> None:
    @app.handler("orders", retries=0)
    def ship(message: qmadmin.Message) -> object:
        return later(message)

    ship.enqueue("a vase")
    app.run(until_empty=True)
    assert failures(app) == [
        "its answer is a coroutine, which was not awaited: the handler must be an async function itself"
    ]


def test_a_coroutine_that_is_cancelled_has_failed(app: qmadmin.App) -> None:
    @app.handler("orders", retries=1, retry_delay=0)
    async def ship(message: qmadmin.Message) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    ship.enqueue("a vase")
    app.run(until_empty=True)
    assert failures(app) == ["CancelledError"]


@pytest.mark.parametrize("act", ["stop", "close"])
def test_a_coroutine_that_stops_the_event_loop_or_closes_it_stops_no_other(app: qmadmin.App, act: str) -> None:
    @app.handler("orders", retries=0)
    async def ship(message: qmadmin.Message) -> None:
        getattr(asyncio.get_running_loop(), act)()
        await asyncio.sleep(0)

    @app.handler("more")
    async def go_on(message: qmadmin.Message) -> None:
        await asyncio.sleep(0.001)

    ship.enqueue("a vase")
    go_on.enqueue("a cup")
    app.run(until_empty=True)
    assert app.space.usage("more").messages == app.space.usage("orders").messages == 0
    assert len(failures(app)) == (act == "close")


async def awaited_hook(*_: object) -> None: ...


def generator_hook(*_: object) -> Iterator[None]:
    yield


@contextlib.asynccontextmanager
async def asynchronous_context(*_: object) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("declare", ["on_failure", "around_calls", "on_start", "on_end"])
@pytest.mark.parametrize(
    ("hook", "sentence"),
    [
        (awaited_hook, "hook awaited_hook is a coroutine function"),
        (generator_hook, "hook generator_hook is a generator function"),
        (asynchronous_context, "hook asynchronous_context is an asynchronous generator function"),
        ("track", "a hook must be a function, got 'track'"),
    ],
)
def test_a_hook_whose_call_would_do_nothing_is_refused(tmp_path: Path, declare: str, hook: Any, sentence: str) -> None:
    app = qmadmin.App(tmp_path / "QUE", space="QS")
    with pytest.raises(InvalidArgumentError, match=sentence):
        getattr(app, declare)(hook)


def test_an_asynchronous_generator_function_is_no_handler(tmp_path: Path) -> None:
    async def each(message: qmadmin.Message) -> AsyncIterator[str]:
        yield message.text

    with pytest.raises(InvalidArgumentError, match="each is a generator function"):
        qmadmin.App(tmp_path / "QUE", space="QS").handler("orders")(each)


# ---- forks -----------------------------------------------------------------------------------------------------------


FORKING = """
import logging, os, sys
import qmadmin

logging.basicConfig()
app = qmadmin.App("QUE", space="QS")


def forked(message):
    print(message.text, flush=True)
    child = os.fork() if message.text == "forks" else 1
    if not child:
        {end}
    with open("children", "a") as children:
        print(child, file=children)
    return "done"


async def awaited(message):
    return forked(message)


app.handler("orders", retries=0{options})({function})

if __name__ == "__main__":
    app.run(until_empty=True)
"""


@pytest.mark.parametrize(
    ("end", "status", "told"),
    [("return 'child'", 0, True), ("raise ValueError", 1, True), ("sys.exit(7)", 7, False), ("sys.exit()", 0, False)],
)
@pytest.mark.parametrize(
    ("function", "options"), [("forked", ""), ("forked", ", timeout=60"), ("forked", ", batch=3"), ("awaited", "")]
)
def test_a_process_that_a_handler_forks_ends_with_its_call_and_touches_no_message(
    tmp_path: Path, function: str, options: str, end: str, status: int, *, told: bool
) -> None:
    source = FORKING.format(end=end, function=function, options=options)
    # Its parent asks for its status, as the consumer would have to do.
    waits = "print(child, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child > 1 else 0, file=children)"
    (tmp_path / "shop.py").write_text(source.replace("print(child, file=children)", waits))
    with qmadmin.open_device(tmp_path / "QUE", create=True) as device:
        device.create_space("QS")
        with device.open_space("QS") as space:
            for queue in ("orders", "answers"):
                space.create_queue(queue)
            for body in ("forks", "goes on"):
                space.enqueue("orders", body, reply_queue="answers")
            done = subprocess.run(
                [sys.executable, "shop.py"],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": SOURCES},
                capture_output=True,
                text=True,
                check=False,
                timeout=240,
            )
            assert (done.stdout, done.returncode) == ("forks\ngoes on\n", 0), done.stderr
            assert ("a process that a handler has forked" in done.stderr) is told
            assert [message.text for message in space.dequeue_many("answers", 10)] == ["done", "done"]
            assert space.usage("errors").messages == space.usage("orders").messages == 0
    assert [int(line.split()[1]) for line in (tmp_path / "children").read_text().splitlines()] == [status, 0]
