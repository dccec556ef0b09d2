"""How results are laid out on a terminal and in a script."""

from qmadmin.console import formats
from qmadmin.console.results import Column, Example, Heading, Line, Moment, Paragraph, Prose, Record, Table, Term, field

TABLE = Table(
    (Column("queue", "Queue"), Column("messages", "Messages", right=True), Column("note", "Note")),
    [("a", 5, None), ("a long name", 12345, "two words"), ("b", 0, "")],
)


def text(result, width=None):
    return ["".join(part for part, _ in spans) for spans in formats.lines(result, width)]


def test_script_gets_a_line_for_each_row_and_values_without_blanks_or_in_quotes():
    assert text(TABLE) == [
        "Queue          Messages  Note",
        "a                     5  -",
        '"a long name"     12345  "two words"',
        'b                     0  ""',
    ]


def test_terminal_gets_the_table_as_long_as_it_fits():
    assert text(TABLE, 32)[1:] == [
        "a                   5  -",
        "a long name     12345  two words",
        "b                   0",
    ]


def test_table_that_is_wider_than_the_terminal_becomes_a_block_for_each_row():
    assert text(TABLE, 31) == [
        "a",
        "  Messages: 5",
        "a long name",
        "  Messages: 12345",
        "  Note: two words",
        "b",
        "  Messages: 0  Note: ",
    ]


def test_table_without_rows_has_its_titles():
    assert text(Table((Column("queue", "Queue"), Column("messages", "Messages", right=True)), [])) == [
        "Queue  Messages"
    ]


def test_wide_characters_are_counted_as_a_terminal_shows_them():
    table = Table((Column("name", "Name"), Column("size", "Size", right=True)), [("列队", 1), ("e\u0301", 2)])
    assert text(table) == ["Name  Size", "列队     1", "e\u0301        2"]


def test_value_of_a_record_that_is_too_long_goes_on_under_its_beginning():
    record = Record("Queue 'a'", (field("n", "N", 1), field("lost", "Lost", "0 expired, 0 discarded, 0 moved")))
    assert text(record, 30) == ["Queue 'a'", "  N:    1", "  Lost: 0 expired, 0", "        discarded, 0 moved"]
    assert text(record, 40)[2:] == ["  Lost: 0 expired, 0 discarded, 0 moved"]
    assert text(record)[2:] == ["  Lost: 0 expired, 0 discarded, 0 moved"]
    # Where there is too little room, and in a path, the terminal breaks the line.
    assert text(record, 20)[2:] == ["  Lost: 0 expired, 0 discarded, 0 moved"]
    path = Record("Device", (field("path", "Path", "/var/" + "x" * 40),))
    assert text(path, 30) == ["Device", "  Path: /var/" + "x" * 40]


def test_record_has_its_labels_in_a_column():
    record = Record(
        "Queue 'a'",
        (field("order", "Order", "fifo"), field("delay", "Retry delay", 3), field("oldest", "Oldest", None)),
    )
    assert text(record) == ["Queue 'a'", "  Order:       fifo", "  Retry delay: 3", "  Oldest:      -"]


def test_time_has_no_blanks_in_a_script():
    record = Record("x", (field("at", "At", Moment(0)),))
    assert "T" in text(record)[1]
    assert text(record)[1].split()[1:] == text(record)[1].split()[-1:]
    assert len(text(record, 80)[1].split()) == 4


def test_what_cannot_be_printed_is_escaped():
    assert text(Line("a\x1b[31mb\x07\u202ec\udcff")) == [r"a\x1b[31mb\x07\u202ec\udcff"]


def test_prose_is_wrapped_to_the_width_and_examples_are_not():
    prose = Prose(
        (
            Heading("command [argument]"),
            Paragraph("one two three four five six seven eight nine ten"),
            Term("-x value", "what it means"),
            Term("-y", "more"),
            Example(("an example that is as long as it likes to be",)),
        )
    )
    assert text(prose, 30) == [
        "command [argument]",
        "",
        "  one two three four five six",
        "  seven eight nine ten",
        "",
        "  -x value",
        "      what it means",
        "  -y",
        "      more",
        "",
        "      an example that is as long as it likes to be",
    ]


def test_rows_are_drawn_as_they_come():
    taken = []

    def rows():
        for number in range(100_000):
            taken.append(number)
            yield (f"message {number}", number)

    lines = formats.lines(Table((Column("id", "Id"), Column("number", "Number", right=True)), rows()), None)
    assert [next(lines)[0][0].split()[0] for _ in range(3)] == ["Id", '"message', '"message']
    assert len(taken) < 1000


def test_table_that_is_too_wide_leaves_out_the_columns_that_are_empty():
    table = Table(
        (Column("a", "Name"), Column("b", "A long title of a column"), Column("c", "State")),
        [("one", None, "ready"), ("two", None, "held")],
    )
    assert text(table, 40) == [
        "Name  A long title of a column  State",
        "one   -                         ready",
        "two   -                         held",
    ]
    assert text(table, 30) == ["Name  State", "one   ready", "two   held"]
    assert "A long title of a column" in text(table)[0]


def test_sentence_that_is_too_long_is_broken_at_blanks():
    sentence = Line("Message 0123456789abcdef enqueued on queue 'orders'")
    assert text(sentence, 40) == ["Message 0123456789abcdef enqueued on", "queue 'orders'"]
    assert text(sentence) == [sentence.text]
