"""Which identifiers the messages of a queue space show, and which sequence numbers an identifier is of."""

import itertools
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmcore.bulk_rows import Adopted
from qmcore.errors import BadMessageIdError
from qmcore.message import message_id
from qmcore.space import Space, SpaceDefinition

OURS, THEIRS, THIRD = "0" * 15 + "a", "0" * 15 + "b", "0" * 15 + "c"
DEFINITION = SpaceDefinition(name="S", ipc_key=40_000, pages=100, queues=2, transactions=1, processes=1, messages=1)


def space_with(*adopted):
    return Space(1, OURS, DEFINITION, initialized=True, created_at=0, adopted=adopted)


NOTHING_ADOPTED = space_with()


@st.composite
def imports(draw):
    """Ranges of our numbers one behind the other, each of identifiers from somewhere, and what lies between them."""
    adopted, at = [], 1
    for gap, count, foreign, first in draw(
        st.lists(
            st.tuples(st.integers(0, 3), st.integers(1, 5), st.sampled_from([OURS, THEIRS, THIRD]), st.integers(1, 12)),
            max_size=6,
        )
    ):
        at += gap
        adopted.append(Adopted(foreign, first, first + count - 1, at - first))
        at += count
    return tuple(draw(st.permutations(adopted))), at + 5


def shown_by_the_book(adopted, sequence):
    for piece in adopted:
        if piece.first <= sequence - piece.shift <= piece.last:
            return message_id(piece.incarnation, sequence - piece.shift)
    return message_id(OURS, sequence)


@given(imports())
def test_each_number_shows_one_identifier_and_an_identifier_is_of_those_that_show_it(given_imports):
    adopted, end = given_imports
    space = space_with(*adopted)
    shown = {sequence: space.msgid(sequence) for sequence in range(end)}
    assert shown == {sequence: shown_by_the_book(adopted, sequence) for sequence in range(end)}
    for foreign, number in itertools.product((OURS, THEIRS, THIRD), range(end)):
        msgid = message_id(foreign, number)
        newest_first = [sequence for sequence in reversed(range(end)) if shown[sequence] == msgid]
        assert list(space.sequences_of(msgid)) == newest_first


@given(imports(), st.integers(0, 10), st.integers(0, 60))
def test_the_pieces_of_a_range_tell_the_identifier_of_each_of_its_numbers_once(given_imports, first, count):
    space = space_with(*given_imports[0])
    numbers = range(first, first + count)
    told = [
        (message_id(piece.incarnation, number), number + piece.shift)
        for piece in space.pieces(first, first + count - 1)
        for number in range(piece.first, piece.last + 1)
    ]
    assert told == [(space.msgid(number), number) for number in numbers]


def test_a_queue_space_that_has_adopted_nothing_knows_its_own_identifiers_only():
    assert NOTHING_ADOPTED.msgid(7) == message_id(OURS, 7)
    assert NOTHING_ADOPTED.sequences_of(message_id(OURS, 7).upper()) == (7,)
    assert NOTHING_ADOPTED.sequences_of(message_id(THEIRS, 7)) == ()
    assert list(NOTHING_ADOPTED.pieces(3, 9)) == [Adopted(OURS, 3, 9, 0)]


def test_a_number_that_no_message_can_have_is_nobodys():
    assert NOTHING_ADOPTED.sequences_of(message_id(OURS, 2**48)) == ()
    assert space_with(Adopted(OURS, 1, 5, 100)).sequences_of(message_id(OURS, 2**63)) == ()


def test_what_is_no_identifier_is_refused():
    for space in (NOTHING_ADOPTED, space_with(Adopted(THEIRS, 1, 5, 100))):
        with pytest.raises(BadMessageIdError):
            space.sequences_of("x")


def test_messages_that_come_back_leave_the_identifiers_valid_that_they_left_with():
    """The first one has stayed, and so it is told where the identifier is used which of the two is meant."""
    space = space_with(Adopted(OURS, 1, 5, 100))
    assert space.sequences_of(message_id(OURS, 3)) == (103, 3)
    assert space.msgid(3) == space.msgid(103) == message_id(OURS, 3)
    assert space.sequences_of(message_id(OURS, 103)) == ()


def test_a_range_within_a_long_one_hides_nothing_of_it():
    space = space_with(Adopted(THEIRS, 1, 1000, 0), Adopted(THEIRS, 2, 3, 2000), Adopted(THEIRS, 500, 501, 3000))
    assert space.sequences_of(message_id(THEIRS, 700)) == (700,)
    assert space.sequences_of(message_id(THEIRS, 2)) == (2002, 2)
    assert space.sequences_of(message_id(THEIRS, 500)) == (3500, 500)


def test_four_hundred_imports_cost_a_few_steps_and_not_four_hundred():
    """Counted, not timed: a piece that is looked at has its numbers compared."""
    looks = []

    class Counting(int):
        def __ge__(self, other):
            looks.append(other)
            return int(self) >= other

    pieces = [Adopted(THEIRS, 100 * at, Counting(100 * at + 50), 10_000_000) for at in range(400)]
    space = space_with(*pieces)
    looks.clear()
    assert space.sequences_of(message_id(THEIRS, 20_010)) == (10_020_010,)
    assert space.sequences_of(message_id(THEIRS, 20_060)) == ()
    assert len(looks) < 10


def test_a_queue_space_goes_to_another_process_with_what_it_has_adopted():
    space = space_with(Adopted(THEIRS, 1, 5, 100))
    there = pickle.loads(pickle.dumps(space))
    assert there == space
    assert hash(there) == hash(space)
    assert there.msgid(101) == message_id(THEIRS, 1)
    assert there != NOTHING_ADOPTED
