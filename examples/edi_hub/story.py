"""
The whole story in one go: Acme falls ill, the hub keeps everything, is killed with -9, and nothing is lost.

    python story.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import partner
from send import send

HERE = Path(__file__).parent


class Hub:
    """`halfopen gateway` as a process."""

    def __init__(self, queue: Path, partner_port: int, port: int = 0) -> None:
        ports = {"HUB_PORT": str(port), "PARTNER_PORT": str(partner_port)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "halfopen.cli", "gateway", "--config", str(HERE / "halfopen.toml"), "--json"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ports, "HUB_QUEUE": str(queue.resolve())},
        )
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["url"]

    def circuit(self) -> dict[str, Any]:
        """Return what the hub says about Acme."""
        with urllib.request.urlopen(f"{self.url}/partners/acme", timeout=10) as answer:
            shown: dict[str, Any] = json.load(answer)
        return shown

    def kill(self) -> None:
        """Kill -9."""
        self.process.kill()
        self.process.communicate()


def play(folder: Path) -> dict[str, Any]:
    """Play it, telling what happens; return Acme's books and what the hub had accepted."""
    acme = partner.serve()
    books: partner.Books = acme.RequestHandlerClass.books  # type: ignore[attr-defined]
    hub = Hub(folder / "hub.db", acme.server_port)
    sent: dict[str, str] = {}

    def order(number: int) -> None:
        sent[f"<order-{number}@hub>"] = send(hub.url, b"ORDERS %d" % number, f"<order-{number}@hub>")

    def change(number: int) -> None:
        identity = f"<change-{number}@hub>"
        sent[identity] = send(hub.url, b"ORDCHG %d" % number, identity, stream="order-4711")

    try:
        with ThreadPoolExecutor(8) as programs:
            list(programs.map(order, range(20)))
            print(f"Acme is well: {sum(how == 'delivered' for how in sent.values())} of 20 orders have their receipt")

            books.health = "ill"
            list(programs.map(order, range(20, 60)))
            for number in range(5):
                change(number)
            calls = books.arrivals - 20
            print(f"Acme is ill: 45 documents are stored; the circuit is {hub.circuit()['state']} after {calls} calls")

            port = int(hub.url.rpartition(":")[2])
            hub.kill()
            hub = Hub(folder / "hub.db", acme.server_port, port)
            shown = hub.circuit()
            waiting = sum(shown["messages"].values())
            print(f"the hub was killed and is back: {waiting} documents wait, the circuit is {shown['state']}")

            books.health = "well"
            list(programs.map(order, range(60, 80)))
        limit = time.monotonic() + 40
        while sum(hub.circuit()["messages"].values()) and time.monotonic() < limit:
            time.sleep(0.1)
        print(f"Acme is well: the circuit is {hub.circuit()['state']}")
    finally:
        hub.kill()
        acme.shutdown()
        acme.server_close()
    return {"sent": sent, "accepted": list(books.accepted), "twice": books.twice}


def main() -> int:
    """Play it and compare the books; 0 if they agree."""
    with tempfile.TemporaryDirectory() as folder:
        told = play(Path(folder))
    lost = set(told["sent"]) - set(told["accepted"])
    changes = [identity for identity in told["accepted"] if "change" in identity]
    print(f"accepted {len(told['sent'])}, delivered {len(told['accepted'])}, lost {len(lost)}")
    print(f"came twice and were recognised: {len(told['twice'])}; order changes in order: {changes == sorted(changes)}")
    return 0 if len(told["sent"]) == len(told["accepted"]) and not lost and changes == sorted(changes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
