"""Which queues have messages that come back again and again, and of which type these are.

python retry_hot_spots.py DEVICE|ARCHIVE
"""

import sys

from qmadmin.spark import register
from qmadmin.spark.session import start
from qmadmin.spark.views import place_at, shown

SQL = """
SELECT m.space, m.queue, m.type, m.subtype, count(*) AS messages, sum(m.retries) AS retries,
    max(m.retries) AS most, first(q.retry_limit) AS limit, max_by(m.msgid, m.retries) AS example
FROM messages m JOIN queues q ON q.space = m.space AND q.queue = m.queue
WHERE m.retries > 0
GROUP BY m.space, m.queue, m.type, m.subtype
ORDER BY retries DESC
"""


def main(place: str) -> None:
    """Print where messages have been rolled back, those with the most retries first."""
    session = start()
    register(session)
    with shown(session, place_at(place), payload=False):
        session.sql(SQL).show(100, truncate=False)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python retry_hot_spots.py DEVICE|ARCHIVE")
    main(*sys.argv[1:])
