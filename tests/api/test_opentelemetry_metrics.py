"""The metrics of queue spaces and of calls, as a program with a meter provider of OpenTelemetry has them."""

from __future__ import annotations

import contextlib
import gc
import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import qmadmin
from qmadmin.monitoring.consumer_metrics import BOUNDS_US, CONSUMER, all_families, info
from qmadmin.monitoring.metrics import FAMILIES
from tests.fix_process import environment
from tests.fix_store import Store, make_queue

metrics = pytest.importorskip("opentelemetry.metrics")
sdk = pytest.importorskip("opentelemetry.sdk.metrics")

from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: E402 - there is nothing to test without it


@pytest.fixture(scope="session")
def reader() -> Any:
    """What collects all metrics of this process, which can have one provider only."""
    made = InMemoryMetricReader()
    metrics.set_meter_provider(sdk.MeterProvider([made]))
    return made


@pytest.fixture
def space(reader: Any, store: Store) -> Iterator[qmadmin.QueueSpace]:
    # The metrics of a process go on from test to test, by the name of the queue space.
    with store.space(f"METERED{next(numbers)}", error_queue="ERRORS") as opened:
        make_queue(opened, "ERRORS")
        make_queue(opened, "Q")
        yield opened


numbers = itertools.count()


@pytest.fixture
def collected(reader: Any, space: qmadmin.QueueSpace) -> Callable[[], dict[tuple[str, ...], Any]]:
    """Collect, and return the points of the queue space by the name of the metric and the queue."""

    def collect() -> dict[tuple[str, ...], Any]:
        data = reader.get_metrics_data()
        return {
            (metric.name.removeprefix("qmadmin."), *filter(None, [point.attributes.get("queue")])): point
            # None where nothing at all was observed.
            for of_resource in (data.resource_metrics if data else ())
            for of_scope in of_resource.scope_metrics
            if of_scope.scope.name == "qmadmin"
            for metric in of_scope.metrics
            for point in metric.data.data_points
            if point.attributes["space"] == space.name
        }

    return collect


def test_the_figures_of_an_open_queue_space_are_observed(space: qmadmin.QueueSpace, collected: Any) -> None:
    for text in ("one", "two", "three"):
        space.enqueue("Q", text)
    space.dequeue("Q")
    found = collected()
    assert found["queue.ready_messages", "Q"].value == 2
    assert found["queue.enqueued_messages", "Q"].value == 3
    assert found["queue.dequeued_messages", "Q"].value == 1
    assert found["queue.body", "Q"].value == len("twothree")
    assert found["error_queue.messages", "ERRORS"].value == 0
    assert ("error_queue.messages", "Q") not in found
    assert found["space.used_queues",].value == 2
    assert found["space.up",].value == 1
    space.enqueue("Q", "four")
    assert collected()["queue.ready_messages", "Q"].value == 3


def test_one_look_serves_all_metrics_of_a_collection(
    space: qmadmin.QueueSpace, collected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    usages = space.usages
    monkeypatch.setattr(space, "usages", lambda **how: (looks.append(1), usages(**how))[1])
    for count in (1, 2):
        collected()
        assert len(looks) == count


def test_a_queue_space_that_is_closed_is_observed_no_more(space: qmadmin.QueueSpace, collected: Any) -> None:
    assert ("space.up",) in collected()
    space.close()
    assert collected() == {}


def test_a_collection_in_a_transaction_takes_no_part_in_it(space: qmadmin.QueueSpace, collected: Any) -> None:
    space.enqueue("Q", "one")
    with space.transaction():
        space.dequeue("Q")
        space.enqueue("Q", "two")
        found = collected()
        assert (found["queue.held_messages", "Q"].value, found["queue.ready_messages", "Q"].value) == (1, 0)
    assert collected()["queue.ready_messages", "Q"].value == 1


def test_the_calls_of_an_application_are_counted_over_all_of_its_runs(
    space: qmadmin.QueueSpace, collected: Any
) -> None:
    app = qmadmin.App("nowhere", space=space.name)

    @app.handler("Q", retries=0)
    def handle(message: qmadmin.Message) -> None:
        if message.text == "bad":
            raise LookupError("bad")

    with app.using(space):
        for batch in (["good", "bad"], ["good"]):
            space.enqueue_many("Q", batch)
            app.run(until_empty=True)
        found = collected()
    names = ("calls", "successes", "failures", "retries", "calls_in_flight", "workers")
    assert [found[f"consumer.{name}", "Q"].value for name in names] == [3, 2, 1, 0, 0, 1]
    took = found["consumer.call_duration", "Q"]
    assert (took.count, tuple(took.explicit_bounds)) == (3, tuple(bound / 1_000_000 for bound in BOUNDS_US))
    assert found["consumer.last_error_timestamp", "Q"].value > 1e9


def test_queue_spaces_of_one_name_on_several_devices_are_told_apart(reader: Any, tmp_path: Path) -> None:
    name = f"METERED{next(numbers)}"
    with contextlib.ExitStack() as stack:
        for device, count in (("one", 1), ("two", 2)):
            opened = stack.enter_context(qmadmin.open_device(tmp_path / device, create=True))
            opened.create_space(name)
            space = stack.enter_context(opened.open_space(name))
            space.create_queue("Q")
            space.enqueue_many("Q", ["a chair"] * count)
            space.consume("Q", print, until_empty=True)
        told = {
            (metric.name, point.attributes["device"]): getattr(point, "value", None)
            for of_resource in reader.get_metrics_data().resource_metrics
            for of_scope in of_resource.scope_metrics
            for metric in of_scope.metrics
            for point in metric.data.data_points
            if (point.attributes.get("space"), point.attributes.get("queue", "Q")) == (name, "Q")
        }
    for device, count in (("one", 1), ("two", 2)):
        path = str(tmp_path / device)
        assert told["qmadmin.space.up", path] == 1
        assert told["qmadmin.queue.dequeued_messages", path] == count
        assert told["qmadmin.consumer.successes", path] == count


def test_calls_of_a_function_without_an_application_go_on_counting(space: qmadmin.QueueSpace, collected: Any) -> None:
    seen = []

    def handle(message: qmadmin.Message) -> None:
        # The exporter collects in a thread of its own.
        thread = threading.Thread(target=lambda: seen.append(collected()))
        thread.start()
        thread.join()

    for _ in range(2):
        space.enqueue("Q", "one")
        space.consume("Q", handle, until_empty=True)
        gc.collect()
    assert [found["consumer.calls", "Q"].value for found in seen] == [1, 2]
    assert [found["consumer.calls_in_flight", "Q"].value for found in seen] == [1, 1]
    found = collected()
    assert [found[f"consumer.{name}", "Q"].value for name in ("successes", "calls_in_flight")] == [2, 0]


def ran(place: Path, program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=place, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


WORKS = """
import sys, qmadmin
app = qmadmin.App("QUE", space="QS", create=True)
@app.handler("orders")
def ship(message): pass
ship.enqueue("a vase")
app.run(until_empty=True)
"""


def test_without_metrics_of_opentelemetry_in_the_program_nothing_of_it_is_imported(tmp_path: Path) -> None:
    assert ran(tmp_path, WORKS + "print([each for each in sys.modules if each.startswith('opentelemetry')])") == "[]\n"


def test_without_a_provider_nothing_is_looked_at_and_one_that_comes_later_collects(tmp_path: Path) -> None:
    told = ran(
        tmp_path,
        "from opentelemetry import metrics"
        + WORKS
        + """
print([each for each in sys.modules if each.startswith("opentelemetry.sdk")])
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
(of_resource,) = reader.get_metrics_data().resource_metrics
(of_scope,) = of_resource.scope_metrics
print(of_scope.scope.name, of_scope.scope.version == qmadmin.__version__)
print(*[metric.data.data_points[0].value for metric in of_scope.metrics if metric.name == "qmadmin.consumer.successes"])
""",
    )
    assert told == "[]\nqmadmin True\n1\n"


def test_a_provider_that_fails_is_logged_and_the_queue_space_is_open(tmp_path: Path) -> None:
    told = ran(
        tmp_path,
        """
import logging
from opentelemetry import metrics
class Broken(metrics.NoOpMeterProvider):
    def get_meter(self, *args, **kwargs):
        raise RuntimeError("no network")
metrics.set_meter_provider(Broken())
logging.basicConfig(format="%(message)s", stream=__import__("sys").stdout)
"""
        + WORKS
        + "print(app.space.usage('orders').dequeued)",
    )
    assert set(told.splitlines()) == {"metrics cannot be given to OpenTelemetry: RuntimeError: no network", "1"}


def test_prometheus_has_the_same_names_by_way_of_opentelemetry(tmp_path: Path) -> None:
    told = ran(
        tmp_path,
        """
from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
metrics.set_meter_provider(MeterProvider([PrometheusMetricReader()]))
"""
        + WORKS
        + """
import prometheus_client
for family in prometheus_client.REGISTRY.collect():
    if family.name.startswith("qmadmin"):
        print(family.name + "_total" * (family.type == "counter"), family.type)
""",
    )
    # The version is that of the scope.
    declared = {*FAMILIES, *all_families(CONSUMER)} - {info(CONSUMER)}
    assert set(told.splitlines()) == {f"{family.shown} {family.kind}" for family in declared}
