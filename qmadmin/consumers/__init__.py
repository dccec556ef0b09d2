"""What takes messages off queues and has a handler work on each: pool, backoff, limits, deadlines, statistics, stop."""
