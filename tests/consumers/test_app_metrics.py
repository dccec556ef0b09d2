"""The metrics of an application: in a registry that the program has, and served while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import urllib.request
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import qmadmin
from tests.fix_process import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def application(place: Path, space: str = "QS") -> qmadmin.App:
    """Return one whose handler fails for a vase."""
    app = qmadmin.App(place / space, space=space, create=True)

    @app.handler("orders", workers=3, retries=0)
    def ship(message: qmadmin.Message) -> None:
        if message.text == "a vase":
            raise LookupError("no vases in stock")

    return app


@pytest.fixture
def app(tmp_path: Path) -> Iterator[qmadmin.App]:
    with contextlib.closing(application(tmp_path)) as made:
        yield made


def ship(app: qmadmin.App, *texts: str) -> None:
    for text in texts:
        app.enqueue("orders", text)
    app.run(until_empty=True)


def registered(app: qmadmin.App, *others: qmadmin.App) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(app.collector(*others))
    return registry


def value(registry: CollectorRegistry, name: str, space: str = "QS", **labels: str) -> float | None:
    wanted = {"space": space, **labels}.items()
    found = [
        sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == name and wanted <= sample.labels.items()
    ]
    assert len(found) <= 1
    return found[0] if found else None


def test_a_registry_of_the_program_gets_calls_and_queues_of_all_runs(app: qmadmin.App) -> None:
    registry = registered(app)
    ship(app, "a chair", "a vase")
    ship(app, "a table")
    told = {
        name: value(registry, f"qmadmin_consumer_{name}", queue="orders")
        for name in ("calls_total", "successes_total", "failures_total", "calls_in_flight", "workers")
    }
    assert told == {"calls_total": 3, "successes_total": 2, "failures_total": 1, "calls_in_flight": 0, "workers": 3}
    assert value(registry, "qmadmin_consumer_call_duration_seconds_count", queue="orders") == 3
    assert value(registry, "qmadmin_error_queue_messages", queue="errors") == 1
    assert value(registry, "qmadmin_space_up") == 1


def test_each_consumer_of_a_queue_has_figures_of_its_own(tmp_path: Path) -> None:
    with contextlib.closing(qmadmin.App(tmp_path / "QS", space="QS", create=True)) as app:

        @app.handler("news", consumer="billing")
        def bill(message: qmadmin.Message) -> None:
            del message

        app.space.subscribe("news", "audit")
        registry = registered(app)
        bill.enqueue("a chair")
        app.run(until_empty=True)
        names, told = ("audit", "billing"), ("qmadmin_queue_ready_messages", "qmadmin_queue_dequeued_messages_total")
        assert {name: [value(registry, each, queue=f"news:{name}") for each in told] for name in names} == {
            "audit": [1, 0],
            "billing": [0, 1],
        }
        assert value(registry, "qmadmin_consumer_successes_total", queue="news:billing") == 1
        ages = [value(registry, "qmadmin_queue_oldest_ready_age_seconds", queue=f"news:{name}") for name in names]
        assert ages[0]
        assert ages[1] == 0


def test_a_registry_opens_no_device(app: qmadmin.App, tmp_path: Path) -> None:
    registry = registered(app)
    assert value(registry, "qmadmin_space_up") == 0
    assert not (tmp_path / "QS").exists()


def test_a_closed_queue_space_is_not_up_and_its_calls_stay_counted(app: qmadmin.App) -> None:
    registry = registered(app)
    ship(app, "a chair")
    app.close()
    assert value(registry, "qmadmin_space_up") == 0
    assert value(registry, "qmadmin_consumer_successes_total", queue="orders") == 1


def test_several_applications_of_a_process_have_one_collector(app: qmadmin.App, tmp_path: Path) -> None:
    with contextlib.closing(application(tmp_path, "OTHER")) as other:
        registry = registered(app, other)
        ship(app, "a chair")
        ship(other, "a chair", "a table")
        assert value(registry, "qmadmin_consumer_successes_total", "QS", queue="orders") == 1
        assert value(registry, "qmadmin_consumer_successes_total", "OTHER", queue="orders") == 2
        # Text that Prometheus reads has each metric once.
        text = generate_latest(registry).decode()
        assert text.count("# TYPE qmadmin_consumer_successes_total counter") == 1
        with pytest.raises(ValueError, match="Duplicated timeseries"):
            registry.register(other.collector())


def test_queue_spaces_of_one_name_on_several_devices_are_told_apart(app: qmadmin.App, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    with contextlib.closing(application(tmp_path / "elsewhere")) as other:
        registry = registered(app, other)
        ship(app, "a chair")
        ship(other, "a chair", "a table")
        for device, count in ((tmp_path / "QS", 1), (tmp_path / "elsewhere" / "QS", 2)):
            its = {"queue": "orders", "device": str(device)}
            assert value(registry, "qmadmin_consumer_successes_total", **its) == count
            assert value(registry, "qmadmin_consumer_call_duration_seconds_count", **its) == count
            assert value(registry, "qmadmin_queue_dequeued_messages_total", **its) == count
            assert value(registry, "qmadmin_space_up", device=str(device)) == 1


def test_the_device_is_told_without_a_password() -> None:
    app = qmadmin.App("postgresql://ann:secret@db.example/shop?schema=q", space="QS")
    assert value(registered(app), "qmadmin_space_up", device="postgresql://db.example:5432/shop?schema=q") == 0


def test_what_runs_on_a_lent_queue_space_is_counted_apart(app: qmadmin.App) -> None:
    registry = registered(app)
    with qmadmin.open_device(":memory:", create=True) as device:
        device.create_space("TEST")
        with device.open_space("TEST") as space, app.using(space):
            ship(app, "a chair")
            assert value(registry, "qmadmin_consumer_successes_total", queue="orders") == 1
    assert value(registry, "qmadmin_consumer_successes_total", queue="orders") is None


def test_a_forked_process_counts_from_zero(app: qmadmin.App) -> None:
    registry = registered(app)
    ship(app, "a chair", "a table")
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            ship(app, "a lamp")
            os.write(writer, str(value(registry, "qmadmin_consumer_successes_total", queue="orders")).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 100) == b"1"
    assert value(registry, "qmadmin_consumer_successes_total", queue="orders") == 2
    for descriptor in (reader, writer):
        os.close(descriptor)


def scraped(caplog: pytest.LogCaptureFixture) -> str:
    """Return what is served where the log says."""
    found = eventually(lambda: re.findall(r"http://127\.0\.0\.1:\d+/metrics", caplog.text), "the address")
    with urllib.request.urlopen(found[-1], timeout=90) as answer:
        text: str = answer.read().decode()
    return text


CALLED = re.compile(r'qmadmin_consumer_successes_total{device="/.*/QS",queue="orders",space="QS"} 1.0')


def test_a_queue_space_serves_them_while_it_consumes(app: qmadmin.App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "qmadmin.consumers")
    for what in ("a chair", "a table"):
        app.enqueue("orders", what)
    seen: list[str] = []
    app.space.consume("orders", lambda _message: seen.append(scraped(caplog)), until_empty=True, metrics=0)
    assert [bool(CALLED.search(each)) for each in seen] == [False, True]
    assert f'qmadmin_queue_ready_messages{{device="{app.device.path}",queue="orders",space="QS"}} 1.0' in seen[0]
    with pytest.raises(OSError, match="refused"):
        scraped(caplog)


@pytest.mark.parametrize("where", [0, "0", "127.0.0.1:0"])
def test_it_serves_them_while_it_runs_in_a_thread(
    app: qmadmin.App, caplog: pytest.LogCaptureFixture, where: str | int
) -> None:
    caplog.set_level("INFO", "qmadmin.consumers")
    app.enqueue("orders", "a chair")
    with app.running(metrics=where):
        eventually(lambda: CALLED.search(scraped(caplog)), "the call")
    with pytest.raises(OSError, match="refused"):
        scraped(caplog)


def test_it_serves_them_while_it_runs_under_asyncio(app: qmadmin.App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "qmadmin.consumers")
    app.enqueue("orders", "a chair")

    async def main() -> None:
        run = asyncio.create_task(app.run_async(metrics="0"))
        await asyncio.to_thread(lambda: eventually(lambda: CALLED.search(scraped(caplog)), "the call"))
        app.stop()
        await run

    asyncio.run(main())


@pytest.mark.parametrize("where", ["all", -1, True, 70_000])
def test_an_address_that_means_nothing_is_refused_before_anything_runs(app: qmadmin.App, where: str | int) -> None:
    app.enqueue("orders", "a chair")
    with pytest.raises(qmadmin.InvalidArgumentError, match=r"metrics must be served at \[HOST:\]PORT"):
        app.run(until_empty=True, metrics=where)
    assert app.space.usage("orders").messages == 1
    app.run(until_empty=True)
    assert app.space.usage("orders").messages == 0
