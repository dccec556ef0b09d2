"""An application under eventlet, whose monkey_patch() takes away what a wait needs: it is refused in a sentence."""

import subprocess
import sys

import pytest

from tests.fix_process import environment

PATCHED = """
import select, sys
del select.poll, select.epoll
import qmadmin
try:
    if sys.argv[1] == "open":
        qmadmin.open_device(sys.argv[2])
    else:
        qmadmin.create_device(sys.argv[2], 100)
except qmadmin.QueueError as error:
    print(error.name, error.message, error.hint)
"""
"""What eventlet does to the module, of which it replaces select() alone."""


@pytest.mark.parametrize("call", ["open", "create"])
@pytest.mark.parametrize("device", ["QUE", "postgresql://127.0.0.1:1/qmadmin"])
def test_no_device_is_opened_or_made(tmp_path, call, device):
    done = subprocess.run(
        [sys.executable, "-c", PATCHED, call, device],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.startswith("QMEOS no device can be opened in this process: select.poll() is missing")
    assert "gevent" in done.stdout
    assert list(tmp_path.iterdir()) == []
