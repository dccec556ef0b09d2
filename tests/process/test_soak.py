"""The soaks, for a moment: programs are killed, and the books balance."""

import os
import re
import subprocess
import sys

from tests.fix_process import ROOT, environment


def soak(directory, *arguments, program="soaking"):
    settings = environment()
    paths = os.pathsep.join([str(ROOT / "scripts"), settings["PYTHONPATH"]])
    return subprocess.run(
        [sys.executable, "-m", program, "--directory", directory, *arguments],
        env=settings | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip


def test_every_message_is_accounted_for_and_no_file_is_left(tmp_path):
    done = soak(tmp_path, "--sqlite", "--minutes", "0.05", "--producers", "2", "--consumers", "2", "--movers", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"transactions over both devices: [1-9]", done.stdout)
    acknowledged = re.search(r"enqueued: ([\d,]+) acknowledged", done.stdout)[1]
    assert acknowledged != "0"
    assert done.stdout.endswith("the books balance\n")
    assert list(tmp_path.iterdir()) == []


def test_every_request_to_a_service_is_accounted_for_and_no_file_is_left(tmp_path):
    moment = ("--minutes", "0.05", "--calm", "0", "--forwarders", "2", "--clients", "1")
    done = soak(tmp_path, *moment, program="soaking.forwarding")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"enqueued: [1-9][\d,]* requests", done.stdout)
    assert re.search(r"[1-9][\d,]* times reply that was taken", done.stdout)
    assert done.stdout.endswith("the books balance\n")
    assert list(tmp_path.iterdir()) == []


def test_what_the_handlers_of_an_application_move_adds_up_and_no_file_is_left(tmp_path):
    done = soak(tmp_path, "--minutes", "0.05", "--calm", "0", "--workers", "2", program="soaking.consuming")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"enqueued: [1-9][\d,]* in ", done.stdout)
    assert re.search(r"in done: [1-9][\d,]* in ", done.stdout)
    assert done.stdout.endswith("the sums balance\n")
    assert list(tmp_path.iterdir()) == []
