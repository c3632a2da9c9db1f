"""AS2 receipts (MDN) as the partner of the demo writes them, and how it posts those that were asked for later."""

from __future__ import annotations

import base64
import hashlib
import http.client
import queue
import threading
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

__all__ = ["LaterReceipts", "Receipt", "receipt"]

_BOUNDARY = "halfopen-demo"
_PATIENCE = 60.0
_AGAIN = 0.2


@dataclass(frozen=True, slots=True)
class Receipt:
    """An MDN, ready to be sent."""

    content_type: str
    body: bytes


def receipt(message_id: str, body: bytes, disposition: str = "processed") -> Receipt:
    """
    Write the MDN for a message, unsigned.

    Args:
        body: The content whose MIC it states.
        disposition: ``processed``, ``processed/warning: duplicate-document`` and the others of RFC 4130.
    """
    mic = base64.b64encode(hashlib.sha256(body).digest()).decode()
    lines = [
        f"--{_BOUNDARY}",
        "Content-Type: text/plain",
        "",
        f"The message {message_id} was {disposition}.",
        f"--{_BOUNDARY}",
        "Content-Type: message/disposition-notification",
        "",
        "Reporting-UA: halfopen-demo-partner",
        "Final-Recipient: rfc822; PARTNER",
        f"Original-Message-ID: {message_id}",
        f"Disposition: automatic-action/MDN-sent-automatically; {disposition}",
        f"Received-Content-MIC: {mic}, sha256",
        "",
        f"--{_BOUNDARY}--",
        "",
    ]
    kind = f'multipart/report; report-type=disposition-notification; boundary="{_BOUNDARY}"'
    return Receipt(kind, "\r\n".join(lines).encode())


class LaterReceipts:
    """Posts receipts to the sender's URL, again and again for a minute while nobody answers there."""

    def __init__(self, delay: float) -> None:
        self.posted = 0
        self._delay = delay
        self._waiting: queue.SimpleQueue[tuple[float, str, Receipt]] = queue.SimpleQueue()
        for _ in range(2):
            threading.Thread(target=self._work, name="partner-receipts", daemon=True).start()

    def post(self, url: str, message: Receipt) -> None:
        """Post *message* to *url* after the delay."""
        self._waiting.put((time.monotonic() + self._delay, url, message))

    def _work(self) -> None:
        while True:
            due, url, message = self._waiting.get()
            time.sleep(max(0.0, due - time.monotonic()))
            limit = due + _PATIENCE
            while not _posted(url, message) and time.monotonic() < limit:
                time.sleep(_AGAIN)
            self.posted += 1


def _posted(url: str, message: Receipt) -> bool:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    try:
        connection.request("POST", parts.path, message.body, {"Content-Type": message.content_type})
        answer = connection.getresponse()
        answer.read()
        # A 404 is an answer as well: the sender does not know the message, and will not tomorrow.
        return answer.status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
