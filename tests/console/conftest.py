"""A browser for the tests of the page: the system's Chromium, else the one playwright installed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.console.pages import PATIENCE

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip

OR_NOT = 'or leave these tests out: -m "not browser"'


# Not for the session: playwright keeps an event loop running in this thread, and other modules run theirs.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return a running browser; without one the tests fail, because nothing else looks at the page."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.fail(f"playwright is missing: pip install playwright, {OR_NOT}", pytrace=False)
    path = system_chromium()
    with sync_playwright() as running:
        if path is None and not os.path.exists(running.chromium.executable_path):
            pytest.fail(
                f"there is no Chromium: apt-get install chromium, or playwright install chromium, {OR_NOT}", False
            )
        started = running.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


def system_chromium() -> str | None:
    """Return the path of the system's browser, if it has one."""
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(autouse=True)
def wait_for_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for processes to obey as long as a busy machine lets them take."""
    monkeypatch.setattr("halfopen.console._orders.ACK_WAIT", 30.0)


class Watched:
    """A page, and what went wrong on it: errors, and requests that left for elsewhere."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.errors: list[str] = []
        self.foreign: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._said)
        page.on("request", lambda request: request.url.startswith(url) or self.foreign.append(request.url))

    def _said(self, message: Any) -> None:
        # A server that is away on purpose is no mistake of the page.
        if (
            message.type in ("error", "warning")
            and "net::ERR" not in message.text
            and "status of 4" not in message.text
        ):
            self.errors.append(message.text)


@pytest.fixture
def open_page(browser: Any) -> Iterator[Any]:
    """Return what opens a page as somebody, in a context of its own."""
    contexts: list[Any] = []
    pages: list[Watched] = []

    def open_it(
        url: str, *, token: str | None = "dana-secret", width: int = 1440, dark: bool = False, at: str = ""
    ) -> Any:
        scheme = "dark" if dark else "light"
        context = browser.new_context(viewport={"width": width, "height": 1000}, color_scheme=scheme)
        contexts.append(context)
        watched = Watched(context.new_page(), url)
        pages.append(watched)
        page = watched.page
        page.set_default_timeout(1000 * PATIENCE)
        page.goto(f"{url}/#" + "&".join(part for part in (at, f"token={token}" if token else "") if part))
        page.wait_for_selector("main h1")
        page.watched = watched
        return page

    yield open_it
    for context in contexts:
        context.close()
    for watched in pages:
        assert [] == watched.errors
        assert [] == watched.foreign
