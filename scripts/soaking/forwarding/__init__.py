"""What `scripts/soak forward` runs: forwarders and services under random kills, with every request accounted for."""
