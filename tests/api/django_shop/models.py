"""Its one table."""

from django.db import models


class Order(models.Model):
    what = models.TextField()
