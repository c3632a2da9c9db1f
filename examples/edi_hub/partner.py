"""
Acme, a trading partner to try things out with: it takes AS2 messages, and can be made ill.

    python partner.py --port 9001
    curl -X PUT -d ill http://127.0.0.1:9001/health      # 503; or: well, silent (takes it, says nothing)
    curl http://127.0.0.1:9001/books                     # what it has

It does what delivery at least once asks of a partner: it remembers Message-IDs, and processes none twice.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BOUNDARY = "acme"
RECEIPT_TYPE = f'multipart/report; report-type=disposition-notification; boundary="{BOUNDARY}"'
RECEIPT = """\
--{boundary}\r
Content-Type: text/plain\r
\r
We have your message.\r
--{boundary}\r
Content-Type: message/disposition-notification\r
\r
Original-Message-ID: {message_id}\r
Disposition: automatic-action/MDN-sent-automatically; {disposition}\r
Received-Content-MIC: {mic}, sha256\r
\r
--{boundary}--\r
"""


def receipt(message_id: str, body: bytes, disposition: str) -> bytes:
    """Write an unsigned MDN."""
    mic = base64.b64encode(hashlib.sha256(body).digest()).decode()
    return RECEIPT.format(boundary=BOUNDARY, message_id=message_id, disposition=disposition, mic=mic).encode()


class Books:
    """What Acme knows: every Message-ID it has processed, in order."""

    def __init__(self) -> None:
        self.health = "well"
        self.arrivals = 0
        self.accepted: dict[str, str] = {}
        self.twice: list[str] = []
        self._lock = threading.Lock()

    def take(self, message_id: str, body: bytes) -> str | None:
        """Process a message, or recognise it; return the disposition for its receipt. None: 503."""
        with self._lock:
            self.arrivals += 1
            if self.health == "ill":
                return None
            if message_id in self.accepted:
                self.twice.append(message_id)
                return "processed/warning: duplicate-document"
            self.accepted[message_id] = hashlib.sha256(body).hexdigest()
            return "processed"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65536
    books: Books

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        message_id = self.headers["Message-ID"]
        disposition = self.books.take(message_id, body)
        if disposition is None:
            self.answer(503)
        elif self.books.health == "silent":
            self.close_connection = True  # taken, and the sender will never know
        elif (later := self.headers.get("Receipt-Delivery-Option")) is None:
            self.answer(200, receipt(message_id, body, disposition), RECEIPT_TYPE)
        else:
            self.answer(204)
            threading.Thread(target=post_receipt, args=(later, receipt(message_id, body, disposition))).start()

    def do_PUT(self) -> None:
        self.books.health = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.answer(200)

    def do_GET(self) -> None:
        books = self.books
        page = {"arrivals": books.arrivals, "accepted": books.accepted, "twice": books.twice}
        self.answer(200, json.dumps(page).encode(), "application/json")

    def answer(self, status: int, body: bytes = b"", kind: str = "text/plain") -> None:
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def post_receipt(url: str, body: bytes) -> None:
    """Post a receipt that was asked for later; a hub that restarts gets it a little later still."""
    for _ in range(50):
        try:
            urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": RECEIPT_TYPE}), timeout=5).close()
        except OSError:
            time.sleep(0.2)
        else:
            return


def serve(port: int = 0) -> ThreadingHTTPServer:
    """Serve on a thread."""
    handler = type("AcmeHandler", (Handler,), {"books": Books()})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Acme, a trading partner to try things out with")
    parser.add_argument("--port", type=int, default=9001)
    print(f"Acme listens on http://127.0.0.1:{serve(parser.parse_args().port).server_port}/as2", flush=True)
    threading.Event().wait()
