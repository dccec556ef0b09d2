"""Exports, imports and moves of queue spaces, in this process or by several.

The jobs are `exporting`, `importing`, `comparing` and `moving`. The work of a single worker is a function of values
that can be pickled (`qmadmin.transfer.units`), so that processes of this machine or tasks of Spark can run it.
"""
