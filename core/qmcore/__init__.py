"""The queue engine: values, rules and acts.

Standard library only, and no input or output of its own: everything that touches a disk, a socket or a clock comes
through the port (`qmcore.port`).
"""
