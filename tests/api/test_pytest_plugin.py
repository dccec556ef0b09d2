"""The plugin of pytest, in projects whose tests a pytest of their own runs."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fix_store import ROOT, SOURCES

RunsTests = Callable[..., "subprocess.CompletedProcess[str]"]

SHOP = """
import qmadmin

app = qmadmin.App("/nowhere/shop.qm", space="SHOP")
sent = []

@app.handler("orders")
def ship(order: dict) -> None:
    if order["what"] == "vase":
        raise ValueError("no vases in stock")
    bill.enqueue(order)

@app.handler("bills")
async def bill(order: dict) -> None:
    sent.append(order["what"])
"""


@pytest.fixture
def run_tests(tmp_path: Path) -> RunsTests:
    """Run tests with the plugin in a directory of their own, where `shop.py` is the application."""

    def run(source: str, ini: str = "") -> subprocess.CompletedProcess[str]:
        (tmp_path / "shop.py").write_text(SHOP)
        (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = .\n{ini}")
        (tmp_path / "test_shop.py").write_text(source)
        environment = os.environ | {"PYTHONPATH": SOURCES, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        options = ["-p", "qmadmin.pytest_plugin", "--strict-markers", "--strict-config", "-W", "error", "-q", "-rA"]
        return subprocess.run(
            [sys.executable, "-m", "pytest", *options, str(tmp_path)],
            capture_output=True,
            check=False,
            text=True,
            cwd=tmp_path,
            env=environment,
        )

    return run


def assert_passed(done: subprocess.CompletedProcess[str], tests: int) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{tests} passed" in done.stdout


def test_pytest_finds_it() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert declared["project"]["entry-points"]["pytest11"] == {"qmadmin": "qmadmin.pytest_plugin"}


def test_it_imports_nothing_until_a_fixture_is_asked_for(run_tests: RunsTests) -> None:
    done = run_tests(
        """
import sys

def test_nothing():
    ours = {name for name in sys.modules if name.partition(".")[0] in ("qmadmin", "qmcore", "qmstorage")}
    assert ours == {"qmadmin", "qmadmin.version", "qmadmin.pytest_plugin"}
"""
    )
    assert_passed(done, 1)


def test_each_test_has_a_queue_space_in_memory_of_its_own(run_tests: RunsTests) -> None:
    done = run_tests(
        """
import pytest

@pytest.mark.parametrize("text", ["one", "two"])
def test_alone(qmadmin_space, text):
    assert [queue.name for queue in qmadmin_space.queues()] == ["errors"]
    assert qmadmin_space.device.path == ":memory:"
    qmadmin_space.create_queue("orders")
    qmadmin_space.enqueue("orders", text)
    assert [message.text for message in qmadmin_space.browse("orders")] == [text]
"""
    )
    assert_passed(done, 2)


ON_A_FILE = """
import pathlib
import qmadmin

def test_on_a_file(qmadmin_space, tmp_path):
    path = pathlib.Path(qmadmin_space.device.path)
    assert path.parent == tmp_path.resolve()
    with qmadmin.open_device(path) as other:
        assert [space.name for space in other.spaces()] == ["TEST"]
"""


def test_the_queue_space_is_on_a_file_where_the_configuration_says_so(run_tests: RunsTests) -> None:
    assert_passed(run_tests(ON_A_FILE, "qmadmin_device = file\n"), 1)


def test_or_the_marker_of_a_test(run_tests: RunsTests) -> None:
    marked = ON_A_FILE.replace("def test", "import pytest\n@pytest.mark.qmadmin(device='file')\ndef test")
    assert_passed(run_tests(marked), 1)


def test_handlers_run_where_the_test_says_so_and_on_its_queue_space(run_tests: RunsTests) -> None:
    done = run_tests(
        """
import shop

def test_an_order_is_billed(qmadmin_space, qmadmin_worker):
    worker = qmadmin_worker(shop.app)
    shop.ship.enqueue({"what": "chair"})
    assert qmadmin_space.usage("orders").messages == 1
    worker.run()
    assert shop.sent == ["chair"]
    assert qmadmin_space.usage("orders").messages == qmadmin_space.usage("bills").messages == 0
"""
    )
    assert_passed(done, 1)


def test_what_a_handler_raises_is_raised_in_the_test(run_tests: RunsTests) -> None:
    done = run_tests(
        """
import pytest
import shop

def test_no_vases(qmadmin_space, qmadmin_worker):
    worker = qmadmin_worker(shop.app)
    shop.ship.enqueue({"what": "vase"})
    with pytest.raises(ValueError, match="no vases in stock"):
        worker.run()
    assert qmadmin_space.usage("orders").delayed == 1

def test_chairs(qmadmin_space, qmadmin_worker):
    worker = qmadmin_worker(shop.app)
    shop.ship.enqueue({"what": "chair"})
    worker.run()
"""
    )
    assert_passed(done, 2)


def test_the_test_moves_the_time_through_all_tries_to_the_error_queue(run_tests: RunsTests) -> None:
    done = run_tests(
        """
import shop

def test_a_vase_ends_in_the_error_queue(qmadmin_space, qmadmin_worker, qmadmin_clock):
    worker = qmadmin_worker(shop.app)
    shop.ship.enqueue({"what": "vase"}, delay=3600)
    worker.run()
    assert qmadmin_space.usage("orders").delayed == 1
    for _ in range(6):
        qmadmin_clock.advance(3600)
        worker.run(raises=False)
    (message,) = qmadmin_space.messages("errors")
    assert message.last_error == "ValueError: no vases in stock"
"""
    )
    assert_passed(done, 1)


@pytest.mark.parametrize(
    ("mark", "sentence"),
    [
        ("device='disk'", "the device of the marker qmadmin must be memory or file, got 'disk'"),
        ("'file'", "the marker qmadmin takes one keyword, device"),
    ],
)
def test_a_wrong_marker_is_named_in_a_sentence(run_tests: RunsTests, mark: str, sentence: str) -> None:
    test = "def test_it(qmadmin_space):\n    raise AssertionError('it ran')\n"
    done = run_tests(f"import pytest\n@pytest.mark.qmadmin({mark})\n{test}")
    assert done.returncode == 1
    assert sentence in done.stdout
    assert "it ran" not in done.stdout


def test_a_wrong_option_too(run_tests: RunsTests) -> None:
    done = run_tests("def test_it(qmadmin_space):\n    pass\n", "qmadmin_device = disk\n")
    assert done.returncode == 1
    assert "the device of the option qmadmin_device must be memory or file, got 'disk'" in done.stdout
