"""A volume on SQLite: one file, or the memory of one process."""
