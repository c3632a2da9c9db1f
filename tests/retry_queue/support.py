"""What the tests of the retry queue share: a private PostgreSQL, rows by hand, and a partner that follows a script."""

from __future__ import annotations

import glob
import hashlib
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from halfopen import CircuitBreaker, HalfOpen
from halfopen.retry_queue import Delivery, LaneProfile, Report, RetryQueue, Store, Verdict
from halfopen.retry_queue._requests import ClaimRequest, NewMessage
from halfopen.retry_queue._rows import Message, MessageState, Stream
from halfopen.retry_queue._rules import Change
from halfopen.testing import FakeClock

DELIVERED = Report(Verdict.DELIVERED, "processed")
UNAVAILABLE = Report(Verdict.NOT_DELIVERED, "HTTP 503")
LOST = Report(Verdict.UNKNOWN, "read timeout")


def row(seq: int = 1, **changes: Any) -> Message:
    """Make a message as the store would return it."""
    values: dict[str, Any] = {
        "seq": seq,
        "id": f"<m{seq}@test>",
        "lane": "acme",
        "stream": None,
        "stream_mode": 0,
        "kind": "",
        "size": 3,
        "digest": "",
        "created": 0.0,
        "deadline": None,
        "due": 0.0,
        "attempts": 0,
        "tries": 0,
        "trial_failures": 0,
        "back_end_errors": 0,
        "resends": 0,
        "maybe_delivered": False,
        "state": MessageState.WAITING,
        "lease_until": None,
        "lease_token": None,
        "epoch": None,
        "last_outcome": None,
        "last_detail": None,
        "resubmit_of": None,
        "finished": None,
    }
    return Message(**{**values, **changes})


def new(identity: str, lane: str = "acme", body: bytes = b"abc", **changes: Any) -> NewMessage:
    """Make a message for `Store.enqueue`."""
    stream = changes.pop("stream", None)
    ordered = Stream(stream) if isinstance(stream, str) else stream
    values: dict[str, Any] = {
        "id": identity,
        "lane": lane,
        "stream": None if ordered is None else ordered.key,
        "stream_mode": 0 if ordered is None else ordered.mode,
        "kind": "",
        "size": len(body),
        "digest": hashlib.sha256(body).hexdigest(),
        "deadline": None,
        "headers": "[]",
        "body": body,
        "file": None,
    }
    return NewMessage(**{**values, **changes})


def put(store: Store, *identities: str, **changes: Any) -> list[int]:
    """Enqueue messages by ID; return their seqs."""
    return [store.enqueue(new(identity, **changes)).result().seq for identity in identities]


def claim(store: Store, lane: str = "acme", limit: int = 10, cap: int | None = 100, **options: Any) -> list[Message]:
    """Claim messages with a window that is wide enough."""
    values = {"token": "token", "lease": 90.0, **options}
    return store.claim(ClaimRequest(lane=lane, limit=limit, cap=cap, **values)) or []


def change(state: MessageState = MessageState.DONE, **values: Any) -> Change:
    """Make the result of an attempt."""
    return Change(**{"state": state, "what": "attempt", "due": 0.0, "outcome": "success", **values})


def states(store: Store) -> dict[str, str]:
    """Return the state of every message by ID."""
    from halfopen.retry_queue import Selection

    return {message.id: message.state.value for message in store.select(Selection(), limit=10_000)}


@dataclass
class Partner:
    """
    A sender that follows a script and records what reached the partner.

    The script is a list of reports, the last of which repeats, or a function of the delivery.
    """

    script: list[Report] | Callable[[Delivery], Report] = field(default_factory=lambda: [DELIVERED])
    seen: list[tuple[str, bytes, bool]] = field(default_factory=list)

    def __call__(self, delivery: Delivery) -> Report:
        self.seen.append((delivery.message_id, delivery.body(), delivery.trial))
        if callable(self.script):
            return self.script(delivery)
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    @property
    def ids(self) -> list[str]:
        """Message-IDs in the order of arrival."""
        return [identity for identity, _, _ in self.seen]

    @property
    def trials(self) -> list[str]:
        """Message-IDs that came as trial calls."""
        return [identity for identity, _, trial in self.seen if trial]


def breaker(clock: FakeClock, name: str = "acme", **settings: Any) -> CircuitBreaker:
    """Make a breaker that trips after three failures in a row, and waits 30 s."""
    values = {"consecutive_failures": 3, "wait_in_open": 30.0, "half_open": HalfOpen(), **settings}
    return CircuitBreaker(name, clock=clock, rng=random.Random(1), **values)


def hub(store: Store, clock: FakeClock, **options: Any) -> RetryQueue:
    """Make a queue over *store* under a fake clock."""
    return RetryQueue(store, clock=clock, rng=random.Random(1), **options)


PROFILE = LaneProfile(limit=4)


def postgres_bin() -> Path | None:
    """Find the directory of initdb and pg_ctl."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda path: int(path.split("/")[4]))
    where = found[-1] if found else shutil.which("initdb")
    return None if where is None else Path(where).parent


@contextmanager
def private_postgres(binaries: Path) -> Iterator[str]:
    """Run a server of our own on a Unix socket; yield how to connect to it."""
    home = Path(tempfile.mkdtemp(prefix="hopg"))
    # A server refuses to run as root.
    account: dict[str, Any] = {}
    if os.getuid() == 0:
        shutil.chown(home, "postgres", "postgres")
        account = {"user": "postgres", "group": "postgres", "extra_groups": []}

    def run(tool: str, *arguments: str) -> None:
        command = [str(binaries / tool), "-D", str(home / "data"), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=home, **account)

    run("initdb", "-A", "trust", "-U", "halfopen", "--no-sync", "-E", "UTF8", "--locale=C")
    run("pg_ctl", "-w", "-t", "240", "-l", str(home / "log"), "-o", f"-k {home} -h '' -c max_connections=60", "start")
    try:
        yield f"host={home} user=halfopen dbname=postgres"
    finally:
        run("pg_ctl", "-w", "-t", "240", "-m", "immediate", "stop")
        shutil.rmtree(home, ignore_errors=True)
