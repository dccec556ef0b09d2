"""What differs between the stores is written down where users look for it."""

import re

import pytest

from tests.fix_shell import ROOT
from tests.store.differences import DIFFERENCES

PAGE = ROOT / "man" / "qmadmin-queue.7"


def backends():
    """Return what the manual page says on the stores, without its formatting."""
    found = re.search(r'^\.SH "?BACKENDS"?\n(.*?)(?=^\.SH|\Z)', PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, "qmadmin-queue(7) has no section BACKENDS"
    plain = re.sub(r"\\f.|\\&|^\.[A-Z]+ ", "", found[1], flags=re.MULTILINE)
    return " ".join(plain.replace("\\-", "-").replace("\\(aq", "'").split())


@pytest.mark.parametrize("name", DIFFERENCES)
def test_each_difference_is_told_to_users(name):
    anywhere_between = r"[^.]*?.{0,400}?".join(map(re.escape, DIFFERENCES[name].words))
    assert re.search(anywhere_between, backends(), re.IGNORECASE), DIFFERENCES[name].postgres


@pytest.mark.parametrize("name", DIFFERENCES)
def test_each_difference_is_said_in_whole_sentences(name):
    difference = DIFFERENCES[name]
    for sentence in (difference.sqlite, difference.postgres, difference.why):
        assert re.fullmatch(r"\S.*\S\.", sentence)
    assert difference.sqlite != difference.postgres
