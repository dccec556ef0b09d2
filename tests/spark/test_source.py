"""Queue spaces as tables of Spark: what is read is what the device has."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from qmadmin.device import Device
from qmadmin.opening import open_device
from qmadmin.spark import held, register
from qmadmin.spark.session import parallelism
from qmadmin.spark.source import SourceOptions
from qmcore.errors import InvalidArgumentError
from tests.fix_store import make_queue


@pytest.fixture
def read(spark, real_device):
    """Read a table of a device with options, as a DataFrame."""
    register(spark)

    def load(**options):
        return spark.read.format("qspace").options(device=real_device.config, **options).load()

    return load


@pytest.fixture
def space(real_device: Device):
    with real_device.open_space("SPACE") as opened:
        yield opened


def bodies(frame):
    return sorted(bytes(row.body).decode() for row in frame.select("body").collect())


def test_each_message_is_read_with_all_that_belongs_to_it(read, space):
    msgid = space.enqueue("Q", b"\x00\xff", priority=7, headers={"a": "b"}, corrid=b"c", delay=3600.0)
    space.enqueue("Q", None)
    rows = {row.msgid: row for row in read().collect()}
    row = rows.pop(msgid)
    assert (row.space, row.queue, row.state, row.delivery) == ("SPACE", "Q", "delayed", "persist")
    assert (row.priority, row.size, row.headers, row.retries) == (7, 2, '{"a":"b"}', 0)
    assert (bytes(row.body), bytes(row.corrid)) == (b"\x00\xff", b"c")
    assert (row.until - row.enqueued_at).total_seconds() == 3600
    (other,) = rows.values()
    assert (other.state, other.body, other.until) == ("ready", None, None)


def test_what_a_transaction_holds_is_read_as_held(read, space):
    space.enqueue("Q", b"one")
    space.enqueue("Q", b"two")
    with space.transaction():
        space.dequeue("Q")
        assert {(bytes(row.body), row.state) for row in read().collect()} == {(b"one", "held"), (b"two", "ready")}


def test_states_a_condition_and_a_number_of_messages_are_asked_for_in_the_options(read, space):
    for number in range(6):
        space.enqueue("Q", f"{number}".encode(), priority=number + 1)
    space.enqueue("Q", b"later", delay=3600.0)
    assert bodies(read(state="delayed")) == ["later"]
    assert bodies(read(where="priority > 4", state="ready")) == ["4", "5"]
    assert bodies(read(count="2", queue="Q")) == ["0", "1"]
    assert bodies(read(olderthan="3600")) == []


def test_filters_of_one_use_of_a_dataframe_are_not_kept_for_the_next(read, space):
    for number in range(10):
        space.enqueue("Q", f"{number}".encode(), priority=number + 1)
    frame = read()
    assert bodies(frame.where("priority > 5")) == ["5", "6", "7", "8", "9"]
    assert bodies(frame.where("priority < 4")) == ["0", "1", "2"]
    assert frame.count() == 10
    assert "PushedFilters: []" in plan(frame.where("priority > 5"))


def plan(frame) -> str:
    """Return the plan; where a source takes filters it says so."""
    text = frame._jdf.queryExecution().toString()
    return text if "PushedFilters" in text else "PushedFilters: []"


def test_without_payload_there_is_no_column_of_bodies(read, space):
    space.enqueue("Q", b"x" * 100)
    frame = read(payload="false")
    assert "body" not in frame.columns
    assert [row.size for row in frame.collect()] == [100]


def test_history_has_what_was_consumed_and_nothing_else(read, space):
    make_queue(space, "KEPT", retention=-1)
    space.enqueue("KEPT", b"gone")
    space.enqueue("KEPT", b"there")
    space.dequeue("KEPT")
    (row,) = read(table="history").collect()
    assert (bytes(row.body), row.state) == (b"gone", "consumed")
    assert row.consumed_at is not None
    assert bodies(read(queue="KEPT")) == ["there"]


def test_queues_and_queue_spaces_are_tables_too(read, space):
    space.enqueue("Q", b"12345")
    found = {row.queue: row for row in read(table="queues").collect()}
    assert set(found) == {"ERRORS", "Q"}
    assert (found["Q"].messages, found["Q"].ready, found["Q"].bytes, found["Q"].retry_limit) == (1, 1, 5, 3)
    (row,) = read(table="spaces").collect()
    assert (row.space, row.queues, row.messages, row.error_queue) == ("SPACE", 2, 1, "ERRORS")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tabel": "queues"}, "has no option 'tabel'"),
        ({"table": "nothing"}, "must be one of messages, history, queues, spaces, got 'nothing'"),
        ({"payload": "maybe"}, "the option 'payload' must be true or false, got 'maybe'"),
        ({"count": "many"}, "the option 'count' must be a number, got 'many'"),
        ({"space": "OTHER"}, "has no queue space 'OTHER'"),
    ],
)
def test_a_wrong_option_is_refused_in_a_sentence(spark, file_device, options, sentence):
    register(spark)
    with pytest.raises(PySparkException) as caught:
        spark.read.format("qspace").options(device=file_device.config, **options).load().collect()
    assert sentence in str(caught.value)


def test_what_is_held_is_read_by_several_tasks_as_it_stood(spark, real_device, space):
    register(spark)
    if real_device.kind != "postgresql":
        with pytest.raises(InvalidArgumentError, match="no moment can be held"), held(real_device.config):
            pass
        return
    space.enqueue_many("Q", [f"{number}".encode() for number in range(5_000)])
    with held(real_device.config) as options:
        frame = spark.read.format("qspace").options(**options, partitions="3").load()
        space.dequeue_many("Q", 1_000)
        space.enqueue("Q", b"new")
        assert frame.rdd.getNumPartitions() > 1
        assert sorted(int(body) for body in bodies(frame)) == list(range(5_000))
    assert spark.read.format("qspace").option("device", real_device.config).load().count() == 4_001


def test_a_file_is_read_by_one_task_unless_more_are_asked_for(spark, file_device: Device, tmp_path: Path):
    register(spark)
    with open_device(file_device.config) as device, device.open_space("SPACE") as space:
        space.enqueue_many("Q", [b"x"] * 5_000)
    reader = spark.read.format("qspace").option("device", file_device.config)
    assert reader.load().rdd.getNumPartitions() == 1
    assert reader.option("partitions", "2").load().rdd.getNumPartitions() > 1


@pytest.mark.matrix(every=2)
class TestWhatSparkAsksFor:
    """What is no reading of a DataFrame is done, or refused in a sentence, which Spark shows without a hint."""

    @pytest.fixture
    def made(self, spark, real_device, space):
        register(spark)
        space.enqueue("Q", b"one")
        created = []

        def create(what):
            created.append(what)
            spark.sql(f"CREATE {what} its USING qspace OPTIONS (device '{real_device.config}', queue 'Q')")

        yield create
        for what in created:
            spark.sql(f"DROP {what.split()[-1]} IF EXISTS its")

    def test_a_view_is_made_in_sql(self, spark, made):
        made("TEMPORARY VIEW")
        assert [bytes(row.body) for row in spark.sql("SELECT body FROM its").collect()] == [b"one"]

    def test_a_table_of_the_catalog_is_refused_and_says_what_to_write(self, made):
        with pytest.raises(PySparkException, match="write CREATE TEMPORARY VIEW instead of CREATE TABLE"):
            made("TABLE")

    def test_a_stream_is_refused(self, spark, real_device, tmp_path):
        register(spark)
        stream = spark.readStream.format("qspace").option("device", real_device.config).load()
        query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
        with pytest.raises(PySparkException, match="the data source qspace has no streams; read it with spark"):
            query.awaitTermination(60)

    def test_a_stream_into_a_queue_is_refused(self, spark, real_device, tmp_path):
        register(spark)
        stream = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) body")
        writing = stream.writeStream.format("qspace").option("checkpointLocation", str(tmp_path))
        query = writing.options(device=real_device.config, space="SPACE", queue="Q").start()
        with pytest.raises(PySparkException, match="no streams; have foreachBatch write each batch"):
            query.awaitTermination(60)


def test_a_relative_path_is_meant_from_where_it_was_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert SourceOptions.read({"device": "QUE"}).device == str(tmp_path / "QUE")
    for elsewhere in ("postgresql:///queues", ":memory:"):
        assert SourceOptions.read({"device": elsewhere}).device == elsewhere


def test_the_parallelism_is_that_of_the_session(spark):
    assert parallelism(spark) == spark.sparkContext.defaultParallelism
