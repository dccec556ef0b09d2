"""What the service manager is told, over a real socket."""

import os
import socket
import time

import pytest

from qmadmin.forwarder.daemon import Notify, for_children


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    """A socket as systemd has one: its name for NOTIFY_SOCKET, and what was said to it."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@qmadmin-test-{os.getpid()}-{time.monotonic_ns()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(name if request.param == "path" else "\0" + name[1:])
        listening.setblocking(False)

        def heard():
            try:
                return listening.recv(4096).decode().split("\n")
            except BlockingIOError:
                return []

        heard.name = name
        yield heard


def notify_to(manager, **environ):
    return Notify({"NOTIFY_SOCKET": manager.name, **environ})


def test_the_manager_hears_of_start_work_and_end(manager):
    notify = notify_to(manager)
    notify.ready("2 queues")
    assert manager() == ["READY=1", "STATUS=2 queues"]
    notify.status("7 messages\n forwarded")
    assert manager() == ["STATUS=7 messages forwarded"]
    notify.stopping()
    assert manager() == ["STOPPING=1"]


def test_a_reload_says_when_it_began_by_the_clock_of_the_manager(manager):
    notify = notify_to(manager)
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    notify.reloading()
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    first, second = manager()
    assert first == "RELOADING=1"
    key, _, value = second.partition("=")
    assert key == "MONOTONIC_USEC"
    assert before <= int(value) <= after
    notify.ready()
    assert manager() == ["READY=1"]


@pytest.mark.parametrize("environ", [{}, {"WATCHDOG_PID": str(os.getpid())}])
def test_signs_of_life_come_no_more_often_than_the_manager_needs(manager, environ):
    notify = notify_to(manager, WATCHDOG_USEC="600000000", **environ)
    for _ in range(3):
        notify.alive()
    assert manager() == ["WATCHDOG=1"]
    assert manager() == []


def test_signs_of_life_go_on(manager):
    notify = notify_to(manager, WATCHDOG_USEC="1")
    for _ in range(2):
        notify.alive()
        assert manager() == ["WATCHDOG=1"]


@pytest.mark.parametrize(
    "environ",
    [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"}],
)
def test_no_signs_of_life_where_this_process_is_not_watched(manager, environ):
    notify_to(manager, **environ).alive()
    assert manager() == []


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1234"}])
def test_without_a_manager_nothing_is_said(environ, monkeypatch):
    monkeypatch.setattr(socket, "socket", None)
    notify = Notify(environ | {"WATCHDOG_USEC": "1"})
    notify.ready()
    notify.alive()


def test_a_manager_that_has_gone_is_no_failure(tmp_path):
    Notify({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()


def test_a_manager_that_does_not_listen_keeps_nobody(manager, monkeypatch):
    monkeypatch.setattr("qmadmin.forwarder.daemon._SEND_SECONDS", 0.0)
    notify = notify_to(manager)
    for _ in range(10_000):
        notify.status("still here")
    assert manager() == ["STATUS=still here"]


def test_what_the_manager_says_is_not_for_children():
    said = {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "2"}
    assert for_children({"PATH": "/bin", **said}) == {"PATH": "/bin"}
