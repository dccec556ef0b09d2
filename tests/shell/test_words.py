"""A line taken apart into words."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmadmin.shell import lines
from qmadmin.shell.notices import UsageError


def texts(line):
    return [word.text for word in lines.split(line)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", []),
        ("  \t ", []),
        ("qcreate Q1 fifo", ["qcreate", "Q1", "fifo"]),
        ("\tqcreate\t Q1  ", ["qcreate", "Q1"]),
        ('qcreate "Q 1" x', ["qcreate", "Q 1", "x"]),
        ("''", [""]),
        ('""', [""]),
        ("'y'", ["y"]),
        (r'"say \"hi\""', ['say "hi"']),
        (r"'say \"hi\"'", [r"say \"hi\""]),
        (r'"hello\20world"', [r"hello\20world"]),
        ("it's", ["it's"]),
        ('a"b"c', ['a"b"c']),
        ("\"it's\" '\"'", ["it's", '"']),
    ],
)
def test_line_is_taken_apart(line, expected):
    assert texts(line) == expected


def test_quoted_word_knows_that_it_was_quoted():
    assert [word.quoted for word in lines.split("-y \"-y\" '-y'")] == [False, True, True]


@pytest.mark.parametrize("line", ['"a"b', "'a'b", '"a""b"'])
def test_text_directly_behind_a_closing_quote_is_message_1107(line):
    with pytest.raises(UsageError) as refused:
        lines.split(line)
    assert refused.value.notice.number == 1107
    assert refused.value.notice.text.startswith("Must have white space following quoted string: ")


@pytest.mark.parametrize("line", ['"a', "x 'a b", '"a\\"'])
def test_quote_that_is_not_closed_is_refused(line):
    with pytest.raises(UsageError, match="is not closed"):
        lines.split(line)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", ""),
        ("  ", ""),
        ("''", ""),
        ('""', ""),
        ("'y'", "y"),
        (" 'y' ", "y"),
        ("mailme QSPACE service1", "mailme QSPACE service1"),
        ('mailme "a b"', 'mailme "a b"'),
        ('"/a b/mailme" c', '"/a b/mailme" c'),
        ("# no comment here", "# no comment here"),
    ],
)
def test_answer_is_the_whole_line_or_what_stands_in_quotes(line, expected):
    assert lines.answer(line) == expected


@given(st.text(st.characters(exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp"), include_characters=" \t\\\"'-")))
def test_quoted_word_is_read_back(text):
    has_to_be_quoted = text.startswith(("-", ">", "|", "'", '"')) or any(blank in text for blank in " \t")
    if has_to_be_quoted and "'" in text and re.search(r'\\("|$)', text):
        return  # no form can write an apostrophe, and a backslash before a double quote
    (word,) = lines.split(lines.quote(text))
    assert word.text == text
    assert word.quoted or not text.startswith("-")


@pytest.mark.parametrize(
    ("line", "before", "at"),
    [
        ("", [], ""),
        ("qo", [], "qo"),
        ("qopen ", ["qopen"], ""),
        ("qopen Q", ["qopen"], "Q"),
        ('qopen "my sp', ["qopen"], "my sp"),
        ('qopen "my space"', ["qopen", "my space"], ""),
        ('qopen "a"b', [], ""),
    ],
)
def test_unfinished_line_has_a_word_at_the_cursor(line, before, at):
    found, word = lines.split_unfinished(line)
    assert [each.text for each in found] == before
    assert word.text == at
    assert line[word.start :].strip("\"'") == at
