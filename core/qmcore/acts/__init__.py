"""The acts: what can be done with devices, queue spaces, queues and messages, each as rules over the port."""
