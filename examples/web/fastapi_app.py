"""FastAPI: a refusal that any endpoint meets becomes 503 or 429 with Retry-After."""

from __future__ import annotations

from fastapi import FastAPI

from halfopen import CircuitBreaker, RateLimiter, RejectedError
from halfopen.integrations.asgi import exception_handler

app = FastAPI()
app.add_exception_handler(RejectedError, exception_handler)

rates = CircuitBreaker("rates")
reports = RateLimiter("reports", 1, per=60)


@app.get("/rates")
@rates
def show_rates() -> dict[str, float]:
    return {"EUR": 1.0}


@app.get("/report")
@reports
async def show_report() -> dict[str, int]:
    return {"rows": 3}
