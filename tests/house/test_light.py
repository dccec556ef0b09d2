"""A program that only enqueues and dequeues loads nothing for terminals, and the manual says what is optional."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.fix_process import ROOT, environment
from tests.manual.test_pages import section

NOT_NEEDED = ("alembic", "click", "prompt_toolkit", "rich")

SYNC = """
import sys, qmadmin
with qmadmin.open_device(sys.argv[1], create=True) as device:
    device.create_space("QS")
    with device.open_space("QS") as space:
        space.create_queue("orders")
        space.enqueue("orders", {"number": 17})
        with space.transaction():
            print(space.dequeue("orders", wait=60).json())
            space.enqueue_many("orders", ["a chair", "a vase"])
        print(len(space.dequeue_many("orders", 10)))
"""

AIO = """
import asyncio, sys
from qmadmin import aio
async def main():
    async with aio.open_device(sys.argv[1], create=True) as device:
        await device.create_space("QS")
        async with device.open_space("QS") as space:
            await space.create_queue("orders")
            await space.enqueue("orders", {"number": 17})
            async with space.transaction():
                print((await space.dequeue("orders", wait=60)).json())
                await space.enqueue_many("orders", ["a chair", "a vase"])
            print(len(await space.dequeue_many("orders", 10)))
asyncio.run(main())
"""

APP = """
import sys, qmadmin
app = qmadmin.App(sys.argv[1], space="QS", create=True)
@app.handler("orders")
def ship(order: dict) -> None:
    print(order)
ship.enqueue({"number": 17})
app.run(until_empty=True)
print(app.space.usage("orders").dequeued + 1)
app.close()
"""

TELLS = f"""
print(*sorted(name for name in {NOT_NEEDED} if name in sys.modules))
"""


@pytest.fixture(params=["file", "memory", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        url: str = request.getfixturevalue("database_url")
        return url
    return ":memory:" if request.param == "memory" else str(tmp_path / "QUE")


@pytest.mark.parametrize("program", [SYNC, AIO, APP], ids=["sync", "aio", "app"])
def test_a_program_that_only_enqueues_and_dequeues_loads_nothing_for_terminals(program: str, place: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program + TELLS, place],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.stdout.splitlines() == ["{'number': 17}", "2", ""], done.stderr


EXTRAS = {
    name: [re.split(r"[\[<>=~;]", package)[0] for package in packages]
    for name, packages in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ].items()
    if name != "dev"
}
"""The packages of each extra that is for users."""


def test_the_manual_says_what_each_extra_brings() -> None:
    text = section(ROOT / "man" / "qmadmin-queue.7", "EXTRAS").replace("\\-", "-")
    told = dict(re.findall(r"^\.TP\n\.B (\S+)\n((?:(?!\.TP|\.PP).*\n)*)", text, re.MULTILINE))
    assert sorted(told) == sorted(EXTRAS)
    for name, packages in EXTRAS.items():
        assert [package for package in packages if package not in told[name]] == [], name
