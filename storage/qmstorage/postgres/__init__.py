"""A volume on PostgreSQL: a schema of a database, which several machines share."""
