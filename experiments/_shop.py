"""A Django application with a large table in memory, for servers and for trials.

    cowlab trial --wsgi cowlab.experiments._shop:application \\
        --request '/items?from=0' --request '/items?from=50000'

The table has ``COWLAB_SHOP_ROWS`` rows (100,000 where that is not set), and a request
reads ``READS`` of them.
"""

from __future__ import annotations

import os
from typing import Any

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

ROWS = int(os.environ.get("COWLAB_SHOP_ROWS", "100_000"))
READS = 200

settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="none")
django.setup()

TABLE: dict[str, Any] = {
    f"item {i}": {"name": f"no. {i}", "price": i % 1000, "tags": [f"t {i}", i]}
    for i in range(ROWS)
}


def items(request: HttpRequest) -> JsonResponse:
    """What the rows from a number on cost together."""
    first = int(request.GET["from"])
    found = [TABLE[f"item {i % ROWS}"] for i in range(first, first + READS)]
    return JsonResponse({"total": sum(row["price"] for row in found)})


urlpatterns = [path("items", items)]
application = get_wsgi_application()
