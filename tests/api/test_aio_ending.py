"""The end of what tasks of asyncio use, and of their calls: closed devices and loops, forks, cancellations."""

import asyncio
import gc
import math
import os
import threading
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmadmin import aio
from qmcore.errors import NotOpenError, ProtocolError
from tests.fix_aio import DEADLINE, asleep, begin, run, until


@pytest.fixture
def device(device_of_tasks):
    return device_of_tasks


class TestTheEnd:
    def test_closing_the_device_ends_those_that_wait(self, device):
        async def main():
            made = aio.Device(device)
            space = await made.open_space("SPACE")
            tasks = [begin(space.dequeue("Q", wait=math.inf)) for _ in range(20)]
            await asleep(space, 20)
            await made.close()
            await made.close()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert {str(result) for result in results} == {f"device {device.path!r} is closed"}
            with pytest.raises(NotOpenError):
                await space.enqueue("Q", "x")

        asyncio.run(main())

    def test_closing_a_queue_space_ends_its_own_waits_and_no_others(self, device):
        async def story(space):
            other = await space.device.open_space("SPACE")
            task, stays = begin(other.dequeue("Q", wait=math.inf)), begin(space.dequeue("Q", wait=math.inf))
            await asleep(space, 2)
            await other.close()
            with pytest.raises(NotOpenError, match="is closed"):
                await task
            await space.enqueue("Q", "x")
            assert (await stays).text == "x"

        run(device, story)

    def test_a_transaction_that_is_open_when_the_device_is_closed_rolls_back(self, tmp_path):
        async def main():
            async with aio.create_device(tmp_path / "QUE") as device:
                await device.create_space("SPACE")
                space = await device.open_space("SPACE")
                await space.create_queue("Q", retry_delay=0)
                await space.enqueue("Q", "x")
                with pytest.raises(ValueError, match="mine"):
                    async with space.transaction():
                        assert await space.dequeue("Q")
                        await device.close()
                        raise ValueError("mine")
            async with aio.open_device(tmp_path / "QUE") as device, device.open_space("SPACE") as space:
                assert (await space.dequeue("Q")).text == "x"

        asyncio.run(main())

    def test_a_loop_that_ends_leaves_its_messages_to_others(self, device):
        async def main():
            space = await aio.Device(device).open_space("SPACE")
            begin(space.dequeue("Q", wait=math.inf))
            await asleep(space, 1)

        asyncio.run(main())
        gc.collect()
        with device.open_space("SPACE") as space:
            space.enqueue("Q", "x")
            assert space.dequeue("Q").text == "x"

    def test_a_loop_that_is_closed_under_a_wait_loses_nothing(self, device):
        loop = asyncio.new_event_loop()

        async def main():
            space = await aio.Device(device).open_space("SPACE")
            begin(space.dequeue("Q", wait=math.inf))
            await asleep(space, 1)

        loop.run_until_complete(main())
        loop.close()
        with device.open_space("SPACE") as space:
            space.enqueue("Q", "x")
            assert space.dequeue("Q").text == "x"
        for thread in threading.enumerate():
            if thread.name.startswith("qmadmin-aio waits"):
                thread.join(60)
                assert not thread.is_alive()

    def test_another_loop_is_refused(self, device):
        space = asyncio.run(_open(device))

        async def uses():
            with pytest.raises(ProtocolError, match="another event loop"):
                await space.enqueue("Q", "x")

        asyncio.run(uses())

    def test_a_forked_process_is_refused(self, device):
        async def story(space):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    await space.enqueue("Q", "x")
                except ProtocolError as error:
                    status = 0 if "from which this one was forked" in str(error) else 2
                finally:
                    os._exit(status)
            assert os.waitpid(child, 0)[1] == 0
            assert await space.dequeue("Q") is None

        run(device, story)


class TestCancelling:
    def test_before_it_has_begun_nothing_is_done(self, device):
        async def story(space):
            tasks = [begin(space.enqueue("Q", str(number))) for number in range(200)]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            done = [result for result in results if isinstance(result, str)]
            assert (await space.usage("Q")).ready == len(done) < 200

        run(device, story)

    def test_one_that_comes_too_late_takes_effect_at_the_next_await(self, device):
        async def story(space):
            begun, goes_on = threading.Event(), threading.Event()
            came = []

            def call():
                begun.set()
                goes_on.wait(60)
                return space.synchronous.enqueue("Q", "x")

            async def work():
                came.append(await space.threads.do(call))
                await asyncio.Event().wait()

            task = begin(work())
            await until(begun.is_set)
            task.cancel()
            await asyncio.sleep(0)
            goes_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert [message.msgid async for message in space.browse("Q")] == came

        run(device, story)

    def test_a_timeout_that_comes_too_late_is_none(self, device):
        async def story(space):
            begun = threading.Event()

            async def work(timeout):
                def call():
                    begun.set()
                    asyncio.run_coroutine_threadsafe(late(timeout), space.threads.loop).result(60)
                    return space.synchronous.enqueue("Q", "x")

                return await space.threads.do(call)

            async def late(timeout):
                timeout.reschedule(0)
                await asyncio.sleep(0)
                await asyncio.sleep(0)

            async with asyncio.timeout(60) as timeout:
                msgid = await work(timeout)
            await asyncio.sleep(0)
            assert (await space.dequeue("Q")).msgid == msgid

        run(device, story)

    def test_at_any_point_loses_and_doubles_nothing(self, device):
        with asyncio.Runner() as runner:
            space = runner.run(_open(device))

            @settings(max_examples=25, deadline=None)
            @given(turns=st.lists(st.integers(0, TURNS), min_size=len(KINDS) * EACH, max_size=len(KINDS) * EACH))
            def at_points(turns):
                runner.run(cancelled_at(space, turns))

            at_points()
            runner.run(space.device.close())


EACH = 4
"""Tasks of each kind."""

TURNS, SLOW = 60, 40
"""Turns of the event loop until the last task is cancelled; in those after `SLOW` a call to the store takes place, so
that others have theirs done meanwhile."""


async def sends(space, number, sent, _got):
    await space.enqueue("Q", str(number))
    sent[str(number)] += 1


async def sends_many(space, number, sent, _got):
    texts = [f"{number}a", f"{number}b"]
    await space.enqueue_many("Q", texts)
    sent.update(texts)


async def sends_in_a_transaction(space, number, sent, _got):
    async with space.transaction():
        await space.enqueue("Q", str(number))
        await space.enqueue("R", f"{number}r")
    sent.update([str(number), f"{number}r"])


async def takes(space, _number, _sent, got):
    message = await space.dequeue("Q", wait=math.inf)
    got[message.text] += 1


async def takes_many(space, _number, _sent, got):
    got.update([message.text for message in await space.dequeue_many("Q", 3, wait=math.inf)])


async def answers(space, _number, _sent, _got):
    async with space.transaction():
        message = await space.dequeue("Q", wait=math.inf)
        await space.enqueue("R", message.text)


async def holds(space, _number, _sent, _got):
    async with space.transaction():
        await space.dequeue("Q", wait=math.inf)
        await asyncio.Event().wait()


async def holds_what_another_took(space, _number, _sent, _got):
    async with space.transaction() as tx:
        async with asyncio.TaskGroup() as group:
            group.create_task(space.dequeue("Q", wait=math.inf, transaction=tx))
        await asyncio.Event().wait()


KINDS = (sends, sends_many, sends_in_a_transaction, takes, takes_many, answers, holds, holds_what_another_took)


async def cancelled_at(space, turns):
    """Cancel each task at its turn, and prove that each message is where its sender and its taker believe it is."""
    sent, got, left = Counter(), Counter(), Counter()
    tasks = [
        asyncio.create_task(KINDS[at % len(KINDS)](space, at, sent, got), name=f"{at}") for at in range(len(turns))
    ]
    for turn in range(TURNS + 1):
        for task, at in zip(tasks, turns, strict=True):
            if at == turn:
                task.cancel()
        await (asyncio.sleep(0) if turn < SLOW else space.count("R"))
    _, late = await asyncio.wait(tasks, timeout=DEADLINE)
    assert not late
    assert {task.exception() for task in tasks if not task.cancelled()} <= {None}
    for queue in ("Q", "R"):
        for message in await space.dequeue_many(queue, 1_000):
            assert message.retries == 0
            left[message.text] += 1
    assert left + got == sent


async def _open(device):
    return await aio.Device(device).open_space("SPACE")
