"""Starlette: a refusal that any endpoint meets becomes 503 or 429 with Retry-After."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from halfopen import CircuitBreaker, RateLimiter, RejectedError
from halfopen.integrations.asgi import exception_handler

rates = CircuitBreaker("rates")
reports = RateLimiter("reports", 1, per=60)


async def show_rates(request: Request) -> JSONResponse:
    with rates.acquire():  # or a guarded client, whose refusals are RejectedErrors, too
        return JSONResponse({"EUR": 1.0})


@reports
async def show_report(request: Request) -> JSONResponse:
    return JSONResponse({"rows": 3})


app = Starlette(
    routes=[Route("/rates", show_rates), Route("/report", show_report)],
    exception_handlers={RejectedError: exception_handler},
)
