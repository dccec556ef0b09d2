"""Tasks of asyncio that wait for messages: one thread and one action for all of them."""

import asyncio
import math
import threading

import pytest

from qmcore.errors import BadQueueError, SystemFailureError
from tests.fix_aio import asleep, begin, run, until
from tests.fix_waits import waits


@pytest.fixture
def device(device_of_tasks):
    return device_of_tasks


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
