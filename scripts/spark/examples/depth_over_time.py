"""How many messages each queue held, hour by hour: from what is in it, and what it keeps of what was consumed.

python depth_over_time.py DEVICE|ARCHIVE
"""

import sys

from qmadmin.spark import register
from qmadmin.spark.session import start
from qmadmin.spark.views import place_at, shown

SQL = """
WITH events AS (
    SELECT space, queue, enqueued_at AS at, 1 AS change FROM messages
    UNION ALL SELECT space, queue, enqueued_at, 1 FROM history
    UNION ALL SELECT space, queue, consumed_at, -1 FROM history
), hours AS (
    SELECT space, queue, date_trunc('HOUR', at) AS hour, sum(change) AS change FROM events GROUP BY ALL
)
SELECT space, queue, hour, sum(change) OVER (PARTITION BY space, queue ORDER BY hour) AS depth
FROM hours ORDER BY space, queue, hour
"""


def main(place: str) -> None:
    """Print the depth of each queue at the end of each hour in which it changed."""
    session = start()
    register(session)
    with shown(session, place_at(place), payload=False):
        session.sql(SQL).show(1000, truncate=False)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python depth_over_time.py DEVICE|ARCHIVE")
    main(*sys.argv[1:])
