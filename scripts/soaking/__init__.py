"""What `scripts/soak` runs: work on one queue space under random kills, with every message accounted for."""
