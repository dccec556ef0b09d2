"""Processes that wait in turn, give back, give up and choose, all at once: no message is left while somebody waits."""

from qmadmin.opening import create_device
from tests.fix_store import Work, make_queue, space_definition

PROCESSES, THREADS, MESSAGES = 4, 3, 150

CONSUMES = """
import random
from qmcore.acts import waiting
waiting.CHECK_SECONDS = 1_000.0

def consume(space, seed):
    dice, is_ended = random.Random(seed), False
    while not is_ended:
        with space.transaction() as transaction:
            chosen = {"corrid": "7"} if dice.random() < 0.1 else {}
            message = space.dequeue("Q", wait=0.01 if chosen else dice.choice([0.01, 1_000]), **chosen)
            if message is None:
                continue
            if dice.random() < 0.2:
                transaction.rollback()
                continue
        is_ended = message.text == "end"
        if not is_ended:
            took.append(message.text)

took = []
number, threads = int(sys.argv[2]), int(sys.argv[3])
with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space:
    say("ready")
    works = [threading.Thread(target=consume, args=(space, number * threads + at)) for at in range(threads)]
    for work in works:
        work.start()
    for work in works:
        work.join()
say(*took)
"""


def test_no_message_is_left_while_somebody_waits(tmp_path, start):
    path = tmp_path / "QUE"
    with create_device(path, 10_000) as device:
        device.create_space(space_definition(transactions=50))
        with device.open_space("SPACE") as space:
            make_queue(space, "Q", retries=1_000)
            children = [start(CONSUMES, path, number, THREADS) for number in range(PROCESSES)]
            for child in children:
                child.expect("ready")

            def produce(kind):
                for number in range(MESSAGES):
                    space.enqueue("Q", f"{kind}{number}", corrid=str(number % 10))

            def produce_by_threes():
                for first in range(0, MESSAGES, 3):
                    with space.transaction():
                        for number in range(first, first + 3):
                            space.enqueue("Q", f"c{number}")

            Work(lambda: produce("a"), lambda: produce("b"), produce_by_threes).results()
            space.enqueue_many("Q", ["end"] * PROCESSES * THREADS)
            took = [text for child in children for text in child.line().split()]
            assert sorted(took) == sorted(f"{kind}{number}" for kind in "abc" for number in range(MESSAGES))
            for child in children:
                child.finish()
