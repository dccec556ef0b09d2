"""qmspark query as a program."""

from __future__ import annotations

import json

import pytest

ARGUMENTS = ["--master", "local[2]", "--memory", "768m", "--format", "json"]


def test_a_query_without_words_is_a_mistake(qmspark):
    assert "Give a device or an archive, and a query" in qmspark.refusal("query")


def test_what_is_not_there_is_told_before_spark_is_started(qmspark):
    assert "nowhere" in qmspark.refusal("query", qmspark.path("nowhere"), "SELECT 1")
    (qmspark.directory / "empty").mkdir()
    assert "is empty" in qmspark.refusal("query", qmspark.path("empty"), "SELECT 1")


def test_missing_java_is_told_with_what_to_install(qmspark, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", qmspark.path("jdk"))
    # Another test of this process may have a session.
    monkeypatch.setattr("qmadmin.spark.session.active", lambda: None)
    refusal = qmspark.refusal("query", qmspark.device, "SELECT 1")
    assert "Spark needs Java" in refusal
    assert "openjdk-17-jre-headless" in refusal


@pytest.mark.slow
@pytest.mark.usefixtures("as_users_start_it")
@pytest.mark.parametrize("place", ["device", "archive"])
def test_a_query_is_answered_and_nothing_else_is_said(qmspark, place):
    named = qmspark.device if place == "device" else qmspark.archive()
    sql = "SELECT queue, count(*) AS messages FROM messages GROUP BY queue ORDER BY queue"
    started = qmspark.start("query", *ARGUMENTS, named, sql)
    out, err = started.communicate(timeout=240)
    assert (err, started.returncode) == ("", 0)
    document = json.loads(out)
    assert document["rows"] == [{"queue": "errq", "messages": 1}, {"queue": "orders", "messages": 4}]


@pytest.mark.slow
@pytest.mark.usefixtures("java")
@pytest.mark.parametrize(
    ("sql", "status", "reason"),
    [
        ("SELECT CAST(queue AS INT) FROM messages", 1, "cannot be cast to"),
        ("SELECT nothing FROM messages", 2, "`nothing`"),
    ],
)
def test_a_query_that_fails_on_its_way_or_is_none_is_one_sentence(qmspark, sql, status, reason):
    started = qmspark.start("query", *ARGUMENTS[:4], qmspark.device, sql)
    out, err = started.communicate(timeout=240)
    assert (out, started.returncode) == ("", status)
    assert len(err.splitlines()) == 2
    assert reason in err
