"""The forwarder tells the service manager that has started it how it is doing."""

import signal
import socket

import pytest


@pytest.fixture
def manager(tmp_path):
    """A socket as systemd has one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(60)
        yield listening


def heard(manager, words):
    """Return what the manager is told that has these words, after all that is told before it."""
    while words not in (said := manager.recv(4096).decode().splitlines()):
        pass
    return said


def test_the_manager_hears_when_it_is_ready_and_when_it_stops(site, manager, tmp_path):
    site.services('[services.Q]\ncommand = ["/bin/sh", "-c", "env"]\n')
    space = site.lay_out("Q", "RPLYQ")
    forwarder = site.start("-q", "Q", NOTIFY_SOCKET=str(tmp_path / "notify"))
    assert any(line.startswith("STATUS=") for line in heard(manager, "READY=1"))
    space.enqueue("Q", "", reply_queue="RPLYQ")
    environment = space.dequeue("RPLYQ", wait=60).text.splitlines()
    assert "QM_QUEUE=Q" in environment
    assert [line for line in environment if line.startswith("NOTIFY_SOCKET=")] == []
    forwarder.tell(signal.SIGTERM)
    heard(manager, "STOPPING=1")
    assert forwarder.wait() == 0


def test_a_forwarder_that_cannot_start_is_never_ready(site, manager, tmp_path):
    site.services('[services.Q]\ncommand = ["/none"]\n')
    site.lay_out("Q")
    assert site.run("-q", "Q", NOTIFY_SOCKET=str(tmp_path / "notify")).process.returncode == 2
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(4096)
