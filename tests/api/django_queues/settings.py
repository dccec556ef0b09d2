"""Its settings; the database and the setting under test are in the environment."""

import json
import os

_DATABASE = json.loads(os.environ["DJANGO_QUEUES_DATABASE"])
if _DATABASE["ENGINE"].endswith("sqlite3"):
    _DATABASE["OPTIONS"] = {"transaction_mode": "IMMEDIATE"}
DATABASES = {"default": _DATABASE}
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
INSTALLED_APPS = ["qmadmin.django", "tests.api.django_queues"]
QMADMIN = json.loads(os.environ.get("DJANGO_QUEUES_SETTING", '{"SPACE": "SHOP", "QUEUES": ["orders"]}'))
SECRET_KEY = "not for production"
USE_TZ = True
