"""Its settings; the database is in the environment, as Django wants it."""

import json
import os

_DATABASE = json.loads(os.environ["DJANGO_SHOP_DATABASE"])
if _DATABASE["ENGINE"].endswith("sqlite3"):
    # What has read before could not write any more once others have written.
    _DATABASE["OPTIONS"] = {"transaction_mode": "IMMEDIATE"}
DATABASES = {"default": _DATABASE | {"ATOMIC_REQUESTS": True}}
INSTALLED_APPS = ["tests.api.django_shop"]
MIDDLEWARE = ["django.middleware.common.CommonMiddleware"]
ROOT_URLCONF = "tests.api.django_shop.views"
SECRET_KEY = "not for production"
USE_TZ = True
