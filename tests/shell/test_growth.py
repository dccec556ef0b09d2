"""qaddext, qspacechange and qsize beside other processes, for programs, and in verbose mode."""

import json

import pytest

from qmadmin.opening import open_device


@pytest.fixture(autouse=True)
def laid_out(shell, memory_dir):
    shell.lay_out()


def rows(shell, script):
    """Return the objects that the commands of a script tell programs of."""
    lines = shell.run(f"format json\n{script}").out.splitlines()[1:]
    return [row for line in lines for row in json.loads(line)["rows"]]


class TestBesideOthers:
    @pytest.fixture
    def other(self, shell):
        with open_device(shell.device) as device, device.open_space("QSPACE") as space:
            yield space

    def test_pages_are_added_while_another_has_it_open(self, shell, other):
        msgid = other.enqueue("STRING", "stays")
        with other.transaction():
            other.enqueue("STRING", "is on its way")
            assert shell.run("qaddext QSPACE 100").status == 0
        assert next(other.browse("STRING")).msgid == msgid
        assert other.definition.pages == 300
        assert other.usage("STRING").messages == 2

    def test_limits_are_changed_while_another_has_it_open(self, shell, other):
        assert shell.run('qspch -q 9 QSPACE 54320 11 12 13 "" n 16').status == 0
        now = other.definition
        assert (now.queues, now.transactions, now.processes, now.messages, now.error_queue) == (9, 11, 12, 13, "")

    def test_memory_is_not_changed_while_another_has_it_open(self, shell, other):
        ran = shell.run("qspacechange -n 10 QSPACE 54320 10 10 100 errq n 16")
        assert ran.status == 1
        assert "QMEINUSE: the memory of queue space 'QSPACE' cannot be changed while application" in ran.err
        assert other.definition.memory == 0


def test_an_option_that_is_left_out_changes_nothing(shell):
    shell.run("qspacechange -A 7 -n 3 -o 1 -H 2 -C 3 -O 4 -Q 5 -f 6 QSPACE 54320 10 10 100 errq n 16")
    with open_device(shell.device) as device:
        before = device.space("QSPACE").definition
    assert (before.actions, before.memory, before.filter_memory, before.owners) == (7, 3 * 4096, 6, 4)
    shell.run("qspacechange QSPACE 54320 10 10 100 errq n 16")
    with open_device(shell.device) as device:
        assert device.space("QSPACE").definition == before


def test_what_is_in_memory_stays_where_the_memory_does(shell):
    ran = shell.run(
        "qspacechange -n 3 QSPACE 54320 10 10 100 errq n 16\nqopen QSPACE\nqput -d nonpersist STRING lost\n"
        "qspacechange -n 3 QSPACE 54320 10 10 200 errq n 16\nqget STRING\n"
    )
    assert ran.status == 0
    assert "lost" in ran.out
    assert "are lost" not in ran.err


def test_the_open_queue_space_and_the_current_queue_stay(shell):
    ran = shell.run("qopen QSPACE\nqset STRING\nqaddext QSPACE 8\nqspch QSPACE 54320 10 10 100 errq n 16\nqset\nqlist")
    assert ran.status == 0
    assert ran.out.endswith("Current queue is 'STRING'\n")


def test_verbose_mode_shows_a_dot_for_each_5_percent_where_disk_is_allocated(shell):
    assert "." * 20 not in shell.run("verbose on\nqaddext QSPACE 8").both
    ran = shell.run("verbose on\nqspacechange QSPACE 54320 10 10 100 errq y 16\nqaddext QSPACE 8")
    assert ran.both.count("." * 20 + "\n") == 2


def test_programs_get_numbers(shell):
    assert rows(shell, "qaddext QSPACE 50\nqsize -n 9000b 200 3 3 3 12") == [
        {"queue_space": "QSPACE", "added": 48, "pages": 248},
        {"pages": 200, "disk": 819_200, "message_pages": 196, "shared_memory": 8_192, "semaphores": 0},
    ]


def test_the_help_of_both_says_that_the_queue_space_may_be_in_use(shell):
    for name in ("qaddext", "qspacechange"):
        assert "Unlike in Tuxedo, the queue space may be in use" in " ".join(shell.run(f"help {name}").out.split())
    assert "no semaphores are needed" in " ".join(shell.run("help qsize").out.split())
