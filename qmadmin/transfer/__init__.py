"""Moving what queue spaces hold: into archives and out of them, in this process or by several.

The jobs are `exporting`, `importing`, `comparing` and `moving`. What a single worker does is a function of values that
can be pickled (`qmadmin.transfer.units`), so that processes of this machine run it, or tasks of Spark.
"""
