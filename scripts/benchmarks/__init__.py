"""What `scripts/bench` runs: the engine beside what it stands on and beside its peers."""
