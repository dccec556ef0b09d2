"""The largest messages, and which share of the bytes of their queue each has.

python largest_messages.py DEVICE|ARCHIVE [NUMBER]
"""

import sys

from qmadmin.spark import register
from qmadmin.spark.session import start
from qmadmin.spark.views import place_at, shown

SQL = """
SELECT space, queue, msgid, type, size, enqueued_at,
    round(100.0 * size / sum(size) OVER (PARTITION BY space, queue), 1) AS percent
FROM messages WHERE size > 0 ORDER BY size DESC, msgid
"""


def main(place: str, count: str = "20") -> None:
    """Print the largest messages."""
    session = start()
    register(session)
    with shown(session, place_at(place), payload=False):
        session.sql(SQL).show(int(count), truncate=False)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python largest_messages.py DEVICE|ARCHIVE [NUMBER]")
    main(*sys.argv[1:])
