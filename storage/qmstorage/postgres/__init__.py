"""The store on PostgreSQL: a device is a schema of a database."""
