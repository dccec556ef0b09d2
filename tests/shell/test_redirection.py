"""What at the end of a command line says where the output goes, and what Tuxedo's qmadmin takes for an argument."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmadmin.shell import lines
from qmadmin.shell.catalogue import Catalogue
from qmadmin.shell.redirection import parted

CATALOGUE = Catalogue()


def read(line):
    """Return the arguments of a line, and the sign and the target that stand behind them."""
    command, rest = CATALOGUE.find(line)
    arguments, to = parted(command, rest)
    return arguments, to and (to.sign, to.target)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("qlist > out", ("", (">", "out"))),
        ("qlist >out", ("", (">", "out"))),
        ("qlist >> out", ("", (">>", "out"))),
        ("qlist -b errq >>out", ("-b errq", (">>", "out"))),
        ("qinfo Q1\t>\tout  ", ("Q1", (">", "out"))),
        ("qlist > 'two words'", ("", (">", "two words"))),
        ("qlist | less", ("", ("|", "less"))),
        ("qlist |less", ("", ("|", "less"))),
        ("lidl 0 | grep 'a  \"b'c > out | wc -l", ("0", ("|", "grep 'a  \"b'c > out | wc -l"))),
        ("qpeek -w 'priority > 50' Q | cat", ("-w 'priority > 50' Q", ("|", "cat"))),
        ("qlist>out", ("", (">", "out"))),
        ("  qinfo|grep Q1 ", ("", ("|", "grep Q1"))),
        ("qsize 1 > out", ("1", (">", "out"))),
        ("qdeletemsg -y > out", ("-y", (">", "out"))),
        ("qdestroy > out", ("", (">", "out"))),
        ("qput Q1 text | cat", ("Q1 text", ("|", "cat"))),
        ('qcreate Q fifo none 2 30 80% 0% "mail me" > out', ('Q fifo none 2 30 80% 0% "mail me"', (">", "out"))),
    ],
)
def test_sign_at_the_end_of_a_line_says_where_the_output_goes(line, expected):
    assert read(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "!ls > out | cat",
        "# a > b | c",
        'qcreate Q fifo none 2 30 80% 0% "cmd | mail > out"',
        "qcreate Q fifo none 2 30 80% 0% >full",
        "qcreate Q fifo none 2 30 80% 0% |",
        "qcreate | fifo none 2 30 80% 0% cmd",
        "qcreate > fifo none 2 30 80% 0% cmd",
        "qcreate > fifo",
        "qspacecreate | 54320 200 5 10 10 100 > n 16",
        "crdl > 0 2000",
        "qcreate -n 80%,0%,cmd -e none > x",
        "qchange Q > 2",
        "qset >",
        "qset '>x'",
        'qset ">" ',
        "qscan -i > -p 5",
        "qscan -i | -p 5",
        "qscan -yi | -p 5",
        "qscan -i >",
        "qput Q >text",
        "qput Q >",
        "qlist > a b",
        "qlist a> b",
        "qlist > 'a",
        'qlist "a"b > c',
    ],
)
def test_what_is_an_argument_or_no_sign_at_all_stays_where_it_is(line):
    assert read(line) == (CATALOGUE.find(line)[1], None)


def test_value_of_an_option_is_no_sign_and_what_follows_may_be():
    assert read("qscan -i > > out") == ("-i >", (">", "out"))
    assert read("qscan -p5 > out") == ("-p5", (">", "out"))
    assert read("qget -w > -- Q | cat") == ("-w > -- Q", ("|", "cat"))


CHANGING = [command for command in CATALOGUE.commands if not command.raw and not command.shows_only]


@given(st.sampled_from(CHANGING), st.lists(st.sampled_from(["a", ">", ">>", "|", ">x", "|x", "'|'"]), max_size=9))
def test_line_that_a_changing_command_can_take_as_it_stands_is_taken_so(command, arguments):
    line = " ".join([command.name, *arguments])
    if len(arguments) <= len(command.positionals):
        assert read(line) == (" ".join(arguments), None)


@given(st.text(alphabet="qlist >|'\"ab\t", max_size=12))
def test_any_line_is_read(text):
    read(f"qlist {text}")


@pytest.mark.parametrize("name", [">x", "|x", ">", "|"])
def test_name_that_begins_with_a_sign_is_written_in_quotes(name):
    assert read(f"qset {lines.quote(name)}") == (lines.quote(name), None)
    assert lines.split(lines.quote(name))[0].text == name
