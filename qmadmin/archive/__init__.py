"""The machine-independent archive of queue spaces, version 1: its format, and how it is written, checked and read.

An archive is a directory: parts, which are Parquet files of messages (`columns` declares their columns, `rows` converts
the rows of a store to them and back), a manifest, which describes everything else (`manifest`), and the seal of the
manifest (`manifest_file`, with its file). `writing` writes an archive, `reading` opens and verifies it; `part_writing`
and `part_reading` do the same for one part, whose file may be anywhere. `faults` has the reasons for which an archive
is refused.

Nothing here depends on a device. The manual page is qmadmin-archive(5).
"""
