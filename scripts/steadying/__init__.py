"""What `scripts/steady` runs: millions of messages through one queue, and whether its dequeue stays as fast."""
