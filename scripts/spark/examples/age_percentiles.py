"""How long messages have been waiting in each queue.

python age_percentiles.py DEVICE|ARCHIVE
"""

import sys

from qmadmin.spark import register
from qmadmin.spark.session import start
from qmadmin.spark.views import place_at, shown

SQL = """
WITH ages AS (
    SELECT space, queue, unix_micros(current_timestamp()) / 1e6 - unix_micros(enqueued_at) / 1e6 AS age
    FROM messages WHERE state = 'ready'
)
SELECT space, queue, count(*) AS messages, round(percentile(age, 0.5), 1) AS p50,
    round(percentile(age, 0.9), 1) AS p90, round(percentile(age, 0.99), 1) AS p99, round(max(age), 1) AS oldest
FROM ages GROUP BY space, queue ORDER BY oldest DESC
"""


def main(place: str) -> None:
    """Print percentiles of the ages of messages, in seconds."""
    session = start()
    register(session)
    with shown(session, place_at(place), payload=False):
        session.sql(SQL).show(1000, truncate=False)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python age_percentiles.py DEVICE|ARCHIVE")
    main(*sys.argv[1:])
