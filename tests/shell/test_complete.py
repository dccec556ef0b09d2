"""What is offered for a line that is not finished."""

import contextlib
import io

import pytest

from qmadmin.console.render import PlainScreen
from qmadmin.shell import complete
from qmadmin.shell.catalogue import Catalogue
from qmadmin.shell.kinds import FileName, Order, QueueName, YesNo
from qmadmin.shell.listing import CorrelationId, MessageId
from qmadmin.shell.session import Session


@pytest.fixture
def session(laid_out):
    made = Session(laid_out.device, Catalogue(), PlainScreen(io.StringIO(), io.StringIO()), laid_out.environ)
    with contextlib.closing(made):
        yield made


def offered(session, text):
    """Return what the line would be with each candidate."""
    replaced, found = complete.line(session, text)
    return [text[: len(text) - replaced] + candidate.text for candidate in found]


def test_empty_line_offers_all_commands_and_no_signs(session):
    found = offered(session, "")
    assert found == [command.name for command in Catalogue().commands if not command.raw]


def test_beginning_offers_commands_then_abbreviations(session):
    assert offered(session, "qsp") == [
        "qspacecreate", "qspacelist", "qspacedestroy", "qspacechange", "qspc", "qspl", "qspds", "qspch",
    ]  # fmt: skip
    assert offered(session, "qcr") == ["qcreate", "qcr"]
    assert offered(session, "xyz") == []


def test_candidate_has_the_summary_beside_it(session):
    (candidate,) = complete.line(session, "livt")[1]
    assert candidate.about == "List the volume table of contents"


def test_dash_offers_the_options_that_are_not_given(session):
    assert offered(session, "qdestroy -") == ["qdestroy -p", "qdestroy -f", "qdestroy -y", "qdestroy -n"]
    assert offered(session, "qdestroy -y -") == ["qdestroy -y -p", "qdestroy -y -f", "qdestroy -y -n"]
    assert offered(session, "qcr -d persist -") == [f"qcr -d persist -{letter}" for letter in "neExRGFMJDgm"]


def test_option_offers_its_values(session):
    assert offered(session, "qcreate -d ") == ["qcreate -d persist", "qcreate -d nonpersist"]
    assert offered(session, "qcreate -d n") == ["qcreate -d nonpersist"]


def test_queue_spaces_and_queues_are_offered_as_they_are_on_the_device(session):
    assert offered(session, "qopen ") == ["qopen QSPACE"]
    assert offered(session, "qset ") == []
    session.open_space("QSPACE")
    assert offered(session, "qset ") == ["qset STRING", "qset errq"]
    assert offered(session, "qdestroy -f -y S") == ["qdestroy -f -y STRING"]
    assert offered(session, "qset STRING ") == []


def test_name_with_blanks_is_offered_in_quotes(session, laid_out):
    laid_out.run("qopen QSPACE\nqcreate 'two words' fifo none 0 0 100% 0% ''\n")
    session.open_space("QSPACE")
    assert offered(session, "qset tw") == ['qset "two words"']
    assert offered(session, 'qset "two w') == ['qset "two words"']


def test_list_is_completed_behind_its_last_comma(session):
    assert offered(session, "qcreate Q pri") == ["qcreate Q priority"]
    assert offered(session, "qcreate Q priority,f") == ["qcreate Q priority,fifo"]


def test_entries_of_the_device_list_are_offered_with_their_path(session, laid_out):
    assert [(found.text, found.about) for found in complete.line(session, "lidl ")[1]] == [("0", laid_out.device)]


def test_files_are_offered(session, laid_out):
    (laid_out.directory / "folder").mkdir()
    start = f"crdl {laid_out.directory}/"
    assert f"{start}folder/" in offered(session, start)
    assert offered(session, f"{start}fol") == [f"{start}folder/"]


def test_options_are_completed_behind_arguments_too(session):
    session.open_space("QSPACE")
    assert offered(session, "qput STRING hello -p 5 -r S") == ["qput STRING hello -p 5 -r STRING"]
    assert offered(session, "qdestroy STRING -f") == ["qdestroy STRING -f"]
    assert offered(session, "qpeek -k 2 S") == ["qpeek -k 2 STRING"]


def test_topics_are_offered_to_help(session):
    assert offered(session, "help mess") == ["help messages"]


def test_commands_are_offered_to_help(session):
    assert offered(session, "help qsp") == [
        "help qspacecreate", "help qspacelist", "help qspacedestroy", "help qspacechange",
    ]  # fmt: skip


@pytest.mark.parametrize("line", ["nonsense ", 'qopen "a"b', "livtoc ", "quit now "])
def test_nothing_is_offered_where_nothing_fits(session, line):
    assert offered(session, line) == []


def test_nothing_is_offered_without_a_device(shell):
    made = Session(shell.device, Catalogue(), PlainScreen(io.StringIO(), io.StringIO()), shell.environ)
    assert offered(made, "qopen ") == []
    assert offered(made, "lidl ") == []


def test_answers_are_completed_too(session):
    session.open_space("QSPACE")
    assert complete.answer(session, QueueName(), "ST")[1][0].text == "STRING"
    assert [found.text for found in complete.answer(session, YesNo(), "")[1]] == ["y", "n"]
    replaced, found = complete.answer(session, Order(), "priority,t")
    assert (replaced, [each.text for each in found]) == (1, ["time"])
    assert complete.answer(session, FileName(), session.path[:-1])[1][0].text == session.path


def test_value_in_the_middle_of_a_quoted_word_is_offered_whole(session, laid_out):
    laid_out.run("qopen QSPACE\nqcreate 'two words' fifo none 0 0 100% 0% ''\n")
    session.open_space("QSPACE")
    assert offered(session, "qset 'two w") == ['qset "two words"']
    assert offered(session, 'qdestroy -y "') == [
        "qdestroy -y STRING",
        "qdestroy -y errq",
        'qdestroy -y "two words"',
    ]


def test_messages_of_the_current_queue_are_offered_with_what_they_are(session):
    space = session.open_space("QSPACE")
    first = space.enqueue("STRING", b"four", priority=7)
    second = space.enqueue("STRING", b"", delay=3600)
    assert complete.answer(session, MessageId(), "") == (0, [])
    session.queue = "STRING"
    replaced, found = complete.answer(session, MessageId(), first[:30])
    assert replaced == 30
    assert [(each.text, each.about) for each in found] == [
        (first, "priority 7, 4 bytes, ready"),
        (second, "priority 50, 0 bytes, delayed"),
    ]
    assert [each.text for each in complete.answer(session, MessageId(), second)[1]] == [second]


def test_correlation_identifiers_are_offered_once_and_escaped(session):
    space = session.open_space("QSPACE")
    session.queue = "STRING"
    for corrid in (b"hello world", None, b"hello world", b"b"):
        space.enqueue("STRING", b"x", corrid=corrid)
    assert [each.text for each in complete.answer(session, CorrelationId(), "")[1]] == [r"hello\20world", "b"]
    assert [each.text for each in complete.answer(session, CorrelationId(), r"hello\2")[1]] == [r"hello\20world"]


def test_only_the_first_fifty_messages_are_offered(session):
    space = session.open_space("QSPACE")
    session.queue = "STRING"
    ids = space.enqueue_many("STRING", [b"x"] * 60)
    assert [each.text for each in complete.answer(session, MessageId(), "")[1]] == ids[:50]


def test_shell_command_is_offered_files(session, laid_out):
    folder = laid_out.directory / "a folder"
    folder.mkdir()
    (folder / "it's").touch()
    start = f"!cat <{laid_out.directory}/a"
    assert offered(session, start) == [f"!cat <{laid_out.directory}/a\\ folder/"]
    assert offered(session, f"{start}\\ folder/i") == [f"!cat <{laid_out.directory}/a\\ folder/it\\'s"]
    assert offered(session, "!cat ") == []


def test_shell_command_is_offered_files_of_the_home_directory(session, laid_out, monkeypatch):
    monkeypatch.setenv("HOME", str(laid_out.directory))
    assert "!ls ~/QUE" in offered(session, "!ls ~/Q")
