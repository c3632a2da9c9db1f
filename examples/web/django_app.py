"""Django, in one file: a middleware of its own kind answers refusals, because Django lets none out of a view."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

from halfopen import CircuitBreaker, RateLimiter, RejectedError
from halfopen.integrations.wsgi import answer

rates = CircuitBreaker("rates")
reports = RateLimiter("reports", 1, per=60)


class RefusalMiddleware:
    """Belongs into `MIDDLEWARE`."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not isinstance(error, RejectedError):
            return None
        status, headers, body = answer(error)
        return HttpResponse(body, status=status, headers=headers)


def show_rates(request: HttpRequest) -> HttpResponse:
    with rates.acquire():
        return JsonResponse({"EUR": 1.0})


@reports
def show_report(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"rows": 3})


urlpatterns = [path("rates", show_rates), path("report", show_report)]

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=[f"{__name__}.RefusalMiddleware"],
    SECRET_KEY="for the example only",
)
app = get_wsgi_application()
