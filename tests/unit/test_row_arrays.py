"""Rows of messages in the form of the server: those that are written together are the same as each by itself."""

import itertools
import struct

import pytest

from qmcore.transitions import Arrival
from qmstorage import bodies
from qmstorage.postgres.row_arrays import RowsAlike, add_rows, row_of

SAME = RowsAlike(b"place", b"options")
BASE = 1 << 48
ARRIVALS = [
    Arrival(None, 0, 1, None),
    Arrival(b"", 0, 1, None),
    Arrival(b"one", 3, 1, None),
    Arrival(b"two", 3, 1, None),
    Arrival(memoryview(b"six"), 3, 2, None),
    Arrival(b"one", 3, 1, None, 7),
    Arrival(b"two", 3, 1, None, 8),
]


@pytest.mark.parametrize("order", range(len(ARRIVALS)))
def test_rows_that_are_written_together_are_those_of_each_message(order):
    arrivals = [each for pair in itertools.permutations(ARRIVALS[order:] + ARRIVALS[:order], 2) for each in pair]
    expected = [row_of(SAME, BASE | its.sequence if its.sequence else None, its) for its in arrivals]
    rows = []
    assert add_rows(rows, SAME, BASE, arrivals) == len(arrivals)
    assert b"".join(rows) == b"".join(struct.pack("!i", len(row)) + row for row in expected)


def test_a_body_that_is_kept_apart_is_not_in_the_row_and_the_next_one_is():
    size = bodies.IN_ROW_MAX + 1
    rows = []
    add_rows(rows, SAME, BASE, [Arrival(bytes(size), size, 300, None), Arrival(b"next", 4, 1, None)])
    sent = b"".join(rows)
    assert len(sent) < 1000
    assert sent.endswith(row_of(SAME, None, Arrival(b"next", 4, 1, None)))
