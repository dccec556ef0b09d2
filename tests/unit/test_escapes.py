"""Identifiers with bytes that cannot be typed."""

import pytest

from qmadmin.console import escaped, unescaped
from qmcore.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("identifier", "text"),
    [(b"hello world", r"hello\20world"), (b"\x00\xff", r"\00\ff"), (b"a\\b", r"a\5cb"), (b"plain", "plain"), (b"", "")],
)
def test_identifier_is_written_with_escapes_and_read_back(identifier, text):
    assert escaped(identifier) == text
    assert unescaped(text) == identifier


def test_every_byte_is_read_back():
    everything = bytes(range(256)) * 2
    assert unescaped(escaped(everything)) == everything


def test_digits_may_be_capitals_and_two_backslashes_are_one():
    assert unescaped(r"\FF\\20\\") == b"\xff\\20\\"


def test_what_is_no_ascii_is_taken_as_it_was_typed():
    assert unescaped("né") == "né".encode()


@pytest.mark.parametrize("text", ["\\", "a\\2", r"\zz", r"\\\2", r"\20\1"])
def test_backslash_without_its_digits_is_refused(text):
    with pytest.raises(InvalidArgumentError, match="two hexadecimal digits"):
        unescaped(text)
