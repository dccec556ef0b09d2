"""What programs that work on data have: numbers and arrays of numpy, other buffers, and timedelta."""

# ruff: noqa: F403, F405 - as programs import it

from __future__ import annotations

import array
import ctypes
import json
import math
import mmap
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qmadmin
from qmadmin import mib
from qmadmin.atmi import *
from qmadmin.consumers.function_handler import failure_of, reply_of
from qmadmin.forwarder import Failure, Reply, Unavailable
from tests.fix_atmi import refused

pytestmark = pytest.mark.usefixtures("joined")

KINDS = [np.int64, np.int16, np.uint32]
BUFFERS = {
    "array": array.array("d", [1.5]),
    "bytearray": bytearray(b"abc"),
    "view of numbers": memoryview(array.array("i", [1, 2, 3])),
    "view with gaps": memoryview(b"abcdef")[::2],
    "mmap": mmap.mmap(-1, 5),
    "structure": (ctypes.c_int * 2)(1, 2),
    "array of two dimensions": np.arange(4).reshape(2, 2),
    "array with gaps": np.arange(6.0)[::2],
    "array of another machine": np.arange(3).astype(">i4"),
    "empty array": np.zeros((0, 3)),
}
NUMBERS = [np.int64(7), np.float32(7), np.True_, np.datetime64(7, "s"), 7]
IN_JSON = [7, 7, True, "1970-01-01T00:00:07", 7]


@pytest.fixture
def space(joined: Path) -> Iterator[qmadmin.QueueSpace]:
    with qmadmin.open_device(joined) as device, device.open_space("QSPACE") as opened:
        yield opened


buffers = pytest.mark.parametrize("buffer", BUFFERS.values(), ids=BUFFERS)


def content(buffer: Any) -> bytes:
    return memoryview(buffer).tobytes()


class TestBuffers:
    @buffers
    def test_each_is_the_data_of_an_enqueue(self, space: qmadmin.QueueSpace, buffer: Any) -> None:
        tpenqueue("QSPACE", "STRING", None, buffer)
        space.enqueue("STRING", buffer)
        space.enqueue_many("STRING", [buffer])
        assert [message.body for message in space.dequeue_many("STRING", 9)] == [content(buffer)] * 3

    @buffers
    def test_each_is_the_reply_of_a_service(self, buffer: Any) -> None:
        assert reply_of(buffer) == reply_of(Reply(buffer)) == Reply(content(buffer))
        failure = failure_of(Failure("no", body=buffer))
        assert isinstance(failure, Failure)
        assert failure.reply == Reply(content(buffer))

    @pytest.mark.parametrize("number", [*NUMBERS, np.array([None])], ids=repr)
    def test_a_number_is_none(self, number: Any) -> None:
        assert refused(tpenqueue, "QSPACE", "STRING", None, number).name == "TPEINVAL"

    @pytest.mark.parametrize(("number", "told"), [*zip(NUMBERS, IN_JSON, strict=True)], ids=map(repr, NUMBERS))
    def test_a_number_is_a_reply_in_json(self, number: Any, told: object) -> None:
        for answer in (number, Reply(number)):
            made = reply_of(answer)
            assert made.type == "JSON"
            assert json.loads(made.body) == told  # type: ignore[arg-type]

    def test_objects_are_no_reply(self) -> None:
        with pytest.raises(Failure, match=r"cannot be encoded: the body must be bytes, .*, got ndarray"):
            reply_of(np.array([None]))

    def test_each_is_an_identifier(self, space: qmadmin.QueueSpace) -> None:
        corrid = np.frombuffer(b"order-17", "u1")
        msgid = space.enqueue("STRING", "x", corrid=corrid)  # type: ignore[arg-type]
        found = space.dequeue("STRING", corrid=corrid)  # type: ignore[arg-type]
        assert found is not None
        assert found.corrid == b"order-17"
        with pytest.raises(qmadmin.InvalidArgumentError, match="correlation identifier must be bytes or str"):
            space.enqueue("STRING", "x", corrid=np.int64(1))  # type: ignore[arg-type]
        msgid = space.enqueue("STRING", "y")
        control = TPQCTL(flags=TPQGETBYMSGID, msgid=array.array("B", msgid.encode()))  # type: ignore[arg-type]
        assert tpdequeue("QSPACE", "STRING", control) == b"y"


class TestBodies:
    @pytest.mark.parametrize(("number", "value"), list(zip(NUMBERS, IN_JSON, strict=True)), ids=repr)
    def test_a_number_is_sent_as_json(self, space: qmadmin.QueueSpace, number: Any, value: Any) -> None:
        space.enqueue_many("STRING", [number, {"numbers": [number]}])
        alone, inside = space.dequeue_many("STRING", 2)
        assert (alone.type, alone.json(), inside.json()) == ("JSON", value, {"numbers": [value]})

    def test_an_array_of_objects_is_refused(self, space: qmadmin.QueueSpace) -> None:
        with pytest.raises(qmadmin.InvalidArgumentError, match="got ndarray"):
            space.enqueue("STRING", np.array([None]))


@pytest.mark.parametrize("kind", KINDS)
class TestWholeNumbers:
    def test_they_are_flags_and_fields_of_a_control_structure(self, kind: Any) -> None:
        asked = TPQPRIORITY | TPQTIME_REL | TPQEXPTIME_REL | TPQDELIVERYQOS | TPQMSGID
        fields = {"priority": 7, "deq_time": 0, "exp_time": 100, "delivery_qos": TPQQOSPERSISTENT, "urcode": 3}
        sent = TPQCTL(flags=np.int64(asked), **{name: kind(value) for name, value in fields.items()})
        tpenqueue("QSPACE", "STRING", sent, b"x", kind(TPNOTRAN))
        got = TPQCTL(flags=kind(TPQPRIORITY | TPQDELIVERYQOS | TPQCORRID))
        assert tpdequeue("QSPACE", "STRING", got, kind(TPNOTRAN)) == b"x"
        assert (got.priority, got.delivery_qos, got.urcode, got.flags) == (7, 2, 3, TPQPRIORITY | TPQDELIVERYQOS)
        assert {type(each) for each in (sent.flags, got.flags, got.priority, got.urcode)} == {int}

    def test_they_are_flags_and_arguments_of_other_calls(self, kind: Any) -> None:
        tpinit(timeout=kind(3), appkey=kind(4))
        tpbegin(kind(5), kind(0))
        tpcommit(kind(0))
        tpsprio(kind(60), kind(TPABSOLUTE))
        tpenqueue("QSPACE", "STRING", None, b"x")
        got = TPQCTL(flags=TPQPRIORITY)
        tpdequeue("QSPACE", "STRING", got)
        assert (got.priority, got.appkey) == (60, 4)

    def test_they_are_return_codes_of_services_and_seconds(self, kind: Any) -> None:
        reply = reply_of(Reply(b"", urcode=kind(7)))
        failure = failure_of(Failure("no", urcode=kind(7), permanent=np.True_, retry_after=kind(9)))
        assert isinstance(failure, Failure)
        for each in (reply, failure.reply):
            assert (each.urcode, type(each.urcode)) == (7, int)
        assert (failure.permanent, failure.retry_after) == (True, 9)
        assert {type(failure.permanent), type(failure.retry_after)} == {bool, int}
        assert failure_of(Unavailable("no", retry_after=np.float32(0.5))).retry_after == 0.5

    def test_they_are_values_of_the_mib(self, joined: Path, kind: Any) -> None:
        keys = {"TA_APPQSPACENAME": "QSPACE", "TA_APPQNAME": "STRING"}
        changed = mib.set(joined, "T_APPQ", keys | {"TA_MAXRETRIES": kind(5)}, kind(0))
        assert (changed["TA_MAXRETRIES"], type(changed["TA_MAXRETRIES"])) == (5, int)


class TestBools:
    def test_one_of_numpy_is_one(self, space: qmadmin.QueueSpace) -> None:
        made = space.create_queue(
            qmadmin.QueueDefinition(name="Q", keep_expired=np.True_, grouping=np.False_)  # type: ignore[arg-type]
        ).definition
        assert (made.keep_expired, made.grouping) == (True, False)
        assert {type(made.keep_expired), type(made.grouping)} == {bool}

    @pytest.mark.parametrize("value", [1, "yes", None, np.int64(1)], ids=repr)
    def test_what_is_none_is_refused(self, value: Any) -> None:
        with pytest.raises(qmadmin.InvalidArgumentError, match="the grouping of queue 'Q' must be a bool"):
            qmadmin.QueueDefinition(name="Q", grouping=value)

    def test_one_of_numpy_is_not_a_number(self, joined: Path) -> None:
        yes: Any = np.True_
        assert refused(tpenqueue, "QSPACE", "STRING", TPQCTL(flags=yes), b"").diagnostic == QMEINVAL
        assert refused(tpenqueue, "QSPACE", "STRING", None, b"", yes).name == "TPEINVAL"
        assert refused(tpbegin, yes).name == "TPEINVAL"
        assert refused(tpinit, timeout=yes).name == "TPEINVAL"
        keys = {"TA_APPQSPACENAME": "QSPACE", "TA_APPQNAME": "STRING"}
        for value in (yes, True):
            with pytest.raises(mib.MibError, match="TA_MAXRETRIES is a long"):
                mib.set(joined, "T_APPQ", keys | {"TA_MAXRETRIES": value})


class TestSpans:
    def test_a_timeout_of_atmi_may_be_a_timedelta(self) -> None:
        tpinit(timeout=timedelta(0))
        assert refused(tpdequeue, "QSPACE", "STRING", TPQCTL(flags=TPQWAIT)).name == "TPETIME"
        tpbegin(timedelta(minutes=1))
        tpabort()
        assert refused(tpinit, timeout=timedelta(seconds=-1)).name == "TPEINVAL"
        tpinit(timeout=math.inf)

    def test_those_of_a_queue_may_be(self) -> None:
        spans = {"retry_delay": timedelta(minutes=1), "expiration": timedelta(hours=1), "retention": timedelta(days=1)}
        made = qmadmin.QueueDefinition(name="Q", **spans)  # type: ignore[arg-type]
        assert (made.retry_delay, made.expiration, made.retention) == (60, 3600, 86_400)

    @pytest.mark.parametrize("span", [timedelta(seconds=1.5), timedelta(seconds=-1), timedelta(days=99_999)])
    def test_those_that_no_queue_can_have_are_refused(self, span: timedelta) -> None:
        with pytest.raises(qmadmin.InvalidArgumentError, match="retry delay of queue 'Q' in seconds must be"):
            qmadmin.QueueDefinition(name="Q", retry_delay=span)  # type: ignore[arg-type]

    def test_what_a_service_says_may_be(self) -> None:
        for error in (Failure("no", retry_after=timedelta(minutes=1)), Unavailable(retry_after=timedelta(minutes=1))):
            assert failure_of(error).retry_after == 60
        assert "retry_after must be seconds" in str(failure_of(Unavailable(retry_after=timedelta(seconds=-1))))
