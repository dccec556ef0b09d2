"""The order of a queue: what can be asked for, and the keys that give each message its place."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmcore.errors import InvalidArgumentError
from qmcore.order import Criterion, OutOfOrder, QueueOrder, key_before, key_on_top

FIELDS = ("priority", "time", "expiration")
LEGAL = [
    (*fields, *last)
    for count in range(4)
    for fields in itertools.permutations(FIELDS, count)
    for last in ((), ("fifo",), ("lifo",))
    if fields or last
]


class TestParsing:
    @pytest.mark.parametrize("words", LEGAL, ids=",".join)
    def test_every_legal_combination_is_read_and_shown_as_it_was_given(self, words):
        text = ",".join(words)
        assert str(QueueOrder.parse(text)) == text
        assert QueueOrder.parse(text).criteria == tuple(Criterion(word) for word in words)

    def test_there_are_48_legal_combinations_less_the_empty_one(self):
        assert len(LEGAL) == len(set(LEGAL)) == 16 * 3 - 1

    @pytest.mark.parametrize("text", ["", "   "])
    def test_nothing_means_fifo(self, text):
        assert str(QueueOrder.parse(text)) == "fifo"
        assert QueueOrder.parse(text) == QueueOrder()

    def test_short_forms_capitals_and_spaces_are_understood(self):
        assert str(QueueOrder.parse(" PRIO , Expir,Time , LIFO ")) == "priority,expiration,time,lifo"

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("fifo,lifo", "has both fifo and lifo"),
            ("lifo,fifo", "has both fifo and lifo"),
            ("fifo,priority", "must be last"),
            ("priority,lifo,time", "must be last"),
            ("priority,priority", "names a criterion twice"),
            ("prio,priority", "names a criterion twice"),
            ("fifo,fifo", "names a criterion twice"),
            ("size", "unknown criterion 'size'"),
            ("priority,,fifo", "unknown criterion ''"),
            ("priority;fifo", "unknown criterion"),
            (",", "unknown criterion"),
        ],
    )
    def test_what_makes_no_sense_is_refused_with_the_reason(self, text, complaint):
        with pytest.raises(InvalidArgumentError) as refusal:
            QueueOrder.parse(text)
        assert complaint in refusal.value.message
        assert repr(text) in refusal.value.message

    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("", "none"),
            ("none", "none"),
            ("top", "top"),
            ("msgid", "msgid"),
            ("msgid,top", "top,msgid"),
            ("Top ,MSGID", "top,msgid"),
        ],
    )
    def test_exceptions_from_the_order_are_read_and_shown(self, text, shown):
        assert str(OutOfOrder.parse(text)) == shown

    @pytest.mark.parametrize("text", ["bottom", "none,top", "top,none", "top,", "top msgid"])
    def test_other_exceptions_are_refused(self, text):
        with pytest.raises(InvalidArgumentError, match="is not none, top, msgid or top,msgid"):
            OutOfOrder.parse(text)


times = st.integers(-(2**62), 2**62)
arrivals = st.lists(
    st.tuples(st.integers(1, 100), times, st.none() | times),
    max_size=30,
)


def rank(order, arrival, sequence):
    """Return a tuple that sorts as the order wants; the plain list model of the keys."""
    priority, available, expires = arrival
    parts = []
    for word in str(order).split(","):
        if word == "priority":
            parts.append(-priority)
        elif word == "time":
            parts.append(available)
        elif word == "expiration":
            parts.append((expires is None, expires or 0))
    return (*parts, -sequence if "lifo" in str(order) else sequence)


def key(order, arrival, sequence):
    priority, available, expires = arrival
    return order.key(priority=priority, available_at=available, expires_at=expires, sequence=sequence)


@given(st.sampled_from(LEGAL), arrivals)
def test_keys_sort_as_the_criteria_say(words, messages):
    order = QueueOrder.parse(",".join(words))
    by_key = sorted(range(len(messages)), key=lambda at: key(order, messages[at], at))
    by_rank = sorted(range(len(messages)), key=lambda at: rank(order, messages[at], at))
    assert by_key == by_rank


class Line:
    """A queue as a plain list of numbers, and beside it those that stand directly before each of them."""

    def __init__(self, order):
        self.order = order
        self.tops = []
        self.ordinary = []
        self.before = {}

    def add(self, number, arrival):
        self.ordinary.append((rank(self.order, arrival, number), number))
        self.ordinary.sort()

    def flat(self):
        ordinary = [number for _, number in self.ordinary]
        return [each for number in (*self.tops, *ordinary) for each in self.with_those_before(number)]

    def with_those_before(self, number):
        inner = (each for other in self.before.get(number, ()) for each in self.with_those_before(other))
        return [*inner, number]


moves = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.tuples(st.integers(1, 3), st.integers(0, 2), st.none() | st.integers(0, 2))),
        st.tuples(st.just("top"), st.none()),
        st.tuples(st.just("before"), st.integers(0, 200)),
    ),
    max_size=60,
)


@given(st.sampled_from(LEGAL), moves)
def test_top_and_before_take_the_places_that_a_plain_list_gives_them(words, moves):
    order = QueueOrder.parse(",".join(words))
    line, keys = Line(order), {}
    for number, (move, detail) in enumerate(moves):
        if move == "add":
            line.add(number, detail)
            keys[number] = key(order, detail, number)
        elif move == "top" or not keys:
            line.tops.insert(0, number)
            keys[number] = key_on_top(number)
        else:
            successor = sorted(keys)[detail % len(keys)]
            line.before.setdefault(successor, []).append(number)
            keys[number] = key_before(keys[successor], number)
    assert len(set(keys.values())) == len(keys)
    assert sorted(keys, key=keys.__getitem__) == line.flat()


@given(moves)
def test_in_a_fifo_queue_before_means_exactly_the_place_before(moves):
    """The same once more against nothing but list.insert()."""
    order, line, keys = QueueOrder.parse("fifo"), [], {}
    for number, (move, detail) in enumerate(moves):
        if move == "add":
            line.append(number)
            keys[number] = key(order, (50, 0, None), number)
        elif move == "top" or not keys:
            line.insert(0, number)
            keys[number] = key_on_top(number)
        else:
            successor = sorted(keys)[detail % len(keys)]
            line.insert(line.index(successor), number)
            keys[number] = key_before(keys[successor], number)
    assert sorted(keys, key=keys.__getitem__) == line


def test_keys_hold_at_the_ends_of_their_ranges():
    order = QueueOrder.parse("time,expiration,lifo")
    ends = [(at, until) for at in (-(2**63), -1, 0, 2**63 - 1) for until in (-(2**63), 0, 2**63 - 2, None)]
    keys = [order.key(priority=50, available_at=at, expires_at=until, sequence=1) for at, until in ends]
    assert keys == sorted(set(keys))
    assert key_on_top(2**48 - 1) < key_on_top(1) < keys[0]


@given(st.sampled_from(LEGAL), moves, st.integers(-1000, 2**48))
def test_keys_that_are_moved_are_those_that_the_moved_numbers_would_have_made(words, moves, by):
    """So they keep their order, and the number of each is found in it."""
    order, first = QueueOrder.parse(",".join(words)), 1000
    keys, shifted = {}, {}
    for number, (move, detail) in enumerate(moves, first):
        if move == "add":
            keys[number], shifted[number] = key(order, detail, number), key(order, detail, number + by)
        elif move == "top" or not keys:
            keys[number], shifted[number] = key_on_top(number), key_on_top(number + by)
        else:
            successor = sorted(keys)[detail % len(keys)]
            keys[number] = key_before(keys[successor], number)
            shifted[number] = key_before(shifted[successor], number + by)
    moved = {number: order.moved(each, by) for number, each in keys.items()}
    assert moved == shifted
    assert all(order.is_key(each) and order.sequence_in(each) == number + by for number, each in moved.items())


@pytest.mark.parametrize("words", LEGAL, ids=",".join)
@pytest.mark.parametrize("place", ["ordinary", "top", "before"])
def test_a_key_is_not_moved_below_the_first_number(words, place):
    order = QueueOrder.parse(",".join(words))
    ordinary = key(order, (50, 0, None), 6)
    made = {"ordinary": ordinary, "top": key_on_top(6), "before": key_before(ordinary, 5)}[place]
    least = 5 if place == "before" else 6
    assert order.sequence_in(order.moved(made, -least)) == 0
    with pytest.raises(InvalidArgumentError, match=f"cannot be moved by -{least + 1}"):
        order.moved(made, -least - 1)
