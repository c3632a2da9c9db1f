"""The gateway of the demo as its parent sees it: its file, its process, what it tells, and `kill -9`."""

from __future__ import annotations

import http.client
import importlib.util
import json
import re
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from halfopen.cli.demo.child import Child
from halfopen.cli.demo.console import ConsoleWish
from halfopen.cli.demo.errors import BadInput, Broken
from halfopen.cli.demo.story import Pace, Story
from halfopen.cli.demo.wire import Endpoint, fetch

__all__ = ["LANE", "GatewayProcess", "carried_over", "check_libraries", "configuration"]

LANE = "partner"
LIMIT = 4
"""Messages that the queue sends at once; with those of the programs as many as the other variants have senders."""

_NEEDED = ("starlette", "uvicorn", "httptools", "aiohttp")
_TIMEOUT = 5.0
_PAGE = 1000


def check_libraries() -> None:
    """
    Look whether a gateway can run here.

    Raises:
        BadInput: A library is missing.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise BadInput(
            f"the gateway needs {', '.join(missing)}; run: pip install 'halfopen[cli,gateway]', or take --hub memory"
        )


def configuration(story: Story, pace: Pace, *, partner: Endpoint, db: Path, port: int = 0) -> str:
    """Return the gateway's file: the settings of the story, on the watch's time."""
    # A message that a killed gateway was sending rests until its lease runs out: so these are short.
    timeout = pace.at_least(40.0, 4.0)
    retry = f"first = {pace.watch(story.retry_first)}, factor = 2, cap = {pace.at_least(60.0, 1.0)}, jitter = 0.1"
    return f"""\
[gateway]
port = {port}
queue = {json.dumps(str(db.resolve()))}

[breaker.{LANE}]
window = {story.window}
minimum_calls = {story.window}
failure_rate_threshold = {story.failure_rate}
slow_call_duration = {pace.at_least(60.0, 20.0)}
wait_in_open = {{ first = {pace.watch(story.wait)}, factor = {story.wait_factor}, \
cap = {pace.watch(story.wait_cap)}, jitter = 0.1 }}
half_open = {{ permitted_calls = {story.trials}, trial_timeout = {pace.at_least(story.trial_timeout, 20.0)} }}

[partner.{LANE}]
url = "{partner.scheme}://{partner.authority}"
as2 = true
store_and_forward = true
timeout = {pace.at_least(60.0, 10.0)}

[partner.{LANE}.profile]
limit = {LIMIT}
timeout = {timeout}
trial_timeout = {timeout}
lease_margin = 1.0
receipt_deadline = {pace.at_least(60.0, 5.0)}
receipt_resends = 10
schedule = {{ {retry}, attempt_limit = 20 }}
"""


def carried_over(db: Path) -> tuple[dict[str, str], int]:
    """
    Return the messages that an earlier demo left in *db*, with their digests, and the port of its gateway, or 0.

    Partners know that port: it stands in the messages as the address for receipts.

    Raises:
        BadInput: It is no queue, or cannot be used.
    """
    from halfopen.retry_queue import MessageState, RetryQueue, Selection, StoreUnavailableError

    live = frozenset({"waiting", "sending", "unknown_delivery", "awaiting_receipt"})
    try:
        with closing(RetryQueue(db)) as queue:
            selection = Selection(lane=LANE, states=frozenset(map(MessageState, live)))
            left = queue.list(selection, limit=100_000)
            urls = [value for message in left for _, value in queue.store.payload(message.seq)[0]]
    except (StoreUnavailableError, OSError) as error:
        why = " ".join(str(error).split())
        raise BadInput(f"cannot use {db} as the hub's queue: {why}; choose another --db") from None
    found = [re.fullmatch(r"http://127\.0\.0\.1:(\d+)/receipts", url) for url in urls]
    ports = [int(each[1]) for each in found if each]
    return {message.id: message.digest for message in left}, ports[-1] if ports else 0


class GatewayProcess:
    """
    The gateway; its counters go on over its restarts.

    Args:
        directory: Where its file and its log are.
        settings: What `configuration` takes, beside the port.
        port: Where it should listen; 0: anywhere, but in the same place after a restart.
        console: The console that it should serve as well.
    """

    def __init__(
        self, directory: Path, settings: Mapping[str, Any], *, port: int = 0, console: ConsoleWish | None = None
    ) -> None:
        self.lives = 0
        self.console = ""
        self.no_console = ""
        self._wish = console
        self._file = directory / "halfopen.toml"
        self._settings = settings
        self._lock = threading.Lock()
        self._child: Child | None = None
        self.endpoint = Endpoint("http", "127.0.0.1", port, f"/to/{LANE}/as2")
        self.start()

    def start(self) -> None:
        """
        Start it, again where it was.

        Raises:
            BadInput: It cannot use its port or its queue.
        """
        self.lives += 1
        self._file.write_text(configuration(**self._settings, port=self.endpoint.port), encoding="utf-8")
        if self._wish is not None:
            self._wish.write(self._file.parent)
        child = Child("halfopen.cli.demo.gateway_child", str(self._file))
        with self._lock:
            self._child = child
        hello = child.first()
        if "error" in hello:
            child.stop()
            raise BadInput(f"the gateway did not start: {hello['error']}")
        port = int(hello["url"].rpartition(":")[2])
        self.endpoint = Endpoint("http", "127.0.0.1", port, f"/to/{LANE}/as2")
        self._note_console(hello)

    def _note_console(self, hello: Mapping[str, str]) -> None:
        self.console, self.no_console = hello.get("console", self.console), hello.get("no_console", "")
        if self._wish is not None and self.console:
            self._wish = self._wish.at(self.console)

    def kill(self) -> None:
        """End it as `kill -9` does: in the middle of whatever it does."""
        with self._lock:
            child, self._child = self._child, None
        if child is not None:
            child.stop()

    @property
    def running(self) -> bool:
        """Return whether there is a process."""
        return self._child is not None

    @property
    def died(self) -> bool:
        """Return whether it ended though nobody here ended it."""
        child = self._child
        return child is not None and child.ended

    @property
    def orders(self) -> str:
        """Return the link to its console under which orders can be given; empty: there is no console."""
        return f"{self.console}#token={self._wish.token}" if self._wish is not None and self.console else ""

    @property
    def receipts(self) -> str:
        """Return the URL to which partners post their later receipts."""
        return f"http://{self.endpoint.authority}/receipts"

    def circuit(self) -> dict[str, Any] | None:
        """Return its breaker's snapshot and moves; None: it does not answer."""
        return self._ask(f"/partners/{LANE}/circuit")

    def backlog(self) -> dict[str, int] | None:
        """Return how many messages are not done, by state; None: it does not answer."""
        found = self._ask(f"/partners/{LANE}")
        return None if found is None or "messages" not in found else dict(found["messages"])

    def done(self) -> set[str]:
        """
        Return the Message-IDs of everything that is done.

        Raises:
            Broken: It does not answer.
        """
        found: set[str] = set()
        after: int | None = 0
        while after is not None:
            page = self._must(f"/messages?partner={LANE}&state=done&limit={_PAGE}&after={after}")
            found |= {message["id"] for message in page["messages"]}
            after = page["next_after"]
        return found

    def history(self, message_id: str) -> list[dict[str, Any]]:
        """Return what happened to a message, oldest first; nothing if it was never stored."""
        found = self._ask(f"/messages/{quote(message_id, safe='')}")
        return list((found or {}).get("history", []))

    def _must(self, path: str) -> dict[str, Any]:
        for _ in range(3):
            found = self._ask(path)
            if found is not None and "messages" in found:
                return found
            time.sleep(0.2)
        raise Broken("the gateway's process does not answer; run the demo again")

    def _ask(self, path: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = fetch(self.endpoint, path, _TIMEOUT)
        except (OSError, http.client.HTTPException, ValueError):
            return None
        return found
