"""The API for tasks of asyncio: what it is beside the synchronous one, by which its calls are done."""

import asyncio
import math
import threading

import pytest

import qmadmin
from qmadmin import aio
from qmcore.errors import (
    AbortedError,
    BadQueueError,
    InvalidArgumentError,
    ProtocolError,
)
from tests.fix_aio import asleep, begin, run, until


@pytest.fixture
def device(device_of_tasks):
    return device_of_tasks


class TestCalls:
    def test_a_message_goes_in_and_comes_out(self, device):
        async def story(space):
            msgid = await space.enqueue("Q", {"n": 1}, corrid="c", priority=70)
            assert [info.msgid async for info in space.messages("Q")] == [msgid]
            assert [message.json() async for message in space.browse("Q")] == [{"n": 1}]
            assert (await space.peek("Q")).msgid == msgid
            assert await space.listen(["R", "Q"]) == "Q"
            message = await space.dequeue("Q", corrid=b"c")
            assert (message.msgid, message.priority) == (msgid, 70)
            assert await space.dequeue("Q") is None
            assert await space.dequeue_many("Q", 5) == []
            assert (await space.definition).name == space.name == "SPACE"

        run(device, story)

    def test_consumers_of_a_queue_each_take_its_messages_and_wait_for_them(self, device):
        async def story(space):
            await space.create_queue("NEWS", multiple_consumers=True)
            for name in ("billing", "audit"):
                assert (await space.subscribe("NEWS", name)).name == name
            waiting = [begin(space.dequeue("NEWS", consumer=name, wait=60)) for name in ("billing", "audit")]
            waiting.append(begin(space.listen(["Q", "NEWS:audit"], wait=60), "listens"))
            await asleep(space, 2)
            async with space.transaction():
                await space.enqueue("NEWS", "once")
            assert [message.text for message in await asyncio.gather(*waiting[:2])] == ["once", "once"]
            await space.enqueue("NEWS", "again")
            assert await waiting[2] == "NEWS:audit"
            assert (await space.peek("NEWS", consumer="audit")).text == "again"
            assert len(await space.dequeue_many("NEWS", 5, consumer="audit")) == 1
            assert [message.text async for message in space.browse("NEWS", consumer="billing")] == ["again"]
            async with space.transaction():
                msgid = (await space.lock("NEWS", consumer="billing")).msgid
                assert (await space.remove("NEWS", consumer="billing", msgid=msgid)).msgid == msgid
            await space.change_subscription("NEWS", "billing", rule="priority > 60", topics=["order.#"])
            await space.enqueue("NEWS", "for one", priority=1, topic="order.new")
            await space.enqueue("NEWS", "for both", priority=100, topic="order.new")
            assert [(await space.dequeue("NEWS", consumer=name)).text for name in ("audit", "billing")] == [
                "for one",
                "for both",
            ]
            await space.unsubscribe("NEWS", "audit")
            assert [(each.queue, each.name, each.topics) for each in await space.subscriptions()] == [
                ("NEWS", "billing", ("order.#",))
            ]

        run(device, story)

    def test_errors_are_those_of_the_synchronous_calls(self, device):
        async def story(space):
            with pytest.raises(BadQueueError):
                await space.enqueue("NONE", "x")
            with pytest.raises(BadQueueError):
                await space.dequeue("NONE", wait=5)
            with pytest.raises(InvalidArgumentError):
                await space.dequeue("Q", wait=-1)
            with pytest.raises(InvalidArgumentError):
                await space.listen("Q", wait=1)
            with pytest.raises(TypeError, match="queue"):
                await space.dequeue(wait=1)

        run(device, story)

    def test_many_tasks_at_once_use_a_bounded_number_of_threads(self, device):
        async def story(space):
            before = threading.active_count()
            sent = await asyncio.gather(*(space.enqueue("Q", str(number)) for number in range(500)))
            assert len(set(sent)) == 500
            assert threading.active_count() - before <= 16
            assert (await space.usage("Q")).ready == 500

        run(device, story)

    def test_a_device_is_opened_and_created_by_itself(self, tmp_path):
        async def main():
            async with aio.create_device(tmp_path / "QUE") as device:
                await device.create_space("SPACE")
                space = await device.open_space("SPACE")
                await space.create_queue("Q")
                await space.enqueue("Q", "x")
                await space.close()
            async with aio.open_device(tmp_path / "QUE") as device, device.open_space("SPACE") as space:
                assert [queue.name for queue in await device.queues("SPACE")] == ["Q", "errors"]
                assert (await space.dequeue("Q")).text == "x"
            with pytest.raises(qmadmin.BadResourceError):
                await aio.open_device(tmp_path / "NONE")

        asyncio.run(main())
        assert not [thread for thread in threading.enumerate() if "qmadmin-aio waits" in thread.name]


class TestTransactions:
    def test_it_commits_at_the_end_and_rolls_back_on_an_exception_which_is_a_try(self, device):
        async def story(space):
            async with space.transaction() as tx:
                await space.enqueue("Q", "x")
                assert await space.dequeue("Q", transactional=False) is None
                assert tx.active
            assert not tx.active
            with pytest.raises(ValueError, match="mine"):
                async with space.transaction():
                    assert (await space.dequeue("Q", wait=5)).text == "x"
                    await space.enqueue("R", "answer")
                    raise ValueError("mine")
            assert (await space.dequeue("Q")).retries == 1
            assert await space.dequeue("R") is None

        run(device, story)

    def test_a_cancellation_gives_back_at_once_and_is_no_try(self, device):
        async def story(space):
            await space.enqueue("Q", "x")
            holding = asyncio.Event()

            async def work():
                async with space.transaction():
                    await space.dequeue("Q")
                    holding.set()
                    await asyncio.Event().wait()

            task = begin(work())
            await holding.wait()
            assert await space.dequeue("Q") is None
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await space.dequeue("Q")).retries == 0

        run(device, story)

    def test_a_timeout_inside_and_its_own_end_are_a_try(self, device):
        async def story(space):
            await space.enqueue("Q", "x")
            with pytest.raises(TimeoutError):
                async with space.transaction():
                    await space.dequeue("Q")
                    async with asyncio.timeout(0):
                        await asyncio.Event().wait()
            tx = space.transaction(timeout=0.2)
            with pytest.raises(asyncio.CancelledError):
                async with tx:
                    assert (await space.dequeue("Q")).retries == 1
                    await until(lambda: not tx.remaining())
                    raise asyncio.CancelledError
            assert (await space.dequeue("Q")).retries == 2

        run(device, story)

    def test_a_call_after_its_end_is_refused(self, device):
        async def story(space):
            with pytest.raises(AbortedError, match=r"timeout of 0\.01 seconds"):
                async with space.transaction(timeout=0.01) as tx:
                    await until(lambda: not tx.remaining())
                    await space.enqueue("Q", "x")
            assert await space.dequeue("Q") is None

        run(device, story)

    def test_a_wait_in_it_ends_with_its_time(self, device):
        async def story(space):
            with pytest.raises(AbortedError):
                async with space.transaction(timeout=0.05):
                    await space.dequeue("Q", wait=math.inf)

        run(device, story)

    def test_they_do_not_nest(self, device):
        async def story(space):
            async with space.transaction():
                with pytest.raises(ProtocolError, match="open already in this task"):
                    async with space.transaction():
                        pass

        run(device, story)

    def test_each_task_has_its_own(self, device):
        async def story(space):
            meeting = asyncio.Barrier(5)

            async def work(number):
                async with space.transaction():
                    await space.enqueue("Q", str(number))
                    await meeting.wait()
                    if number % 2:
                        raise ValueError

            await asyncio.gather(*(work(number) for number in range(5)), return_exceptions=True)
            assert sorted([message.text async for message in space.browse("Q")]) == ["0", "2", "4"]

        run(device, story)

    def test_a_task_begun_inside_is_refused_unless_it_is_given_the_transaction(self, device):
        async def story(space):
            async with space.transaction() as tx:
                with pytest.raises(ProtocolError, match="another task"):
                    await begin(space.enqueue("Q", "refused"))
                await begin(space.enqueue("Q", "outside", transactional=False))
                await asyncio.gather(*(space.enqueue("Q", "inside", transaction=tx) for _ in range(20)))
                assert (await begin(space.dequeue("Q", wait=1, transaction=tx))).text == "outside"
                assert await space.dequeue("Q", transactional=False) is None
                late = begin(_after(tx, space))
            with pytest.raises(ProtocolError, match="another task"):
                await late
            assert (await space.usage("Q")).ready == 20

        async def _after(tx, space):
            await until(lambda: not tx.active)
            await space.enqueue("Q", "too late")

        run(device, story)

    def test_one_that_is_not_its_own_is_refused(self, device):
        async def story(space):
            with pytest.raises(ProtocolError, match="never begun"):
                await space.enqueue("Q", "x", transaction=space.transaction())
            with pytest.raises(InvalidArgumentError, match="transaction"):
                await space.enqueue("Q", "x", transaction=7)
            async with space.transaction() as tx:
                with pytest.raises(InvalidArgumentError, match="to none"):
                    await space.enqueue("Q", "x", transaction=tx, transactional=False)
            with pytest.raises(ProtocolError, match="committed already"):
                await space.enqueue("Q", "x", transaction=tx)

        run(device, story)
