"""The formats of results: the same data for people and for programs."""

import csv
import io
import json

import pytest

from qmadmin import open_device

LAID_OUT = """\
qopen QSPACE
qcreate -e +60 ORDERS priority top 5 60 90m 10m "mailme orders"
"""


@pytest.fixture
def documents(laid_out):
    """Run a script in the format json, and return the documents of its commands."""

    def run(script):
        ran = laid_out.run(f"format json\n{script}")
        assert ran.out.startswith("Format is json\n")
        return [json.loads(line) for line in ran.out.splitlines()[1:]]

    return run


def test_each_command_gives_one_document_on_one_line(documents):
    found = documents("# a remark\nqopen QSPACE\n\nqinfo\nqset STRING\nqlist\nnonsense\nquit\n")
    assert [document["command"] for document in found] == ["qopen", "qinfo", "qset", "qlist", "nonsense", "quit"]
    assert [document["ok"] for document in found] == [True, True, True, True, False, True]
    assert all(list(document) == ["command", "rows", "said", "notices", "ok"] for document in found)


def test_rows_are_the_objects_with_numbers_as_numbers_and_nothing_as_null(documents):
    shown = documents(f"{LAID_OUT}qinfo ORDERS\n")[-1]["rows"]
    assert len(shown) == 1
    row = shown[0]
    assert (row["queue"], row["messages"], row["retries"], row["retry_delay"]) == ("ORDERS", 0, 5, 60)
    assert (row["expiration"], row["first_message"], row["groups"]) == (60, None, False)


def test_programs_get_the_same_in_verbose_mode(documents):
    _, quiet, _, verbose = documents("qopen QSPACE\nqinfo\nverbose on\nqinfo\n")
    assert quiet["rows"] == verbose["rows"]
    assert len(quiet["rows"]) == 2


def test_errors_and_remarks_are_in_the_document_and_on_stderr(laid_out):
    ran = laid_out.run("format json\nqopen QSPACE\nqset NOPE\nqset STRING\nqlist\n")
    refused, empty = json.loads(ran.out.splitlines()[2]), json.loads(ran.out.splitlines()[4])
    assert refused["ok"] is False
    assert refused["notices"][0]["severity"] == "ERROR"
    assert "there is no queue 'NOPE'" in refused["notices"][0]["text"]
    assert empty["notices"][0]["number"] == 1401
    assert "there is no queue 'NOPE'" in ran.err
    assert "no messages matched" in ran.err


def test_csv_is_keys_and_rows_and_nothing_else_on_stdout(laid_out):
    ran = laid_out.run("format csv\nqopen QSPACE\nqinfo\nqspacelist QSPACE\nhelp qset\n")
    lines = list(csv.reader(ran.out.splitlines()))
    assert lines[0][:2] == ["queue", "messages"]
    assert [line[0] for line in lines[1:3]] == ["STRING", "errq"]
    assert lines[3][0] == "queue_space"
    assert len(lines) == 5


def test_csv_of_an_empty_table_still_has_the_keys(shell):
    shell.run(f"crdl {shell.device} 0 100\n")
    ran = shell.run("format csv\nlivtoc\n")
    assert ran.out.splitlines()[0] == "table,entry,device,offset,pages,state"


def test_echo_leaves_the_output_of_programs_alone(laid_out):
    ran = laid_out.run("format json\necho on\nqopen\nQSPACE\n")
    assert [json.loads(line)["command"] for line in ran.out.splitlines()[1:]] == ["echo", "qopen"]
    assert "> qopen\nQueue space name: QSPACE\n" in ran.err


def test_a_table_has_the_width_of_the_terminal_and_plain_has_none(laid_out):
    script = 'verbose on\nqopen QSPACE\nqcreate {long} fifo none 0 0 100% 0% ""\nverbose off\nformat {form}\nqinfo\n'
    long = "Q" * 100
    table = laid_out.process(script.format(long=long, form="table"), environ={"COLUMNS": "60"}).stdout
    plain = laid_out.process("qopen QSPACE\nformat plain\nqinfo\n", environ={"COLUMNS": "60"}).stdout
    assert "  Messages: 0" in table
    assert f"{long}         0" in plain


@pytest.mark.parametrize(
    ("form", "begin"), [("table", "Index"), ("plain", "Index"), ("json", '{"command": "lidl"'), ("csv", "index,name")]
)
def test_every_format_can_be_asked_for_at_the_start(laid_out, form, begin):
    ran = laid_out.process(None, "--format", form, "-c", "lidl", environ={"COLUMNS": "300"})
    assert ran.stdout.startswith(begin)
    assert ran.returncode == 0


def test_commands_can_stand_among_the_arguments(laid_out):
    ran = laid_out.process(None, "-c", "qopen QSPACE", "-c", "qset STRING", laid_out.device)
    assert ran.stdout == "Queue space 'QSPACE' opened\nCurrent queue is 'STRING'\n"
    assert (ran.stderr, ran.returncode) == ("", 0)


def test_answers_stand_in_the_same_argument_as_their_command(laid_out):
    ran = laid_out.process(None, "-c", "qopen\nQSPACE", "-c", "qset STRING")
    assert ran.returncode == 0
    ran = laid_out.process(None, "-c", "qopen", "-c", "QSPACE")
    assert "Input ended at the prompt 'Queue space name:' (-c 'qopen', line 1)" in ran.stderr
    assert ran.returncode == 1


def test_a_script_ends_at_its_first_error_if_that_is_asked_for(laid_out):
    script = "qopen NOPE\nqopen QSPACE\n"
    assert laid_out.process(script).stdout == "Queue space 'QSPACE' opened\n"
    stopped = laid_out.process(script, "--stop-on-error")
    assert (stopped.stdout, stopped.returncode) == ("", 1)


def test_confirmations_are_given_for_all_commands_at_once(laid_out):
    ran = laid_out.process("qopen QSPACE\nqdestroy STRING\n", "--yes")
    assert ran.stdout.endswith("Queue 'STRING' destroyed\n")
    assert ran.returncode == 0


def test_a_dry_run_says_what_would_be_hit_and_does_nothing(laid_out):
    ran = laid_out.run("qopen QSPACE\nqdestroy -n STRING\nqdestroy -y -n STRING\nqinfo STRING\n")
    assert ran.out.count("Dry run, nothing is done: Destroy queue 'STRING'\n") == 2
    assert ran.status == 0


def test_file_and_commands_exclude_each_other(laid_out):
    ran = laid_out.process(None, "-f", "x", "-c", "quit")
    assert ran.stderr.startswith("ERROR: Options -c and -f exclude each other\n")
    assert ran.returncode == 2


def test_a_shell_command_writes_nothing_among_the_data(laid_out):
    ran = laid_out.process("!echo hello\nqspacelist\n", "--format", "json")
    assert [json.loads(line)["command"] for line in ran.stdout.splitlines()] == ["!", "qspacelist"]
    assert "hello" in ran.stderr


def test_a_request_of_the_mib_is_one_document(laid_out):
    done = laid_out.process(None, "--mib", "T_APPQ", "get", "TA_APPQSPACENAME=QSPACE", laid_out.device)
    assert [found["TA_APPQNAME"] for found in json.loads(done.stdout)["objects"]] == ["STRING", "errq"]
    assert (done.stderr, done.returncode) == ("", 0)
    refused = laid_out.process(None, "--mib", "T_APPQ", "TA_APPQSPACENAME=NOPE")
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["error"]["message"]
    assert laid_out.process(None, "--mib", "T_NOTHING").returncode == 2


@pytest.mark.parametrize("name", ["a=b", "dir=x/QUE", "QUE=.db"])
def test_a_device_of_the_mib_may_have_an_equals_sign_in_its_path(laid_out, name):
    path = laid_out.directory / name
    path.parent.mkdir(exist_ok=True)
    laid_out.path.rename(path)
    request = ("--mib", "T_APPQ", "TA_APPQSPACENAME=QSPACE")
    for place in (name, str(path), f"sqlite:///{path}"):
        done = laid_out.process(None, *request, place)
        assert len(json.loads(done.stdout)["objects"]) == 2, done.stderr
    assert "has no attribute 'TAAPPQNAME'" in laid_out.process(None, *request, "TAAPPQNAME=x").stdout


def test_a_url_of_the_mib_may_have_parameters(shell):
    url = "postgresql://127.0.0.1:1/none?schema=x"
    done = shell.process(None, "--mib", "T_APPQ", "TA_APPQSPACENAME=QSPACE", url)
    assert "cannot be reached" in json.loads(done.stdout)["error"]["message"]


def test_settings_hold_where_no_option_says_otherwise(laid_out):
    file = laid_out.directory / "settings.toml"
    file.write_text('[qmadmin]\nformat = "json"\necho = true\n')
    environ = {"QMADMIN_TOML": str(file)}
    assert json.loads(laid_out.process("qopen QSPACE\n", environ=environ).stdout)["ok"]
    assert laid_out.process("qopen QSPACE\n", "--format", "plain", environ=environ).stdout.startswith(
        "> qopen QSPACE\n"
    )
    file.write_text('[qmadmin]\nformat = "xml"\n')
    refused = laid_out.process("qopen QSPACE\n", environ=environ)
    assert refused.returncode == 2
    assert "format" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("body", ["a\rb", "a\nb", "a\r\nb", 'a,"b"', "\r", ""])
def test_csv_keeps_what_has_ends_of_lines_or_commas_in_it(laid_out, body):
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as space:
        space.enqueue("STRING", body, headers={"a": "b\r\n"})
    ran = laid_out.run("format csv\nqopen QSPACE\nqpeek STRING\n")
    *_, keys, row = csv.reader(io.StringIO(ran.out, newline=""))
    assert len(keys) == len(row)
    assert row[keys.index("body")] == body


def test_csv_has_truth_as_json_has_it(laid_out):
    ran = laid_out.run("format csv\nqopen QSPACE\nqinfo STRING\n")
    *_, keys, row = csv.reader(ran.out.splitlines())
    assert row[keys.index("enqueue_enabled")] == "true"


def test_what_would_be_refused_is_refused_in_a_dry_run_and_before_anybody_is_asked(laid_out):
    laid_out.run("qopen QSPACE\nqput STRING x\n")
    holds = "ERROR: QMEINUSE: queue 'STRING' holds 1 message (crque, line 2)\n"
    for refused in ("qdestroy -n STRING", "qdestroy STRING\ny"):
        ran = laid_out.run(f"qopen QSPACE\n{refused}\n")
        assert ran.err.startswith(holds)
        assert "Dry run" not in ran.out
    ran = laid_out.run(
        "qopen QSPACE\nqspacedestroy -n QSPACE\nqdestroy -n -p STRING\nqspds -n -f QSPACE\ndsdl -n 0\nqinfo\n"
    )
    assert "queue space 'QSPACE' holds 1 message (crque, line 2)" in ran.err
    assert "is in use by queue space 'QSPACE' (crque, line 5)" in ran.err
    assert ran.out.count("Dry run, nothing is done: ") == 2
    assert ran.out.endswith(
        "STRING         1      1        0     0      1      1       0\n"
        "errq           0      0        0     0      0      0       0\n"
    )
