"""The queue engine: values, rules and acts.

Standard library only, and no input or output of its own: whatever touches a disk, a socket or a clock comes in
through the port (`qmcore.port`).
"""
