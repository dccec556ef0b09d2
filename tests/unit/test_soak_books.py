"""The books of scripts/soak find what must never happen, and nothing else."""

import pytest
from soaking.books import balance
from soaking.journal import Journal, Operation, Outcome, read

DONE, NOTHING, UNKNOWN = Outcome.DONE, Outcome.NOTHING, Outcome.UNKNOWN


def made(*names, outcome=DONE):
    return Operation(list(names), [], blind=False, outcome=outcome)


def took(*names, made=(), outcome=DONE):
    return Operation(list(made), list(names), blind=False, outcome=outcome)


def taken_blindly(*names, outcome=DONE):
    return Operation([], list(names), blind=True, outcome=outcome)


BALANCED = {
    "consumed or stored": ([made("a", "b"), taken_blindly("a")], ["b"]),
    "an enqueue of unknown outcome that happened": ([made("a", outcome=UNKNOWN), taken_blindly("a")], []),
    "an enqueue of unknown outcome that did not": ([made("a", outcome=UNKNOWN)], []),
    "a refused enqueue": ([made("a", outcome=NOTHING)], []),
    "a dequeue of unknown outcome that took it": ([made("a"), taken_blindly(outcome=UNKNOWN)], []),
    "a dequeue of unknown outcome that took nothing": ([made("a"), taken_blindly(outcome=UNKNOWN)], ["a"]),
    "a dequeue that found nothing": ([taken_blindly()], []),
    "a commit of unknown outcome that happened": (
        [made("a"), took("a", made=["r"], outcome=UNKNOWN), taken_blindly("r")],
        [],
    ),
    "one that did not": ([made("a"), took("a", made=["r"], outcome=UNKNOWN), taken_blindly("a")], []),
    "one without replies": ([made("a"), took("a", outcome=UNKNOWN)], []),
    "one without replies that did not happen": ([made("a"), took("a", outcome=UNKNOWN), taken_blindly("a")], []),
    "a chain of them": (
        [made("a"), took("a", made=["b"], outcome=UNKNOWN), took("b", made=["c"], outcome=UNKNOWN)],
        ["c"],
    ),
    "two of them over one message": ([made("a"), took("a", outcome=UNKNOWN), took("a", outcome=UNKNOWN)], []),
}


@pytest.mark.parametrize("case", BALANCED)
def test_books_balance_after(case):
    books = balance(*BALANCED[case])
    assert books.problems == []
    assert books.acknowledged + books.appeared == books.consumed + books.stored + books.missing


UNBALANCED = {
    "a is missing": ([made("a")], []),
    "a was consumed or stored more than once": ([made("a"), taken_blindly("a"), took("a")], []),
    "a was consumed or stored more": ([made("a"), taken_blindly("a")], ["a"]),
    "a was consumed or stored more than": ([made("a")], ["a", "a"]),
    "r was enqueued by a transaction that did not consume what it took": (
        [made("a"), took("a", made=["r"], outcome=UNKNOWN)],
        ["a", "r"],
    ),
    "a is there though its enqueue was refused": ([made("a", outcome=NOTHING)], ["a"]),
    "a is there and nobody has enqueued it": ([], ["a"]),
    "2 messages are missing, and only 1": ([made("a", "b"), taken_blindly(outcome=UNKNOWN)], []),
}


@pytest.mark.parametrize("problem", UNBALANCED)
def test_books_do_not_balance_where(problem):
    books = balance(*UNBALANCED[problem])
    assert [found for found in books.problems if found.startswith(problem)]
    assert books.lines()[-1] == "THE BOOKS DO NOT BALANCE"


def test_the_counters_of_the_queues_have_to_agree():
    work = [made("a", "b"), taken_blindly("a"), taken_blindly(outcome=UNKNOWN)]
    assert balance(work, [], 2).problems == []
    assert balance(work, [], 1).problems == ["the counters of the queues say that 1 messages were dequeued"]


def test_a_journal_tells_what_was_under_way_when_its_client_was_killed(tmp_path):
    journal = Journal(tmp_path / "journal")
    journal.begin(made=["a"])
    journal.end(DONE)
    journal.begin(blind=True)
    journal.end(DONE, ["a"])
    journal.begin(made=["b"])
    journal.end(NOTHING, error="NoSpaceError")
    journal.begin(took=["c"])
    assert list(read(tmp_path / "journal")) == [
        made("a"),
        taken_blindly("a"),
        Operation(["b"], [], blind=False, outcome=NOTHING, error="NoSpaceError"),
        took("c", outcome=UNKNOWN),
    ]
