"""Write what a queue consumed on a day, in that order, to a test queue, which is replaced.

python replay_day.py DEVICE SPACE QUEUE DAY TEST_DEVICE TEST_SPACE TEST_QUEUE

DAY is such as 2026-11-22, UTC. The queue has to keep consumed messages (`retention`).
"""

import sys

from qmadmin.spark import register
from qmadmin.spark.session import start


def main(device: str, space: str, queue: str, day: str, *test: str) -> None:
    """Write the messages of the day to the test queue."""
    session = start()
    register(session)
    history = session.read.format("qspace").options(device=device, space=space, queue=queue, table="history").load()
    consumed = history.where(history.consumed_at.cast("date") == day).orderBy("consumed_at", "sequence")
    # What was to expire then would be gone at once.
    replayed = consumed.drop("available_at", "expires_at")
    target = dict(zip(("device", "space", "queue"), test, strict=True))
    replayed.write.format("qspace").mode("overwrite").options(**target).save()


if __name__ == "__main__":
    if len(sys.argv) != 8:
        sys.exit("usage: python replay_day.py DEVICE SPACE QUEUE DAY TEST_DEVICE TEST_SPACE TEST_QUEUE")
    main(*sys.argv[1:])
