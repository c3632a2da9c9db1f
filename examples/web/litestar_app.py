"""Litestar answers every exception itself, so it is told how to answer a refusal."""

from __future__ import annotations

from litestar import Litestar, Request, Response, get

from halfopen import CircuitBreaker, RateLimiter, RejectedError
from halfopen.integrations.asgi import answer

rates = CircuitBreaker("rates")
reports = RateLimiter("reports", 1, per=60)


@get("/rates", sync_to_thread=False)
def show_rates() -> dict[str, float]:
    with rates.acquire():
        return {"EUR": 1.0}


@get("/report")
async def show_report() -> dict[str, int]:
    async with reports.acquire():
        return {"rows": 3}


def answer_refusal(request: Request, refusal: RejectedError) -> Response:
    status, headers, body = answer(refusal)
    return Response(body, status_code=status, headers=headers, media_type=headers["Content-Type"])


app = Litestar(route_handlers=[show_rates, show_report], exception_handlers={RejectedError: answer_refusal})
