"""Lines of megabytes, as a file makes them that was taken for a script: refused in few words, and soon."""

import random

import pytest

from qmadmin.shell import lines
from qmadmin.shell.notices import UsageError, nearest

LONG = "a" * 300_000


@pytest.mark.parametrize(
    "line",
    [
        LONG,
        f"qopen {LONG}",
        f"qset '{LONG}",
        f'qset "{LONG}"x',
        f"qscan -i {LONG}",
        f"qscan -t {LONG}",
        f"qscan -m {LONG}",
        f"qlist {LONG}",
        f"qlist -{LONG}",
        f"qset STRING\nqchangeprio {LONG}",
        f"qset STRING\nqdeletemsg\n{LONG}",
    ],
    ids=lambda line: line.split(LONG)[0] or "nothing",
)
def test_refusal_of_a_long_line_leaves_most_of_it_out(laid_out, line):
    ran = laid_out.run(f"qopen QSPACE\nqput STRING x\n{line}\nqinfo STRING\n")
    errors = [said for said in ran.err.splitlines() if said.startswith("ERROR")]
    assert len(errors) == 1
    assert 0 < len(ran.both) < 3000
    assert "STRING         1" in ran.out


def test_place_of_an_error_names_the_beginning_of_a_long_command(laid_out):
    ran = laid_out.process(None, "-c", f"qopen {LONG[:100_000]}")
    assert ran.stderr.endswith("...', line 1)\n")
    assert len(ran.stderr) < 500


def test_nothing_is_suggested_for_a_name_that_is_longer_than_any():
    assert nearest("a" * 200, ["a" * 199]) == "a" * 199
    assert nearest("a" * 201, ["a" * 200]) == ""


def test_correlation_identifier_that_no_message_can_have_is_refused_as_a_criterion(laid_out):
    ran = laid_out.run(f"qopen QSPACE\nqscan -i {'x' * 33}\nqscan -i {'x' * 32}\n")
    assert "has 33 bytes, the limit is 32" in ran.err
    assert f"-i {'x' * 32}" in ran.out


def test_line_is_taken_apart_as_it_is_character_by_character():
    chance = random.Random(7)
    for _ in range(20_000):
        line = "".join(chance.choice("ab\\\"' \t") for _ in range(chance.randrange(12)))
        assert taken_apart(line) == _one_by_one(line), line


def taken_apart(line):
    try:
        return [(word.text, word.quoted, word.start) for word in lines.split(line)]
    except UsageError as error:
        return "1107" if error.notice.number else "open"


def _one_by_one(line):
    """Return the same by the plainest of ways."""
    found, at = [], 0
    while at < len(line):
        start, mark = at, line[at] if line[at] in "\"'" else ""
        text, at = "", at + len(mark)
        if line[start] in " \t":
            at += 1
            continue
        while at < len(line) and (line[at] != mark if mark else line[at] not in " \t"):
            at += mark == '"' and line.startswith('\\"', at)
            text += line[at]
            at += 1
        if mark and at == len(line):
            return "open"
        at += len(mark)
        if mark and at < len(line) and line[at] not in " \t":
            return "1107"
        found.append((text, bool(mark), start))
    return found
