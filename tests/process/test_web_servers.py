"""An application at the top of a module, under servers with several processes, beside a worker: nothing is lost."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import qmadmin
from tests.fix_process import PATIENCE, environment, eventually
from tests.fix_store import ROOT

SHOP = """
import os

import qmadmin

queues = qmadmin.App("shop.qm", space="SHOP", create=True)


@queues.handler("orders", workers=2)
def ship(order: dict) -> None:
    queues.enqueue("shipped", order)


def place(number: int) -> int:
    ship.enqueue({"number": number})
    return os.getpid()


# Under gunicorn this is in the process that forks the workers.
queues.space.create_queue("shipped", exist_ok=True)
"""

WSGI = """
from urllib.parse import parse_qs

from shop import place


def web(environ, start_response):
    body = str(place(int(parse_qs(environ["QUERY_STRING"])["number"][0]))).encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
"""

ASGI = """
import contextlib

from fastapi import FastAPI

from shop import place, queues


@contextlib.asynccontextmanager
async def lifespan(_):
    yield
    queues.close()


web = FastAPI(lifespan=lifespan)
web.get("/")(place)
"""

SERVERS = {
    "gunicorn": (WSGI, "gunicorn --preload --workers 3 --bind 127.0.0.1:0 web_shop:web"),
    "uvicorn": (ASGI, "uvicorn --workers 2 --host 127.0.0.1 --port 0 web_shop:web"),
}


class Program:
    """A program that was started, whose words are in a file."""

    def __init__(self, words: str, directory: Path) -> None:
        self._said = directory / f"{words.split(maxsplit=1)[0]}.log"
        with self._said.open("w") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *words.split()],
                cwd=directory,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def said(self) -> str:
        return self._said.read_text()

    def found(self, pattern: str) -> str:
        """Wait until it says something, and return the first group."""
        eventually(lambda: re.search(pattern, self.said()) or self._process.poll() is not None, pattern)
        found = re.search(pattern, self.said())
        assert found, self.said()
        return found[1]

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(PATIENCE) == 0, self.said()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def started(words: str, directory: Path) -> Iterator[Program]:
    program = Program(words, directory)
    try:
        yield program
    finally:
        program.kill()


class Browsers:
    """Place orders, several at a time, as long as the block lasts; `acknowledged` has who has answered each."""

    def __init__(self, port: str) -> None:
        self.acknowledged: dict[int, int] = {}
        self._port = port
        self._numbers = itertools.count()
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._browse) for _ in range(4)]

    def __enter__(self) -> Browsers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def pids(self) -> set[int]:
        return set(self.acknowledged.copy().values())

    def _browse(self) -> None:
        while not self._is_over.is_set():
            number = next(self._numbers)
            # One that was killed answers nothing, or a part; whether the order was placed is not known then.
            with (
                contextlib.suppress(OSError, http.client.HTTPException),
                urllib.request.urlopen(f"http://127.0.0.1:{self._port}/?number={number}", timeout=PATIENCE) as answer,
            ):
                self.acknowledged[number] = int(answer.read())


@pytest.mark.parametrize("name", SERVERS)
def test_orders_that_a_server_has_acknowledged_are_shipped_once_though_one_of_its_processes_is_killed(
    name: str, tmp_path: Path
) -> None:
    site, words = SERVERS[name]
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "web_shop.py").write_text(site)
    with started(words, tmp_path) as server, started("qmadmin.program run shop:queues", tmp_path) as worker:
        with Browsers(server.found(r"http://127\.0\.0\.1:(\d+)")) as browsers:
            first = eventually(lambda: len(seen := browsers.pids()) > 1 and seen, "answers of two processes")
            os.kill(next(iter(first)), signal.SIGKILL)
            before = browsers.pids()
            eventually(lambda: browsers.pids() - before, "answers of a process in its place")
        with qmadmin.open_device(tmp_path / "shop.qm") as device, device.open_space("SHOP") as space:
            eventually(lambda: not space.usage("orders").messages, "the last order")
            server.stop()
            worker.stop()
            shipped = Counter(message.json()["number"] for message in space.dequeue_many("shipped", 100_000))
            assert [number for number in browsers.acknowledged if shipped[number] != 1] == []
            assert max(shipped.values()) == 1
            # The others have said that they go, but for the one that was killed, which is found dead.
            eventually(lambda: [process.pid for process in device.attached("SHOP")] == [os.getpid()], "their end")
            assert space.usage("errors").messages == 0


def test_the_example_of_flask_takes_orders_in_processes_that_a_server_forks_after_it_was_loaded(tmp_path: Path) -> None:
    shutil.copy(ROOT / "scripts" / "examples" / "flask_shop.py", tmp_path)
    words = "gunicorn --preload --workers 2 --bind 127.0.0.1:0 flask_shop:web"
    with started(words, tmp_path) as server, started("qmadmin.program run flask_shop:queues", tmp_path) as worker:
        address = server.found(r"(http://127\.0\.0\.1:\d+)") + "/orders"

        def asked(path: str = "", order: object = None) -> dict[str, Any]:
            body = None if order is None else json.dumps(order).encode()
            request = urllib.request.Request(address + path, body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                told: dict[str, Any] = json.load(answer)
            return told

        with ThreadPoolExecutor(4) as browsers:
            numbers = [each["number"] for each in browsers.map(lambda _: asked(order={"what": "a chair"}), range(20))]
        assert sorted(numbers) == list(range(1, 21))
        eventually(lambda: all(asked(f"/{number}")["shipped"] for number in numbers), "the last order")
        server.stop()
        worker.stop()
    with qmadmin.open_device(tmp_path / "shop.db") as device, device.open_space("SHOP") as space:
        assert (space.usage("orders").messages, space.usage("errors").messages) == (0, 0)
        eventually(lambda: [process.pid for process in device.attached("SHOP")] == [os.getpid()], "their end")
