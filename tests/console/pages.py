"""What the tests of the page share: patience, what is filled in, what stands in the log, and the judge of access."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

try:
    from playwright.sync_api import expect
except ImportError:  # the fixture of the browser says so
    expect = None  # type: ignore[assignment]

__all__ = [
    "LOG", "NAME", "PATIENCE", "REASON", "TYPED", "audit_of", "expect", "fill_in", "log_of", "title_begins",
    "violations", "wait_until",
]  # fmt: skip

NAME = "payments"
PATIENCE = 60.0
"""Seconds that a slow machine is given before something counts as not coming."""

if expect is not None:
    expect.set_options(timeout=1000 * PATIENCE)

AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")
REASON = "Reason, kept in the audit log"
TYPED = "Type the breaker's name to confirm"
LOG = "Actions and events"


def wait_until(page: Any, condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Wait from outside: the page's policy lets nobody evaluate text in it, playwright's waiting functions included."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, page.title()
        page.wait_for_timeout(30)


def title_begins(page: Any, words: str) -> None:
    wait_until(page, lambda: page.title().startswith(words))


def fill_in(page: Any, name: str = NAME) -> None:
    page.get_by_label(REASON).fill("INC-2291")
    page.get_by_label(TYPED).fill(name)


def log_of(page: Any) -> Any:
    return page.get_by_label(LOG, exact=True)


def violations(page: Any) -> list[str]:
    """Return what axe finds on the page as it is."""
    page.evaluate(AXE)
    result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in result["violations"]]


def audit_of(url: str, token: str = "dana-secret") -> list[dict[str, Any]]:
    """Return the audit log as the API tells it, newest first."""
    answer = httpx.get(f"{url}/api/audit", headers={"authorization": f"Bearer {token}"}, timeout=PATIENCE)
    entries: list[dict[str, Any]] = answer.json()["entries"]
    return entries
