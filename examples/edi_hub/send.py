"""
A program that has documents to send: it posts each to the hub, and repeats it until the hub says what became of it.

    python send.py http://127.0.0.1:8642 order-1.edi order-2.edi
    python send.py http://127.0.0.1:8642 --stream order-4711 change-1.edi change-2.edi
"""

from __future__ import annotations

import argparse
import json
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path


def send(hub: str, document: bytes, message_id: str, *, stream: str | None = None, patience: float = 30.0) -> str:
    """
    Hand a document to the hub; return ``delivered`` (Acme's receipt is here) or ``stored`` (it is on the hub's disk).

    The Message-ID is chosen once, by the program: after a lost answer the same message goes out again, and whoever has
    it already, the hub or Acme, recognises it.

    Args:
        stream: Messages of one stream arrive in order. They are always stored first.
        patience: Seconds for which a hub that is away, or cannot say, is asked again.
    """
    headers = {
        "AS2-Version": "1.0",
        "AS2-From": "HUB",
        "AS2-To": "ACME",
        "Message-ID": message_id,
        "Content-Type": "application/EDIFACT",
        "Disposition-Notification-To": "edi@hub.example",
    }
    if stream is not None:
        headers |= {"Halfopen-Stream": stream, "Receipt-Delivery-Option": f"{hub}/receipts"}
    limit = time.monotonic() + patience
    while True:
        try:
            request = urllib.request.Request(f"{hub}/to/acme/as2", document, headers)
            with urllib.request.urlopen(request, timeout=30) as answer:
                return "stored" if answer.status == 202 else "delivered"
        except urllib.error.HTTPError as error:
            with error:
                if error.code not in (502, 503, 504) or time.monotonic() > limit:
                    raise RuntimeError(json.loads(error.read())["detail"]) from None
        except OSError:
            if time.monotonic() > limit:
                raise
        time.sleep(0.2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Send files to Acme through the hub")
    parser.add_argument("hub", metavar="URL")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--stream")
    options = parser.parse_args()
    for path in options.files:
        identity = f"<{uuid.uuid4()}@hub.example>"
        print(path.name, identity, send(options.hub, path.read_bytes(), identity, stream=options.stream))
