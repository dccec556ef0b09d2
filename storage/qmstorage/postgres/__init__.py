"""The parts of storage that are for PostgreSQL."""
