"""A project of Django that has `qmadmin.django` in its INSTALLED_APPS, for `tests/api/test_django_app.py`."""
