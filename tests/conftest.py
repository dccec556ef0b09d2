"""Settings of all tests. The fixtures are in the fix_*.py files beside this one."""

import atexit
import gc
import os
import shutil
import signal
import tempfile
from pathlib import Path

import hypothesis
import pytest

pytest_plugins = [
    "tests.rings",
    "tests.matrices",
    *(f"tests.{path.stem}" for path in sorted(Path(__file__).parent.glob("fix_*.py"))),
]

# All of them first: one may import another that comes later.
pytest.register_assert_rewrite(*pytest_plugins)

# An example may wait for the disk, which says nothing about the code.
hypothesis.settings.register_profile("qmadmin", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("qmadmin")

# What the caller's shell is set up for is none of the tests' business.
for name in ("QMCONFIG", "ULOGPFX"):
    os.environ.pop(name, None)
# Nor are the signals that `nohup` and `&` have ignored, by all that is started from there.
for number, handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)
# The memory of queue spaces outlives their processes, as it should, and would outlive the tests.
_MEMORY = tempfile.mkdtemp(prefix="qmtest-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
atexit.register(shutil.rmtree, _MEMORY, ignore_errors=True)
os.environ["QM_SHM_DIR"] = _MEMORY
os.environ["QMADMIN_TOML"] = os.devnull


def pytest_collection_finish() -> None:
    """Take what was collected out of the sight of the garbage collector.

    It is some million objects that stay to the end, and each collection, of which some tests ask for hundreds, would
    look at all of them.
    """
    _take_out_of_sight()


# Behind what ends the fixtures of the file.
@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Take out of its sight what the tests of a file leave behind: modules, statements, reports."""
    if nextitem is None or nextitem.path != item.path:
        _take_out_of_sight()


def _take_out_of_sight() -> None:
    gc.collect()
    gc.freeze()
