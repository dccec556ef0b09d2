"""The books of scripts/soak forward find a request that is lost or doubled, and nothing else."""

import pytest
from soaking.forwarding.books import ERROR, FAILURE, balance
from soaking.journal import Operation, Outcome

DONE, NOTHING, UNKNOWN = Outcome.DONE, Outcome.NOTHING, Outcome.UNKNOWN


def asked(*names, outcome=DONE):
    return Operation(list(names), [], blind=False, outcome=outcome)


def took(*names, outcome=DONE):
    return Operation([], list(names), blind=True, outcome=outcome)


BALANCED = {
    "a reply that was taken": ([asked("a"), took("a")], {}),
    "a reply that waits": ([asked("a"), took()], {"reply": ["a"]}),
    "an entry in the error queue": ([asked("a", "b"), took("a")], {"error": ["b"]}),
    "a failure that was told": ([asked("a")], {FAILURE: ["a"]}),
    "one of a request that is out of tries": ([asked("a")], {FAILURE: ["a"], ERROR: ["a"]}),
    "a request that is queued": ([asked("a")], {"request": ["a"]}),
    "an enqueue of unknown outcome that happened": ([asked("a", outcome=UNKNOWN)], {"request": ["a"]}),
    "an enqueue of unknown outcome that did not": ([asked("a", outcome=UNKNOWN)], {}),
    "an enqueue that was rolled back": ([asked("a", outcome=NOTHING)], {}),
    "a dequeue of unknown outcome that took the reply": ([asked("a"), took(outcome=UNKNOWN)], {}),
}


@pytest.mark.parametrize("case", BALANCED)
def test_the_books_balance_with(case):
    operations, left = BALANCED[case]
    assert balance(operations, left).problems == []


UNBALANCED = {
    "a lost request": ([asked("a", "b"), took("b")], {}, "a has no reply, no entry in the error queue"),
    "one more than was taken blindly": (
        [asked("a", "b"), took(outcome=UNKNOWN)],
        {},
        "a has no reply, no entry in the error queue",
    ),
    "two replies": ([asked("a"), took("a"), took("a")], {}, "a is there more than once: reply that was taken, reply"),
    "a reply and an entry in the error queue": ([asked("a"), took("a")], {"error": ["a"]}, "taken, error"),
    "a reply and the request": ([asked("a")], {"reply": ["a"], "request": ["a"]}, "reply, request"),
    "a failure that was told twice": ([asked("a")], {FAILURE: ["a", "a"]}, "told, failure"),
    "a failure that was told, and a reply": ([asked("a"), took("a")], {FAILURE: ["a"]}, "taken, failure"),
    "a doubled enqueue of unknown outcome": ([asked("a", outcome=UNKNOWN)], {"reply": ["a", "a"]}, "reply, reply"),
    "what was rolled back": ([asked("a", outcome=NOTHING)], {"reply": ["a"]}, "was refused or rolled back"),
    "what nobody asked": ([], {"error": ["a"]}, "nobody has asked it"),
}


@pytest.mark.parametrize("case", UNBALANCED)
def test_the_books_name_what_became_of(case):
    operations, left, said = UNBALANCED[case]
    problems = balance(operations, left).problems
    assert said in problems[0]
    assert balance(operations, left).lines()[-1] == "THE BOOKS DO NOT BALANCE"


def test_many_problems_of_a_kind_are_cut_short():
    names = [f"n{number:03}" for number in range(100)]
    problems = balance([asked(*names)], {}).problems
    assert (len(problems), problems[-1]) == (21, "... and 80 more like this one")
