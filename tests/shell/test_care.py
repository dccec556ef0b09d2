"""The commands that look after a device and its queue spaces, while other processes work."""

import json
import os
from pathlib import Path

import pytest

from qmadmin.opening import open_device
from qmadmin.shell.lines import Script

HOLD = """
device = open_device(sys.argv[1])
space = device.open_space("QSPACE")
transaction = space.transaction()
transaction.join_context()
for text in ("one", "two"):
    space.enqueue("STRING", text, transactional=False)
    space.dequeue("STRING")
say("holds")
heard()
try:
    transaction.commit()
    say("committed")
except AbortedError:
    say("aborted")
heard()
"""


@pytest.fixture
def held(laid_out, start):
    """A process that has two messages in a transaction."""
    child = start(HOLD, laid_out.device)
    child.expect("holds")
    return child


def rows(shell, *commands):
    """Return the rows of the last of some commands, as programs get them."""
    ran = shell.process(None, "--format", "json", *(word for command in commands for word in ("-c", command)))
    return json.loads(ran.stdout.splitlines()[-1])


class TestTransactions:
    def test_they_are_listed_with_their_owner_and_what_they_hold(self, laid_out, held):
        ran = laid_out.run("qopen QSPACE\nqprinttrans\n")
        title, line = ran.out.splitlines()[1:]
        assert title.split() == [
            "Index", "Transaction", "State", "Since", "Owner", "Process", "Host", "Alive", "Dequeued", "Locked",
            "Enqueued", "Age", "(s)", "Xid", "Prepared", "Whose", "Ended", "Ended", "by",
            "Suspended", "Decider", "Reached", "Decided",
        ]  # fmt: skip
        words = line.split()
        assert words[12:] == ["-"] * 9
        assert (words[0], words[2], words[4:11]) == (
            "0",
            "active",
            ["application", str(held.pid), os.uname().nodename, "yes", "2", "0", "0"],
        )

    def test_programs_get_the_same(self, laid_out, held):
        document = rows(laid_out, "qopen QSPACE", "qpt")
        (row,) = document["rows"]
        assert (row["index"], row["pid"], row["dequeued"], row["alive"]) == (0, held.pid, 2, "yes")

    def test_one_is_rolled_back_by_its_index_and_its_process_finds_out(self, laid_out, held):
        ran = laid_out.type("qopen QSPACE\nqpt\nqaborttrans\n0\ny\nqpt\nqset STRING\nqlist\n")
        assert f"of application {held.pid} on {os.uname().nodename} with 2 messages? (y, n [default=n]): y" in ran.both
        assert "Transaction 0 rolled back\n" in ran.both
        assert "INFO: Queue space 'QSPACE' has no outstanding transactions" in ran.both
        assert ran.out.count(" ready ") == 2
        held.say()
        held.expect("aborted")

    @pytest.mark.parametrize(
        "command",
        [
            "qset STRING\nqscan -m {}\nqdeletemsg -y",
            "qset STRING\nqscan -m {}\nqchangeprio -y 5",
            "qset STRING\nqscan -m {}\nqchangequeue -y errq",
            "qpurge -y -m {} STRING",
            "qrequeue -y -m {} STRING",
            "qunpark -y -m {} STRING",
            "qget -m {} STRING",
        ],
    )
    def test_a_message_that_it_holds_is_in_use_for_who_names_it(self, laid_out, held, command):
        with open_device(laid_out.device) as device, device.open_space("QSPACE") as space:
            msgid = next(space.messages("STRING")).msgid
        ran = laid_out.run(f"qopen QSPACE\n{command.format(msgid)}\n")
        assert ran.err.startswith(f"ERROR: QMEINUSE: a transaction holds message {msgid} of queue 'STRING'")
        assert ran.status == 1

    def test_it_is_not_rolled_back_where_the_answer_is_no_or_in_a_dry_run(self, laid_out, held):
        ran = laid_out.run("qopen QSPACE\nqpt\nqabort 0\nn\nqabort -n 0\n")
        assert "WARN: Transaction not rolled back" in ran.err
        assert "Dry run, nothing is done: Roll back transaction 0 (" in ran.out
        held.say()
        held.expect("committed")

    def test_an_active_one_is_not_committed_for_its_process(self, laid_out, held):
        ran = laid_out.run("qopen QSPACE\nqpt\nqcommit -y 0\n")
        assert "is active and not prepared; only its own process can commit it" in ran.err
        assert ran.status == 1
        held.say()
        held.expect("committed")

    @pytest.mark.parametrize("command", ["qabort", "qcommit"])
    def test_one_that_has_ended_meanwhile_is_told(self, laid_out, held, command):
        class Late(Script):
            """Lets the transaction end between the list and the command that means it."""

            def command(self):
                line = super().command()
                if line and line.startswith(command):
                    held.say()
                    held.expect("committed")
                return line

        ran = laid_out.run(f"qopen QSPACE\nqpt\n{command} -y 0\n", dialogue=Late)
        assert "ERROR: Transaction 0 (" in ran.err
        assert ") has ended meanwhile" in ran.err

    def test_indexes_are_forgotten_with_the_queue_space(self, laid_out, held):
        ran = laid_out.run("qopen QSPACE\nqpt\nqopen QSPACE\nqabort -y 0\n")
        assert "The last list of transactions has no index 0" in ran.err


class TestResources:
    @pytest.fixture
    def shell(self, shell, memory_dir):
        shell.environ["QM_SHM_DIR"] = str(memory_dir)
        return shell

    @pytest.fixture
    def in_memory(self, shell):
        """A queue space with a message in its memory."""
        shell.run(
            f"crdl {shell.device} 0 2000\n"
            "qspacecreate -n 100B QSPACE 54320 200 5 10 10 100 errq n 16\n"
            'qopen QSPACE\nqcreate -d nonpersist STRING fifo none 2 0 100% 0% ""\nqput STRING x\n'
        )
        return shell

    def test_processes_and_memory_are_listed(self, in_memory):
        found = rows(in_memory, "ipcs QSPACE")["rows"]
        assert [row["kind"] for row in found] == ["memory"] * len(found)
        assert all(Path(row["name"]).exists() for row in found if row["name"].endswith("memory"))
        found = rows(in_memory, "qopen QSPACE", "ipcs QSPACE")["rows"]
        assert (found[0]["kind"], found[0]["name"], found[0]["state"]) == ("process", "qmadmin", "alive")

    def test_a_queue_space_that_nobody_uses_has_none(self, laid_out):
        ran = laid_out.run("ipcs QSPACE\n")
        assert (ran.out, ran.err) == ("", "INFO: Queue space 'QSPACE' has no attached processes and no memory\n")

    def test_memory_is_removed_with_its_messages(self, in_memory):
        ran = in_memory.type("qopen QSPACE\nipcrm QSPACE\ny\nqclose\nqopen QSPACE\nqset STRING\nqlist\n")
        assert "with 4096 bytes of non-persistent messages? (y, n [default=n]): y" in ran.both
        assert "Memory of queue space 'QSPACE' removed\n> qclose\nERROR: No queue space is open" in ran.both
        assert "no messages matched" in ran.both

    def test_it_is_refused_while_another_process_is_attached_and_forced(self, in_memory, start):
        child = start(
            "device = open_device(sys.argv[1])\nspace = device.open_space('QSPACE')\nsay('open')\nheard()\n",
            in_memory.device,
        )
        child.expect("open")
        ran = in_memory.run("ipcrm -y QSPACE\n")
        assert ran.err.startswith("ERROR: ipcrm - processes attached to queue space QSPACE: QMEINUSE:")
        assert f"application {child.pid}" in ran.err
        assert rows(in_memory, "ipcrm -y QSPACE")["notices"][0]["number"] == 1422
        assert in_memory.run("ipcrm -f -y QSPACE\n").out == "Memory of queue space 'QSPACE' removed\n"


class TestDoctor:
    def test_in_verbose_mode_what_is_in_order_is_told_too(self, laid_out):
        assert laid_out.run("qcheck\n").out == "No problems found\n"
        told = laid_out.run("verbose on\nqcheck\n").out.splitlines()
        well = [line.split("  ") for line in told if line.startswith("ok ")]
        assert [words[0] for words in well] == ["ok"] * 3
        assert "queue space QSPACE" in " ".join(well[1])

    def test_findings_are_told_as_prose_at_a_terminal(self, laid_out):
        with open_device(laid_out.device) as device:
            device.open_space("QSPACE").destroy_queue("errq")
        told = laid_out.run("format table\nqcheck\n").out
        assert "  error: queue space QSPACE\n      Its error queue 'errq' does not exist: " in told

    def test_programs_get_everything_and_a_status(self, laid_out):
        document = rows(laid_out, "qcheck")
        assert {row["severity"] for row in document["rows"]} == {"ok"}
        with open_device(laid_out.device) as device:
            device.open_space("QSPACE").destroy_queue("errq")
        ran = laid_out.process(None, "-c", "qcheck", "--format", "json")
        document = json.loads(ran.stdout)
        assert (ran.returncode, document["ok"]) == (1, False)
        assert [(row["severity"], row["check"]) for row in document["rows"]][1] == ("error", "error-queue-missing")
        assert document["said"] == ["1 error, 0 warnings"]


class TestBackups:
    def test_a_device_that_others_have_open_is_not_replaced(self, laid_out, held, tmp_path):
        ran = laid_out.run(f"qbackup {tmp_path}/B\nqrestore -y -f {tmp_path}/B {laid_out.device}\nqopen QSPACE\nqpt\n")
        assert "QMEINUSE: queue space 'QSPACE' of device" in ran.err
        assert f"application {held.pid}" in ran.err
        assert "Queue space 'QSPACE' opened" in ran.out
        with open_device(laid_out.device) as device:
            assert device.audited(1)[0].outcome.startswith("ERROR: queue space 'QSPACE' of device")
        held.say()
        held.expect("committed")

    def test_the_restored_device_records_where_it_comes_from(self, laid_out, tmp_path):
        laid_out.run(f"qbackup {tmp_path}/B\nqrestore -y {tmp_path}/B {tmp_path}/NEW\n")
        with open_device(tmp_path / "NEW") as device:
            (entry,) = device.audited()
        assert (entry.command, entry.target) == (f"qrestore -y {tmp_path}/B {tmp_path}/NEW", f"device {tmp_path}/NEW")
        assert entry.outcome.startswith("restored from the backup made at ")

    def test_the_commands_that_a_backup_brings_are_named(self, laid_out, tmp_path):
        laid_out.run("qopen QSPACE\nqcreate FULL fifo none 2 0 2m 0m 'id >who'\n")
        ran = laid_out.run(f"qbackup {tmp_path}/B\nqrestore -y {tmp_path}/B {tmp_path}/NEW\n")
        assert "WARN: Queue 'FULL' of queue space 'QSPACE' has the capacity command 'id >who'" in ran.err

    def test_they_are_named_before_anything_is_restored(self, laid_out, tmp_path):
        ran = laid_out.run(f"qbackup {tmp_path}/B\nqrestore -n {tmp_path}/B {tmp_path}/NEW\n")
        assert "capacity command" not in ran.both
        laid_out.run(
            "qopen QSPACE\nqcreate FULL fifo none 2 0 2m 0m 'id >who'\n"
            "qcreate -n 80%,0%,id M fifo none 2 0 2m 0m 'id >who'\n"
        )
        ran = laid_out.run(f"qbackup {tmp_path}/C\nqrestore -n {tmp_path}/C {tmp_path}/NEW\n")
        told = ", and with the capacity commands 'id >who', 'id'\n"
        assert ran.out.endswith(told), ran.both
        ran = laid_out.type(f"qrestore {tmp_path}/C {tmp_path}/NEW\nn\n")
        assert f"{told.strip()}? (y, n [default=n]): " in ran.both
        assert not (tmp_path / "NEW").exists()

    def test_those_of_a_file_that_cannot_be_read_are_left_to_its_refusal(self, laid_out, tmp_path):
        laid_out.run(f"qbackup {tmp_path}/B\n")
        (tmp_path / "B" / "device").write_text("no device")
        ran = laid_out.run(f"qrestore -n {tmp_path}/B {tmp_path}/NEW\nqrestore -y {tmp_path}/B {tmp_path}/NEW\n")
        assert ran.out.startswith("Dry run, nothing is done: Make device")
        assert ran.err.count("ERROR: ") == 1
        assert not (tmp_path / "NEW").exists()

    def test_programs_get_what_is_in_it(self, laid_out, tmp_path):
        (row,) = rows(laid_out, f"qbackup {tmp_path}/B")["rows"]
        assert (row["path"], row["device"], row["files"], row["queue_spaces"]) == (
            f"{tmp_path}/B",
            laid_out.device,
            1,
            1,
        )


class TestAudit:
    @pytest.fixture
    def audited(self, laid_out):
        with open_device(laid_out.device) as device:
            first = device.audit("qdestroy -f q1", "queue QSPACE/q1")
            device.audit_outcome(first, "Queue 'q1' destroyed")
            device.audit("qspacedestroy -y QSPACE", "queue space QSPACE")
        return laid_out

    def test_commands_are_listed_the_newest_first(self, audited):
        found = rows(audited, "qaudit")["rows"]
        assert [(row["command"], row["object"], row["outcome"]) for row in found] == [
            ("qspacedestroy -y QSPACE", "queue space QSPACE", None),
            ("qdestroy -f q1", "queue QSPACE/q1", "Queue 'q1' destroyed"),
        ]
        assert (found[0]["pid"], found[0]["uid"]) == (os.getpid(), os.getuid())

    def test_a_count_limits_them(self, audited):
        assert [row["command"] for row in rows(audited, "qaudit 1")["rows"]] == ["qspacedestroy -y QSPACE"]
        assert len(audited.run("qaudit 1\n").out.splitlines()) == 2

    def test_a_device_without_any_says_so(self, laid_out):
        ran = laid_out.run("qaudit\n")
        assert (ran.out, ran.err) == ("", f"INFO: No destructive acts are recorded on device '{laid_out.device}'\n")
