"""Services that are commands: what they are given, what they say, and how they are ended."""

import json
import os
import signal
import sys

import pytest

from qmadmin.forwarder import Reply
from qmadmin.forwarder.command_service import FACTS, CommandService
from qmcore.message import BODY_MAX
from tests.fix_process import eventually, is_running
from tests.fix_service import Calling, call, failure_of, unavailability_of
from tests.fix_store import DESCRIPTORS


def shell(script, **settings):
    return CommandService(["/bin/sh", "-c", script], os.environ | settings)


def lines_of(file, count=1):
    """Wait for lines of a file that a command writes, and return them as numbers."""
    eventually(lambda: file.exists() and file.read_text().count("\n") >= count, file.name)
    return [int(line) for line in file.read_text().split()]


def test_output_is_the_reply_and_text_where_the_request_is_text():
    service = CommandService(["tr", "a-z", "A-Z"], os.environ)
    assert call(service, "hello") == Reply("HELLO")
    assert call(service, b"hello") == Reply(b"HELLO")
    assert call(CommandService(["printf", "\\377"], os.environ), "hello") == Reply(b"\xff")


def test_command_may_say_its_return_code_its_type_and_headers():
    service = shell(
        """
        echo urcode=7 >"$QM_OUTCOME"
        echo type=JSON >"$QM_OUTCOME"
        printf 'header.content-type = text/plain\\nheader.a=b=c\\n\\n' >"$QM_OUTCOME"
        echo done
        """
    )
    assert call(service, "") == Reply("done\n", 7, "JSON", {"content-type": "text/plain", "a": "b=c"})


def test_command_that_failed_may_say_more_of_it_and_its_output_is_the_body_of_the_failure():
    failed = failure_of(
        shell(
            "printf 'urcode=-3\\npermanent=true\\nretry_after=1.5\\n' >$QM_OUTCOME; echo sorry; echo why >&2; exit 3"
        ),
        "",
    )
    assert str(failed) == "exit status 3: why"
    assert (failed.reply, failed.permanent, failed.retry_after) == (Reply("sorry\n", -3), True, 1.5)


def test_command_that_failed_and_says_no_more_is_tried_again_as_its_queue_says():
    failed = failure_of(shell("exit 1"))
    assert (failed.permanent, failed.retry_after) == (False, None)


def test_command_may_say_that_it_cannot_work_at_present():
    refused = unavailability_of(
        shell("printf 'unavailable=true\\nretry_after=30' >$QM_OUTCOME; echo 'no database' >&2; exit 1")
    )
    assert (str(refused), refused.retry_after) == ("exit status 1: no database", 30)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("urcode", "'urcode' is not a line of the form NAME=VALUE"),
        ("urcode=x", "urcode must be a whole number, got 'x'"),
        ("code=1", "'code' is none of urcode, type, header.NAME, permanent, retry_after, unavailable"),
        ("header.=1", "'header.' is none of"),
        ("permanent=yes", "'yes' is neither true nor false"),
        ("retry_after=soon", "retry_after must be seconds, got 'soon'"),
        ("retry_after=-1", "retry_after must be seconds, got '-1'"),
        ("retry_after=nan", "retry_after must be seconds, got 'nan'"),
        ("retry_after=1e10", "retry_after must be seconds, got '1e10'"),
    ],
)
def test_outcome_that_makes_no_sense_is_a_failure_also_of_a_command_that_went_well(line, told):
    assert str(failure_of(shell(f"echo '{line}' >$QM_OUTCOME"))).startswith(f"its QM_OUTCOME: {told}")


def test_outcome_has_an_end():
    failed = failure_of(shell("yes >$QM_OUTCOME"))
    assert str(failed) == "it wrote more than 65536 bytes to QM_OUTCOME"


def test_outcome_may_be_written_after_all_else_is_closed():
    service = shell('outcome=$QM_OUTCOME; exec <&- >&- 2>&-; sleep 0.1; echo urcode=5 >"$outcome"')
    assert call(service).urcode == 5


def test_what_a_command_leaves_behind_may_keep_the_outcome_open(tmp_path):
    service = shell(f"sleep 1000 </dev/null >/dev/null 2>&1 & echo $! >{tmp_path}/pid; echo urcode=1 >$QM_OUTCOME")
    assert call(service).urcode == 1
    (left,) = lines_of(tmp_path / "pid")
    os.kill(left, signal.SIGKILL)


def test_command_finds_the_facts_of_the_request_in_its_environment():
    service = CommandService(
        [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"], {"MINE": "a"}
    )
    headers = {"TraceParent": "00-1-2-03", "tracestate": "a=b", "naïve": "\n"}
    found = json.loads(
        call(
            service, "", seconds=62.5, corrid=b"a\0b \xff", priority=7, retries=2, urcode=3, reply_queue="R",
            failure_queue="F", client_id="me", appkey=9, headers=headers,
        ).body
    )  # fmt: skip
    assert json.loads(found.pop("QM_HEADERS")) == headers
    assert found.pop("QM_OUTCOME").startswith("/dev/fd/")
    found = {name: value for name, value in found.items() if name not in ("LC_CTYPE", "__CF_USER_TEXT_ENCODING")}
    assert found == {
        "MINE": "a", "QM_QUEUE": "S", "QM_MSGID": "0123456789abcdef0000000000000001", "QM_CORRID": "a\\x00b \\xff",
        "QM_PRIORITY": "7", "QM_RETRIES": "2", "QM_TYPE": "STRING", "QM_URCODE": "3", "QM_REPLY_QUEUE": "R",
        "QM_FAILURE_QUEUE": "F", "QM_CLIENT_ID": "me", "QM_APPKEY": "9", "QM_TIMEOUT": "62.5",
        "TRACEPARENT": "00-1-2-03", "TRACESTATE": "a=b",
    }  # fmt: skip
    # The daemon gives those that are the same for all.
    assert {*found, "QM_HEADERS", "QM_OUTCOME"} - {"MINE"} == set(FACTS) - {"QMCONFIG", "QMSPACE", "QM_SPACE"}
    assert call(shell('printf "[$QM_TIMEOUT]"'), "", seconds=float("inf")).body == "[]"


def test_environment_and_directory_are_as_described(services):
    (services.directory / "there").mkdir()
    service = services.make(
        """
        command = ["/bin/sh", "-c", "printf \\"$COLOR $QM_QUEUE \\"; pwd"]
        environment = {COLOR = "blue", QM_QUEUE = "mine"}
        directory = "there"
        """
    )
    assert call(service, "").body == f"blue S {services.directory / 'there'}\n"


def test_program_is_looked_for_in_the_path_that_is_described_for_it(services):
    (services.directory / "bin").mkdir()
    services.write("bin/tool", "#!/bin/sh\necho mine\n", mode=0o755)
    service = services.make(f"command = ['tool']\nenvironment.PATH = '{services.directory / 'bin'}'")
    assert call(service, "").body == "mine\n"


def test_command_that_cannot_be_started_is_no_try_of_the_message(tmp_path):
    tool = tmp_path / "tool"
    service = CommandService([str(tool)], os.environ)
    assert str(unavailability_of(service)).endswith("tool' cannot be started: No such file or directory")
    tool.write_text("echo")
    assert str(unavailability_of(service)).endswith("tool' cannot be started: Permission denied")
    tool.chmod(0o755)
    assert str(unavailability_of(service)).endswith("tool' cannot be started: Exec format error")


def test_headers_that_are_too_long_for_an_environment_are_the_fault_of_the_message():
    failed = failure_of(shell("true"), headers={"a": "x" * 200_000})
    assert str(failed) == "command '/bin/sh' cannot be started: Argument list too long"


def test_command_that_writes_without_end_is_stopped():
    assert str(failure_of(CommandService(["yes"], os.environ))) == f"its output is longer than {BODY_MAX} bytes"


def test_command_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path):
    # Neither ends by being asked to.
    script = (
        f"trap '' TERM; sleep 1000 & echo $! >>{tmp_path}/pids; echo $$ >>{tmp_path}/pids; echo on >&2; wait; sleep 99"
    )
    assert str(failure_of(shell(script), seconds=2)) == "no reply within 2 seconds: on"
    for pid in lines_of(tmp_path / "pids", 2):
        eventually(lambda: not is_running(pid))  # noqa: B023 - asked at once


def test_several_commands_run_at_the_same_time(tmp_path):
    # Each of the two waits for the other one.
    def script(mine, other):
        return f"touch {tmp_path}/{mine}; while ! [ -e {tmp_path}/{other} ]; do sleep 0.01; done; echo {mine}"

    service = CommandService(["/bin/sh", "-c", 'eval "$(cat)"'], os.environ)
    callings = [Calling(service, script(*pair)) for pair in (("a", "b"), ("b", "a"))]
    assert [calling.wait().body for calling in callings] == ["a\n", "b\n"]


def test_stop_ends_all_commands_with_what_they_have_started_and_starts_no_more(tmp_path):
    service = shell(f"sleep 1000 & echo $! >>{tmp_path}/pids; echo $$ >>{tmp_path}/pids; wait")
    callings = [Calling(service) for _ in range(2)]
    pids = lines_of(tmp_path / "pids", 4)
    service.stop_calls()
    assert [str(calling.wait()) for calling in callings] == ["the forwarder stops"] * 2
    for pid in pids:
        eventually(lambda: not is_running(pid))  # noqa: B023 - asked at once
    assert str(unavailability_of(service)) == "the forwarder stops"


CALLS = f"""
{DESCRIPTORS}
from tests.fix_service import call, failure_of, unavailability_of
from tests.forwarder.test_command_service import CommandService, shell

service = shell("exit $(cat)")
call(service, b"0")
before = descriptors()
call(service, b"0")
failure_of(service, b"1")
failure_of(shell("exec sleep 1000"), seconds=0.01)
unavailability_of(CommandService(["/none"], {{}}))
say(descriptors() - before)
"""


def test_calls_leave_no_descriptors_behind(start):
    child = start(CALLS)
    child.expect("set()")
    child.finish()
