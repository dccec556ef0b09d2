"""Names and their limits, counted in bytes of UTF-8."""

import pytest

from qmcore import names
from qmcore.errors import InvalidArgumentError

LIMITS = {names.queue_name: 127, names.space_name: 15, names.path: 1024, names.command: 127}


@pytest.mark.parametrize("check", LIMITS)
def test_a_name_of_exactly_the_limit_is_taken_and_one_byte_more_is_refused(check):
    limit = LIMITS[check]
    assert check("n" * limit) == "n" * limit
    with pytest.raises(InvalidArgumentError) as refusal:
        check("n" * (limit + 1))
    assert f"has {limit + 1} bytes, the limit is {limit}" in refusal.value.message


@pytest.mark.parametrize("check", LIMITS)
def test_bytes_count_and_not_characters(check):
    limit = LIMITS[check]
    odd = "x" * (limit % 2)
    assert check("é" * (limit // 2) + odd)
    with pytest.raises(InvalidArgumentError):
        check("é" * (limit // 2) + odd + "é")


@pytest.mark.parametrize("check", [names.queue_name, names.space_name, names.path])
def test_an_empty_name_is_refused(check):
    with pytest.raises(InvalidArgumentError, match="is empty"):
        check("")


def test_an_empty_command_means_none():
    assert names.command("") == ""


@pytest.mark.parametrize("check", LIMITS)
@pytest.mark.parametrize("text", ["a\nb", "a\tb", "\0", "\x7f", "\u2028", "\x1b[31m", "\u200b"])
def test_what_cannot_be_printed_is_refused_as_a_diagnostic(check, text):
    with pytest.raises(InvalidArgumentError) as refusal:
        check(text)
    assert "cannot be printed" in refusal.value.message
    refusal.value.message.encode("ascii")


@pytest.mark.parametrize("check", LIMITS)
@pytest.mark.parametrize("code", [0xD800, 0xDC80, 0xDFFF])
def test_what_has_no_utf_8_form_is_refused_as_a_diagnostic(check, code):
    with pytest.raises(InvalidArgumentError) as refusal:
        check("a" + chr(code))
    assert "no UTF-8 form" in refusal.value.message


@pytest.mark.parametrize("check", LIMITS)
@pytest.mark.parametrize("text", ["a b", "naïve", "日本", "a'b\"c", "%s{}"])
def test_what_can_be_printed_is_taken_as_it_is(check, text):
    assert check(text) == text


def test_a_long_name_is_shown_shortened():
    with pytest.raises(InvalidArgumentError) as refusal:
        names.queue_name("q" * 5000)
    assert len(refusal.value.message) < 150
    assert "5000 bytes" in refusal.value.message


def test_a_refusal_says_which_kind_of_name_it_is_about():
    with pytest.raises(InvalidArgumentError, match="the reply queue name is empty"):
        names.queue_name("", "reply queue name")


class TestCorrelationId:
    def test_padding_with_nul_does_not_count_and_does_not_matter(self):
        assert names.correlation_id(b"order" + b"\0" * 27) == b"order"
        assert names.correlation_id(b"x" * 32 + b"\0" * 100) == b"x" * 32

    def test_a_nul_inside_is_kept(self):
        assert names.correlation_id(b"\0a\0b\0") == b"\0a\0b"

    def test_a_str_is_utf_8(self):
        assert names.correlation_id("é") == b"\xc3\xa9"

    def test_any_bytes_like_is_taken(self):
        assert names.correlation_id(bytearray(b"ab")) == names.correlation_id(memoryview(b"ab")) == b"ab"

    def test_33_bytes_are_refused(self):
        assert names.correlation_id(b"x" * 32)
        with pytest.raises(InvalidArgumentError, match="has 33 bytes, the limit is 32"):
            names.correlation_id(b"x" * 33)
        with pytest.raises(InvalidArgumentError, match="has 34 bytes"):
            names.correlation_id("é" * 17)

    def test_a_str_that_is_no_utf_8_is_refused_as_a_diagnostic(self):
        with pytest.raises(InvalidArgumentError):
            names.correlation_id("\ud800")
