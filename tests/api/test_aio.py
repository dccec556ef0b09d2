"""The API for tasks of asyncio: what it is beside the synchronous one, by which its calls are done."""

import asyncio
import gc
import math
import os
import threading
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import qmadmin
from qmadmin import aio
from qmcore.errors import (
    AbortedError,
    BadQueueError,
    InvalidArgumentError,
    NotOpenError,
    ProtocolError,
    SystemFailureError,
)
from tests.fix_aio import opened, until
from tests.fix_store import device_path, make_queue, maker_of_devices, space_definition
from tests.fix_waits import waits


@pytest.fixture(params=["file", "memory", "postgres"])
def device(request, tmp_path):
    """A device on the machine's own clock, with a queue space `SPACE` and the queues `Q` and `R`."""
    path = device_path(request.param, request, tmp_path)
    with maker_of_devices(request.param, request)(path, 50_000) as made:
        made.create_space(space_definition(pages=20_000, messages=20_000, actions=0))
        with made.open_space("SPACE") as space:
            make_queue(space, "Q", retries=3)
            make_queue(space, "R")
        yield made


def run(device, story):
    """Run what tasks do with a queue space of a device in an event loop."""

    async def main():
        async with opened(device) as space:
            await asyncio.wait_for(story(space), 240)

    asyncio.run(main())


async def asleep(space, count):
    """Wait until that many tasks sleep, and the thread of the queue space listens."""
    await until(lambda: len([task for task in asyncio.all_tasks() if task.get_name().startswith("waits")]) == count)
    await until(lambda: waits(space.synchronous))


def begin(awaitable, name="waits"):
    return asyncio.create_task(awaitable, name=name)


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


class TestWaiting:
    def test_a_thousand_tasks_take_one_thread_and_one_action(self, device):
        async def story(space):
            tasks = [begin(space.dequeue("Q", wait=math.inf)) for _ in range(1_000)]
            before = threading.active_count()
            await asleep(space, 1_000)
            assert waits(space.synchronous) == 1
            assert threading.active_count() <= before + 17
            assert len([each for each in threading.enumerate() if each.name.startswith("qmadmin-aio waits")]) == 1
            await space.enqueue_many("Q", [str(number) for number in range(1_000)])
            got = await asyncio.gather(*tasks)
            assert sorted(int(message.text) for message in got) == list(range(1_000))

        run(device, story)

    def test_a_second_thread_that_waits_beside_them_takes_the_action(self, device):
        """With them the queue space has no action left but the first of a process."""

        async def story(space):
            task = begin(space.dequeue("Q", wait=math.inf))
            await asleep(space, 1)
            with pytest.raises(SystemFailureError, match="actions"):
                await asyncio.to_thread(space.synchronous.dequeue, "Q", wait=5)
            task.cancel()

        run(device, story)

    def test_each_gets_the_reply_that_it_asks_for(self, device):
        async def story(space):
            tasks = [begin(space.dequeue("Q", corrid=str(number), wait=math.inf)) for number in range(50)]
            await asleep(space, 50)
            await asyncio.gather(*(space.enqueue("Q", str(number), corrid=str(number)) for number in range(50)))
            assert [message.text for message in await asyncio.gather(*tasks)] == [str(number) for number in range(50)]

        run(device, story)

    def test_a_message_that_others_do_not_want_keeps_nobody_from_hearing(self, device):
        async def story(space):
            await space.enqueue("Q", "nobody's", corrid="n")
            task = begin(space.dequeue("Q", corrid="mine", wait=math.inf))
            await asleep(space, 1)
            await space.enqueue("Q", "mine", corrid="mine")
            assert (await task).text == "mine"

        run(device, story)

    def test_a_delayed_message_wakes_when_it_is_due(self, device):
        async def story(space):
            await space.enqueue("Q", "x", delay=0.05)
            assert (await space.dequeue("Q", wait=60)).text == "x"

        run(device, story)

    def test_it_ends_without_a_message_when_its_time_is_over(self, device):
        async def story(space):
            assert await space.dequeue("Q", wait=0.02) is None
            assert await space.dequeue_many("Q", 5, wait=0.02) == []
            assert await space.peek("Q", condition="priority > 1", wait=0.02) is None
            assert await space.listen(["Q", "R"], wait=0.02) is None

        run(device, story)

    def test_all_who_look_see_a_message_and_one_takes_it(self, device):
        async def story(space):
            looking = [begin(space.peek("Q", wait=math.inf)) for _ in range(5)]
            listening = begin(space.listen(["R", "Q"], wait=math.inf))
            await asleep(space, 6)
            await space.enqueue("Q", "x")
            assert [message.text for message in await asyncio.gather(*looking)] == ["x"] * 5
            assert await listening == "Q"

        run(device, story)

    def test_one_that_was_woken_and_is_cancelled_passes_that_on(self, device):
        async def story(space):
            first, second = begin(space.dequeue("Q", wait=math.inf)), begin(space.dequeue("Q", wait=math.inf))
            await asleep(space, 2)
            await asyncio.to_thread(space.synchronous.enqueue, "Q", "x")
            first.cancel()
            await asyncio.wait([first])
            if first.cancelled():
                assert (await second).text == "x"
            else:
                # It had it already.
                assert first.result().text == "x"
                second.cancel()

        run(device, story)

    def test_a_stopped_queue_ends_all(self, device):
        async def story(space):
            tasks = [begin(space.dequeue("Q", wait=math.inf)) for _ in range(20)]
            await asleep(space, 20)
            await space.stop_queue("Q")
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(result) for result in results} == {BadQueueError}

        run(device, story)

    def test_it_asks_whether_to_stop_when_it_is_woken_by_hand(self, device):
        async def story(space):
            stops = []
            task = begin(space.dequeue("Q", wait=math.inf, stop=lambda: bool(stops)))
            await asleep(space, 1)
            stops.append("now")
            space.wake()
            assert await task is None

        run(device, story)

    def test_nobody_listens_any_more_when_nobody_waits(self, device):
        async def story(space):
            assert await space.dequeue("Q", wait=0.02) is None
            await until(lambda: not waits(space.synchronous))

        run(device, story)


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
        async def send(space, number, sent):
            await space.enqueue("Q", str(number))
            sent[str(number)] += 1

        async def take(space, got):
            message = await space.dequeue("Q", wait=math.inf)
            got[message.text] += 1

        async def work(space):
            async with space.transaction():
                message = await space.dequeue("Q", wait=math.inf)
                await space.enqueue("R", message.text)

        async def story(space, turns):
            sent, got, left = Counter(), Counter(), Counter()
            kinds = [send(space, number, sent) for number in range(10)]
            kinds += [take(space, got) for _ in range(10)] + [work(space) for _ in range(10)]
            tasks = [begin(each) for each in kinds]
            for turn in range(61):
                for task, at in zip(tasks, turns, strict=True):
                    if at == turn:
                        task.cancel()
                await asyncio.sleep(0)
            await asyncio.wait(tasks, timeout=240)
            assert {task.exception() for task in tasks if not task.cancelled()} <= {None}
            for queue in ("Q", "R"):
                for message in await space.dequeue_many(queue, 1_000):
                    assert message.retries == 0
                    left[message.text] += 1
            assert left + got == sent

        with asyncio.Runner() as runner:
            space = runner.run(_open(device))

            @settings(max_examples=25, deadline=None)
            @given(turns=st.lists(st.integers(0, 60), min_size=30, max_size=30))
            def at_points(turns):
                runner.run(story(space, turns))

            at_points()
            runner.run(space.device.close())


async def _open(device):
    return await aio.Device(device).open_space("SPACE")
