"""Filling the arguments of a command from words, then from answers."""

from types import SimpleNamespace

import pytest

from qmadmin.console.results import Notice, Severity
from qmadmin.shell.catalogue import Catalogue
from qmadmin.shell.declare import Confirmation, Group, Option, Positional
from qmadmin.shell.kinds import Choice, Number, QueueName, YesNo
from qmadmin.shell.notices import InputEndedError, UsageError
from qmadmin.shell.read import Reading
from qmcore.errors import InvalidArgumentError

GROUP = Group("Examples")


@GROUP.command(
    "make",
    Option("-d where", "delivery", "Where.", Choice("delivery", ("disk", "memory")), "disk"),
    Option("-p", "purge", "Purge."),
    Option("-f", "force", "Force.", excludes="-p"),
    Positional("queue_name", QueueName(), "Its name.", "Queue name: "),
    Positional(
        "high", Number("high limit", 1, 100), "At most.", "High [default=10]: ", "10", "Default high is {default}"
    ),
    Positional(
        "low",
        Number("low limit", 0, 100),
        "At least.",
        "Low [default={default}]: ",
        lambda _session, given: str(given["high"] // 2),
        "Default low is {default}",
    ),
    Positional("note", QueueName(), "Not asked for."),
    confirm=Confirmation(lambda _session, given: f"Make {given['queue_name']}", "{queue_name} not made"),
)
def make(session, *, queue_name, high, low, note, delivery, purge, force):
    """Make something."""


MAKE = GROUP.commands[0]


SESSION = SimpleNamespace(catalogue=Catalogue([GROUP]))


class Answers:
    """Answers from a list; what is asked and said is noted."""

    def __init__(self, *answers, patient=True):
        self.answers = list(answers)
        self.patient = patient
        self.asked = []
        self.told = []
        self.warned = []

    def ask(self, prompt, kind):
        self.asked.append(prompt)
        if not self.answers:
            raise InputEndedError(prompt)
        return self.answers.pop(0)

    def tell(self, text):
        self.told.append(text)

    def warn(self, notice):
        self.warned.append((notice.severity, notice.text))


def fill(line, *answers, patient=True):
    reading = Reading(MAKE)
    asking = Answers(*answers, patient=patient)
    reading.take(line)
    return reading.fill(asking, SESSION), asking


def refused(line, *answers):
    """Read as a script does and return the refusal and the number of answers that are left over."""
    reading = Reading(MAKE)
    try:
        reading.take(line)
        reading.fill(Answers(*answers, patient=False), None)
    except (UsageError, InvalidArgumentError) as error:
        return str(error), reading.unread
    return pytest.fail(f"{line!r} was not refused")


def test_complete_line_asks_nothing():
    given, asking = fill("-d memory -y Q1 20 5 remark")
    assert given == {
        "queue_name": "Q1",
        "high": 20,
        "low": 5,
        "note": "remark",
        "delivery": "memory",
        "purge": False,
        "force": False,
        "yes": True,
        "dry_run": False,
    }
    assert asking.asked == []


def test_what_the_line_lacks_is_asked_for_in_order():
    given, asking = fill("Q1", "30", "2")
    assert (given["high"], given["low"]) == (30, 2)
    assert asking.asked == ["High [default=10]: ", "Low [default=15]: "]


def test_argument_without_prompt_is_none_when_it_is_left_out():
    given, _ = fill("Q1 1 0")
    assert given["note"] is None


def test_empty_answer_takes_the_default_and_says_so():
    given, asking = fill("Q1", "", "")
    assert (given["high"], given["low"]) == (10, 5)
    assert asking.told == ["Default high is 10", "Default low is 5"]


def test_default_follows_an_earlier_answer():
    given, asking = fill("Q1 80", "")
    assert given["low"] == 40
    assert asking.asked == ["Low [default=40]: "]


def test_empty_word_on_the_line_is_an_empty_answer():
    given, asking = fill("Q1 '' \"\"")
    assert (given["high"], given["low"]) == (10, 5)
    assert asking.asked == []


def test_person_who_gives_no_required_answer_is_warned_and_asked_again():
    given, asking = fill("", "", "Q1", "", "")
    assert given["queue_name"] == "Q1"
    assert asking.asked[:2] == ["Queue name: ", "Queue name: "]
    assert asking.warned == [(Severity.WARN, "Must specify queue name")]


def test_person_who_types_a_command_for_an_answer_is_told_so():
    given, asking = fill("", "make", "", "")
    assert given["queue_name"] == "make"
    assert asking.warned == [(Severity.INFO, "'make' is taken as the answer; Ctrl-C leaves make")]


def test_person_is_asked_again_after_a_refused_answer():
    given, asking = fill("Q1", "many", "200", "20", "")
    assert given["high"] == 20
    assert asking.warned == [
        (Severity.ERROR, "The high limit must be numeric: 'many'"),
        (Severity.ERROR, "The high limit must be 1 to 100, got 200"),
    ]


@pytest.mark.parametrize(
    ("line", "sentence"), [("Q1 many", "must be numeric: 'many'"), ("''", "Must specify queue name")]
)
def test_word_that_the_line_has_wrong_ends_the_command_for_a_person_too(line, sentence):
    with pytest.raises(UsageError, match=sentence):
        fill(line, "50", "3")


def test_person_who_is_asked_again_is_told_the_way_out():
    assert Reading(MAKE).again(Notice(Severity.ERROR, "No", "Say yes.")).hint == "Say yes. Ctrl-C leaves make."


def test_refused_argument_without_prompt_ends_the_command_for_a_person_too():
    with pytest.raises(InvalidArgumentError, match="has 128 bytes"):
        fill("Q1 1 0 " + "x" * 128)


def test_script_is_not_asked_again_and_knows_the_answers_that_are_left():
    assert refused("", "") == ("Must specify queue name", 3)
    assert refused("Q1", "many") == ("The high limit must be numeric: 'many'", 2)
    assert refused("Q1 many") == ("The high limit must be numeric: 'many'", 2)
    assert refused("-y Q1 many 5") == ("The high limit must be numeric: 'many'", 0)


def test_end_of_input_names_the_prompt():
    reading = Reading(MAKE)
    reading.take("Q1")
    with pytest.raises(InputEndedError) as ended:
        reading.fill(Answers(patient=False), None)
    assert ended.value.notice.text == "Input ended at the prompt 'High [default=10]:'"


@pytest.mark.parametrize(
    ("line", "sentence", "left"),
    [
        ("-z Q1 1 0", "Invalid option -z of make", 1),
        ("-pz Q1", "Invalid option -pz of make", 3),
        ("-1 Q1 1 0", "Invalid option -1 of make", 1),
        ("-d", "Option -d needs a value: where", 4),
        ("-d tape Q1", "The delivery must be disk or memory, got 'tape'", 3),
        ("-d disk -d disk Q1", "Option -d is given twice", 3),
        ("-p -f Q1", "Options -p and -f exclude each other", 3),
        ("-f -p Q1", "Options -f and -p exclude each other", 3),
        ("Q1 1 0 n five", "make takes at most 4 arguments, got 5", 1),
        ("Q1 1 0 n -z", "Invalid option -z of make", 1),
        ("Q1 1 0 n -dtape", "The delivery must be disk or memory, got 'tape'", 1),
        ("Q1 -d", "Option -d needs a value: where", 3),
        ("Q1 1 0 n '-y'", "make takes at most 4 arguments, got 5", 1),
        ('"Q1', 'The quote " is not closed: "Q1', 0),
    ],
)
def test_wrong_line_is_refused_in_one_sentence(line, sentence, left):
    assert refused(line) == (sentence, left)


def test_flags_and_values_may_be_written_together():
    given, _ = fill("-pyddisk Q1 1 0")
    assert (given["purge"], given["yes"], given["delivery"]) == (True, True, "disk")


def test_options_may_follow_the_arguments_or_stand_among_them():
    given, _ = fill("-y Q1 -d memory 1 0 n -f")
    assert (given["yes"], given["delivery"], given["force"], given["note"]) == (True, "memory", True, "n")


def test_value_that_begins_with_a_dash_and_is_no_option_stays_a_value():
    given, _ = fill("Q1 1 0 -pile")
    assert (given["note"], given["purge"]) == ("-pile", False)


def test_two_dashes_end_the_options():
    given, _ = fill("-y -- -p 1 0")
    assert given["queue_name"] == "-p"
    assert given["purge"] is False


def test_dash_alone_is_no_option():
    given, _ = fill("-y - 1 0")
    assert given["queue_name"] == "-"


def test_quoted_word_is_never_an_option():
    given, _ = fill('"-p" 1 0')
    assert given["queue_name"] == "-p"


def test_answer_in_quotes_is_what_stands_in_them():
    given, _ = fill("", "'Q 1'", '"20"', "''")
    assert (given["queue_name"], given["high"], given["low"]) == ("Q 1", 20, 10)


def test_number_of_absurd_length_is_refused_like_any_other():
    assert refused("Q1", "9" * 10_000)[0].startswith("The high limit must be 1 to 100, got 999")


@pytest.mark.parametrize("text", ["1_0", "1.0", "0x10", "\u0663", "", "+", "1 0"])
def test_only_digits_make_a_number(text):
    with pytest.raises(UsageError):
        Number("number").read(text, {})


@pytest.mark.parametrize(("text", "value"), [("y", True), ("Y", True), ("yes", True), ("n", False), ("No", False)])
def test_yes_and_no_are_read_in_either_case(text, value):
    assert YesNo().read(text, {}) is value
