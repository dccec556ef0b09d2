"""Queue spaces: created, opened, closed and destroyed by scripts."""

import pytest

from qmadmin import open_device


def test_current_queue_is_forgotten_when_a_queue_space_is_opened(laid_out):
    ran = laid_out.run("qopen QSPACE\nqset STRING\nqopen QSPACE\nqset\n")
    assert ran.err == "ERROR: No current queue is set (crque, line 4)\n"


def test_failed_open_leaves_no_queue_space_open(laid_out):
    ran = laid_out.run("qopen QSPACE\nqopen NOPE\nqinfo\n")
    assert ran.err.splitlines() == [
        (
            f"ERROR: xa_open - failed to open table NOPE.0 on config {laid_out.device}: QMEBADRMID: there is no queue"
            " space 'NOPE' on the device (crque, line 2)"
        ),
        "ERROR: No queue space is open (crque, line 3)",
    ]


def test_error_queue_that_is_not_created_is_warned_about(shell):
    shell.run(
        f"crdl {shell.device} 0 2000\nqspacecreate S 54320 200 5 10 10 100 errq n 16\n",
    )
    warning = "WARN: error queue 'errq' of queue space 'S' does not exist: messages out of retries will be lost"
    assert shell.run("qopen S\nqinfo\n").err.splitlines()[:2] == [
        f"{warning} (crque, line 1)",
        f"{warning} (crque, line 2)",
    ]
    assert shell.run("qopen S\nqcreate errq fifo none 0 0 100% 0% ''\nqinfo\n").err.count("WARN") == 1
    assert shell.run("qopen S\nqinfo\n").err == ""


@pytest.mark.parametrize("key", [1, 22839, 32768, 262143])
def test_ipc_key_out_of_range_is_warned_about_and_taken(shell, key):
    ran = shell.run(f"crdl {shell.device} 0 2000\nqspacecreate S {key} 200 5 10 10 100 errq n 16\n")
    assert ran.err == f"WARN: IPC key {key} of queue space 'S' is outside 32769..262142 (crque, line 2)\n"
    assert ran.status == 0


@pytest.mark.parametrize("key", [32769, 262142])
def test_ipc_key_in_range_is_not_warned_about(shell, key):
    ran = shell.run(f"crdl {shell.device} 0 2000\nqspacecreate S {key} 200 5 10 10 100 errq n 16\n")
    assert ran.err == ""


def test_pages_are_rounded_down_to_a_multiple_of_four_and_this_is_told(shell):
    ran = shell.run(f"crdl {shell.device} 0 2000\nqspacecreate S 54320 50 5 10 10 100 '' n 16\nqspacelist\n\n")
    assert "INFO: 50 pages are rounded down to 48\n" in ran.err
    with open_device(shell.device) as device:
        assert device.space("S").definition.pages == 48


@pytest.mark.parametrize(
    ("memory", "expected"), [("2", 8192), ("2B", 8192), ("8192b", 8192), ("8191b", 4096), ("4095b", 0), ("0", 0)]
)
def test_memory_is_in_blocks_or_in_bytes_rounded_down_to_pages(shell, memory, expected):
    shell.run(f"crdl {shell.device} 0 2000\nqspacecreate -n {memory} S 54320 52 5 10 10 100 '' n 16\n")
    with open_device(shell.device) as device:
        assert device.space("S").definition.memory == expected


def test_options_without_effect_are_recorded_and_told(shell):
    ran = shell.run(
        f"crdl {shell.device} 0 2000\n"
        "qspacecreate -A 7 -o 100 -H 1 -C 2 -O 3 -Q 4 -f 5 S 54320 52 5 10 10 100 '' y 32\n"
    )
    assert ran.err == "INFO: -o, -H, -C, -O, -Q, -f: recorded, but without effect\n"
    with open_device(shell.device) as device:
        d = device.space("S").definition
    assert (d.actions, d.overflow, d.handles, d.cursors, d.owners, d.temporary_queues, d.filter_memory, d.blocking) == (
        *(7, 100, 1, 2, 3, 4, 5),
        32,
    )


def test_verbose_shows_a_dot_for_each_five_percent_that_is_initialized(shell):
    ran = shell.run(f"crdl {shell.device} 0 20000\nverbose\nqspacecreate S 54320 16000 5 10 10 100 '' y 16\n")
    assert ran.out.endswith(f"\n{'.' * 20}\nQueue space 'S' created\n")
    quiet = shell.run("qspacecreate S2 54321 1000 5 10 10 100 '' y 16\n")
    assert quiet.out == "Queue space 'S2' created\n"


def test_name_of_a_queue_space_that_is_too_long_is_message_1508(shell):
    ran = shell.run(f"crdl {shell.device} 0 2000\nqspacecreate ABCDEFGHIJKLMNOP 54320 52 5 10 10 100 '' n 16\n")
    assert ran.err == (
        "ERROR: Queue space name length must be less than 16 characters: the queue space name 'ABCDEFGHIJKLMNOP' has 16"
        " bytes, the limit is 15 (crque, line 2)\n"
    )


def test_opening_another_queue_space_closes_the_one_that_is_open(laid_out):
    laid_out.run("qspacecreate B 54321 100 5 10 10 100 '' n 16\n")
    ran = laid_out.run("qopen QSPACE\nqopen QSPACE\nqopen B\nqclose\nqopen NOPE\nqclose\n")
    assert ran.out.splitlines() == [
        "Queue space 'QSPACE' opened",
        "Queue space 'QSPACE' opened",
        "Queue space 'QSPACE' closed",
        "Queue space 'B' opened",
        "Queue space 'B' closed",
    ]
    assert ran.err.endswith("ERROR: No queue space is open (crque, line 6)\n")


def test_declined_destruction_of_a_queue_space_leaves_it_open(laid_out):
    ran = laid_out.run("qopen QSPACE\nqspacedestroy QSPACE\nno\nqset STRING\n")
    assert ran.err == "WARN: Queue space 'QSPACE' not destroyed (crque, line 2)\n"
    assert ran.status == 0
    laid_out.run("qopen QSPACE\nqdestroy -y STRING\nqdestroy -y errq\n")
    ran = laid_out.run("echo\nqspacecreate B 54321 100 5 10 10 100 '' n 16\nqopen B\nqspds QSPACE\ny\nqinfo\n")
    assert "> qspds QSPACE\nDestroy queue space 'QSPACE'? (y, n [default=n]): y\n" in ran.out
    assert ran.err == "INFO: queue space 'B' has no queues\n"


def test_queue_space_that_does_not_exist_is_named_with_what_was_tried(laid_out):
    ran = laid_out.run("qspacedestroy -y NOPE\nqspacelist NOPE\n")
    missing = "QMEBADRMID: there is no queue space 'NOPE' on the device"
    table = f"Destroy queue space - failed to open table NOPE.0 on config {laid_out.device}"
    assert ran.err == f"ERROR: {table}: {missing} (crque, line 1)\nERROR: {missing} (crque, line 2)\n"


def test_queue_space_that_is_in_use_is_not_called_missing(laid_out):
    with open_device(laid_out.device) as device, device.open_space("QSPACE"):
        ran = laid_out.run("qspacedestroy -y QSPACE\n")
    assert ran.err.startswith("ERROR: QMEINUSE: queue space 'QSPACE' has 1 attached process: application ")


def test_queue_space_is_destroyed_and_closed_before(laid_out):
    ran = laid_out.run("qopen QSPACE\nqspacedestroy -y QSPACE\nqinfo\nqspacelist\n\nlivtoc\n")
    assert "Queue space 'QSPACE' destroyed\n" in ran.out
    assert "ERROR: No queue space is open (crque, line 3)\n" in ran.err
    assert "has no queue space\n" in ran.err
    assert "QSPACE.0" not in ran.out


def test_queue_space_with_messages_is_destroyed_only_by_force(laid_out):
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as space:
        space.enqueue("STRING", b"x")
    assert "QMEINUSE" in laid_out.run("qspds -y QSPACE\n").err
    ran = laid_out.run("echo\nqspds -f QSPACE\ny\n")
    assert "Destroy queue space 'QSPACE' with 2 queues and 1 message? (y, n [default=n]): y\n" in ran.out
    assert ran.status == 0


def test_empty_answers_to_qspacecreate_take_its_defaults_and_say_so(shell):
    ran = shell.run(f"crdl {shell.device} 0 2000\necho\nqspacecreate S 54320 200 5 10 10 100\n\n\n\n")
    assert ran.out.endswith(
        """\
Error queue name:
No default error queue name: messages that are out of retries will be lost
Initialize extents (y, n [default=n]):
Blocking factor [default=16]:
Default blocking factor is 16
Queue space 'S' created
"""
    )
    with open_device(shell.device) as device:
        space = device.space("S")
    assert (space.definition.error_queue, space.definition.blocking, space.initialized) == ("", 16, False)


class TestLostFile:
    """The file of a queue space is gone, and its administrator knows that it never comes back."""

    @pytest.fixture
    def lost(self, shell):
        """A shell on a device whose second file, with the queue space THERE, is gone."""
        second = shell.directory / "SECOND"
        script = (
            f"crdl {shell.device} 0 2000\ncrdl {second} 0 9000\nqspacecreate THERE 54320 8000 5 10 10 100 '' n 16\n"
        )
        assert shell.run(script).status == 0
        second.unlink()
        return shell

    def test_the_way_out_is_told_wherever_one_looks(self, lost):
        ran = lost.type("qspacelist\n\nqcheck\nqspacedestroy THERE\ndsdl 1\n")
        way = "give up its queue spaces with qspacedestroy -L, and then its entry with dsdl."
        assert ran.both.count(way) >= 3, ran.both
        assert "Destroy the queue space with qspacedestroy first." in ran.both
        assert "(y, n" not in ran.both, "what is refused asks nothing"

    def test_another_file_is_taken_by_chdl_only_after_it_was_said_what_that_means(self, lost):
        second, new = lost.directory / "SECOND", lost.directory / "NEW"
        new.touch()
        ran = lost.run(f"chdl 1 {new}\n")
        assert ran.status == 1
        assert f"'{new}' is empty" in ran.err
        assert "force it: chdl -f." in lost.type(f"chdl 1 {new}\n").both
        assert "(y, n" not in ran.both, "what is refused asks nothing"
        does = f"Rename device list entry 1, {second}, to {new}"
        assert lost.run(f"chdl -n 1 {new}\n").out == f"Dry run, nothing is done: {does}\n"
        question = (
            f"{does}, and make a new volume there: the queue spaces of the entry are gone, and are created again or"
        )
        question += " given up"
        assert lost.run(f"chdl -n -f 1 {new}\n").out == f"Dry run, nothing is done: {question}\n"
        assert new.stat().st_size == 0
        ran = lost.type(f"chdl -f 1 {new}\nn\nchdl -f 1 {new}\ny\nlidl 1\nqcheck\n")
        assert ran.both.count(f"{question}? (y, n [default=n]): ") == 2
        assert "Device list entry 1 not renamed" in ran.both
        assert f"Renamed device {second} to {new}, entry 1" in ran.both
        assert "qspacedestroy" in ran.both, "its queue space is to be created again or given up"
        assert lost.run(f"chdl -f -y 1 {new}\nqspacedestroy -y THERE\nqcheck\n").status == 0

    def test_a_person_is_told_once_that_a_file_is_missing(self, lost, terminal):
        screen = terminal(columns=200)
        screen.at_prompt()
        for _ in range(2):
            screen.send("qspacelist\r")
            screen.at_prompt("Queue space name: ")
            screen.enter("")
        assert screen.shown.count("WARN: ") == 1

    def test_it_is_confirmed_given_up_and_its_entry_removed(self, lost):
        second = lost.directory / "SECOND"
        reason = f"there is no device '{second}', though the device list of '{lost.device}' names it"
        question = f"Give up queue space 'THERE' with all that it held, because {reason}"
        assert question in lost.run("qspacedestroy -L THERE\n").err
        assert lost.run("qspacedestroy -n -L THERE\n").out == f"Dry run, nothing is done: {question}\n"
        ran = lost.type("qspacedestroy -L THERE\nn\nqspacedestroy -L THERE\ny\ndsdl -y 1\nqcheck\n")
        assert ran.both.count(f"{question}? (y, n [default=n]): ") == 2
        assert "Queue space 'THERE' not destroyed" in ran.both
        assert f"entry 1 of the device list still names '{second}'" in ran.both
        assert "remove the entry: dsdl 1" in ran.both
        assert "No problems found" in ran.both
        assert lost.run("qaudit 1\n").out.count("qspacedestroy") == 0
        assert ran.status == 0

    def test_messages_in_it_that_come_back_are_destroyed_only_by_name_and_when_that_is_forced(self, shell):
        second, away = shell.directory / "SECOND", shell.directory / "AWAY"
        create = "qspacecreate THERE 54320 8000 5 10 10 100 '' n 16\n"
        script = f"crdl {shell.device} 0 2000\ncrdl {second} 0 9000\n{create}qopen THERE\nqcreate Q fifo none 2 0 80%"
        assert shell.run(f"{script} 0% ''\nqput Q first\nqput Q second\n").status == 0
        second.rename(away)
        assert shell.run("qspacedestroy -L -y THERE\n").status == 0
        away.rename(second)
        ran = shell.run("qcheck\n")
        assert "ERROR: " in ran.both
        assert "it holds 2 messages in a queue space 'THERE' that is not in the table of contents" in ran.both
        for command in (create, "qspacedestroy THERE\n", "qspacedestroy -y THERE\n"):
            ran = shell.run(command)
            assert ran.status == 1
            assert "holds 2 messages in" in ran.err
            assert "(y, n" not in ran.both
        told = shell.run("qspacecreate -r THERE 54320\nqspacecreate -r -A 3 THERE\nqspacecreate -r NONE\n")
        assert told.err.count("Option -r takes the name of a queue space alone") == 2
        assert told.err.count("ERROR: ") == 3
        ran = shell.run("qspacecreate -r THERE\nqopen THERE\nqpeek -k 9 Q\nqcheck\n")
        assert ran.status == 0, ran.both
        assert ran.out.startswith("Queue space 'THERE' taken back\n")
        assert ran.out.index("\nfirst\n") < ran.out.index("\nsecond\n")
        second.rename(away)
        assert shell.run("qspacedestroy -L -y THERE\n").status == 0
        away.rename(second)
        question = "Destroy what is left of queue space 'THERE' with 2 messages"
        assert shell.run("qspacedestroy -n -f THERE\n").out == f"Dry run, nothing is done: {question}\n"
        assert question in shell.run("qspacedestroy -f THERE\n").err
        assert shell.run(f"qspacedestroy -f -y THERE\nqcheck\n{create}").status == 0

    def test_what_comes_back_beside_a_new_one_of_its_name_is_not_said_to_be_removed_by_its_destruction(self, shell):
        second, away = shell.directory / "SECOND", shell.directory / "AWAY"
        create = "qspacecreate THERE 54320 900 5 10 10 100 '' n 16\n"
        assert shell.run(f"crdl {shell.device} 0 700\ncrdl {second} 0 9000\n{create}").status == 0
        second.rename(away)
        assert shell.run(f"qspacedestroy -L -y THERE\ncrdl {shell.device} 700 1000\n{create}").status == 0
        away.rename(second)
        assert "once the other queue space of that name is destroyed" in shell.run("qcheck\n").both
        assert shell.run("qspacedestroy -n THERE\n").out == "Dry run, nothing is done: Destroy queue space 'THERE'\n"

    def test_a_script_gives_it_up_without_a_question(self, lost):
        for option in ("", "-f "):
            ran = lost.run(f"qspacedestroy -y {option}THERE\n")
            assert ran.status == 1
            assert "queue space 'THERE' is on a volume that is lost" in ran.err
        ran = lost.run("qspacedestroy -L -y THERE\ndsdl -y 1\nqspacelist\n\n")
        assert ran.status == 0, ran.both
        assert ran.out.splitlines()[0] == "Queue space 'THERE' given up"
