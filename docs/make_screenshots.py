"""Make the pictures of docs/console.md: python docs/make_screenshots.py (Chromium and playwright)."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from halfopen import CircuitBreaker, CountWindow, HalfOpen, Registry, exponential
from halfopen.console import Identity, Member, app
from halfopen.console._server import ConsoleServer, listen
from halfopen.retry_queue import Delivery, LaneProfile, Report, RetryQueue, Verdict

HERE = Path(__file__).parent / "_static" / "console"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
CLOSED = (
    "recommendations", "geo-ip", "shipping-quote", "catalog", "inventory", "cms", "pricing", "email", "auth", "media",
    "tax-rates", "currency",
)  # fmt: skip

LUCKY = 5
"""The process that reaches another data centre of the provider, and stays closed."""


class ConnectTimeout(Exception):
    """What the payment provider answers on a bad day."""


class Shop:
    """Six web processes, as six registries that publish into one run directory, and a queue of webhooks."""

    def __init__(self, directory: Path) -> None:
        self.registries = [Registry() for _ in range(6)]
        self.members = [Member(r, directory / "run", name="web", interval=0.5) for r in self.registries]
        self.sick: dict[str, float] = {"recommendations": 0.3, "geo-ip": 0.12, "shipping-quote": 0.05}
        self.chance = random.Random(4)
        self._stop = threading.Event()
        for registry in self.registries:
            for name in ("payments-api", "search", "legacy-tax", *CLOSED):
                self._breaker(registry, name)
        self.queue = RetryQueue(directory / "hub.db", name="payment-webhooks", rate=40.0)
        self.queue.lane("payments-api", sender=self._send, breaker=self._breaker(Registry(), "payments-api"))
        self.queue.lane("acme", sender=self._send, profile=LaneProfile())
        self._threads = [threading.Thread(target=self._traffic, args=(n,), daemon=True) for n in range(6)]

    def _breaker(self, registry: Registry, name: str) -> CircuitBreaker:
        return registry.circuit_breaker(
            name,
            window=CountWindow(100),
            minimum_calls=20,
            slow_call_duration=2.0,
            slow_call_rate_threshold=0.8,
            wait_in_open=exponential(4.0, 2.0, 16.0, jitter=0.1),
            half_open=HalfOpen(permitted_calls=5, failure_rate_threshold=0.5),
        )

    def start(self) -> None:
        for member in self.members:
            member.start()
        for thread in self._threads:
            thread.start()
        self.queue.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(5)
        for member in self.members:
            member.stop()
        self.queue.close(grace=2.0)

    def _traffic(self, number: int) -> None:
        chance = random.Random(number)
        breakers = [breaker for breaker in self.registries[number].breakers() if breaker.name != "payments-api"]
        payments = self.registries[number].circuit_breaker("payments-api")
        luck = 0.3 if number == LUCKY else 1.0
        while not self._stop.wait(0.05):
            for breaker in (payments, payments, *chance.sample(breakers, 4)):
                self._call(breaker, chance, luck)

    def _call(self, breaker: CircuitBreaker, chance: random.Random, luck: float) -> None:
        def answer() -> None:
            if breaker.state == "half_open":
                self._stop.wait(0.5)  # what times out takes its time, and so the picture shows a round
            if chance.random() < luck * self.sick.get(breaker.name, 0.005):
                raise ConnectTimeout

        with suppress(Exception):
            breaker.call(answer)

    def _send(self, delivery: Delivery) -> Report:
        if delivery.lane == "payments-api" and self.chance.random() < self.sick.get("payments-api", 0.0):
            return Report(Verdict.NOT_DELIVERED, "connect timeout")
        return Report(Verdict.DELIVERED, "accepted")


class Browser:
    """A system Chromium, by playwright."""

    def __init__(self, stack: ExitStack) -> None:
        from playwright.sync_api import sync_playwright

        self._playwright = stack.enter_context(sync_playwright())
        self._browser = self._playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        stack.callback(self._browser.close)

    def page(self, url: str, *, dark: bool = False, width: int = 1440, height: int = 1000) -> Any:
        scheme: Any = "dark" if dark else "light"
        context = self._browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        page = context.new_page()
        page.goto(url)
        page.wait_for_selector("main h1")
        page.wait_for_timeout(1500)
        return page


def chromium() -> str | None:
    """Return the system's browser, or None for playwright's own."""
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


def until(condition: Callable[[], Any], seconds: float = 40.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)


def take(out: Path) -> None:
    """Play the shop's bad day, and take the five pictures."""
    out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        shop = Shop(directory)
        stack.callback(shop.stop)
        tokens = {"dana-secret": Identity("dana", "operator"), "hook-secret": Identity("deploy hook", "operator")}
        console = app(
            run_directory=directory / "run", queues=[shop.queue], tokens=tokens, process="hub",
            environment="PRODUCTION · eu-west-1", audit=directory / "audit.jsonl",
        )  # fmt: skip
        listening = listen("127.0.0.1", 0)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        started = threading.Event()
        server = ConsoleServer(console, ready=started.set)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        started.wait(20)

        def end() -> None:
            server.should_exit = True
            thread.join(20)

        stack.callback(end)
        browser = Browser(stack)
        shop.start()
        play(shop, browser, url, out)


def play(shop: Shop, browser: Browser, url: str, out: Path) -> None:
    """Go through the day: calm, outage, an order, recovery, a lost process."""
    time.sleep(12)
    calm = browser.page(url + "#token=dana-secret")
    shoot(calm, "#/recommendations", out / "calm.png")

    mark(url, "shop 2.14")
    for number in range(6):
        shop.queue.enqueue("acme", b"invoice %d" % number)
    for registry in shop.registries:
        registry.circuit_breaker("legacy-tax").force_open(3600.0, reason="vendor maintenance CHG-4411", by="lee")
    time.sleep(2)
    shop.sick.update({"payments-api": 0.93})
    for number in range(240):
        shop.queue.enqueue("payments-api", b"webhook %d" % number)
    ill = [registry.circuit_breaker("payments-api") for registry in shop.registries[:LUCKY]]
    until(lambda: all(breaker.state != "closed" for breaker in ill))
    page = browser.page(url + "#/payments-api&token=dana-secret")
    until(lambda: any(breaker.state == "half_open" and breaker.snapshot().step >= 3 for breaker in ill))
    page.wait_for_timeout(1500)
    shoot(page, "#/payments-api", out / "outage.png", settle=0)

    dark = browser.page(url + "#token=dana-secret", dark=True)
    dark.evaluate("location.hash = '#/payments-api'")
    dark.get_by_role("button", name="Force open…").click()
    dark.get_by_label("Reason, kept in the audit log").fill("INC-2291: provider asked us to stop sending")
    dark.get_by_label("Type the breaker's name to confirm").fill("payments-api")
    looked = dark.get_by_role("button", name="I have looked")
    if looked.is_visible():
        looked.click()
    dark.screenshot(path=out / "order.png")

    phone = browser.page(url + "#token=dana-secret", width=412, height=915)
    shoot(phone, "#/payments-api", out / "phone.png")

    shop.sick["payments-api"] = 0.0
    until(lambda: all(each.circuit_breaker("payments-api").state == "closed" for each in shop.registries), 60.0)
    time.sleep(2)
    shop.members[4].stop()
    time.sleep(4)
    dark.keyboard.press("Escape")
    dark.evaluate("document.activeElement.blur()")
    shoot(dark, "#/payments-api", out / "recovered.png")


def shoot(page: Any, place: str, path: Path, *, settle: float = 1500) -> None:
    page.evaluate(f"location.hash = {place!r}")
    page.locator(".timeline svg").wait_for()
    page.wait_for_timeout(settle)
    page.screenshot(path=path, full_page=True)


def mark(url: str, text: str) -> None:
    """Mark a deployment as a deploy hook would."""
    import json

    bearer = {"authorization": "Bearer hook-secret"}
    with urllib.request.urlopen(urllib.request.Request(url + "api/session", headers=bearer)) as answer:
        csrf = json.load(answer)["csrf"]
    body = json.dumps({"kind": "deploy", "text": text}).encode()
    request = urllib.request.Request(url + "api/events", body, {**bearer, "halfopen-csrf": csrf})
    urllib.request.urlopen(request).close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE)
    sys.exit(take(parser.parse_args().out))
