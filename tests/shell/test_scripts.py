"""Scripts on a real device: results, errors with their place, and what happens to answers that nobody asks for."""

import contextlib
import grp
import io
import json
import os
import re

import pytest

from qmadmin import open_device
from qmadmin.console.render import PlainScreen
from qmadmin.shell.catalogue import Catalogue
from qmadmin.shell.interpreter import Interpreter
from qmadmin.shell.lines import Script
from qmadmin.shell.session import Modes, Session
from tests.fix_shell import Typed


def test_empty_script_does_nothing_and_makes_nothing(shell):
    assert shell.run("").status == 0
    assert list(shell.directory.iterdir()) == []


def test_comments_and_empty_lines_do_nothing(shell):
    ran = shell.run("# first\n\n   \n#last\n")
    assert (ran.both, ran.status) == ("", 0)


def test_empty_line_of_a_script_repeats_nothing(shell):
    assert shell.run("verbose\n\n \t\n").out == "Verbose mode is now on\n"


def test_one_line_commands_and_answers_on_lines_of_their_own_give_the_same(shell):
    shell.lay_out()
    shell.run("qopen QSPACE\nqcreate A priority,fifo top 2 30 80% 10% 'mailme A'\n")
    shell.run("qopen\nQSPACE\nqcr\nB\npriority,fifo\ntop\n2\n30\n80%\n10%\nmailme B\n")
    verbose = "verbose\nqopen QSPACE\n"
    a, b = (shell.run(f"{verbose}qinfo {name}\n") for name in "AB")
    assert a.status == b.status == 0
    assert a.out.replace("'A'", "'B'").replace("mailme A", "mailme B") == b.out


def test_prompts_are_not_printed_unless_echo_is_on(shell):
    shell.lay_out()
    script = "qopen\nQSPACE\n"
    assert shell.run(script).out == "Queue space 'QSPACE' opened\n"
    assert shell.run(f"echo on\n{script}").out == (
        "Echo mode is now on\n> qopen\nQueue space name: QSPACE\nQueue space 'QSPACE' opened\n"
    )


def test_crlf_and_byte_order_mark_do_not_matter(shell):
    shell.lay_out()
    ran = shell.run("\ufeffqopen\r\nQSPACE\r\nqset\tSTRING \r\n")
    assert ran.out == "Queue space 'QSPACE' opened\nCurrent queue is 'STRING'\n"
    assert ran.status == 0
    # Only at the very beginning is it a mark.
    assert shell.run("verbose\n\ufeffqclose\n").err == r"ERROR: No such command: \ufeffqclose (crque, line 2)" + "\n"


def test_error_names_file_and_line_and_the_script_goes_on(laid_out):
    ran = laid_out.run("# a script\nqopen QSPACE\nqset NOPE\nqset STRING\n")
    assert ran.err == "ERROR: QMEBADQUEUE: there is no queue 'NOPE' in queue space 'QSPACE' (crque, line 3)\n"
    assert ran.out.endswith("Current queue is 'STRING'\n")
    assert ran.status == 1


def test_refused_answer_is_named_by_its_own_line_and_the_others_are_passed_over(laid_out):
    ran = laid_out.run("qopen QSPACE\nqcreate\nq\nfifo\nnone\nmany\nq\n!exit 9\n0%\n\nqset STRING\n")
    assert ran.err == (
        "ERROR: The number of retries must be numeric: 'many' (crque, line 6)\n"
        "INFO: Skipped the remaining answers to qcreate (crque, lines 7-10)\n"
    )
    assert ran.out.endswith("Current queue is 'STRING'\n")


def test_answers_of_a_command_that_may_not_run_are_passed_over(laid_out):
    ran = laid_out.run("qcreate\nq\nfifo\nnone\n0\n0\n100%\n0%\n\nverbose\n")
    assert ran.err == (
        "ERROR: No queue space is open (crque, line 1)\n"
        "INFO: Skipped the remaining answers to qcreate (crque, lines 2-9)\n"
    )
    assert ran.out == "Verbose mode is now on\n"


def test_confirmation_of_a_command_that_was_refused_is_passed_over(laid_out):
    ran = laid_out.run("qopen QSPACE\nqdestroy NOPE\ny\nverbose\n")
    assert ran.err == (
        "ERROR: QMEBADQUEUE: there is no queue 'NOPE' in queue space 'QSPACE' (crque, line 2)\n"
        "INFO: Skipped the remaining answers to qdestroy (crque, line 3)\n"
    )
    assert ran.out.endswith("Verbose mode is now on\n")


def test_answer_behind_a_refused_confirmation_is_passed_over(laid_out):
    ran = laid_out.run("qopen QSPACE\nqdestroy STRING\nmaybe\ny\nqset STRING\n")
    assert ran.err == (
        "ERROR: The answer must be y or n, got 'maybe' at 'Destroy queue 'STRING'? (y, n [default=n]):'"
        " (crque, line 3)\n"
        "INFO: Skipped the remaining answers to qdestroy (crque, line 4)\n"
    )
    assert ran.out.endswith("Current queue is 'STRING'\n")
    ran = laid_out.run("qopen QSPACE\nqdestroy STRING\nmaybe\nqi STRING\n")
    assert "Skipped" not in ran.err, "what is no answer is a command"


def test_line_that_is_a_command_without_doubt_is_never_passed_over(laid_out):
    ran = laid_out.run("qopen QSPACE\nqcreate -z\nA\necho full\nq\nqset STRING\n")
    assert ran.err == (
        "ERROR: Invalid option -z of qcreate (crque, line 2)\n"
        "INFO: Skipped the remaining answers to qcreate (crque, lines 3-5)\n"
    )
    assert ran.out.endswith("Current queue is 'STRING'\n")
    assert laid_out.run("lidl 1 2\nqset STRING\n").err.endswith("No queue space is open (crque, line 2)\n")


def test_answers_that_are_passed_over_are_seen_in_a_log(laid_out):
    ran = laid_out.run("echo\nqdestroy NOPE\ny\nqdestroy\nverbose\n")
    assert ran.out == "Echo mode is now on\n> qdestroy NOPE\ny\n> qdestroy\n> verbose\nVerbose mode is now on\n"


def test_nothing_is_passed_over_after_an_unknown_command(shell):
    ran = shell.run("qcraete\nverbose\n")
    assert ran.err == "ERROR: No such command: qcraete (crque, line 1)\n"
    assert ran.out == "Verbose mode is now on\n"


def test_end_of_input_at_a_prompt_names_the_prompt(laid_out):
    ran = laid_out.run("qopen QSPACE\nqcreate X\nfifo\n")
    assert ran.err == (
        "ERROR: Input ended at the prompt 'Out-of-ordering enqueueing (top, msgid, [default=none]):' (crque, line 3)\n"
    )
    assert ran.status == 1
    ran = laid_out.run("qopen QSPACE\nqdestroy STRING")
    assert ran.err == (
        "ERROR: Input ended at the prompt 'Destroy queue 'STRING'? (y, n [default=n]):' (crque, line 2)\n"
    )


def test_quit_leaves_the_rest_unread(shell):
    ran = shell.run("verbose\nquit\nverbose\n")
    assert ran.out == "Verbose mode is now on\n"


def test_commands_that_need_a_queue_space_say_so(shell):
    shell.lay_out()
    for command in ("qclose", "qcreate Q fifo none 0 0 100% 0% ''", "qinfo", "qset", "qlist", "qdestroy -y Q"):
        assert shell.run(f"{command}\n").err == "ERROR: No queue space is open (crque, line 1)\n"
    assert shell.run("qopen QSPACE\nqlist\n").err == "ERROR: No current queue is set (crque, line 2)\n"


def test_a_capacity_command_that_does_not_run_as_this_user_is_told_when_it_is_set(laid_out):
    create, change = ("qcreate A fifo none 0 0 80% 0% 'mail me'", "qchange A none 0 0 80% 0% 'mail me'")
    laid_out.path.chmod(0o660)
    for line in (create, change):
        ran = laid_out.run(f"qopen QSPACE\n{line}\n")
        assert ran.err.startswith("WARN: the capacity command 'mail me' does not run as this user")
        assert ran.status == 0
    laid_out.path.chmod(0o600)
    assert laid_out.run(f"qopen QSPACE\n{change}\n").err == ""


def test_options_of_qcreate_reach_the_definition(laid_out):
    ran = laid_out.run(
        "qopen QSPACE\n"
        'qcreate -d nonpersist -n "80%,10%,mail me, now" -e +3600'
        ' A expiration,priority,lifo msgid,top 3 9 900m 90 "c d"\n'
    )
    assert ran.err.startswith("WARN: queue space 'QSPACE' has no memory for non-persistent messages")
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as space:
        d = space.queue("A").definition
    assert (d.delivery.value, d.expiration, d.retries, d.retry_delay) == ("nonpersist", 3600, 3, 9)
    assert (str(d.order), str(d.out_of_order)) == ("expiration,priority,lifo", "top,msgid")
    assert (str(d.threshold.high), str(d.threshold.low), d.threshold.command) == ("900m", "90m", "c d")
    memory = d.memory_threshold
    assert (str(memory.high), str(memory.low), memory.command) == ("80%", "10%", "mail me, now")


def test_options_of_ours_reach_the_definition(laid_out):
    ran = laid_out.run("qopen QSPACE\nqcreate -E errors -x y -g -R 60 A fifo none 0 0 100% 0% ''\n")
    assert "ERROR" not in ran.err
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as space:
        d = space.queue("A").definition
        assert (d.error_queue, d.keep_expired, d.grouping, d.retention) == ("errors", True, True, 60)
    laid_out.run("qopen QSPACE\nqcreate -R forever B fifo none 0 0 100% 0% ''\n")
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as space:
        assert space.queue("B").definition.retention == -1


def test_error_queue_of_a_queue_that_is_not_created_is_warned_about(laid_out):
    ran = laid_out.run("qopen QSPACE\nqcreate -E bad A fifo none 0 0 100% 0% ''\nqinfo\n")
    assert "WARN: error queue 'bad' of queue 'A' does not exist: 'errq' is used instead" in ran.err
    ran = laid_out.run("qopen QSPACE\nqdestroy -y errq\nqinfo\n")
    assert "WARN: error queue 'bad' of queue 'A' does not exist: messages out of retries will be lost" in ran.err


def test_capacity_commands_are_switched_for_the_device(laid_out):
    ran = laid_out.run("qcommands\nqcommands off\nqcommands\n")
    assert ran.out.splitlines() == [f"Capacity commands are {state}" for state in ("on", "off", "off")]
    with open_device(laid_out.device) as device:
        assert not device.runs_commands()


def test_empty_answers_to_qcreate_take_its_defaults_and_say_so(laid_out):
    ran = laid_out.run("echo\nqopen QSPACE\nqcreate NEW" + "\n" * 8)
    assert [line for line in ran.out.splitlines() if "efault" in line and "[default" not in line] == [
        "Default queue order is fifo",
        "Default out-of-ordering enqueueing is none",
        "Default number of retries is 0",
        "Default retry delay is 0 seconds",
        "Default high limit for queue capacity warning is 100%",
        "Default low limit for queue capacity warning is 0%",
        "No default queue capacity command",
    ]
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as space:
        d = space.queue("NEW").definition
    assert (str(d.order), str(d.out_of_order), d.retries, d.retry_delay, d.delivery.value, d.expiration) == (
        *("fifo", "none", 0, 0),
        *("persist", None),
    )
    assert (str(d.threshold.high), str(d.threshold.low), d.threshold.command) == ("100%", "0%", "")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("X fifo none 0 soon 100% 0% ''", "Retry delay must be numeric: 'soon'"),
        ("X fifo none 0 0 100x 0% ''", "Invalid high threshold type: '100x'"),
        ("X fifo none 0 0 1x0% 0% ''", "High threshold must be numeric: '1x0%'"),
        ("X fifo none 0 0 0% 0% ''", "Invalid high threshold number: '0%'"),
        ("X fifo none 0 0 101% 0% ''", "Invalid high threshold number: '101%'"),
        ("X fifo none 0 0 100% 5m ''", "High and low threshold types do not match: '100% and 5m'"),
        ("X fifo none 0 0 50% 50% ''", "Low threshold must be less than high threshold: '50%'"),
        (
            f"X fifo none 0 0 50% 5% {'c' * 128}",
            (
                "Threshhold command length must be less than 128 characters: the threshold command"
                f" '{'c' * 57}...' has 128 bytes, the limit is 127"
            ),
        ),
        ("'' fifo none 0 0 50% 5% ''", "Must specify queue name"),
        (
            "STRING fifo none 0 0 50% 5% ''",
            "Queue creation failed for queue STRING: QMEINVAL: queue 'STRING' exists already in queue space 'QSPACE'",
        ),
        ("X lifo,fifo none 0 0 50% 5% ''", "QMEINVAL: the queue order 'lifo,fifo' has both fifo and lifo"),
        ("X fifo bottom 0 0 50% 5% ''", "QMEINVAL: the out-of-ordering 'bottom' is not none, top, msgid or top,msgid"),
    ],
)
def test_bad_queue_is_refused_in_one_sentence_and_not_created(laid_out, arguments, sentence):
    ran = laid_out.run(f"qopen QSPACE\nqcreate {arguments}\n")
    assert ran.err == f"ERROR: {sentence} (crque, line 2)\n"
    assert ran.status == 1
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as space:
        assert [queue.name for queue in space.queues()] == ["STRING", "errq"]


def test_qlist_lists_messages_in_the_order_of_the_queue(laid_out):
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as space:
        first = space.enqueue("STRING", b"first", corrid=b"hello world\\")
        second = space.enqueue("STRING", b"a second", delay=3600, priority=70)
    ran = laid_out.run("qopen QSPACE\nqset STRING\nqlist\nverbose\nqlist\nqinfo STRING\n")
    head, one, two = ran.out.splitlines()[2:5]
    assert head.split("  ")[0].strip() == "Message id"
    assert one.split() == [first, "50", "0", "5", "persist", "-", "ready", "-", "-"]
    assert two.split()[:7] == [second, "70", "0", "8", "persist", "-", "delayed"]
    assert r"hello\20world\5c" in ran.out
    assert re.search(r"^  Messages: +2: 1 ready, 1 delayed, 0 parked, 0 held$", ran.out, re.MULTILINE)


def test_empty_list_is_message_1401(laid_out):
    ran = laid_out.run("qopen QSPACE\nqset STRING\nqlist\n")
    assert ran.err == "INFO: Queue list - no messages matched on queue STRING\n"
    assert ran.status == 0


def test_queue_with_messages_is_destroyed_only_when_they_are_purged(laid_out):
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as space:
        space.enqueue("STRING", b"x")
    ran = laid_out.run("qopen QSPACE\nqdestroy -y STRING\nqset STRING\n")
    assert ran.err.startswith("ERROR: QMEINUSE: ")
    assert ran.out.endswith("Current queue is 'STRING'\n")
    ran = laid_out.run("echo\nqopen QSPACE\nqset STRING\nqdestroy -p STRING\ny\nqset\n")
    assert "\nDestroy queue 'STRING' with 1 message? (y, n [default=n]): y\nQueue 'STRING' destroyed\n" in ran.out
    assert ran.err == "ERROR: No current queue is set (crque, line 6)\n"


def test_queue_of_a_queue_space_that_others_have_open_is_destroyed_only_by_force(laid_out):
    with open_device(laid_out.device) as device, device.open_space("QSPACE"):
        ran = laid_out.run("qopen QSPACE\nqset STRING\nqdestroy -y errq\nqdestroy -yp errq\nqdestroy -yf errq\nqset\n")
    assert [line.split()[1] for line in ran.err.splitlines()] == ["QMEINUSE:", "QMEINUSE:"]
    # The current queue is another one, and stays.
    assert ran.out.endswith("Queue 'errq' destroyed\nCurrent queue is 'STRING'\n")


@pytest.mark.parametrize("answer", ["n", "", "no", "'n'"])
def test_declined_confirmation_changes_nothing(laid_out, answer):
    ran = laid_out.run(f"qopen QSPACE\nqdestroy STRING\n{answer}\nqset STRING\n")
    assert ran.err == "WARN: Queue 'STRING' not destroyed (crque, line 2)\n"
    assert ran.out.endswith("Current queue is 'STRING'\n")
    assert ran.status == 0


def test_answer_that_is_neither_yes_nor_no_is_refused(laid_out):
    ran = laid_out.run("qopen QSPACE\nqdestroy STRING\nqset STRING\n")
    assert ran.err == (
        "ERROR: The answer must be y or n, got 'qset STRING' at 'Destroy queue 'STRING'? (y, n [default=n]):'"
        " (crque, line 3)\n"
    )
    assert ran.status == 1


def test_first_entry_must_be_the_device_itself(shell):
    other = shell.directory / "OTHER"
    ran = shell.run(f"crdl {other} 0 2000\ncrdl {shell.device} 5 2000\ncrdl {shell.device} 0 26\n")
    assert ran.err.splitlines() == [
        (
            "ERROR: QMEINVAL: the first entry of the device list must be the device itself,"
            f" '{shell.device}', got '{other}' (crque, line 1)"
        ),
        (
            f"ERROR: QMEINVAL: the first entry of the device list must have offset 0, got 5 for '{shell.device}'"
            " (crque, line 2)"
        ),
        (
            "ERROR: QMEINVAL: the first entry of the device list must have more than 26 pages, which the list itself"
            f" takes, got 26 for '{shell.device}' (crque, line 3)"
        ),
    ]
    assert list(shell.directory.glob("QUE*")) == []


def test_first_entry_may_name_the_device_in_another_way(shell):
    (shell.directory / "link").symlink_to(shell.directory)
    assert shell.run(f"crdl {shell.directory}/link/./QUE 0 100\n").status == 0
    assert shell.run("lidl 0\n").status == 0


def test_device_may_be_named_by_a_url(shell):
    shell.device = f"sqlite:///{shell.path}"
    refused = shell.run(f"lidl\ncrdl {shell.path}2 0 100\ncrdl mysql://x/y 0 100\n").err.splitlines()
    sentence = f"QMEINVAL: the first entry of the device list must be the device itself, '{shell.device}', got"
    assert refused == [
        f"ERROR: QMEBADRMID: there is no device '{shell.path}' (crque, line 1)",
        f"ERROR: {sentence} '{shell.path}2' (crque, line 2)",
        f"ERROR: {sentence} 'mysql://x/y' (crque, line 3)",
    ]
    ran = shell.run(f"crdl {shell.device} 0 2000\nqspacecreate S 54320 200 5 10 10 100 '' n 16\n")
    assert ran.status == 0, ran.err
    assert ran.out.startswith(f"Created device {shell.path}, offset 0, size 2000 on {shell.path}\n")
    shell.device = str(shell.path)
    assert shell.run("qopen S\n").status == 0


def test_device_that_is_named_by_a_url_may_be_made_by_its_path(shell):
    shell.device = f"sqlite:///{shell.path}"
    assert shell.run(f"crdl {shell.path} 0 100\n").status == 0
    assert shell.run(f"crdl {shell.path} 100 100\n").status == 0


def test_empty_file_may_become_the_device(shell):
    shell.path.touch()
    assert shell.run(f"crdl {shell.device} 0 2000\n").status == 0


def test_device_may_be_made_for_a_group(shell):
    group = grp.getgrgid(os.getegid()).gr_name
    ran = shell.run(f"crdl -g nosuchgroup {shell.device} 0 2000\ncrdl -g {group} {shell.device} 0 2000\n")
    assert ran.err == "ERROR: QMEINVAL: there is no group 'nosuchgroup' on this machine (crque, line 1)\n"
    assert shell.path.stat().st_mode & 0o777 == 0o660
    ran = shell.run(f"crdl -g {group} {shell.device} 5000 100\n")
    assert ran.err == "ERROR: Option -g is only for the first entry, which creates the device (crque, line 1)\n"


def test_device_is_for_its_owner_alone_without_a_group(laid_out):
    assert laid_out.path.stat().st_mode & 0o777 == 0o600


def test_entries_are_renamed_and_removed(laid_out):
    more, moved = laid_out.directory / "MORE", laid_out.directory / "MOVED"
    assert laid_out.run(f"crdl {more} 100 500\ndsdl 1\nn\n").err == (
        "WARN: Device list entry 1 not destroyed (crque, line 2)\n"
    )
    ran = laid_out.run(f"echo\nchdl\n1\n{moved}\nlidl 1\ndsdl 1\ny\nlidl 1\ndsdl -y 0\nchdl 7 x\n")
    assert f"New device name (now {more}): {moved}\n" in ran.out
    assert f"Renamed device {more} to {moved}, entry 1 on {laid_out.device}\n" in ran.out
    assert f"Destroy device list entry 1, {moved}, offset 100, size 500? (y, n [default=n]): y\n" in ran.out
    assert f"Destroyed device {moved}, offset 100, size 500 on {laid_out.device}\n" in ran.out
    errors = ran.err.splitlines()
    assert errors.pop(0) == f"WARN: nothing is at '{moved}' yet (crque, line 2)"
    assert errors.pop(0).startswith(f"WARN: '{moved}' cannot be opened: there is no device '{moved}'")
    assert errors[0] == (f"ERROR: QMEINVAL: the device list of '{laid_out.device}' has no entry 1 (crque, line 8)")
    assert errors[1].startswith("ERROR: QMEINUSE: ")
    assert errors[2].startswith("ERROR: QMEINVAL: ")
    assert len(errors) == 3


def test_modes_toggle_or_are_set_and_are_told(shell):
    ran = shell.run("verbose\nv\nv off\nverbose on\npaginate on\npage\ne\n")
    assert ran.out.splitlines() == [
        "Verbose mode is now on",
        "Verbose mode is now off",
        "Verbose mode is now off",
        "Verbose mode is now on",
        "Paginate mode is now off",
        "Paginate mode is now off",
        "Echo mode is now on",
    ]
    assert ran.err.count("WARN: paginate mode can only be on if input and output are a terminal") == 2


def test_unknown_mode_is_refused(shell):
    assert shell.run("verbose perhaps\n").err == "ERROR: The mode must be off or on, got 'perhaps' (crque, line 1)\n"


def test_help_of_an_unknown_command_is_an_error(shell):
    assert shell.run("help qfoo\n").err == "ERROR: No such command: qfoo (crque, line 1)\n"


def test_shell_command_is_run_and_repeated(shell, capfd):
    ran = shell.run("!!\n!echo one; exit 3\n!!\n!\n!! x\n!kill -9 $$\n")
    assert capfd.readouterr().out == "one\none\n"
    assert ran.err.splitlines() == [
        "ERROR: There is no previous shell command (crque, line 1)",
        "ERROR: Shell command ended with status 3: echo one; exit 3 (crque, line 2)",
        "ERROR: Shell command ended with status 3: echo one; exit 3 (crque, line 3)",
        "ERROR: Must specify shell command (crque, line 4)",
        "ERROR: !! takes no arguments, got 'x' (crque, line 5)",
        "ERROR: Shell command was ended by signal 9: kill -9 $$ (crque, line 6)",
    ]


def test_shell_command_that_fails_is_a_failure_of_the_script(shell):
    assert shell.run("!true\n").status == 0
    assert shell.run("!false\nverbose\n").status == 1


def test_shell_command_does_not_read_the_script(shell, capfd):
    ran = shell.run("!cat\nverbose\n")
    assert ran.out == "Verbose mode is now on\n"
    assert capfd.readouterr().out == ""


def test_names_cannot_drive_the_terminal(laid_out):
    ran = laid_out.run("qopen QSPACE\nqset \x1b[31mred\nqset \udcff\n")
    assert "\x1b" not in ran.both
    assert r"\x1b[31mred" in ran.err
    assert "\udcff" not in ran.err


def test_bug_is_one_line_with_a_reference_and_the_session_goes_on(laid_out, monkeypatch, caplog):
    from qmadmin.space import QueueSpace

    monkeypatch.setattr(QueueSpace, "queues", lambda self: 1 / 0)
    ran = laid_out.run("qopen QSPACE\nqinfo\nqset STRING\n")
    assert "Traceback" not in ran.both
    line = ran.err.splitlines()[-1]
    assert line.startswith("ERROR: qinfo failed inside qmadmin: ZeroDivisionError; the log has it as fault ")
    assert line.endswith(" (crque, line 2)")
    reference = line.split()[-4]
    assert any(reference in record.getMessage() and record.exc_info for record in caplog.records)
    assert ran.out.endswith("Current queue is 'STRING'\n")
    assert ran.status == 1


def test_a_file_of_commands_is_run_and_the_script_goes_on(laid_out):
    (laid_out.directory / "inner").write_text("qset NOPE\nqset errq\nqset\n")
    (laid_out.directory / "outer").write_text(f"source {laid_out.directory}/inner\nqset STRING\n")
    ran = laid_out.run(f"qopen QSPACE\nsource\n{laid_out.directory}/outer\nqset\n")
    assert [line for line in ran.out.splitlines() if "Current" in line] == [
        f"Current queue is '{name}'" for name in ("errq", "errq", "STRING", "STRING")
    ]
    assert ran.err.endswith(f"({laid_out.directory}/inner, line 1)\n")
    assert ran.status == 1


def test_a_file_of_commands_is_refused_where_there_is_none_or_it_names_itself(laid_out):
    ran = laid_out.run(f"source {laid_out.directory}/none\nlidl\n")
    assert ran.err == (
        f"ERROR: Failed to open command file {laid_out.directory}/none: No such file or directory (crque, line 1)\n"
    )
    (laid_out.directory / "again").write_text(f"source {laid_out.directory}/again\n")
    ran = laid_out.run(f"source {laid_out.directory}/again\nlidl\n")
    assert ran.err.startswith("ERROR: Command files are nested more than 16 deep (")
    assert laid_out.device in ran.out


def test_in_json_each_command_of_a_file_has_its_document(laid_out):
    (laid_out.directory / "file").write_text("qopen QSPACE\nqset errq\n")
    ran = laid_out.run(f"format json\nsource {laid_out.directory}/file\nqset\n")
    found = [json.loads(line)["command"] for line in ran.out.splitlines()[1:]]
    assert found == ["source", "qopen", "qset", "qset"]


def test_an_error_ends_the_file_and_at_a_terminal_nothing_else(laid_out):
    (laid_out.directory / "file").write_text("qset NOPE\nqset errq\n")
    for dialogue, ended in ((Script, True), (Typed, False)):
        screen = PlainScreen(io.StringIO(), io.StringIO())
        session = Session(laid_out.device, Catalogue(), screen, laid_out.environ, modes=Modes(stop_on_error=True))
        lines = io.StringIO(f"qopen QSPACE\nsource {laid_out.directory}/file\nqset STRING\n")
        with contextlib.closing(session):
            assert Interpreter(session, dialogue(lines, "x", session)).run() == 1
        assert "errq'" not in screen.out.getvalue()
        assert ("Current queue is 'STRING'" not in screen.out.getvalue()) == ended
