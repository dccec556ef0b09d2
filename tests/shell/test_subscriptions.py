"""Subscriptions in the shell: what programs get, what is completed, and what is recorded."""

import contextlib
import io
import json

import pytest

from qmadmin.console.render import PlainScreen
from qmadmin.shell import complete
from qmadmin.shell.catalogue import Catalogue
from qmadmin.shell.session import Session

SEVERAL = 'qopen QSPACE\nqcreate -m news fifo none 2 0 100% 0% ""\nqsub news billing\nqsub news audit\n'
NO_TERMS = {"topics": None, "rule": None}


def rows(shell, lines):
    return json.loads(shell.run(f"format json\nqopen QSPACE\n{lines}\n").out.splitlines()[-1])["rows"]


def test_programs_get_what_stands_for_each_consumer(laid_out):
    laid_out.run(SEVERAL + "qput news one\nqput -t +600 news two\nqget news:billing")
    found = rows(laid_out, "qsublist news")
    assert all(row.pop("since") for row in found)
    assert found == [
        {"queue": "news", "consumer": "audit", "messages": 2, "ready": 1, "delayed": 1, "held": 0} | NO_TERMS,
        {"queue": "news", "consumer": "billing", "messages": 1, "ready": 0, "delayed": 1, "held": 0} | NO_TERMS,
    ]
    assert rows(laid_out, "qsublist STRING") == []


def test_programs_get_the_rule_and_the_topics_of_each(laid_out):
    laid_out.run(SEVERAL + "qsubch -w \"header.region='eu'\" -P b.#,a.* news billing\nqsubch -P a news audit")
    assert [(row["consumer"], row["topics"], row["rule"]) for row in rows(laid_out, "qsublist news")] == [
        ("audit", "a", None),
        ("billing", "a.*,b.#", "header.region = 'eu'"),
    ]
    made = laid_out.run('format json\nqopen QSPACE\nqsub -w "urcode=5" news third\n').out.splitlines()[-1]
    assert {key: json.loads(made)["rows"][0][key] for key in ("consumer", "topics", "rule")} == {
        "consumer": "third",
        "topics": None,
        "rule": "urcode = 5",
    }


def test_what_nobody_wants_is_not_moved_and_that_is_said(laid_out):
    laid_out.run(SEVERAL + "qsubch -P a.# news billing\nqsubch -P b news audit")
    laid_out.run("qopen QSPACE\nqput -P a STRING 1\nqput -P c STRING 2\nqput -P a.x STRING 3")
    ran = laid_out.run("format json\nqopen QSPACE\nqset STRING\nqchangequeue -y news\n")
    assert json.loads(ran.out.splitlines()[-1])["rows"] == [{"queue": "news", "messages": 2, "left": 1}]
    assert "1 message of queue 'STRING' would reach nobody in queue 'news'" in ran.err
    assert rows(laid_out, "qget STRING")[0]["headers"] == {"topic": "c"}


def test_a_consumer_is_watched_as_a_queue_is(laid_out):
    laid_out.run(SEVERAL + "qput news one\nqget news:billing")
    depths = {row["queue"]: row["messages"] for row in rows(laid_out, "qtop -n 1")}
    assert {name: depths[name] for name in depths if name.startswith("news")} == {
        "news": 1,
        "news:audit": 1,
        "news:billing": 0,
    }
    assert [row["queue"] for row in rows(laid_out, "qtop -n 1 news:audit")] == ["news:audit"]


def test_the_end_of_a_subscription_is_recorded_with_the_line_that_was_typed(laid_out):
    laid_out.run(SEVERAL + "qunsub -y news audit")
    row = rows(laid_out, "qaudit")[0]
    assert (row["command"], row["object"], row["outcome"]) == (
        "qunsub -y news audit",
        "subscription QSPACE/news:audit",
        "done",
    )


def test_consumers_are_offered_where_messages_are_taken_and_nowhere_else(laid_out):
    laid_out.run(SEVERAL)
    made = Session(laid_out.device, Catalogue(), PlainScreen(io.StringIO(), io.StringIO()), laid_out.environ)
    with contextlib.closing(made) as session:
        session.open_space("QSPACE")

        def offered(line):
            return [found.text for found in complete.line(session, line)[1]]

        consumers = ["news", "news:audit", "news:billing"]
        for command in ("qget", "qpeek", "qset", "qlist", "qinfo", "qtop", "qstat", "qpurge", "qunpark"):
            assert offered(f"{command} new") == consumers
        for command in ("qput", "qchange", "qdestroy", "qstop", "qsublist", "qsubscribe", "qsubchange", "qunsubscribe"):
            assert offered(f"{command} new") == ["news"]
        assert offered("qunsub news ") == offered("qsubch news ") == ["audit", "billing"]


def test_the_longest_names_of_a_queue_and_of_a_consumer_fit_into_one_text(laid_out):
    queue, consumer = "q" * 127, "c" * 127
    ran = laid_out.run(
        f'qopen QSPACE\nqcreate -m {queue} fifo none 2 0 100% 0% ""\nqsub {queue} {consumer}\nqput {queue} one\n'
        f"qget {queue}:{consumer}\nqget {queue}:{consumer}c\n"
    )
    assert "\none\n" in ran.out
    assert "has 128 bytes, the limit is 127" in ran.err


@pytest.mark.parametrize("end", ["qunsub -y news audit", "qdestroy -y news"])
def test_a_current_consumer_that_is_gone_is_forgotten(laid_out, end):
    ran = laid_out.run(SEVERAL + f"qset news:audit\n{end}\nqset")
    assert "No current queue is set" in ran.err
