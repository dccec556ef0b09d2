"""What the live view shows in windows of some sizes."""

import dataclasses
from types import SimpleNamespace

import pytest

from qmadmin.console import PLAIN_BARS
from qmadmin.monitoring.flow import Sample
from qmadmin.shell.live_view import BAR, Sort, View
from qmcore.queue import QueueUsage
from qmcore.space import HighestUse, SpaceDefinition, SpaceUsage

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
NOTHING = {"ready": 0, "delayed": 0, "held": 0, "pages": 0, "size": 0}
DEFINITION = SpaceDefinition(
    name="QSPACE",
    ipc_key=54320,
    pages=200,
    queues=50,
    transactions=10,
    processes=10,
    messages=10_000,
    error_queue="",
    memory=4096,
)
USAGE = SpaceUsage(
    queues=3,
    transactions=1,
    processes=2,
    messages=1234,
    pages=20,
    actions=0,
    memory=0,
    highest=HighestUse(queues=3, transactions=1, processes=2, messages=1234, actions=0),
)


def sample(at, stopped=None, **depths):
    """Return a sample of queues with depths, each of which has had ten messages for each second."""
    pairs = []
    for number, (name, depth) in enumerate(depths.items(), 1):
        counts = {"enqueued": 10 * at + depth, "dequeued": 10 * at, "expired": 1, "discarded": 2, "moved": number}
        use = QueueUsage(messages=depth, **NOTHING, **counts, oldest_us=START - number * SECOND)
        pairs.append((SimpleNamespace(name=name, id=number, dequeue_enabled=name != stopped), use))
    return Sample.of(at, START + at * SECOND, pairs)


@pytest.fixture
def view():
    made = View("QSPACE on /var/qm/QUE", 1.0, definition=DEFINITION, usage=USAGE)
    made.flow.add(sample(0, ALPHA=5, BETA=100, GAMMA=1))
    made.flow.add(sample(1, ALPHA=9, BETA=80, GAMMA=1))
    return made


def drawn(view, width=100, height=20):
    return ["".join(text for text, _ in spans) for spans in view.lines(width, height)]


def names(view, **size):
    """Return the names of the queues from top to bottom."""
    lines = drawn(view, **size)
    start = next(number for number, line in enumerate(lines) if "Queue " in line and "Depth" in line)
    return [line.split()[0] for line in lines[start + 1 : -1] if line.strip()]


@pytest.mark.parametrize("height", [5, 12, 24, 60])
@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 132, 200])
def test_every_line_is_within_the_window(view, width, height):
    view.flow.add(sample(2, **{f"QUEUE.{number:02}": number for number in range(40)}))
    lines = drawn(view, width, height)
    assert len(lines) == height
    for line in lines:
        assert len(line) <= width, line


def test_title_and_keys_go_from_end_to_end(view):
    lines = view.lines(100, 20)
    for spans in (lines[0], lines[-1]):
        ((text, style),) = spans
        assert (len(text), style) == (100, BAR)


def test_totals_stand_against_their_limits(view):
    shown = " ".join(" ".join(drawn(view)[1:3]).split())
    assert shown == (
        "Messages 1234/10k 12% Pages 20/149 13% Trans 1/10 10% Procs 2/10 20% Queues 3/50 6% Memory 0/4096 0%"
        " In/s 24 Out/s 30"
    )


def test_row_tells_depth_rates_age_and_time_to_drain(view):
    lines = [line.split() for line in drawn(view, 200)]
    titles = ["Queue", "*Depth", "Ready", "Delayed", "Held", "In/s", "Out/s", "Age", "Drain", "Moved", "Lost", "Course"]
    assert titles in lines
    assert ["BETA", "80", "0", "0", "0", "0", "10", "3s", "4s", "2", "3", "█▇"] in lines
    assert ["ALPHA", "9", "0", "0", "0", "14", "10", "2s", "growing", "1", "3", "▅█"] in lines
    assert ["GAMMA", "1", "0", "0", "0", "10", "10", "4s", "-", "3", "3", "██"] in lines


@pytest.mark.parametrize(
    ("width", "missing"),
    [
        (60, ["Ready", "Delayed", "Moved", "Lost", "Course"]),
        (80, ["Ready", "Moved", "Lost"]),
        (100, ["Lost"]),
        (120, []),
    ],
)
def test_narrow_window_leaves_out_what_is_missed_least(view, width, missing):
    header = next(line for line in drawn(view, width) if "Depth" in line)
    every = ["Depth", "Ready", "Delayed", "Held", "In/s", "Out/s", "Age", "Drain", "Moved", "Lost", "Course"]
    assert [title for title in every if title not in header] == missing


def test_long_name_is_cut_where_it_has_to_be(view):
    name = "ORDERS.INCOMING.EUROPE.PRIORITY"
    view.flow.add(sample(2, **{name: 1}))
    assert name in "\n".join(drawn(view, 200))
    assert f"\n{name[:20]}…" in "\n".join(drawn(view, 60))


def test_queue_that_nothing_can_be_dequeued_from_says_so(view):
    view.flow.add(sample(2, stopped="BETA", ALPHA=9, BETA=90, GAMMA=1))
    assert next(line.split()[-1] for line in drawn(view, 60) if line.startswith("BETA")) == "stopped"
    view.flow.add(sample(3, stopped="BETA", ALPHA=9, BETA=0, GAMMA=1))
    assert next(line.split()[-1] for line in drawn(view, 60) if line.startswith("BETA")) != "stopped"


def test_name_that_would_drive_the_terminal_is_escaped(view):
    view.flow.add(sample(2, **{"A\x1b[2J": 1}))
    assert "\x1b" not in "\n".join(drawn(view))
    assert "A\\x1b[2J" in "\n".join(drawn(view))


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        (Sort.DEPTH, ["BETA", "ALPHA", "GAMMA"]),
        (Sort.IN, ["ALPHA", "GAMMA", "BETA"]),
        (Sort.OUT, ["ALPHA", "BETA", "GAMMA"]),
        (Sort.AGE, ["GAMMA", "BETA", "ALPHA"]),
        (Sort.MOVED, ["GAMMA", "BETA", "ALPHA"]),
        (Sort.NAME, ["ALPHA", "BETA", "GAMMA"]),
    ],
)
def test_queues_are_sorted_and_what_is_alike_stands_by_name(view, sort, order):
    view.sort = sort
    assert names(view) == order
    view.backwards = True
    assert names(view) == order[::-1]


def test_sorting_goes_round_all_columns():
    order = [Sort.DEPTH]
    while (following := order[-1].next) is not Sort.DEPTH:
        order.append(following)
    assert order == list(Sort)


def test_scrolling_stays_within_the_queues(view):
    view.flow.add(sample(2, **{f"Q{number:02}": 0 for number in range(30)}))
    assert names(view, height=14)[0] == "Q00"
    view.scroll(2)
    assert names(view, height=14)[0] == "Q02"
    assert drawn(view, height=14)[-1].endswith("3-10 of 30 ")
    view.scroll(10**9)
    assert names(view, height=14)[-1] == "Q29"
    view.scroll(-(10**9))
    assert names(view, height=14)[0] == "Q00"
    view.scroll(25)
    assert names(view, height=60)[0] == "Q00"


def test_before_the_first_look_there_is_nothing_but_the_frame():
    lines = drawn(View("QSPACE", 1.0))
    assert lines[0].endswith("every 1s  reading ")
    assert lines[-1].endswith("0-0 of 0 ")


def test_queue_space_without_queues_says_so():
    made = View("QSPACE", 1.0)
    made.flow.add(sample(0))
    assert "There are no queues." in drawn(made)


def test_terminal_without_bars_gets_other_signs(view):
    view.bars = PLAIN_BARS
    assert any(line.startswith("BETA ") and line.rstrip().endswith("  #%") for line in drawn(view, 200))


def test_age_of_the_first_message_is_marked_where_the_oldest_is_not_known(view):
    made = sample(2, ALPHA=9, BETA=80, GAMMA=1)
    of_first = dataclasses.replace(made.usages["BETA"], first_us=START, oldest_us=None)
    view.flow.add(dataclasses.replace(made, usages={**made.usages, "BETA": of_first}))
    for width in (60, 80, 100):
        assert "1st 2s" in next(line for line in drawn(view, width=width) if "BETA" in line)
        assert "1st" not in next(line for line in drawn(view, width=width) if "ALPHA" in line)
