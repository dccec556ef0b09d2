"""Queue spaces and queues by keywords: each has a default that serves, and no failure loses a message."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import qmadmin
from qmadmin import defaults
from qmcore import queue
from qmcore.attributes import fields_of
from qmcore.backoff import Growth
from qmcore.errors import InvalidArgumentError, NoSpaceError
from qmcore.order import OutOfOrder, QueueOrder
from qmcore.queue import QueueDefinition
from qmcore.space import IPC_KEY_RANGE, SpaceDefinition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def device(tmp_path: Path) -> Iterator[qmadmin.Device]:
    with qmadmin.open_device(tmp_path / "QUE", create=True) as opened:
        yield opened


@pytest.fixture
def opened(device: qmadmin.Device) -> Iterator[qmadmin.QueueSpace]:
    device.create_space("QS")
    with device.open_space("QS") as space:
        yield space


# ---- queue spaces ----------------------------------------------------------------------------------------------------


def test_a_queue_space_needs_a_name_and_has_an_error_queue(device: qmadmin.Device) -> None:
    made = device.create_space("QS").definition
    assert (made.queues, made.transactions, made.processes, made.messages) == (1_000, 1_000, 1_000, 1_000_000)
    assert made.pages == defaults.SPACE_PAGES
    assert IPC_KEY_RANGE[0] <= made.ipc_key <= IPC_KEY_RANGE[1]
    assert made.error_queue == "errors"
    assert [each.name for each in device.queues("QS")] == ["errors"]
    assert device.space_usage("QS").highest.queues == 1


def test_each_has_a_key_of_its_own(device: qmadmin.Device) -> None:
    keys = [device.create_space(name).definition.ipc_key for name in ("A", "B", "C")]
    device.destroy_space("B")
    keys.append(device.create_space("D").definition.ipc_key)
    assert len(set(keys[:3])) == 3
    assert keys[3] == keys[1]


def test_a_small_device_gives_all_that_it_has(tmp_path: Path) -> None:
    with qmadmin.create_device(tmp_path / "QUE", 200) as device:
        made = device.create_space("QS").definition
        assert 150 < made.pages < 200
        assert made.capacity > 100
        with pytest.raises(NoSpaceError, match="pages"):
            device.create_space("MORE")


def test_the_error_queue_may_have_another_name_or_none(device: qmadmin.Device) -> None:
    device.create_space("A", error_queue="failed")
    device.create_space("B", error_queue="")
    assert [each.name for each in device.queues("A")] == ["failed"]
    assert device.queues("B") == []


def test_a_definition_has_tuxedos_defaults(device: qmadmin.Device) -> None:
    definition = SpaceDefinition(
        name="QS", ipc_key=42_000, pages=400, queues=5, transactions=5, processes=5, messages=5, error_queue="E"
    )
    assert device.create_space(definition).definition == definition
    assert device.queues("QS") == []


def test_keywords_change_what_they_name(device: qmadmin.Device) -> None:
    device.create_space("QS")
    changed = device.change_space("QS", messages=5, actions=7).definition
    assert (changed.messages, changed.actions, changed.processes) == (5, 7, 1_000)


# ---- queues ----------------------------------------------------------------------------------------------------------


def test_a_queue_needs_a_name_and_tries_again_with_growing_delays(opened: qmadmin.QueueSpace) -> None:
    made = opened.create_queue("orders").definition
    assert (made.retries, made.retry_growth) == (5, Growth.EXPONENTIAL)
    backoff = made.backoff._replace(jitter=0)
    assert [backoff.after(tries) / 1_000_000 for tries in range(1, 6)] == [10, 30, 90, 270, 810]


def test_no_failure_loses_a_message(opened: qmadmin.QueueSpace) -> None:
    opened.create_queue("orders", retry_delay=0)
    opened.enqueue("orders", "kept")
    for _ in range(6):
        with opened.transaction() as transaction:
            assert opened.dequeue("orders") is not None
            transaction.rollback("broken")
    assert opened.dequeue("orders") is None
    kept = opened.dequeue("errors")
    assert kept is not None
    assert kept.text == "kept"


def test_attributes_are_given_as_values_or_as_texts(opened: qmadmin.QueueSpace) -> None:
    by_text = opened.create_queue(
        "A",
        order="priority, fifo",
        out_of_order="top",
        delivery="persist",
        retry_growth="linear",
        high="80%",
        command="true",
        retention=timedelta(minutes=1),
        expiration=timedelta(hours=1),
    ).definition
    by_value = opened.create_queue(
        "B",
        order=QueueOrder.parse("priority,fifo"),
        out_of_order=OutOfOrder.TOP,
        delivery=qmadmin.Delivery.PERSIST,
        retry_growth=Growth.LINEAR,
        threshold=by_text.threshold,
        retention=60,
        expiration=3600,
    ).definition
    assert queue.plain(by_text) | {"name": "B"} == queue.plain(by_value)
    assert (str(by_text.threshold.high), str(by_text.threshold.low)) == ("80%", "0%")


def test_a_definition_may_have_texts_too() -> None:
    assert QueueDefinition(name="Q", order="priority,fifo").order == QueueOrder.parse("priority,fifo")  # type: ignore[arg-type]


def test_keywords_change_what_they_name_of_a_queue(opened: qmadmin.QueueSpace) -> None:
    opened.create_queue("orders", retries=7)
    assert opened.change_queue("orders", retry_delay=3).definition.retry_delay == 3
    assert opened.queue("orders").definition.retries == 7


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ({"retires": 3}, "queue 'orders' has no attribute 'retires'"),
        ({"order": "prio, fofo"}, "unknown criterion 'fofo'"),
        ({"retry_growth": "fast"}, "retry growth of queue 'orders' must be none, linear or exponential, got 'fast'"),
        ({"delivery": "disk"}, "must be persist or nonpersist, got 'disk'"),
        ({"threshold": "80%"}, "threshold of queue 'orders' must be a Threshold, got '80%'"),
        ({"high": "80%", "low": "90%"}, "Low threshold must be less"),
        ({"retries": "five"}, "must be a whole number"),
        ({"order": 5}, "must be a QueueOrder, got 5"),
    ],
)
def test_what_is_no_attribute_is_refused_and_nothing_is_created(
    opened: qmadmin.QueueSpace, attributes: Any, sentence: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=sentence):
        opened.create_queue("orders", **attributes)
    assert [each.name for each in opened.queues()] == ["errors"]


def test_a_name_that_is_close_is_told(opened: qmadmin.QueueSpace) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        opened.create_queue("orders", retires=3)  # type: ignore[arg-type]
    assert refused.value.hint == "Is it 'retries'?"


@pytest.mark.parametrize("named", [5, None, b"orders"])
def test_what_is_neither_a_name_nor_a_definition_is_refused(opened: qmadmin.QueueSpace, named: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="a name or a QueueDefinition was expected"):
        opened.create_queue(named)


def test_keywords_beside_a_definition_are_refused(device: qmadmin.Device, opened: qmadmin.QueueSpace) -> None:
    with pytest.raises(InvalidArgumentError, match="queue 'Q' is given by its definition, and retries besides"):
        opened.create_queue(QueueDefinition(name="Q"), retries=3)
    with pytest.raises(InvalidArgumentError, match="messages besides"):
        device.create_space(device.space("QS").definition, messages=3)


@pytest.mark.parametrize(
    ("record", "keywords"),
    [(QueueDefinition, defaults.QueueAttributes), (SpaceDefinition, defaults.SpaceAttributes)],
)
def test_there_is_a_keyword_for_each_attribute(record: Any, keywords: Any) -> None:
    attributes = queue.attributes_of(record).keys() | {field.name for field in fields_of(record)}
    assert set(keywords.__annotations__) == attributes - {"name"}


# ---- what is there already -------------------------------------------------------------------------------------------


def test_with_exist_ok_what_is_there_stays_as_it_is(device: qmadmin.Device, opened: qmadmin.QueueSpace) -> None:
    opened.create_queue("orders", retries=7)
    assert opened.create_queue("orders", exist_ok=True).definition.retries == 7
    assert device.create_space("QS", exist_ok=True, messages=5).definition.messages == 1_000_000
    with pytest.raises(InvalidArgumentError, match="exists already"):
        opened.create_queue("orders")
    with pytest.raises(InvalidArgumentError, match="exists already"):
        device.create_space("QS")


@pytest.fixture(params=["file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "QUE") if request.param == "file" else request.getfixturevalue("database_url")


def test_a_device_is_made_once_whoever_comes_first(place: str) -> None:
    ids = []

    def come() -> None:
        with qmadmin.open_device(place, create=True) as device:
            device.create_space("QS", exist_ok=True)
            ids.append(device.info.id)

    threads = [threading.Thread(target=come) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 8
    assert len(set(ids)) == 1


COMER = """
import sys

import qmadmin

print("ready", flush=True)
sys.stdin.readline()
with qmadmin.open_device(sys.argv[1], create=True) as device:
    device.create_space("QS", exist_ok=True)
    with device.open_space("QS") as space:
        space.create_queue("q", exist_ok=True)
        print(space.enqueue("q", sys.argv[2]))
"""


def test_of_several_processes_that_come_at_once_each_enqueues_in_the_same_device(place: str) -> None:
    comers = [
        subprocess.Popen(
            [sys.executable, "-c", COMER, place, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for number in range(6)
    ]
    for comer in comers:
        assert comer.stdout is not None
        assert comer.stdout.readline() == "ready\n"
    ids = [comer.communicate("go\n")[0].strip() for comer in comers]
    assert [comer.returncode for comer in comers] == [0] * 6
    with qmadmin.open_device(place) as device, device.open_space("QS") as space:
        assert sorted(message.msgid for message in space.messages("q")) == sorted(ids)


def test_something_else_in_its_place_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "QUE").write_text("a letter, which is no device and long enough not to be taken for an empty file")
    with pytest.raises(qmadmin.QueueError, match="QUE"):
        qmadmin.open_device(tmp_path / "QUE", create=True)
    assert (tmp_path / "QUE").read_text().startswith("a letter")


def test_a_device_in_memory_is_made(tmp_path: Path) -> None:
    with qmadmin.open_device(":memory:", create=True) as device:
        device.create_space("QS")
        with device.open_space("QS") as space:
            space.create_queue("q")
            space.enqueue("q", "x")
            assert space.dequeue("q") is not None
    assert list(tmp_path.iterdir()) == []
