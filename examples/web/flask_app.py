"""Flask: a refusal that any view meets becomes 503 or 429 with Retry-After."""

from __future__ import annotations

from flask import Flask

from halfopen import CircuitBreaker, RateLimiter, RejectedError
from halfopen.integrations.wsgi import error_handler

app = Flask(__name__)
app.register_error_handler(RejectedError, error_handler)

rates = CircuitBreaker("rates")
reports = RateLimiter("reports", 1, per=60)


@app.get("/rates")
@rates
def show_rates() -> dict[str, float]:
    return {"EUR": 1.0}


@app.get("/report")
@reports
def show_report() -> dict[str, int]:
    return {"rows": 3}
