"""What the person at the terminal of tmqforward sees of it, of its services and of its worker processes."""

import contextlib
import re
import signal

import pexpect
import pytest

from tests.fix_process import PATIENCE, environment

MODULE = """
import logging

logger = logging.getLogger("shop.orders")


def call(request):
    logger.info("an order of %s", request.text)
    if request.text == "nothing":
        raise ValueError("there is\\nno such thing \\x1b[31m")
    return b"done"
"""


@pytest.fixture
def at_terminal(site):
    """Start tmqforward in a terminal, with a service in this process and one in processes of its own."""
    site.lay_out("A", "B", "ERRQUE")
    site.services(
        '[services.A]\npython = "shop:call"\n[services.B]\npython = "shop:call"\nrun = "process"\n', shop=MODULE
    )
    opened = []

    def start(*arguments, **settings):
        command, *words = site.command(*arguments)
        child = pexpect.spawn(
            command, words, cwd=site.directory, env=environment(**settings), timeout=PATIENCE, dimensions=(40, 200)
        )
        opened.append(child)
        child.expect("started: queues 'A', 'B'")
        return child

    yield start
    for child in opened:
        with contextlib.suppress(OSError):
            child.kill(signal.SIGKILL)
        child.close()


@pytest.mark.parametrize("queue", ["A", "B"])
def test_failures_and_what_services_log_are_seen_as_they_happen(site, at_terminal, queue):
    child = at_terminal()
    site.space.enqueue(queue, "something")
    child.expect(r"\d\d:\d\d:\d\d INFO: an order of something\r\n")
    msgid = site.space.enqueue(queue, "nothing")
    child.expect(rf"\d\d:\d\d:\d\d WARN: service '{queue}' failed on message {msgid}, try 1: ")
    child.expect(re.escape(r"ValueError: there is"))
    child.kill(signal.SIGHUP)
    child.expect("INFO: the services are loaded again from")
    child.kill(signal.SIGTERM)
    child.expect(pexpect.EOF)
    shown = child.before.decode()
    assert "\x1b" not in shown
    assert "Traceback" not in shown
    log = "".join(path.read_text() for path in site.directory.glob("ULOG.*"))
    assert "INFO: an order of something" in log
    assert "Traceback" in log
    assert "processed message" not in log


def test_each_call_is_told_with_v(site, at_terminal):
    child = at_terminal("-v")
    for queue in ("A", "B"):
        msgid = site.space.enqueue(queue, "something")
        child.expect(rf"\d\d:\d\d:\d\d DEBUG: service '{queue}' processed message {msgid} in [\d.]+(us|ms|s)\r\n")


def test_the_level_is_an_option_and_a_setting(site, at_terminal, tmp_path):
    settings = tmp_path / "settings.toml"
    settings.write_text('[tmqforward]\nlog_level = "warning"\n')
    for arguments, more in ((("--log-level", "warning"), {}), ((), {"QMADMIN_TOML": str(settings)})):
        for queue in ("A", "B"):
            site.space.enqueue(queue, "something")
            site.space.enqueue(queue, "nothing")
        done = site.run(*arguments, "-e", ULOGPFX="-", **more)
        assert "WARN: service 'A' failed" in done.said
        assert "WARN: service 'B' failed" in done.said
        assert "INFO" not in done.said


def test_each_of_a_batch_is_told_with_v(site, at_terminal):
    for _ in range(3):
        site.space.enqueue("A", "something")
    done = site.run("-v", "--batch", "3", "-q", "A", "-e", ULOGPFX="-")
    assert done.said.count("DEBUG: service 'A' processed message") == 3
