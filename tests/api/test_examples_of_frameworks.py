"""The examples for web frameworks do what they say: each is imported, asked as by a browser, and works."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import qmadmin
from qmadmin.testing import InlineWorker
from tests.fix_process import environment
from tests.fix_store import DEADLINE, ROOT, eventually

Loads = Callable[[str], ModuleType]


@pytest.fixture
def load(tmp_path: Path, memory_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Loads:
    """Import an example, whose files are in a directory of the test."""
    monkeypatch.setenv("SHOP_DATABASE", str(tmp_path / "shop.db"))
    monkeypatch.setenv("SHOP_DEVICE", str(tmp_path / "shop.qm"))

    def loaded(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / "examples" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        # Annotations are looked up by the name of their module.
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return loaded


def browser_of(web):
    import httpx

    return httpx.AsyncClient(transport=httpx.ASGITransport(app=web), base_url="http://shop")


class TestFlask:
    @pytest.fixture
    def shop(self, load: Loads):
        module = load("flask_shop")
        yield module
        module.queues.close()
        module.engine.dispose()

    def test_an_order_is_placed_with_its_message_and_shipped_by_the_worker(self, shop):
        browser = shop.web.test_client()
        assert browser.post("/orders", json={"what": "a chair"}).get_json() == {"number": 1}
        assert browser.get("/orders/1").get_json()["shipped"] is False
        shop.queues.run(until_empty=True)
        assert browser.get("/orders/1").get_json() == {"number": 1, "what": "a chair", "shipped": True}

    def test_a_request_that_fails_leaves_neither(self, shop):
        browser = shop.web.test_client()
        shop.queues.space.stop_queue("orders", dequeue=False)
        assert browser.post("/orders", json={"what": "a chair"}).status_code == 500
        assert browser.get("/orders/1").status_code == 500

    def test_what_cannot_be_shipped_is_in_the_error_queue(self, shop):
        shop.web.test_client().post("/orders", json={"what": "a vase"})
        shop.queues.run(until_empty=True)
        (message,) = shop.queues.space.messages("errors")
        assert message.last_error == "no vases in stock"


class TestFastApi:
    @pytest.fixture
    def shop(self, load: Loads):
        return load("fastapi_shop")

    def test_orders_are_shipped_while_the_server_runs(self, shop):
        async def visit():
            async with shop.web.router.lifespan_context(shop.web), browser_of(shop.web) as browser:
                placed = await browser.post("/orders", json={"number": 17, "what": "a chair"})
                assert placed.status_code == 202
                assert placed.json()["msgid"]
                invoice = await asyncio.to_thread(shop.queues.space.dequeue, "invoices", wait=60)
                assert invoice.json() == {"number": 17}
                assert (await browser.get("/orders")).json() == {"waiting": 0}

        asyncio.run(visit())

    def test_without_its_lifespan_handlers_run_where_the_test_says_so(self, shop):
        async def order(number, what):
            async with browser_of(shop.web) as browser:
                await browser.post("/orders", json={"number": number, "what": what})
                return (await browser.get("/orders")).json()

        with qmadmin.create_device(":memory:") as device:
            device.create_space("TEST")
            with device.open_space("TEST") as space, InlineWorker.of(shop.queues, space) as worker:
                space.create_queue("invoices")
                assert asyncio.run(order(17, "a chair")) == {"waiting": 1}
                worker.run()
                assert space.dequeue("invoices").json() == {"number": 17}
                asyncio.run(order(18, "a vase"))
                with pytest.raises(qmadmin.Failure, match="no vases in stock"):
                    worker.run()


class TestFastApiAwaiting:
    @pytest.fixture
    def shop(self, load: Loads):
        return load("fastapi_quotes")

    def test_each_request_gets_the_answer_to_its_own_message(self, shop):
        async def visit():
            async with shop.web.router.lifespan_context(shop.web), browser_of(shop.web) as browser:
                wishes = ["a chair", "a table", "a vase"] * 20
                asked = await asyncio.gather(*(browser.post("/quotes", json={"what": what}) for what in wishes))
                assert [answer.json() for answer in asked] == [
                    {"what": what, "price": shop.PRICES.get(what)} for what in wishes
                ]
                assert [await shop.web.state.space.count(queue) for queue in ("wishes", "quotes")] == [0, 0]

        asyncio.run(visit())

    def test_a_request_that_nobody_answers_is_told_so(self, shop, monkeypatch):
        async def nobody(_space):
            await asyncio.Event().wait()

        monkeypatch.setattr(shop, "SECONDS", 0.05)
        monkeypatch.setattr(shop, "answer", nobody)

        async def visit():
            async with shop.web.router.lifespan_context(shop.web), browser_of(shop.web) as browser:
                refused = await browser.post("/quotes", json={"what": "a chair"})
                assert (refused.status_code, refused.json()["detail"]) == (504, "nobody has answered in time")

        asyncio.run(visit())


class TestAsyncio:
    def test_orders_are_confirmed_until_a_signal_which_gives_back_the_one_at_work(self, tmp_path: Path):
        device = tmp_path / "shop.qm"
        program = [sys.executable, ROOT / "scripts" / "examples" / "asyncio_mailer.py"]
        settings = environment() | {"SHOP_DEVICE": str(device)}
        with qmadmin.open_device(device, create=True) as made:
            made.create_space("SHOP")
            with made.open_space("SHOP") as space:
                space.create_queue("orders")
                space.enqueue_many("orders", [{"number": 1}, {"number": 2}, {"number": 3, "seconds": 3600}])
                with subprocess.Popen(program, env=settings, stdout=subprocess.PIPE, text=True) as mailer:
                    confirmed = {mailer.stdout.readline() for _ in range(2)}
                    eventually(lambda: space.usage("orders").held == 1, "the third order is at work")
                    mailer.terminate()
                    assert mailer.wait(DEADLINE) == 0
                assert confirmed == {"order 1 is confirmed\n", "order 2 is confirmed\n"}
                assert {space.dequeue("mails").text for _ in range(2)} == {text.strip() for text in confirmed}
                assert space.dequeue("orders").retries == 0
