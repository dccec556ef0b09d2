"""qmspark query as a program."""

from __future__ import annotations

import json

import pytest

ARGUMENTS = ["--master", "local[2]", "--memory", "768m", "--format", "json"]
COUNT = "SELECT queue, count(*) AS messages FROM messages GROUP BY queue ORDER BY queue"
COUNTED = [{"queue": "errq", "messages": 1}, {"queue": "orders", "messages": 4}]


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
def test_a_query_is_answered_and_nothing_else_is_said(qmspark):
    started = qmspark.start("query", *ARGUMENTS, qmspark.device, COUNT)
    out, err = started.communicate(timeout=240)
    assert (err, started.returncode) == ("", 0)
    assert json.loads(out)["rows"] == COUNTED


@pytest.mark.usefixtures("spark")
def test_an_archive_is_asked_as_a_device_is(qmspark):
    said = qmspark.json("query", qmspark.archive(), COUNT)
    assert said.err == ""
    assert json.loads(said.out)["rows"] == COUNTED


@pytest.mark.slow
@pytest.mark.usefixtures("java")
def test_a_query_that_fails_on_its_way_is_one_sentence(qmspark):
    started = qmspark.start("query", *ARGUMENTS[:4], qmspark.device, "SELECT CAST(queue AS INT) FROM messages")
    out, err = started.communicate(timeout=240)
    assert (out, started.returncode) == ("", 1)
    assert len(err.splitlines()) == 2
    assert "cannot be cast to" in err


@pytest.mark.usefixtures("spark")
def test_so_is_what_is_no_query_of_what_there_is(qmspark):
    said = qmspark("query", qmspark.device, "SELECT nothing FROM messages", status=2)
    assert said.out == ""
    assert len(said.err.splitlines()) == 2
    assert "`nothing`" in said.err
