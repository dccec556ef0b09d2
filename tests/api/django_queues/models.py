"""Its one table."""

from django.db import models


class Order(models.Model):
    what = models.TextField()

    class Meta:
        app_label = "django_queues"
