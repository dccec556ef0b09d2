"""Monitoring of a device: the flow through its queues, its metrics, the processes that forward them, and its check."""
