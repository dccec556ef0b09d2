"""What `scripts/soak consume` runs: an application in several processes under random kills, whose sums balance."""
