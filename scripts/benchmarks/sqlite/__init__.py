"""What is measured on SQLite: the engine, the plain sqlite3 module, and other queues in one file."""
