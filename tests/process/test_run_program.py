"""`qmadmin run`: a worker in one file, started, stopped, reloaded, and what it says when something is wrong."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest

import qmadmin
from qmadmin.worker_program import program_files
from tests.fix_store import SOURCES, eventually

if TYPE_CHECKING:
    from pathlib import Path

WORKER = """
import os

import qmadmin

app = qmadmin.App("QUE", space="QS", create=True)


@app.handler("orders", workers=2)
def ship(order: dict) -> None:
    print("{told}", order["number"], flush=True)
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "qmadmin.program", "run", *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": SOURCES, "PYTHONUNBUFFERED": "1"}


def ran(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), cwd=place, env=environment(), capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(WORKER.format(told="shipped"))
    with qmadmin.open_device(tmp_path / "QUE", create=True) as device:
        device.create_space("QS")
        with device.open_space("QS") as space:
            space.create_queue("orders")
            space.enqueue("orders", {"number": 1})
    return tmp_path


def test_it_calls_the_handlers_of_the_application(place: Path) -> None:
    done = ran(place, "shop:app", "--until-empty")
    assert (done.stdout, done.returncode) == ("shipped 1\n", 0), done.stderr
    assert "shop:app calls the handlers of 'orders'" in done.stderr


def test_the_name_of_the_application_may_be_left_out(place: Path) -> None:
    assert ran(place, "shop", "-e").stdout == "shipped 1\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_in_order(place: Path, number: signal.Signals) -> None:
    with subprocess.Popen(command("shop:app"), cwd=place, env=environment(), stdout=subprocess.PIPE, text=True) as it:
        assert it.stdout is not None
        assert it.stdout.readline() == "shipped 1\n"
        it.send_signal(number)
        assert it.stdout.read() == ""
    assert it.returncode == 0


STOPPED_BY_ITS_FIRST_LINE = """
import logging
import os
import signal

import qmadmin

app = qmadmin.App("QUE", space="QS")


@app.handler("orders")
def ship(order: dict) -> None:
    print("shipped", order["number"])


class Stops(logging.Handler):
    def emit(self, record):
        if "calls the handlers of" in record.getMessage():
            os.kill(os.getpid(), signal.SIGTERM)


logging.getLogger("qmadmin.consumers").addHandler(Stops())
"""


def test_who_has_read_that_it_begins_can_stop_it_in_order(place: Path) -> None:
    (place / "shop.py").write_text(STOPPED_BY_ITS_FIRST_LINE)
    done = ran(place, "shop:app")
    assert done.returncode == 0, done.stderr
    assert "calls the handlers of 'orders'" in done.stderr


WAITING = """
import logging
import sys
import threading

import qmadmin

app = qmadmin.App("QUE", space="QS")


@app.handler("orders")
def ship(order: dict) -> None:
    print("begun", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    sys.exit(app.run())
"""


def read_until(process: subprocess.Popen[str], words: str) -> None:
    """Read what a process says up to a line with these words."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if words in line:
            return
    pytest.fail(f"it ended without saying {words!r}: {''.join(said)}")


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "line",
    [command("shop:app"), command("shop:app", "--reload"), [sys.executable, "shop.py"]],
    ids=["run", "run --reload", "app.run()"],
)
def test_a_second_signal_ends_it_at_once_with_the_status_of_a_shell(
    place: Path, line: list[str], second: signal.Signals
) -> None:
    (place / "shop.py").write_text(WAITING)
    with subprocess.Popen(
        line,
        cwd=place,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as it:
        read_until(it, "begun")
        it.send_signal(signal.SIGTERM)
        read_until(it, "SIGTERM: stopping after")
        it.send_signal(second)
        read_until(it, f"{second.name}: stopping at once")
    assert it.returncode == 128 + second
    with qmadmin.open_device(place / "QUE") as device, device.open_space("QS") as space:
        (message,) = space.messages("orders")
        assert (message.state, message.retries) == (qmadmin.State.READY, 0)


def test_what_is_looked_at_for_changes_is_the_program_and_nothing_that_tools_have_put_beside_it(tmp_path: Path) -> None:
    for name in (
        "shop.py",
        "shop/orders.py",
        "shop/notes.txt",
        "env/bin/made.py",
        "env/pyvenv.cfg",
        "shop/env/pyvenv.cfg",
        "shop/env/lib/made.py",
        ".git/hooks/hook.py",
        "web/node_modules/gyp/gyp.py",
        "shop/__pycache__/orders.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = program_files(str(tmp_path))
    assert {os.path.relpath(path, tmp_path) for path in found} == {"shop.py", "shop/orders.py"}
    os.utime(tmp_path / "shop/orders.py", ns=(0, 0))
    assert program_files(str(tmp_path)) != found


def test_a_changed_file_is_loaded_again(place: Path) -> None:
    with (
        qmadmin.open_device(place / "QUE") as device,
        device.open_space("QS") as space,
        subprocess.Popen(
            command("shop:app", "--reload"), cwd=place, env=environment(), stdout=subprocess.PIPE, text=True
        ) as it,
    ):
        assert it.stdout is not None
        assert it.stdout.readline() == "shipped 1\n"
        (place / "shop.py").write_text(WORKER.format(told="sent"))
        space.enqueue("orders", {"number": 2})
        # The worker from before the change may take some of them.
        while (told := it.stdout.readline()).startswith("shipped"):
            space.enqueue("orders", {"number": 3})
        assert told.startswith("sent")
        it.send_signal(signal.SIGTERM)
        it.stdout.read()
    assert it.returncode == 0
    with qmadmin.open_device(place / "QUE") as device:
        eventually(lambda: not device.space_usage("QS").processes, "the end of the child")


def test_its_figures_can_be_scraped_until_it_ends(place: Path) -> None:
    with subprocess.Popen(
        command("shop:app", "--metrics", "0"),
        cwd=place,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as it:
        assert it.stderr is not None
        url = next(found[0] for line in it.stderr if (found := re.search(r"http://127\.0\.0\.1:\d+/metrics", line)))

        def scraped() -> str:
            with urllib.request.urlopen(url, timeout=90) as answer:
                return answer.read().decode()

        labels = f'{{device="{place}/QUE",queue="orders",space="QS"}}'
        eventually(lambda: f"qmadmin_consumer_successes_total{labels} 1.0" in scraped(), "the call")
        told = scraped()
        assert f"qmadmin_queue_dequeued_messages_total{labels} 1.0" in told
        assert "process_resident_memory_bytes" in told
        it.send_signal(signal.SIGTERM)
        it.stderr.read()
    assert it.returncode == 0
    with pytest.raises(urllib.error.URLError):
        scraped()


def test_metrics_that_cannot_be_served_keep_it_from_running(place: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = ran(place, "shop:app", "-e", "--metrics", str(taken.getsockname()[1]))
    assert "ERROR: metrics cannot be served at 127.0.0.1:" in done.stderr
    assert (done.stdout, done.returncode) == ("", 2)
    unclear = ran(place, "shop:app", "-e", "--metrics", "all")
    assert "ERROR: metrics must be served at [HOST:]PORT" in unclear.stderr
    assert (unclear.stdout, unclear.returncode) == ("", 2)


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("nowhere:app", "module 'nowhere' cannot be imported: ModuleNotFoundError"),
        ("broken:app", "module 'broken' cannot be imported: ZeroDivisionError"),
        ("leaves:app", "module 'leaves' cannot be imported: SystemExit"),
        ("shop:other", "module 'shop' has no 'other'"),
        ("shop:os", "'shop:os' is a module, not a qmadmin.App"),
        ("empty:app", "the application has no handlers"),
        ("absent:app", "there is no queue 'bills'"),
    ],
)
def test_what_cannot_be_run_is_refused_with_a_sentence(place: Path, target: str, sentence: str) -> None:
    (place / "broken.py").write_text("1 / 0\n")
    (place / "leaves.py").write_text("raise SystemExit(0)\n")
    (place / "empty.py").write_text('import qmadmin\napp = qmadmin.App("QUE", space="QS")\n')
    (place / "absent.py").write_text(
        'import qmadmin\napp = qmadmin.App("QUE", space="QS")\napp.handler("bills")(print)\n'
    )
    done = ran(place, target)
    assert f"ERROR: {sentence}" in done.stderr
    assert done.returncode != 0


@pytest.mark.parametrize("arguments", [(), ("shop:app", "--worker", "3"), ("shop:app", "--total-workers", "none")])
def test_wrong_arguments_are_refused_with_the_usage(place: Path, arguments: tuple[str, ...]) -> None:
    done = ran(place, *arguments)
    assert "Usage: qmadmin run MODULE:APP" in done.stderr
    assert done.returncode == 2


def test_the_same_function_runs_under_the_forwarder(place: Path) -> None:
    (place / "services.toml").write_text('[services.orders]\npython = "shop:ship"\n')
    done = subprocess.run(
        [sys.executable, "-m", "qmadmin.forwarder.program", "QUE", "QS", "-q", "orders", "-e", "-s", "services.toml"],
        cwd=place,
        env=environment() | {"PYTHONPATH": f"{SOURCES}:{place}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.stdout, done.returncode) == ("shipped 1\n", 0), done.stderr
