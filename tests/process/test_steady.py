"""The watch over a steady flow, for a moment: what it prints, and what it ends with."""

import os
import subprocess
import sys

from tests.cluster import room_for_servers
from tests.fix_postgres import or_do_without
from tests.fix_process import ROOT, environment


def steady(*arguments):
    with or_do_without():
        directory = room_for_servers()
    settings = environment()
    paths = os.pathsep.join([str(ROOT / "scripts"), settings["PYTHONPATH"]])
    return subprocess.run(
        [sys.executable, "-m", "steadying", "-d", directory, "-n", "1200", "-e", "600", "-b", "50", *arguments],
        env=settings | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip


def test_each_share_of_the_flow_has_a_line_and_partitions_are_counted_together():
    done = steady("--flat", "1000", "--partitions", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    title, *lines, last = done.stdout.splitlines()
    assert title.split()[:5] == ["through", "enq50us", "deq50us", "deq99us", "pages"]
    assert [line.split()[0] for line in lines] == ["600", "1200"]
    assert last.startswith("the last dequeues took ")


def test_dequeues_that_are_not_as_flat_as_asked_for_are_an_error():
    assert steady("--flat", "0").returncode == 1
