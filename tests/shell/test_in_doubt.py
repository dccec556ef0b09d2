"""The commands on prepared branches whose coordinator was killed: what is shown, asked, done and refused."""

import json
import os
import re

import pytest

from qmadmin import open_device
from qmcore.errors import AbortedError

TEXT = "7:6f72646572:31"
COORDINATOR = """
device = open_device(sys.argv[1])
space = device.open_space("QSPACE", role="transfers")
space.enqueue("STRING", "request")
space.tpc_begin((7, "order", "1"))
space.dequeue("STRING")
space.enqueue("errq", "reply")
space.tpc_prepare()
say("prepared")
heard()
"""


@pytest.fixture
def killed(laid_out, start):
    """A shell on a device with the prepared branch of a coordinator that was killed; its process number."""
    child = start(COORDINATOR, laid_out.device)
    child.expect("prepared")
    child.kill()
    return child.pid


def normal(text):
    """Return an output with its times, processes, machines and identifiers made alike."""
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d ?[+-]\d{4}", "TIME", text)
    text = re.sub(rf"\b(\w+) \d+ on {re.escape(os.uname().nodename)}", r"\1 PID on HOST", text)
    text = re.sub(r"\b\w+ \(qmadmin PID on HOST\)", "USER (qmadmin PID on HOST)", text)
    return re.sub(r"(?m)^( +\d+  )[0-9a-f]{16}\b", r"\1IDENTIFIER", text)


def documents(shell, *commands):
    ran = shell.process(None, "--format", "json", *(word for command in commands for word in ("-c", command)))
    return [json.loads(line) for line in ran.stdout.splitlines()]


def listed(shell):
    return documents(shell, "qopen QSPACE", "qprinttrans")[-1]["rows"]


def test_a_transcript(laid_out, killed):
    ran = laid_out.type(
        "qopen QSPACE\nqpt\nqcommittrans\n0\nn\nqcommittrans 0\ny\nqaborttrans -y 0\n"
        f"qforgettrans {TEXT}\ny\nqpt\nqset errq\nqlist\n"
    )
    shown = normal(ran.both)
    question = (
        f"Commit transaction 0 ({TEXT}) of transfers PID on HOST, prepared TIME, with 2 messages, without the decision"
        " of its coordinator, which may be the opposite? (y, n [default=n]): "
    )
    assert shown.count(question) == 2
    assert f"Transaction index: 0\n{question}n\nWARN: Transaction not committed\n" in shown
    assert f"> qcommittrans 0\n{question}y\nTransaction 0 committed heuristically\n" in shown
    assert (
        f"ERROR: QMEPROTO: transaction {TEXT} of queue space 'QSPACE' was committed heuristically by USER (qmadmin PID"
        " on HOST), TIME\n"
    ) in shown
    assert (
        f"> qforgettrans {TEXT}\nForget that transaction 0 ({TEXT}) was committed by USER (qmadmin PID on HOST), TIME;"
        f" its coordinator will not learn it? (y, n [default=n]): y\nTransaction {TEXT} forgotten\n"
    ) in shown
    assert "INFO: Queue space 'QSPACE' has no outstanding transactions\n" in shown
    assert shown.count(" ready ") == 1


def test_it_is_listed_for_scripts_on_one_line(laid_out, killed):
    ran = laid_out.run(f"qopen QSPACE\nqpt\nqabort -y {TEXT}\nqpt\n")
    title, before, done, _, after = normal(ran.out).splitlines()[1:]
    assert title.split()[:4] == ["Index", "Transaction", "State", "Since"]
    assert re.fullmatch(
        rf' +0  IDENTIFIER +prepared +TIME +- +- +- +no +1 +0 +1 +\d+ +{TEXT} +TIME +"transfers PID on HOST"( +-){{6}}',
        before,
    )
    assert done == f"Transaction {TEXT} rolled back heuristically"
    assert re.fullmatch(
        rf' +0  IDENTIFIER +"heuristic rollback" +TIME +- +- +- +no +0 +0 +0 +\d+ +{TEXT} +TIME'
        r' +"transfers PID on HOST" +TIME +"USER \(qmadmin PID on HOST\)"( +-){4}',
        after,
    )


def test_programs_get_all_of_it(laid_out, killed):
    (row,) = listed(laid_out)
    assert (row["index"], row["state"], row["xid"], row["pid"], row["alive"]) == (0, "prepared", TEXT, None, "no")
    assert (row["dequeued"], row["locked"], row["enqueued"], row["ended"], row["ended_by"]) == (1, 0, 1, None, None)
    assert row["whose"] == f"transfers {killed} on {os.uname().nodename}"
    assert (row["prepared"] >= row["since"], row["age"] >= 0) == (True, True)
    done = documents(laid_out, "qopen QSPACE", f"qcommittrans -y {row['transaction']}", f"qaborttrans -y {TEXT}")
    assert (done[1]["ok"], done[1]["rows"]) == (True, [{"transaction": row["transaction"]}])
    assert (done[2]["ok"], done[2]["rows"]) == (False, [])
    (row,) = listed(laid_out)
    assert (row["state"], row["enqueued"], row["ended"] > row["prepared"]) == ("heuristic commit", 0, True)
    assert "(qmadmin " in row["ended_by"]
    ran = laid_out.process(None, "--format", "csv", "-c", "qopen QSPACE", "-c", "qpt")
    assert ran.stdout.splitlines()[-1].split(",")[-9] == TEXT


def test_on_a_narrow_terminal_it_is_a_block_with_all_of_its_xid(laid_out, killed, monkeypatch):
    laid_out.environ["COLUMNS"] = "60"
    lines = laid_out.process("qopen QSPACE\nformat table\nqpt\n").stdout.splitlines()
    assert max(map(len, lines)) <= 60
    assert f"Xid: {TEXT}" in "\n".join(lines)


@pytest.mark.parametrize("command", ["qcommittrans", "qaborttrans", "qforgettrans"])
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("7", "The last list of transactions has no index 7"),
        ("99999999999999999999999", "The last list of transactions has no index 99999999999999999999999"),
        ("0123456789abcdef", "queue space 'QSPACE' has no transaction 0123456789abcdef; it may have ended"),
        ("7:6f:", "queue space 'QSPACE' has no transaction 7:6f:; it may have ended"),
        ("7:zz:", "'7:zz:' is not the text of an xid"),
        (f"7:{'00' * 65}:", "identifier of an xid has 1 to 64 bytes, got 65"),
        ("order", "must be an index, an identifier of 16 hexadecimal digits, or an xid: 'order'"),
        ("-- -1", "must be an index, an identifier of 16 hexadecimal digits, or an xid: '-1'"),
    ],
)
def test_what_names_no_transaction_is_refused_and_nothing_is_done(laid_out, killed, command, wrong, said):
    ran = laid_out.run(f"qopen QSPACE\nqpt\n{command} -y {wrong}\n")
    assert said in ran.err
    assert (ran.status, [row["state"] for row in listed(laid_out)]) == (1, ["prepared"])


def test_one_of_another_queue_space_is_not_found(laid_out, killed):
    ran = laid_out.run(f"qspacecreate OTHER 54321 20 3 3 3 12 errq n 16\nqopen OTHER\nqcommittrans -y {TEXT}\n")
    assert f"queue space 'OTHER' has no transaction {TEXT}; it may have ended" in ran.err


def test_what_was_not_ended_heuristically_is_not_forgotten(laid_out, killed):
    ran = laid_out.run("qopen QSPACE\nqpt\nqforgettrans -y 0\n")
    assert f"ERROR: Transaction 0 ({TEXT}) is prepared, and was not ended heuristically" in ran.err
    assert [row["state"] for row in listed(laid_out)] == ["prepared"]


def test_a_dry_run_says_what_it_would_mean(laid_out, killed):
    ran = laid_out.run("qopen QSPACE\nqpt\nqaborttrans -n 0\n")
    assert f"Dry run, nothing is done: Roll back transaction 0 ({TEXT}) of transfers" in ran.out
    assert "without the decision of its coordinator, which may be the opposite" in ran.out
    assert [row["state"] for row in listed(laid_out)] == ["prepared"]


@pytest.mark.parametrize("command", ["qcommittrans", "qaborttrans"])
def test_nobody_is_asked_to_confirm_what_is_refused(laid_out, killed, command):
    ran = laid_out.type(f"qopen QSPACE\nqaborttrans -y {TEXT}\n{command} {TEXT}\n{command} -n {TEXT}\nqpt\n")
    shown = normal(ran.both)
    refusal = f"ERROR: QMEPROTO: transaction {TEXT} of queue space 'QSPACE' was rolled back heuristically by USER"
    assert f"> {command} {TEXT}\n{refusal}" in shown
    assert f"> {command} -n {TEXT}\n{refusal}" in shown
    assert "[default=n]" not in shown


def test_nobody_is_asked_to_confirm_the_commit_of_an_active_one(laid_out):
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as space:
        space.tpc_begin(TEXT)
        space.enqueue("STRING", "x")
        ran = laid_out.type(f"qopen QSPACE\nqcommittrans {TEXT}\nqaborttrans {TEXT}\ny\n")
        assert f"> qcommittrans {TEXT}\nERROR: QMEPROTO: transaction {TEXT} is active and not prepared" in ran.both
        assert f"{TEXT} rolled back\n" in ran.both
        with pytest.raises(AbortedError):
            space.tpc_prepare()


def test_its_queue_space_is_destroyed_only_by_force(laid_out, killed):
    ran = laid_out.run("qspacedestroy -n QSPACE\nqspacedestroy -y QSPACE\n")
    assert (
        ran.err.count(f"prepared transaction {TEXT} of queue space 'QSPACE' has messages, which its destruction") == 2
    )
    assert laid_out.run("qspacedestroy -f -y QSPACE\n").status == 0


def test_its_memory_is_removed_only_by_force(shell, start, memory_dir):
    shell.environ["QM_SHM_DIR"] = str(memory_dir)
    shell.run(
        f"crdl {shell.device} 0 2000\nqspacecreate -n 100B QSPACE 54320 200 5 10 10 100 errq n 16\nqopen QSPACE\n"
        'qcreate -d nonpersist STRING fifo none 2 0 100% 0% ""\nqcreate errq fifo none 2 0 100% 0% ""\n'
    )
    child = start(COORDINATOR, shell.device)
    child.expect("prepared")
    child.kill()
    # The memory of a process that was killed is the same; whoever opens the queue space cleans up after it.
    shell.run("qopen QSPACE\n")
    ran = shell.run("ipcrm -y QSPACE\n")
    assert ran.err.startswith(
        f"ERROR: QMEINUSE: prepared transaction {TEXT} of queue space 'QSPACE' has messages, which"
    )
    assert shell.run("ipcrm -f -y QSPACE\n").out == "Memory of queue space 'QSPACE' removed\n"
    shell.run(f"qopen QSPACE\nqabort -y {TEXT}\n")
    with open_device(shell.device) as device:
        assert device.audited(1)[0].outcome == (
            "rolled back heuristically with 1 message; 1 non-persistent message had been lost with the memory"
        )
