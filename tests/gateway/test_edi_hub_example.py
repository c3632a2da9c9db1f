"""`examples/edi_hub`: the story it tells comes true, and its pieces work by hand as its README says."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.support import until

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "edi_hub"


@pytest.mark.slow
def test_the_story_loses_nothing_though_the_hub_is_killed() -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLE / "story.py")], capture_output=True, text=True, timeout=240, check=False
    )

    assert (0, "") == (ran.returncode, ran.stderr)
    assert "20 of 20 orders have their receipt" in ran.stdout
    assert "the hub was killed and is back: 45 documents wait" in ran.stdout
    assert "accepted 85, delivered 85, lost 0" in ran.stdout
    assert "order changes in order: True" in ran.stdout


class ByHand:
    """The two servers of the README, on ports of their own."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.folder = folder
        acme = self._start(stack, [str(EXAMPLE / "partner.py"), "--port", "0"], {})
        self.acme = acme.rpartition("/")[0].split()[-1]
        ports = {"HUB_PORT": "0", "PARTNER_PORT": self.acme.rpartition(":")[2], "HUB_QUEUE": str(folder / "hub.db")}
        config = ["--config", str(EXAMPLE / "halfopen.toml"), "--json"]
        self.hub: str = json.loads(self._start(stack, ["-m", "halfopen.cli", "gateway", *config], ports))["url"]

    def _start(self, stack: ExitStack, command: list[str], more: dict[str, str]) -> str:
        process = subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, **more},
        )  # fmt: skip
        stack.callback(process.communicate)
        stack.callback(process.send_signal, signal.SIGKILL)
        assert process.stdout is not None
        return process.stdout.readline()

    def send(self, *more: str) -> str:
        order = self.folder / "order.edi"
        order.write_text("UNB+UNOC:3+HUB+ACME")
        ran = subprocess.run(
            [sys.executable, str(EXAMPLE / "send.py"), self.hub, str(order), *more],
            capture_output=True, text=True, timeout=240, check=True,
        )  # fmt: skip
        return ran.stdout.split()[-1]

    def make(self, health: str) -> None:
        request = urllib.request.Request(f"{self.acme}/health", health.encode(), method="PUT")
        urllib.request.urlopen(request, timeout=60).close()

    def books(self) -> Any:
        with urllib.request.urlopen(f"{self.acme}/books", timeout=60) as answer:
            return json.load(answer)


@pytest.fixture
def by_hand(tmp_path: Path) -> Iterator[ByHand]:
    with ExitStack() as stack:
        yield ByHand(stack, tmp_path)


def test_a_document_is_delivered_or_stored_and_delivered_later(by_hand: ByHand) -> None:
    first = by_hand.send()
    by_hand.make("ill")
    second, third = by_hand.send(), by_hand.send("--stream", "order-4711")
    by_hand.make("well")

    assert ["delivered", "stored", "stored"] == [first, second, third]
    assert until(lambda: len(by_hand.books()["accepted"]) == 3)


def test_a_document_whose_answer_was_lost_is_sent_again_and_recognised(by_hand: ByHand) -> None:
    by_hand.make("silent")
    how = by_hand.send()
    by_hand.make("well")

    assert "stored" == how
    assert until(lambda: bool(by_hand.books()["twice"]))
    assert 1 == len(by_hand.books()["accepted"])


def test_every_file_of_the_example_is_in_its_readme() -> None:
    named = set(re.findall(r"^\| `([\w.]+)` \|", (EXAMPLE / "README.md").read_text(encoding="utf-8"), re.MULTILINE))

    assert {path.name for path in EXAMPLE.iterdir() if path.suffix in (".py", ".toml")} == named
