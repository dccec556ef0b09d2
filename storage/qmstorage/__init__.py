"""The engine's port fulfilled in SQL, through SQLAlchemy Core."""
