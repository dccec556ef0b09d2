"""A project of Django whose queues are in its own database, for `tests/api/test_django.py`."""
