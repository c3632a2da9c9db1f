"""
The partner: an HTTP server that takes AS2-like messages, keeps books, and has a bad day.

It runs in a process of its own (``python -m halfopen.cli.demo.partner``), so that it is a witness whom nothing in the
hub can influence. It says its port on standard output, begins its story at the line ``start`` on standard input, and
ends when standard input does: a hub that is killed leaves no partner behind.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import threading
import time
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from halfopen.cli.demo.health import Condition, Health
from halfopen.cli.demo.receipts import LaterReceipts, Receipt, receipt
from halfopen.cli.demo.story import Pace, Story

__all__ = ["Partner", "main", "serve"]

_LARGEST = 16 * 1024 * 1024
_SABOTAGED = 10


class Taken(Enum):
    """How a request ended: taken, new or as a known Message-ID, without a word, evaded, or refused."""

    NEW = auto()
    KNOWN = auto()
    UNANSWERED = auto()
    EVADED = auto()
    NOT = auto()


_DISPOSITIONS = {Taken.NEW: "processed", Taken.KNOWN: "processed/warning: duplicate-document"}


class Partner:
    """
    The server's memory: its health and its books.

    Args:
        story: The script.
        pace: How fast the story passes.
        lose: Confirm the tenth message but never write it down, to see that the promises notice.
        odd: Give the odd answers of the script as well, which only a sender that reads receipts can cope with.
    """

    def __init__(self, story: Story, pace: Pace, *, lose: bool = False, odd: bool = False) -> None:
        self.later = LaterReceipts(pace.watch(story.receipt_delay))
        self._story = story
        self._odd = odd
        self._times: list[float] = []
        self._unanswered: list[str] = []
        self._last_taken = 0.0
        self._pace = pace
        self._changed = threading.Condition()
        self._started = False
        self._health = Health(story)
        self._lose = lose
        self._arrivals = 0
        self._confirmed = 0
        self._accepted: dict[str, str] = {}
        self._duplicates: list[str] = []

    def start(self) -> None:
        """Begin the story; until then the partner is well."""
        with self._changed:
            self._pace.start()
            self._started = True

    def take(self, message_id: str, body: bytes) -> Taken:
        """Work on one message, as long as that takes; return how it ended."""
        with self._changed:
            self._arrivals += 1
            self._times.append(time.time())
            evasive = self._odd and self._arrivals == self._story.evasive
            visit = self._health.arrive(self._now())
            if visit is None:
                self._changed.notify_all()
                return Taken.NOT
            self._changed.wait_for(lambda: self._health.life != visit.life, self._pace.watch(visit.work))
            if not self._health.leave(visit, self._now()):
                return Taken.NOT
            if evasive:
                return Taken.EVADED
            return self._book(message_id, hashlib.sha256(body).hexdigest())

    def books(self, *, brief: bool = False) -> dict[str, Any]:
        """Return what the partner knows, as plain data; *brief* leaves the messages out."""
        with self._changed:
            health = self._health
            condition = health.look(self._now())
            if condition is Condition.DOWN:
                self._changed.notify_all()
            page = {
                "condition": str(condition),
                "since": health.since,
                "arrivals": self._arrivals,
                "sick_hits": health.sick_hits,
                "falls": health.falls,
                "peak_cold": health.peak_cold,
                "ill_since": health.ill_since,
                "well_since": health.well_since,
                "rescued": health.rescued,
                "delivered": len(self._accepted),
                "duplicates": len(self._duplicates),
                "last_taken": self._last_taken,
            }
            return page if brief else {**page, "accepted": dict(self._accepted), **self._details()}

    def _details(self) -> dict[str, Any]:
        return {"twice": list(self._duplicates), "times": list(self._times), "unanswered": list(self._unanswered)}

    def _now(self) -> float:
        return self._pace.now() if self._started else 0.0

    def _book(self, message_id: str, digest: str) -> Taken:
        self._confirmed += 1
        if self._lose and self._confirmed == _SABOTAGED:
            return Taken.NEW
        if message_id in self._accepted:
            self._duplicates.append(message_id)
            return Taken.KNOWN
        self._accepted[message_id] = digest
        self._last_taken = self._now()
        if self._odd and len(self._accepted) == self._story.unanswered:
            self._unanswered.append(message_id)
            return Taken.UNANSWERED
        return Taken.NEW


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body leave together: two small packets would wait for each other.
    wbufsize = 65536
    disable_nagle_algorithm = True
    partner: Partner

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit():
            self._answer(411, "say how long the message is (Content-Length)", last=True)
        elif int(length) > _LARGEST:
            self._answer(413, f"at most {_LARGEST} bytes", last=True)
        else:
            self._receive(self.rfile.read(int(length)))

    def do_GET(self) -> None:
        if self.path not in ("/books", "/books?brief"):
            self._answer(404, "there are only /books and /books?brief")
            return
        self._answer(200, json.dumps(self.partner.books(brief=self.path.endswith("?brief"))), kind="application/json")

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the terminal for the story."""

    def _receive(self, body: bytes) -> None:
        missing = [name for name in ("Message-ID", "AS2-From", "AS2-To") if not self.headers.get(name)]
        if missing:
            self._answer(400, f"missing: {', '.join(missing)}")
            return
        message_id = self.headers["Message-ID"].strip()
        taken = self.partner.take(message_id, body)
        if taken is Taken.NOT:
            self._answer(503, "the partner is not well")
        elif taken is Taken.EVADED:
            self._answer(200, "<h1>We are back soon</h1>", kind="text/html")
        elif taken is Taken.UNANSWERED:
            self.close_connection = True
        elif not self.headers.get("Disposition-Notification-To"):
            self._answer(200, "received")
        else:
            self._acknowledge(receipt(message_id, body, _DISPOSITIONS[taken]))

    def _acknowledge(self, message: Receipt) -> None:
        later = self.headers.get("Receipt-Delivery-Option")
        if later is None:
            self._answer(200, message.body, kind=message.content_type)
            return
        self.partner.later.post(later, message)
        self._answer(204, "")

    def _answer(
        self, status: int, text: str | bytes, *, kind: str = "text/plain; charset=utf-8", last: bool = False
    ) -> None:
        body = text if isinstance(text, bytes) else text.encode()
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
        if last:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    # A second server on a taken port must fail, not share it.
    allow_reuse_port = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that hangs up in mid-sentence is nothing to print."""


def serve(partner: Partner, port: int = 0) -> ThreadingHTTPServer:
    """Serve on 127.0.0.1, on a thread; `server_port` says where, `shutdown` and `server_close` end it."""
    handler = type("Handler", (_Handler,), {"partner": partner})
    server = _Server(("127.0.0.1", port), handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


def main() -> None:
    """Serve until standard input ends."""
    import signal

    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--speed", type=float, required=True)
    parser.add_argument("--lose", action="store_true")
    parser.add_argument("--odd", action="store_true")
    options = parser.parse_args()
    # Ctrl-C reaches the whole group; the hub decides when the partner ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    partner = Partner(Story(), Pace(options.speed), lose=options.lose, odd=options.odd)
    try:
        server = serve(partner, options.port)
    except OSError as error:
        print(json.dumps({"error": error.strerror or str(error), "errno": error.errno}), flush=True)
        raise SystemExit(2) from None
    print(json.dumps({"port": server.server_port}), flush=True)
    for line in sys.stdin:
        if line.strip() == "start":
            partner.start()


if __name__ == "__main__":
    main()
