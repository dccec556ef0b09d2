"""Every command as a whole: names, texts, and the faces that are made of its declaration."""

import re
import time

import pytest

from qmadmin.console import formats
from qmadmin.console.results import Prose
from qmadmin.manual import programs
from qmadmin.shell import session_commands as help_text
from qmadmin.shell.catalogue import Catalogue

CATALOGUE = Catalogue()
NAMES = [command.name for command in CATALOGUE.commands]

ABBREVIATIONS = {
    "e": "echo",
    "h": "help",
    "?": "help",
    "page": "paginate",
    "qabort": "qaborttrans",
    "qcet": "qchangeexptime",
    "qcommit": "qcommittrans",
    "qforget": "qforgettrans",
    "qpt": "qprinttrans",
    "qrollbacktrans": "qaborttrans",
    "qcp": "qchangeprio",
    "qcq": "qchangequeue",
    "qct": "qchangetime",
    "qcr": "qcreate",
    "qdltm": "qdeletemsg",
    "qds": "qdestroy",
    "qsub": "qsubscribe",
    "qsubch": "qsubchange",
    "qsubl": "qsublist",
    "qunsub": "qunsubscribe",
    "ql": "qlist",
    "qspc": "qspacecreate",
    "qspch": "qspacechange",
    "qspds": "qspacedestroy",
    "qspl": "qspacelist",
    "q": "quit",
    "exit": "quit",
    "\\q": "quit",
    "v": "verbose",
}

SYNOPSES = {
    "crdl": "[-g group] [-s full|relaxed] [-H partitions] [device [offset [size]]]",
    "lidl": "[dlindex]",
    "chdl": "[-f] [-y] [-n] [dlindex [newdevice]]",
    "dsdl": "[-y] [-n] [dlindex]",
    "livtoc": "",
    "qcommands": "[{off|on}]",
    "qspacecreate": "[-A actions] [-n nonpersistent_msg_memory[b,B]] [-o overflow_memory] [-H handles] [-C cursors]"
    " [-O owners] [-Q tmp_queues] [-f filter_memory] [-V volume] [-r] [queue_space_name [ipckey [pages [queues"
    " [trans [procs [messages [errorq [inityn [blocking]]]]]]]]]]",
    "qspacelist": "[queue_space_name]",
    "qopen": "[queue_space_name]",
    "qclose": "",
    "qspacedestroy": "[-f] [-L] [-y] [-n] [queue_space_name]",
    "qaddext": "[queue_space_name [pages]]",
    "qspacechange": "[-A actions] [-n nonpersistent_msg_memory[b,B]] [-o overflow_memory] [-H handles] [-C cursors]"
    " [-O owners] [-Q tmp_queues] [-f filter_memory] [-q queues] [queue_space_name [ipckey [trans [procs [messages"
    " [errorq [inityn [blocking]]]]]]]]",
    "qsize": "[-A actions] [-n nonpersistent_msg_memory[b,B]] [-o overflow_memory] [-H handles] [-C cursors]"
    " [-O owners] [-Q tmp_queues] [-f filter_memory] [pages [queues [trans [procs [messages]]]]]",
    "ipcs": "[queue_space_name]",
    "ipcrm": "[-f] [-y] [-n] [queue_space_name]",
    "qcreate": "[-d persist|nonpersist] [-n nhigh,nlow,ncmd] [-e default_relative_expiration_time] [-E errorq]"
    " [-x {y|n}] [-R seconds|forever] [-G none|linear|exponential] [-F factor] [-M seconds]"
    " [-J fraction] [-D seconds] [-g] [-m] [queue_name [qorder [out-of-order [retries [delay [high [low [cmd]]]]]]]]",
    "qchange": "[-d persist|nonpersist] [-n nhigh,nlow,ncmd] [-e default_relative_expiration_time] [-E errorq]"
    " [-x {y|n}] [-R seconds|forever] [-G none|linear|exponential] [-F factor] [-M seconds]"
    " [-J fraction] [-D seconds] [queue_name [out-of-order [retries [delay [high [low [cmd]]]]]]]",
    "qinfo": "[queue_name]",
    "qdestroy": "[{-p | -f}] [-y] [-n] [queue_name]",
    "qstart": "[{-e | -d}] [queue_name]",
    "qstop": "[{-e | -d}] [-w seconds] [queue_name]",
    "qsubscribe": "[-w rule] [-P topics] [queue_name [subscription_name]]",
    "qsubchange": "[-w rule] [-P topics] [queue_name [subscription_name]]",
    "qsublist": "[queue_name]",
    "qunsubscribe": "[-y] [-n] [queue_name [subscription_name]]",
    "qset": "[queue_name]",
    "qscan": "[-t deq_time1[-deq_time2]] [-p priority1[-priority2]] [-m msgid] [-i corrid] [-d persist|nonpersist]"
    " [-e exptime1[-exptime2]] [-w condition] [none]",
    "qlist": "[-b] [-k count] [queue_name]",
    "qchangeprio": "[-y] [-n] [newpriority]",
    "qchangetime": "[-y] [-n] [newtime]",
    "qchangeexptime": "[-y] [-n] [newtime]",
    "qchangequeue": "[-y] [-n] [newqueue]",
    "qdeletemsg": "[-y] [-n]",
    "qpurge": "[{-w condition | -m msgid}] [-r] [-d] [-y] [-n] [queue_name]",
    "qunpark": "[{-w condition | -m msgid}] [-y] [-n] [queue_name]",
    "qrequeue": "[{-w condition | -m msgid}] [-y] [-n] [queue_name]",
    "qput": "[-f file] [-l] [-z] [-x] [-C type] [-s subtype] [-p priority] [-t time] [-e exptime] [-i corrid]"
    " [-d persist|nonpersist] [-r replyq] [-q persist|nonpersist] [-F failureq] [-E errorq] [-u urcode] [-k appkey]"
    " [-H name=value] [-P topic] [{-T | -b msgid}] [queue_name [text]]",
    "qget": "[{-m msgid | -i corrid}] [-w condition] [-k count] [-x] [-o file] [-s seconds] [queue_name]",
    "qpeek": "[{-m msgid | -i corrid}] [-w condition] [-k count] [-x] [-o file] [-r] [queue_name]",
    "qtop": "[-d seconds] [-n rounds] [queue_name]",
    "qstat": "[-r] [-s] [-f file] [queue_name]",
    "watch": "[-n seconds] [-k count] [command]",
    "qprinttrans": "",
    "qcommittrans": "[-y] [-n] [tranindex]",
    "qaborttrans": "[-y] [-n] [tranindex]",
    "qforgettrans": "[-y] [-n] [tranindex]",
    "qschedule": "[schedule_name]",
    "qschedulecreate": "[-f file] [-z] [-x] [-C type] [-s subtype] [-p priority] [-t time] [-e exptime] [-i corrid]"
    " [-d persist|nonpersist] [-r replyq] [-q persist|nonpersist] [-F failureq] [-E errorq] [-u urcode] [-k appkey]"
    " [-H name=value] [-T] [-Z timezone] [-m once|skip] [-P] [schedule_name [queue_name [rule [text]]]]",
    "qschedulechange": "[-q queue] [-r rule] [-Z timezone] [-m once|skip] [-f file] [schedule_name]",
    "qschedulepause": "[schedule_name]",
    "qscheduleresume": "[schedule_name]",
    "qscheduledelete": "[-y] [-n] [schedule_name]",
    "qcheck": "[queue_space_name]",
    "qbackup": "[-L] [directory]",
    "qrestore": "[-f] [-y] [-n] [backup [device]]",
    "qaudit": "[count]",
    "qexport": "[-s queue_space_name] [-q queue_name] [-w condition] [-o transactions] [-L] [-d] [-k file] [directory]",
    "qimport": "[-s queue_space_name] [-q queue_name] [-e {refuse|skip|replace|append}] [-r new_name] [-t|--start] [-a]"
    " [-d] [-k file] [-y] [-n] [directory]",
    "echo": "[{off|on}]",
    "verbose": "[{off|on}]",
    "paginate": "[{off|on}]",
    "format": "[{table|plain|json|csv}]",
    "help": "[{topic|command|commands|all}]",
    "source": "[file]",
    "quit": "",
}

CHANGEABLE = [
    "Out-of-ordering enqueueing (top, msgid, [default={default}]): ",
    "Retries [default={default}]: ",
    "Retry delay in seconds [default={default}]: ",
    (
        "High limit for queue capacity warning (b for bytes used, B for blocks used,\n"
        "% for percent used, m for messages [default={default}]): "
    ),
    "Reset (low) limit for queue capacity warning [default={default}]: ",
]
PROMPTS = {
    "crdl": ["Device name: ", "Device offset in disk pages: ", "Device size in disk pages: "],
    "chdl": ["Device list index: ", "New device name (now {present}): "],
    "dsdl": ["Device list index: "],
    "qspacecreate": [
        "Queue space name: ",
        "IPC Key for queue space: ",
        "Size of queue space in disk pages: ",
        "Number of queues in queue space: ",
        "Number of concurrent transactions in queue space: ",
        "Number of concurrent processes in queue space: ",
        "Number of messages in queue space: ",
        "Error queue name: ",
        "Initialize extents (y, n [default=n]): ",
        "Blocking factor [default={default}]: ",
    ],
    "qaddext": ["Queue space name: ", "Size of extent in disk pages: "],
    "qspacechange": [
        "Queue space name: ",
        "IPC Key for queue space [default={default}]: ",
        "Number of concurrent transactions in queue space [default={default}]: ",
        "Number of concurrent processes in queue space [default={default}]: ",
        "Number of messages in queue space [default={default}]: ",
        "Error queue name{present}: ",
        "Initialize extents (y, n [default=n]): ",
        "Blocking factor [default={default}]: ",
    ],
    "qsize": [
        "Size of queue space in disk pages: ",
        "Number of queues in queue space: ",
        "Number of concurrent transactions in queue space: ",
        "Number of concurrent processes in queue space: ",
        "Number of messages in queue space: ",
    ],
    "qspacelist": ["Queue space name: "],
    "qopen": ["Queue space name: "],
    "qspacedestroy": ["Queue space name: "],
    "ipcs": ["Queue space name: "],
    "ipcrm": ["Queue space name: "],
    "qcommittrans": ["Transaction index: "],
    "qaborttrans": ["Transaction index: "],
    "qforgettrans": ["Transaction index: "],
    "qbackup": ["Backup directory: "],
    "qrestore": ["Backup directory: ", "Device name [default={default}]: "],
    "qexport": ["Archive: "],
    "qimport": ["Archive: "],
    "qcreate": [
        "Queue name: ",
        "Queue order (priority, time, fifo, lifo): ",
        *CHANGEABLE,
        "Queue capacity command: ",
    ],
    "qchange": ["Queue name: ", *CHANGEABLE, "Queue capacity command: "],
    "qchangeprio": ["New priority (1-100): "],
    "qchangetime": ["New time (+seconds or YY[MM[DD[hh[mm[ss]]]]]): "],
    "qchangeexptime": ["New expiration time (+seconds, YY[MM[DD[hh[mm[ss]]]]] or none): "],
    "qchangequeue": ["New queue name: "],
    "qrequeue": ["Queue name [default={default}]: "],
    "qput": ["Queue name: ", "Message text: "],
    "qschedulecreate": ["Schedule name: ", "Queue name: ", "Rule: ", "Message text: "],
    **{f"qschedule{verb}": ["Schedule name: "] for verb in ("change", "pause", "resume", "delete")},
    **{f"q{verb}": ["Queue name: ", "Subscription name: "] for verb in ("subscribe", "subchange", "unsubscribe")},
    "source": ["Command file: "],
    "watch": ["Command to watch: "],
    **{key: ["Queue name: "] for key in ("qdestroy", "qstart", "qstop", "qpurge", "qunpark", "qget", "qpeek")},
}


def text_of(prose, width=200):
    return "\n".join("".join(text for text, _ in spans) for spans in formats.lines(prose, width))


def plain(text):
    """Return text without differences in layout, to look for a sentence in it."""
    for sign, meant in (("\\(aq", "'"), ("\\(dq", '"'), ("\\e", "")):
        text = text.replace(sign, meant)
    return " ".join(text.replace("\\fR", "").replace("\\fB", "").replace("\\fI", "").replace("\\", "").split())


def test_commands_are_these():
    assert [*SYNOPSES, "!", "!!", "#"] == NAMES


@pytest.mark.parametrize("name", SYNOPSES)
def test_synopsis_is_the_documented_one(name):
    assert CATALOGUE.named(name).synopsis == f"{name} {SYNOPSES[name]}".strip()


def test_abbreviations_are_the_documented_ones():
    assert {short: command.name for command in CATALOGUE.commands for short in command.short} == ABBREVIATIONS


@pytest.mark.parametrize("short", ABBREVIATIONS)
def test_abbreviation_is_found(short):
    assert CATALOGUE.find(f"{short} x")[0].name == ABBREVIATIONS[short]


@pytest.mark.parametrize("name", NAMES)
def test_prompts_are_the_documented_ones(name):
    prompts = [positional.prompt for positional in CATALOGUE.named(name).positionals if positional.prompt]
    assert prompts == PROMPTS.get(name, [])


@pytest.mark.parametrize("name", NAMES)
def test_command_has_a_summary_and_each_argument_a_help(name):
    command = CATALOGUE.named(name)
    assert command.summary
    assert command.summary[0].isupper()
    for argument in (*command.positionals, *command.options):
        assert argument.help.endswith("."), argument


@pytest.mark.parametrize("name", NAMES)
def test_help_shows_an_example_of_the_command(name):
    command = CATALOGUE.named(name)
    examples = [line for block in help_text.description(command) if hasattr(block, "lines") for line in block.lines]
    assert any(command.name in line for line in examples)


@pytest.mark.parametrize("name", NAMES)
def test_options_have_a_letter_of_their_own_and_a_word_for_their_value(name):
    for option in CATALOGUE.named(name).options:
        assert len(option.flag) == 2
        assert bool(option.metavar) == (option.kind is not None)


@pytest.mark.parametrize("name", NAMES)
def test_help_lists_the_command_with_its_abbreviations(name):
    listed = plain(text_of(help_text.overview(CATALOGUE.groups)))
    command = CATALOGUE.named(name)
    assert f"{command.synopsis} {command.summary}" in listed
    assert all(plain(short) in listed for short in command.short)


@pytest.mark.parametrize("name", NAMES)
def test_help_and_the_man_page_tell_everything_about_the_command(name):
    command = CATALOGUE.named(name)
    page = plain(programs.commands(CATALOGUE))
    told = plain(text_of(help_text.about(command)))
    for text in (told, page):
        assert command.synopsis.replace('"', "") in text
        assert command.summary in text
        for argument in (*command.positionals, *command.options):
            assert plain(argument.help) in text, argument


@pytest.mark.parametrize("width", [60, 80])
def test_help_is_not_wider_than_the_terminal(width):
    prose = help_text.everything(CATALOGUE)
    examples = {line for block in prose.blocks if hasattr(block, "lines") for line in block.lines}
    for line in text_of(prose, width).split("\n"):
        assert len(line) <= width or line.strip() in examples, line


def test_help_all_is_the_help_of_all():
    everything = help_text.everything(CATALOGUE)
    assert isinstance(everything, Prose)
    assert text_of(everything).count("Abbreviation") == sum(bool(command.short) for command in CATALOGUE.commands)


def test_extensions_are_marked_in_help():
    assert help_text.EXTENSION in plain(text_of(help_text.about(CATALOGUE.named("crdl"))))
    assert help_text.EXTENSION in plain(text_of(help_text.about(CATALOGUE.named("qcommands"))))
    assert help_text.EXTENSION not in plain(text_of(help_text.about(CATALOGUE.named("qinfo"))))


def test_help_fits_a_small_terminal_and_names_every_command_under_its_topic():
    for width in (60, 80):
        shown = text_of(help_text.topics(CATALOGUE), width).split("\n")
        assert len(shown) <= 24
        assert max(map(len, shown)) <= width
    words = set(" ".join(shown).split())
    assert set(NAMES) <= words
    assert {f"{group.topic}:" for group in CATALOGUE.groups} <= words


def test_topic_has_one_name_that_no_command_has():
    topics = [group.topic for group in CATALOGUE.groups]
    assert len({*topics, help_text.LIST, help_text.ALL}) == len(topics) + 2
    assert not {*topics, help_text.LIST, help_text.ALL} & {
        name for command in CATALOGUE.commands for name in command.names
    }


@pytest.mark.parametrize("topic", [group.topic for group in CATALOGUE.groups])
def test_help_of_a_topic_lists_its_commands_alone(shell, topic):
    listed = plain(shell.run(f"help {topic}\n").out)
    for group in CATALOGUE.groups:
        for command in group.commands:
            assert (plain(f"{command.synopsis} {command.summary}") in listed) == (group.topic == topic)


def test_help_commands_lists_all(shell):
    listed = plain(shell.run("help commands\n").out)
    assert all(plain(command.synopsis) in listed for command in CATALOGUE.commands)


class TestTimesAroundTheChangeOfTheClock:
    @pytest.fixture(autouse=True)
    def _in_berlin(self, monkeypatch):
        monkeypatch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
        monkeypatch.undo()
        time.tzset()

    def test_one_that_is_skipped_is_refused_and_nothing_is_enqueued(self, laid_out):
        ran = laid_out.run("qopen QSPACE\nqput -t 2703280230 STRING x\nqset STRING\nqlist\n")
        assert "the time '2703280230' does not exist: the clock is put forward past it" in ran.err
        assert "no messages matched" in ran.both

    def test_of_one_that_comes_twice_the_first_is_taken_and_it_says_so(self, laid_out):
        ran = laid_out.run("qopen QSPACE\nqput -t 2710310230 STRING x\nqset STRING\nqlist\n")
        assert (
            ran.err
            == "WARN: the time 2710310230 comes twice, as the clock is put back; the first is taken (crque, line 2)\n"
        )
        assert "2027-10-31T02:30:00+0200" in ran.out

    def test_far_ones_are_listed(self, laid_out):
        ran = laid_out.run("qopen QSPACE\nqput -e 9999-12-31T23:59:58Z STRING x\nqset STRING\nqlist\nqpeek STRING\n")
        assert ran.err == ""
        assert "9999-12-31T23:59:58+0000" in ran.out


@pytest.mark.parametrize("command", ["qput -e 2020-01-01 STRING x", "qset STRING\nqchangeexptime -y 200101"])
def test_an_expiry_that_is_past_is_said_to_be_at_once(laid_out, command):
    ran = laid_out.run(f"qopen QSPACE\n{command}\n")
    assert re.match(r"WARN: the time (2020-01-01|200101) is past: what expires then expires at once \(", ran.err)
    assert ran.status == 0
