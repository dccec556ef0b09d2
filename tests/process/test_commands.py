"""Services that are commands."""

import sys

import pytest

from qmadmin import QueueDefinition
from qmcore.message import BODY_MAX
from tests.fix_process import eventually, is_running


def serve(site, command, *, time="2"):
    """Lay out a queue COMMAND whose service is the command, a Python list; start the forwarder."""
    words = ", ".join(
        '"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"' for word in command
    )
    site.services(f"[services.COMMAND]\ncommand = [{words}]\n")
    space = site.lay_out(QueueDefinition(name="COMMAND"), "RPLYQ", "ERRQUE")
    return space, site.start("-q", "COMMAND", "-t", time)


def ask(space, body, **options):
    msgid = space.enqueue("COMMAND", body, reply_queue="RPLYQ", **options)
    reply = space.dequeue("RPLYQ", corrid=options.get("corrid", msgid), wait=60)
    assert reply is not None
    return reply


def error_of(space, body=b""):
    """Send a request that fails at once for good; return why."""
    space.enqueue("COMMAND", body, reply_queue="RPLYQ")
    failed = space.dequeue("ERRQUE", wait=60)
    assert failed is not None
    assert space.usage("RPLYQ").messages == 0
    return failed.origin.error


def test_command_reads_the_request_and_writes_the_reply(site):
    space, _ = serve(site, ["tr", "a-z", "A-Z"])
    reply = ask(space, "this is a q example")
    assert (reply.text, reply.type) == ("THIS IS A Q EXAMPLE", "STRING")
    assert ask(space, b"bytes").type == "CARRAY"


def test_command_with_output_that_is_no_text_gives_bytes(site):
    space, _ = serve(site, ["printf", "\\377"])
    reply = ask(space, "text")
    assert (reply.body, reply.type) == (b"\xff", "CARRAY")


def test_command_that_says_nothing_gives_a_reply_of_zero_length(site):
    space, _ = serve(site, ["true"])
    assert ask(space, b"x" * 1_000_000).body == b""


def test_large_body_goes_through_a_command_and_back(site):
    space, _ = serve(site, ["cat"])
    body = bytes(range(256)) * 4000
    assert ask(space, body).body == body


def test_command_finds_the_facts_of_the_request_in_its_environment(site):
    names = ["QUEUE", "MSGID", "CORRID", "PRIORITY", "RETRIES", "TYPE", "URCODE", "REPLY_QUEUE", "SPACE"]
    shown = "|".join(f"$QM_{name}" for name in names)
    space, _ = serve(site, ["/bin/sh", "-c", f'printf %s "{shown}|$QMCONFIG"'])
    msgid = space.enqueue("COMMAND", "a", corrid=b"a\0b \xff", priority=7, urcode=3, reply_queue="RPLYQ")
    expected = f"COMMAND|{msgid}|a\\x00b \\xff|7|0|STRING|3|RPLYQ|QSPACE|{site.device}"
    assert space.dequeue("RPLYQ", wait=60).text == expected


def test_exit_status_and_error_output_tell_why_a_command_failed(site):
    space, forwarder = serve(site, ["/bin/sh", "-c", "echo half a reply; echo no account 17 >&2; exit 3"])
    assert error_of(space) == "exit status 3: no account 17"
    forwarder.wait_until_logged("exit status 3: no account 17")


def test_signal_that_ended_a_command_is_named(site):
    space, _ = serve(site, ["/bin/sh", "-c", "kill -SEGV $$"])
    assert error_of(space) == "ended by SIGSEGV"


def test_only_the_end_of_a_long_error_output_is_kept(site):
    space, _ = serve(site, [sys.executable, "-c", "import sys; sys.exit('x' * 1_000_000 + ' the end')"])
    error = error_of(space)
    assert len(error) == 1000
    assert error.startswith("exit status 1: ...xxx")
    assert error.endswith("x the end")


def test_queue_whose_command_was_removed_waits_until_it_is_back_and_no_message_is_tried(site):
    tool = site.directory / "tool"
    tool.write_text("#!/bin/sh\nprintf $QM_RETRIES\n")
    tool.chmod(0o755)
    space, forwarder = serve(site, ["./tool"])
    assert ask(space, b"a").body == b"0"
    tool.rename(site.directory / "away")
    msgid = space.enqueue("COMMAND", b"b", reply_queue="RPLYQ")
    forwarder.wait_until_logged("tool' cannot be started: No such file or directory")
    (site.directory / "away").rename(tool)
    assert space.dequeue("RPLYQ", corrid=msgid, wait=60).body == b"0"
    forwarder.stop()


def test_command_that_takes_too_long_is_ended_with_all_that_it_started(site):
    # Neither ends by being asked to.
    script = "trap '' TERM; sleep 1000 & echo $! >> calls; echo $$ >> calls; wait; sleep 1000"
    space, _ = serve(site, ["/bin/sh", "-c", f"echo waiting >&2; {script}"])
    assert error_of(space) == "no reply within 2 seconds: waiting"
    for line in site.wait_for_calls(2):
        eventually(lambda: not is_running(int(line)))  # noqa: B023 - asked at once


def test_command_that_says_no_more_and_does_not_end_is_asked_to(site):
    script = "trap 'echo asked >calls; kill $!; exit' TERM; exec <&- >&- 2>&-; sleep 1000 & wait"
    space, _ = serve(site, ["/bin/sh", "-c", script], time="1")
    assert error_of(space) == "no reply within 1 seconds"
    assert site.calls() == ["asked"]


def test_command_without_a_limit_of_time_is_waited_for(site):
    space, _ = serve(site, ["cat"], time="0")
    assert ask(space, b"a").body == b"a"


def test_command_that_writes_without_end_is_stopped(site):
    space, _ = serve(site, ["yes"])
    assert error_of(space) == f"its output is longer than {BODY_MAX} bytes"


@pytest.mark.parametrize("body", [b"", b"x" * 300_000])
def test_command_that_reads_nothing_has_not_failed_for_that(site, body):
    space, _ = serve(site, ["/bin/sh", "-c", "exec <&-; echo done"])
    assert ask(space, body).body == b"done\n"
