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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from halfopen.cli.demo.health import Condition, Health
from halfopen.cli.demo.story import Pace, Story

__all__ = ["Partner", "main", "serve"]

_LARGEST = 16 * 1024 * 1024
_SABOTAGED = 10


class Partner:
    """
    The server's memory: its health and its books.

    Args:
        story: The script.
        pace: How fast the story passes.
        lose: Confirm the tenth message but never write it down, to see that the promises notice.
    """

    def __init__(self, story: Story, pace: Pace, *, lose: bool = False) -> None:
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

    def take(self, message_id: str, body: bytes) -> int:
        """Work on one message, as long as that takes; return the HTTP status."""
        with self._changed:
            self._arrivals += 1
            visit = self._health.arrive(self._now())
            if visit is None:
                self._changed.notify_all()
                return 503
            self._changed.wait_for(lambda: self._health.life != visit.life, self._pace.watch(visit.work))
            if not self._health.leave(visit, self._now()):
                return 503
            self._book(message_id, hashlib.sha256(body).hexdigest())
            return 200

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
            }
            return page if brief else {**page, "accepted": dict(self._accepted), "twice": list(self._duplicates)}

    def _now(self) -> float:
        return self._pace.now() if self._started else 0.0

    def _book(self, message_id: str, digest: str) -> None:
        self._confirmed += 1
        if self._lose and self._confirmed == _SABOTAGED:
            return
        if message_id in self._accepted:
            self._duplicates.append(message_id)
        else:
            self._accepted[message_id] = digest


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
        status = self.partner.take(self.headers["Message-ID"].strip(), body)
        self._answer(status, "received" if status == 200 else "the partner is not well")

    def _answer(self, status: int, text: str, *, kind: str = "text/plain; charset=utf-8", last: bool = False) -> None:
        body = text.encode()
        self.send_response(status)
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
    options = parser.parse_args()
    # Ctrl-C reaches the whole group; the hub decides when the partner ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    partner = Partner(Story(), Pace(options.speed), lose=options.lose)
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
