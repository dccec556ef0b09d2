"""Conditions as text: what is read, what is refused and where, and that any text is one or the other."""

from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qmcore import condition as tree
from qmcore.condition import (
    And,
    Between,
    BodyPath,
    Comparison,
    Header,
    IsNull,
    Like,
    Not,
    OneOf,
    Operator,
    Or,
    Truth,
)
from qmcore.condition_parser import DEPTH_MAX, LITERALS_MAX, TEXT_MAX, parse
from qmcore.errors import InvalidArgumentError
from tests.fix_condition import conditions

PRIORITY, SIZE, TYPE, CORRID = (tree.BY_NAME[name] for name in ("priority", "size", "type", "corrid"))
MSGID, ENQUEUED, SUBTYPE = (tree.BY_NAME[name] for name in ("msgid", "enqueued_at", "subtype"))
ONE = Comparison(SIZE, Operator.EQUAL, 1)
TWO = Comparison(SIZE, Operator.EQUAL, 2)
THREE = Comparison(SIZE, Operator.EQUAL, 3)
NOON = 1_795_262_400_000_000
ID = "0123456789abcdef0000000000000001"

READINGS = {
    "size = 1": ONE,
    "size=1": ONE,
    "\tSIZE\n=\r1 ": ONE,
    "size = +1": ONE,
    "size = 0001": ONE,
    "size = -9223372036854775808": Comparison(SIZE, Operator.EQUAL, -(2**63)),
    "size = 9223372036854775807": Comparison(SIZE, Operator.EQUAL, 2**63 - 1),
    "size <> 1": Comparison(SIZE, Operator.UNEQUAL, 1),
    "size != 1": Comparison(SIZE, Operator.UNEQUAL, 1),
    "size < 1": Comparison(SIZE, Operator.LESS, 1),
    "size<=-1": Comparison(SIZE, Operator.AT_MOST, -1),
    "size > 1": Comparison(SIZE, Operator.GREATER, 1),
    "size>=1": Comparison(SIZE, Operator.AT_LEAST, 1),
    "size BETWEEN 1 AND 2": Between(SIZE, 1, 2),
    "size not between 1 and 2 and size = 3": And((Not(Between(SIZE, 1, 2)), THREE)),
    "size IN (1)": OneOf(SIZE, (1,)),
    "size NOT IN (1, 2,1)": Not(OneOf(SIZE, (1, 2, 1))),
    "type = 'it''s'": Comparison(TYPE, Operator.EQUAL, "it's"),
    "type = ''": Comparison(TYPE, Operator.EQUAL, ""),
    "type = ''''": Comparison(TYPE, Operator.EQUAL, "'"),
    "type = 'size = 1 OR '": Comparison(TYPE, Operator.EQUAL, "size = 1 OR "),
    "type='a'OR size=1": Or((Comparison(TYPE, Operator.EQUAL, "a"), ONE)),
    "type LIKE 'a\\%_%'": Like(TYPE, "a\\%_%"),
    "type NOT LIKE ''": Not(Like(TYPE, "")),
    "type LIKE '\\\\'": Like(TYPE, "\\\\"),
    "type LIKE '\\a\\\\'": Like(TYPE, "\\a\\\\"),
    "corrid = 'é'": Comparison(CORRID, Operator.EQUAL, "é".encode()),
    "corrid LIKE 'é%'": Like(CORRID, "é%"),
    "subtype IS NULL": IsNull(SUBTYPE),
    "subtype Is Not nUlL": Not(IsNull(SUBTYPE)),
    f"msgid = '{ID}'": Comparison(MSGID, Operator.EQUAL, ID),
    f"msgid <> ' {ID.upper()}'": Comparison(MSGID, Operator.UNEQUAL, ID),
    f"msgid IN ('{ID}') OR msgid IS NULL": Or((OneOf(MSGID, (ID,)), IsNull(MSGID))),
    "enqueued_at > '2026-11-21T12:00:00Z'": Comparison(ENQUEUED, Operator.GREATER, NOON),
    "enqueued_at > '2026-11-21 13:00:00.000001+01:00'": Comparison(ENQUEUED, Operator.GREATER, NOON + 1),
    "enqueued_at > 1795262400": Comparison(ENQUEUED, Operator.GREATER, NOON),
    "enqueued_at > 1795262400.5": Comparison(ENQUEUED, Operator.GREATER, NOON + 500_000),
    "enqueued_at > -0.000001": Comparison(ENQUEUED, Operator.GREATER, -1),
    "header.region = 'x'": Comparison(Header("region"), Operator.EQUAL, "x"),
    "HEADER.a.B-1_c='x'": Comparison(Header("a.B-1_c"), Operator.EQUAL, "x"),
    'header."it\'s %\n" IS NULL': IsNull(Header("it's %\n")),
    'header."region" IS NULL': IsNull(Header("region")),
    "topic = 'a.b'": Comparison(Header("topic"), Operator.EQUAL, "a.b"),
    "Topic LIKE 'a.%'": Like(Header("topic"), "a.%"),
    "header.topic IS NULL": IsNull(Header("topic")),
    "body.a.b-1_c = 'x'": Comparison(BodyPath(("a", "b-1_c")), Operator.EQUAL, "x"),
    "BODY.A[0][10].b<>-1.50": Comparison(BodyPath(("A", 0, 10, "b")), Operator.UNEQUAL, Decimal("-1.5")),
    "body[0]>=+5": Comparison(BodyPath((0,)), Operator.AT_LEAST, Decimal(5)),
    'body."a.b"."".c = tRue': Comparison(BodyPath(("a.b", "", "c")), Operator.EQUAL, Truth.TRUE),
    'body."say ""it"""."[0]" != FALSE': Comparison(BodyPath(('say "it"', "[0]")), Operator.UNEQUAL, Truth.FALSE),
    "body.0 IN (1,2)": OneOf(BodyPath(("0",)), (Decimal(1), Decimal(2))),
    "body.a NOT IN (true,FALSE)": Not(OneOf(BodyPath(("a",)), (Truth.TRUE, Truth.FALSE))),
    "body.a BETWEEN 'a' AND 'b'": Between(BodyPath(("a",)), "a", "b"),
    f"body.a = {'9' * 3000}.5": Comparison(BodyPath(("a",)), Operator.EQUAL, Decimal("9" * 3000 + ".5")),
    "body.a LIKE '5%'": Like(BodyPath(("a",)), "5%"),
    "body.a is not null": Not(IsNull(BodyPath(("a",)))),
    "size=1 OR size=2 AND size=3": Or((ONE, And((TWO, THREE)))),
    "(size=1 OR size=2) AND size=3": And((Or((ONE, TWO)), THREE)),
    "size=1 AND size=2 AND size=3": And((ONE, TWO, THREE)),
    "(size=1 AND size=2) AND size=3": And((And((ONE, TWO)), THREE)),
    "NOT size=1 AND size=2": And((Not(ONE), TWO)),
    "not not (size=1 or size=2)": Not(Not(Or((ONE, TWO)))),
    "((size=1))": ONE,
}

# What is wrong, the column, and words of the sentence.
REFUSALS = [
    ("", 1, "expected a property, got the end"),
    ("   ", 4, "expected a property, got the end"),
    ("colour = 1", 1, "colour is not a property of messages"),
    ("header = 'x'", 1, "header is not a property of messages"),
    ("header. = 'x'", 7, "expected the name of a header"),
    ("header.\"\" = 'x'", 7, "expected the name of a header"),
    ("size = 1 AND", 13, "expected a property, got the end"),
    ("size = 1 AND OR size = 2", 14, "expected a property, got OR"),
    ("1 = size", 1, "expected a property, got 1"),
    ("size", 5, "expected a comparison such as"),
    ("size NOT = 1", 10, "expected a comparison such as"),
    ("size == 1", 7, "expected a value for size, got ="),
    ("size = priority", 8, "expected a value for size, got priority"),
    ("size = NULL", 8, "expected a value for size, got NULL"),
    ("size = 1 2", 10, "expected AND, OR or the end, got 2"),
    ("size = 1)", 9, "expected AND, OR or the end, got )"),
    ("(size = 1", 10, "expected AND, OR or ), got the end"),
    ("size IN 1", 9, "expected (, got 1"),
    ("size IN ()", 10, "expected a value for size, got )"),
    ("size IN (1 2)", 12, "expected , or ), got 2"),
    ("size BETWEEN 1 OR 2", 16, "expected AND, got OR"),
    ("size IS 1", 9, "expected NULL or NOT NULL, got 1"),
    ("size IS NOT 1", 13, "expected NULL, got 1"),
    ("priority = 'x'", 12, "priority is a whole number, got 'x'"),
    ("priority = 1.5", 12, "priority is a whole number, got 1.5"),
    ("priority = 1or size = 1", 12, "1or is not a number"),
    ("priority = 1e5", 12, "1e5 is not a number"),
    ("priority = 1.", 12, "1. is not a number"),
    ("priority = - 1", 12, "the character '-' has no meaning here"),
    ("size = 9223372036854775808", 8, "numbers go from -9223372036854775808 to 9223372036854775807"),
    ("size = -9223372036854775809", 8, "numbers go from"),
    (f"size = {'9' * 3900}", 8, "numbers go from"),
    ("type = 1", 8, "type is text, got 1"),
    ("header.x IN ('1', 2)", 19, "header.x is text, got 2"),
    ("corrid = 1", 10, "corrid is bytes, written as text, got 1"),
    ("type = 'a", 8, "no closing quote"),
    ("type = 'a''", 8, "no closing quote"),
    ('type = "a"', 8, "double quotes are only for the names of headers"),
    ("size LIKE '1%'", 6, "LIKE is for text, and size is a whole number"),
    ("enqueued_at LIKE '2026%'", 13, "LIKE is for text, and enqueued_at is a time"),
    ("msgid LIKE '0%'", 7, "LIKE is for text, and msgid is a message identifier"),
    ("type LIKE 1", 11, "expected a pattern in single quotes, got 1"),
    ("type LIKE 'a\\'", 11, "the pattern ends in a backslash"),
    ("msgid = 'x'", 9, "a message identifier has 32 hexadecimal digits, got 'x'"),
    ("msgid = 1", 9, "msgid is a message identifier, got 1"),
    (f"msgid < '{ID}'", 7, "msgid has no order, so < has no meaning for it"),
    (f"msgid BETWEEN '{ID}' AND '{ID}'", 7, "msgid has no order, so BETWEEN has no meaning"),
    ("enqueued_at = '2026-11-21T12:00:00'", 15, "has no zone"),
    ("enqueued_at = 'noon'", 15, "enqueued_at is a time, got 'noon'"),
    ("enqueued_at = 1.0000001", 15, "enqueued_at is a time of at most 6 decimals"),
    ("enqueued_at = 253402300800", 15, "times are between the years 1 and 9999"),
    ("enqueued_at = '0001-01-01T00:00:00+01:00'", 15, "times are between the years 1 and 9999"),
    (f"enqueued_at = {'9' * 3900}", 15, "times are between the years 1 and 9999"),
    ("body = 1", 5, "expected a path into the body, such as body.customer.name"),
    ("body. = 1", 5, "expected a path into the body"),
    ("body.a. = 1", 7, "the character '.' has no meaning here"),
    ("body.a[x] = 1", 7, "the character '[' has no meaning here"),
    ("body.a[-1] = 1", 7, "the character '[' has no meaning here"),
    ("body.a[1234567890] = 1", 7, "the character '[' has no meaning here"),
    ("body.a < true", 8, "true has no order, so < has no meaning for it"),
    ("body.a BETWEEN false AND true", 8, "false has no order, so BETWEEN has no meaning"),
    ("body.a IN (1, 'x')", 15, "'x' is of another type than the values before it"),
    ("body.a IN ('x', true)", 17, "true is of another type than the values before it"),
    ("body.a BETWEEN 1 AND 'x'", 22, "'x' is of another type"),
    ("body.a = body.b", 10, "expected a value for body.a, got body.b"),
    ("body.a LIKE 5", 13, "expected a pattern in single quotes, got 5"),
    ("type = true", 8, "expected a value for type, got true"),
    ("size = 1; DROP TABLE message", 9, "the character ';' has no meaning here"),
    ("size = 1 -- x", 10, "the character '-' has no meaning here"),
    ("size\xa0= 1", 5, "the character '\\xa0' has no meaning here"),
    ("type = '\0'", 9, "the character '\\x00' cannot be stored in text"),
    ("type = 'a\ud800'", 10, "the character '\\ud800' cannot be stored in text"),
]


@pytest.mark.parametrize("text", READINGS, ids=ascii)
def test_a_condition_is_read_as_what_it_says(text):
    assert parse(text) == READINGS[text]


@pytest.mark.parametrize(("text", "column", "sentence"), REFUSALS, ids=lambda value: ascii(value)[:40])
def test_what_is_no_condition_is_refused_with_the_place_and_what_was_expected(text, column, sentence):
    with pytest.raises(InvalidArgumentError) as refusal:
        parse(text)
    assert refusal.value.message.startswith(f"column {column} of the condition: ")
    assert sentence in refusal.value.message
    assert refusal.value.facts["column"] == column


@pytest.mark.parametrize("text", ["colour = 1", "size = 1 AND 5 = 5"])
def test_who_names_no_property_is_told_the_properties(text):
    with pytest.raises(InvalidArgumentError) as refusal:
        parse(text)
    assert all(known.name in refusal.value.hint for known in tree.LISTED)


@pytest.mark.parametrize("value", [None, b"size = 1", 1])
def test_a_condition_that_is_no_text_is_refused(value):
    with pytest.raises(InvalidArgumentError, match="must be a str"):
        parse(value)


@pytest.mark.parametrize("known", tree.LISTED, ids=str)
def test_every_property_is_declared_with_one_line_of_meaning(known):
    assert known.meaning
    assert known.meaning.isprintable()


@pytest.mark.parametrize("known", tree.PROPERTIES, ids=str)
def test_every_property_can_be_asked_for(known):
    assert parse(f"{known.name} IS NULL") == IsNull(known)


def test_true_is_no_number():
    """Statements are kept by their conditions."""
    assert parse("body.a = true") != parse("body.a = 1")
    assert parse("body.a = 1") != parse("body.a = '1'")
    assert str(parse("header.topic='a' AND body.a=TRUE")) == "topic = 'a' AND body.a = TRUE"


@pytest.mark.parametrize("text", READINGS, ids=ascii)
def test_a_condition_is_written_as_what_is_read_as_the_same(text):
    assert parse(str(READINGS[text])) == READINGS[text]


def test_equal_conditions_can_be_found_in_a_mapping():
    assert {parse("type IN ('a','b') OR NOT size=1"): 1}[parse("TYPE in ( 'a', 'b' ) or not size = 1")] == 1


def nested(depth, core="size = 1"):
    """Return a condition in which nothing but parentheses holds AND and OR apart."""
    return "".join(f"size = {at} {'AND' if at % 2 else 'OR'} (" for at in range(depth)) + core + ")" * depth


@pytest.mark.parametrize("opened", ["(", "NOT ", "NOT("])
def test_nesting_is_limited(opened):
    times = DEPTH_MAX // (len(opened.strip()) - 2 if opened == "NOT(" else 1)
    closed = ")" * opened.count("(")
    assert parse(opened * times + "size = 1" + closed * times)
    with pytest.raises(InvalidArgumentError, match=f"nested more than {DEPTH_MAX} deep"):
        parse(opened * (times + 1) + "size = 1" + closed * (times + 1))


def test_what_is_closed_again_does_not_count_as_nesting():
    assert len(parse(" AND ".join(["(NOT size = 1)"] * (DEPTH_MAX * 3))).parts) == DEPTH_MAX * 3


def test_the_deepest_condition_is_read_from_the_depth_of_a_program():
    def deep(calls):
        return deep(calls - 1) if calls else parse(nested(DEPTH_MAX))

    assert parse(str(deep(600))) == parse(nested(DEPTH_MAX))


def test_the_number_of_values_is_limited():
    assert parse(f"size IN ({','.join('1' * LITERALS_MAX)})")
    with pytest.raises(InvalidArgumentError, match=f"more than {LITERALS_MAX} values") as refusal:
        parse(f"size IN ({','.join('1' * (LITERALS_MAX + 1))})")
    assert refusal.value.facts["column"] == len("size IN (") + 2 * LITERALS_MAX + 1


def test_patterns_and_bounds_count_as_values():
    ten = "type LIKE '' OR size BETWEEN 1 AND 2 OR size IN (1,2,3,4,5,6,7)"
    with pytest.raises(InvalidArgumentError, match=f"more than {LITERALS_MAX} values"):
        parse(f"size IN ({','.join('1' * (LITERALS_MAX - 9))}) OR {ten}")
    assert parse(f"size IN ({','.join('1' * (LITERALS_MAX - 10))}) OR {ten}")


def test_the_length_is_limited():
    longest = f"type = '{'x' * (TEXT_MAX - 9)}'"
    assert parse(longest).value == "x" * (TEXT_MAX - 9)
    with pytest.raises(InvalidArgumentError, match=f"has {TEXT_MAX + 1} characters, the limit is {TEXT_MAX}"):
        parse(longest + " ")


def test_a_condition_that_is_too_long_to_be_written_out_is_refused():
    short = f"enqueued_at IN ({','.join('1' * 200)})"
    with pytest.raises(InvalidArgumentError, match="written out with blanks and full times, the condition has 4"):
        parse(short)


@given(conditions)
def test_a_condition_is_read_again_from_what_it_says_itself(condition):
    assert parse(str(condition)) == condition


WORDS = "( ) , = <> != < <= > >= AND OR NOT IN LIKE BETWEEN IS NULL size type corrid msgid enqueued_at header.x null"
WORDS += f" 1 -1 1.5 'a' 'a%' ' '{ID}' '2026-11-21T12:00:00Z' header.'\x1b' header.\"a\x1b\" \0"
words = st.sampled_from(WORDS.split(" "))


def read_or_refused(text):
    """Return the condition and no refusal, or no condition and the refusal."""
    try:
        return parse(text), None
    except InvalidArgumentError as refusal:
        return None, refusal


@given(st.text(max_size=60) | st.lists(words, max_size=12).map(" ".join))
@example("(" * TEXT_MAX)
@example("NOT " * (TEXT_MAX // 4))
@example("'" * TEXT_MAX)
@example("type LIKE '" + "\\" * (TEXT_MAX - 13) + "a'")
@example("size = " + "0" * (TEXT_MAX - 7))
@example("header.x = '\udfff'")
@example("size = \u0661")
@example("size = 1 \u2028")
@example("\u017fize = 1")
def test_any_text_is_a_condition_or_is_refused_in_one_printable_sentence(text):
    found, refusal = read_or_refused(text)
    if refusal:
        assert refusal.message.isprintable()
        assert refusal.hint.isprintable()
        assert len(refusal.message) < 200
        assert 1 <= refusal.facts.get("column", 1) <= len(text) + 1
    else:
        assert parse(str(found)) == found


@given(st.from_regex(r"\A[0-9TZW:.+\- ]{0,32}\Z"))
@example("9999-12-31T24:00:00Z")
@example("9999-12-31T23:59:59-23:59")
@example("2026-W01-1T00:00:00Z")
def test_any_text_in_the_place_of_a_time_is_a_time_or_is_refused(text):
    found, refusal = read_or_refused(f"moved_at = '{text}'")
    if refusal:
        assert refusal.facts["column"] == 12
    else:
        assert parse(str(found)) == found
