"""DataFrames that are written to queues: all messages or none, in their order, checked before anything is stored."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from qmadmin.device import Device
from qmadmin.spark import register
from qmadmin.spark.source import WriteOptions
from qmadmin.spark.writing import Arriving, QueueWriter, checked, refuse_unfit
from qmcore.errors import InvalidArgumentError
from qmcore.queue import Delivery
from tests.fix_store import make_queue, queue_definition, space_definition

TEXTS = StructType([StructField("body", StringType())])


@pytest.fixture
def write(spark, real_device, tmp_path):
    """Write a DataFrame to the queue `Q` of a device."""
    register(spark)
    staging = tmp_path / "staging"
    staging.mkdir()

    def save(frame, mode="append", **options):
        asked = {"device": real_device.config, "space": "SPACE", "queue": "Q", "staging": str(staging)} | options
        try:
            frame.write.format("qspace").mode(mode).options(**asked).save()
        finally:
            assert list(staging.iterdir()) == []

    return save


@pytest.fixture
def space(real_device: Device):
    with real_device.open_space("SPACE") as opened:
        yield opened


def texts(space, queue="Q"):
    return [space.content(info).text for info in space.messages(queue)]


def numbers(spark, count):
    return spark.range(0, count, 1, 3).selectExpr("concat('m', id) body")


def test_messages_are_appended_in_the_order_of_the_partitions_with_identifiers_of_the_queue_space(spark, write, space):
    first = space.enqueue("Q", b"first")
    write(numbers(spark, 2_500))
    last = space.enqueue("Q", b"last")
    assert texts(space) == ["first", *(f"m{number}" for number in range(2_500)), "last"]
    assert {info.msgid[:16] for info in space.messages("Q")} == {first[:16]}
    assert last[:16] == first[:16]
    assert next(iter(space.messages("Q"))).type == "CARRAY"
    assert space.dequeue("Q").body == b"first"
    assert space.dequeue("Q").type == "STRING"


def test_what_columns_say_is_what_the_messages_have(spark, write, space):
    frame = spark.sql(
        "SELECT binary('a') body, 90 priority, timestamp'2100-01-01 00:00:00' available_at, 'c' corrid, 5L urcode,"
        " '{\"x\":\"y\"}' headers, 'JSON' type, 'R' reply_queue, 'persist' reply_delivery"
    )
    write(frame)
    (info,) = space.messages("Q")
    assert (info.priority, info.corrid, info.urcode, info.headers) == (90, b"c", 5, {"x": "y"})
    assert (info.type, info.reply_queue, info.state.value) == ("JSON", "R", "delayed")
    assert info.available_at is not None
    assert info.available_at.year == 2100


def test_a_queue_orders_what_is_written_to_it(spark, write, space):
    space.create_queue(queue_definition("P", order="priority"))
    space.enqueue("P", b"now", priority=60)
    write(spark.range(0, 100, 1, 2).selectExpr("concat('p', id + 1) body", "id + 1 priority"), queue="P")
    assert texts(space, "P") == [*(f"p{n}" for n in range(100, 60, -1)), "now", *(f"p{n}" for n in range(60, 0, -1))]


def test_messages_of_a_queue_that_is_kept_in_memory_go_there(spark, write, real_device):
    real_device.create_space(space_definition("MEMORY", ipc_key=4712, pages=1_000, memory=2**20))
    with real_device.open_space("MEMORY") as memory:
        memory.create_queue(queue_definition("Q", delivery=Delivery.NONPERSIST))
        write(numbers(spark, 3), space="MEMORY")
        assert [info.delivery for info in memory.messages("Q")] == [Delivery.NONPERSIST] * 3
        assert [message.text for message in memory.dequeue_many("Q", 5)] == ["m0", "m1", "m2"]


def test_overwriting_replaces_the_messages_and_keeps_the_definition(spark, write, space):
    space.enqueue("Q", b"old")
    write(numbers(spark, 2), mode="overwrite")
    assert texts(space) == ["m0", "m1"]
    assert next(queue for queue in space.queues() if queue.name == "Q").definition.retries == 3
    write(numbers(spark, 0), mode="overwrite")
    assert texts(space) == []


def test_a_queue_that_is_not_there_is_made_and_one_that_must_not_be_is_refused(spark, write, space):
    write(numbers(spark, 2), queue="NEW", order="lifo", existing="refuse")
    assert texts(space, "NEW") == ["m1", "m0"]
    assert space.dequeue("NEW").text == "m1"
    with pytest.raises(PySparkException, match="queue 'NEW' exists already"):
        write(numbers(spark, 2), queue="NEW", existing="refuse")
    assert texts(space, "NEW") == ["m0"]


def test_what_was_read_can_be_written(spark, write, space, real_device):
    make_queue(space, "FROM")
    space.enqueue("FROM", b"\xff", priority=3, headers={"a": "b"})
    write(spark.read.format("qspace").options(device=real_device.config, queue="FROM").load())
    (there,), (here,) = space.messages("FROM"), space.messages("Q")
    assert (here.priority, here.headers, here.size) == (there.priority, there.headers, 1)
    assert here.msgid != there.msgid


def test_a_wrong_value_is_refused_by_column_and_value_before_anything_is_stored(spark, write, space):
    with pytest.raises(PySparkException, match="the column 'priority' has the value 300"):
        write(numbers(spark, 10).selectExpr("body", "if(body = 'm7', 300, 5) priority"))
    assert texts(space) == []


def test_messages_for_which_there_is_no_room_leave_nothing_behind(spark, write, real_device):
    real_device.create_space(space_definition("TIGHT", ipc_key=4711, pages=1_000, messages=10))
    with real_device.open_space("TIGHT") as tight:
        make_queue(tight, "Q")
        with pytest.raises(PySparkException, match="cannot take 11 more"):
            write(numbers(spark, 11), space="TIGHT")
        assert texts(tight) == []
        write(numbers(spark, 10), space="TIGHT")
        assert len(texts(tight)) == 10


class TestColumns:
    def test_a_frame_without_bodies_is_refused(self):
        with pytest.raises(InvalidArgumentError, match="no column 'body'"):
            refuse_unfit(StructType([StructField("text", StringType())]))

    def test_a_column_that_is_nothing_of_a_message_is_refused(self):
        with pytest.raises(InvalidArgumentError, match="a column 'color'"):
            refuse_unfit(StructType([*TEXTS, StructField("color", StringType())]))

    def test_a_column_of_another_type_is_refused(self):
        frame = StructType([StructField("body", StringType()), StructField("expires_at", IntegerType())])
        with pytest.raises(InvalidArgumentError, match="'expires_at' has the type integer, and must have timestamp"):
            refuse_unfit(frame)

    @pytest.mark.parametrize(
        ("column", "value"),
        [
            ("priority", 0),
            ("headers", "[1]"),
            ("headers", '{"a": 1}'),
            ("corrid", "x" * 33),
            ("type", ""),
            ("reply_queue", "x" * 200),
            ("reply_delivery", "sometimes"),
        ],
    )
    def test_a_value_that_no_sender_could_give_is_refused(self, column, value):
        import pyarrow as pa

        batch = pa.RecordBatch.from_pylist([{"body": "a", column: value}])
        with pytest.raises(InvalidArgumentError, match=f"the column '{column}' has the value "):
            checked(batch)

    def test_messages_expire_as_their_queue_says_unless_they_say_it_themselves(self):
        import pyarrow as pa

        batch = checked(pa.RecordBatch.from_pylist([{"body": "a"}]))
        arriving = Arriving(queue_definition("Q", expiration=60), "STRING", 4096, 1_000_000)
        ((_, (row,)),) = arriving.rows(batch).items()
        assert 61_000_000 in row


GIVEN = {"device": "QUE", "space": "S", "queue": "Q"}


class TestOptions:
    @pytest.mark.parametrize("missing", ["device", "space", "queue"])
    def test_device_queue_space_and_queue_have_to_be_named(self, missing):
        given = {name: text for name, text in GIVEN.items() if name != missing}
        with pytest.raises(InvalidArgumentError, match=f"needs the option '{missing}'"):
            WriteOptions.read(given, overwrite=False)

    def test_names_of_options_are_read_in_small_and_large_letters_and_unknown_ones_refused(self):
        assert WriteOptions.read({"Device": "QUE", "SPACE": "S", "queue": "Q"}, overwrite=False).space == "S"
        with pytest.raises(InvalidArgumentError, match="no option 'que'"):
            WriteOptions.read({**GIVEN, "que": "x"}, overwrite=False)

    def test_what_becomes_of_a_queue_is_not_said_twice(self):
        with pytest.raises(InvalidArgumentError, match="must be refuse or append"):
            WriteOptions.read({**GIVEN, "existing": "refuse"}, overwrite=True)


def test_a_staging_directory_that_is_none_is_told(spark, file_device, tmp_path: Path):
    register(spark)
    (tmp_path / "file").write_text("")
    options = {"device": file_device.config, "space": "SPACE", "queue": "Q", "staging": str(tmp_path / "file")}
    with pytest.raises(PySparkException, match="cannot be used for what is to be written"):
        numbers(spark, 1).write.format("qspace").mode("append").options(**options).save()


def test_a_late_attempt_of_a_task_leaves_no_file_behind(file_device, tmp_path: Path, monkeypatch):
    (tmp_path / "staging").mkdir()
    asked = {"device": file_device.config, "space": "SPACE", "queue": "Q", "staging": str(tmp_path / "staging")}
    writer = QueueWriter(WriteOptions.read(asked, overwrite=False), TEXTS)
    (directory,) = (tmp_path / "staging").iterdir()
    rmdir, late = os.rmdir, [directory / "00000000-7.parquet"]

    def meanwhile(*which, **how):
        if late:
            late.pop().touch()
        rmdir(*which, **how)

    monkeypatch.setattr(os, "rmdir", meanwhile)
    writer.abort([])
    assert late == []
    assert list((tmp_path / "staging").iterdir()) == []


def test_names_of_columns_are_read_without_regard_to_case(spark, write, space):
    write(spark.sql("SELECT 'x' BODY, 5 Priority UNION ALL SELECT 'y', 6"))
    assert sorted((space.content(info).text, info.priority) for info in space.messages("Q")) == [("x", 5), ("y", 6)]


def test_two_columns_that_differ_in_case_alone_are_refused():
    both = StructType([StructField("body", StringType()), StructField("BODY", StringType())])
    with pytest.raises(InvalidArgumentError, match="two columns whose names are equal or differ only in case"):
        refuse_unfit(both)
