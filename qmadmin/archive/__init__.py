"""The machine-independent archive of queue spaces, version 1: its format, how it is written, checked and read.

An archive is a directory: parts, which are Parquet files of messages (`columns` says of which columns, `rows` makes
them from what a store reads and back), a manifest, which says everything else (`manifest`), and the seal of the
manifest, which stands with its file in `manifest_file`. `writing` makes an archive, `reading` opens and verifies it;
`part_writing` and `part_reading` have what each does with one part, whose file may be anywhere. `faults` has the
reasons for which an archive is refused.

Nothing here knows a device. The manual page is qmadmin-archive(5).
"""
