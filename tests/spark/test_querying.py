"""Questions in SQL about devices and archives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qmadmin.archive.reading import open_archive
from qmadmin.console.formats import Format
from qmadmin.console.results import Moment
from qmadmin.spark import register
from qmadmin.spark.views import ask, reason_of, shown
from qmadmin.transfer.exporting import export
from qmcore.errors import InvalidArgumentError
from tests.fix_store import make_queue


@pytest.fixture
def full(real_device):
    """A device with messages that are ready, delayed and consumed."""
    with real_device.open_space("SPACE") as space:
        make_queue(space, "KEPT", retention=-1)
        for number in range(4):
            space.enqueue("Q", f"text {number}".encode(), priority=number + 1)
            space.enqueue("KEPT", f"{number}".encode())
        space.enqueue("Q", b"\xff\x00", delay=3600.0)
        space.dequeue("KEPT")
    return real_device


@pytest.fixture(params=["device", "archive"])
def answer(request, spark, full, tmp_path: Path):
    """Ask about a device, and about an archive of it whose name is full of what could be a pattern."""
    register(spark)
    place = full.config
    if request.param == "archive":
        directory = tmp_path / "an [archive]{of},*x"
        export(full.config, directory)
        place = open_archive(directory)

    def asked(sql, limit=1000):
        with shown(spark, place):
            return ask(spark, sql, limit)

    return asked


def test_a_query_is_answered_with_rows_in_its_order(answer):
    found = answer(
        "SELECT queue, state, count(*) AS messages, sum(size) FROM messages GROUP BY ALL ORDER BY queue, state DESC"
    )
    assert [column.key for column in found.table.columns] == ["queue", "state", "messages", "sum(size)"]
    assert list(found.table.rows) == [("KEPT", "ready", 3, 3), ("Q", "ready", 4, 24), ("Q", "delayed", 1, 2)]
    assert not found.more


def test_history_queues_and_spaces_can_be_asked_about(answer):
    assert list(answer("SELECT body, consumer IS NOT NULL FROM history").table.rows) == [("0", "true")]
    assert list(answer("SELECT queue, messages, ready, delayed, bytes FROM queues ORDER BY queue").table.rows) == [
        ("ERRORS", 0, 0, 0, 0),
        ("KEPT", 3, 3, 0, 3),
        ("Q", 5, 4, 1, 26),
    ]
    assert list(answer("SELECT space, queues, messages FROM spaces").table.rows) == [("SPACE", 3, 8)]


def test_attributes_of_queues_and_spaces_are_the_same_of_a_device_and_of_an_archive(answer):
    columns = "queue, high, retention, keep_expired, enqueue_enabled, nonpersistent, memory_pages"
    assert list(answer(f"SELECT {columns} FROM queues WHERE queue = 'KEPT'").table.rows) == [
        ("KEPT", "100%", -1, "false", "true", 0, 0)
    ]
    assert list(answer("SELECT action_limit, handles FROM spaces").table.rows) == [(64, 0)]


def test_no_more_rows_come_than_are_asked_for_and_that_is_told(answer):
    found = answer("SELECT body FROM messages WHERE queue = 'Q' ORDER BY priority", 2)
    assert list(found.table.rows) == [("text 0",), ("text 1",)]
    (_, notice) = found.shown(Format.TABLE)
    assert notice.text == "there are more than 2 rows"


def test_values_are_texts_numbers_and_times_that_programs_read(spark):
    found = ask(
        spark,
        "SELECT binary('ä'), unhex('FF'), true, timestamp'2026-01-01 00:00:00', array(1, 2), map('a', binary('b')),"
        " 1.50BD, date'2026-01-02', NULL, 0.5D",
    )
    ((text, raw, flag, moment, many, pairs, decimal, day, nothing, real),) = found.table.rows
    assert (text, raw, flag, decimal, day, nothing, real) == ("ä", "/w==", "true", "1.50", "2026-01-02", None, 0.5)
    assert moment == Moment(1_767_225_600_000_000)
    assert json.loads(many) == [1, 2]
    assert "a" in pairs


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELCT 1", "Syntax error at or near 'SELCT'"),
        ("SELECT x FROM nowhere", "`nowhere` cannot be found"),
        ("SELECT colour FROM (VALUES (1)) AS t(color)", "`colour` cannot be resolved"),
        ("SELECT 1 / 0", "Division by zero"),
        ("", "Syntax error"),
    ],
)
def test_a_wrong_query_is_refused_with_the_reason_of_spark_in_one_sentence(spark, capfd, sql, reason):
    with pytest.raises(InvalidArgumentError) as caught:
        ask(spark, sql)
    assert reason in caught.value.message
    assert "\n" not in caught.value.message
    assert "SQLSTATE" not in caught.value.message
    assert "QueryContextLogger" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE t (a INT) USING parquet",
        "INSERT OVERWRITE DIRECTORY '/tmp/never' USING parquet SELECT 1",
        "DROP VIEW messages",
        "SET spark.sql.ansi.enabled = false",
        "FROM (VALUES (1)) AS t(a) INSERT INTO x SELECT a INSERT INTO y SELECT a",
    ],
)
def test_what_would_change_something_is_refused(spark, sql):
    with pytest.raises(InvalidArgumentError, match="this is not a query"):
        ask(spark, sql)


@pytest.mark.parametrize("sql", ["VALUES 1;", "WITH a AS (SELECT 1) TABLE a", "SELECT 1 -- to the end", "SHOW VIEWS"])
def test_each_form_of_a_query_is_asked(spark, sql):
    assert ask(spark, sql).table.columns


def test_the_reason_is_ours_where_our_source_has_refused():
    said = "[PYTHON_X] Failed: Traceback:\n  File x\nqmcore.errors.BadResourceError: there is no queue space 'X'\n"
    assert reason_of(said) == "there is no queue space 'X'"
    assert reason_of("[A.B] It is wrong. SQLSTATE: 42000; line 1 pos 2;\nmore") == "It is wrong. line 1 pos 2"
