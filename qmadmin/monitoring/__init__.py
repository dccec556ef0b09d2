"""Monitoring of a device: the flow through its queues, the processes that forward them, and its check."""
