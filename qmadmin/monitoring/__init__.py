"""What goes on in a device: its queues in the course of time, who forwards them, and what a doctor finds."""
