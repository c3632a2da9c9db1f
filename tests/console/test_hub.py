"""How often pages are told, and what is kept for those that come back."""

from __future__ import annotations

import asyncio
import time

import pytest

from halfopen.console import _picture
from halfopen.console._hub import AT_ONCE, MOST_PATCHES
from halfopen.console._picture import Picture
from tests.console.support import console_of, shop

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_storm_of_moves_is_told_in_a_bounded_number_of_patches() -> None:
    registry = shop()
    breaker = registry.circuit_breaker("payments")
    console = console_of(registry)
    await console.start()
    began, before = time.monotonic(), console._hub.picture.version

    for _ in range(60):
        breaker.trip()
        breaker.reset()
        await asyncio.sleep(0.01)
    sent, took = console._hub.picture.version - before, time.monotonic() - began
    await console.stop()

    assert 0 < sent <= MOST_PATCHES * took + AT_ONCE


def test_a_page_that_missed_more_than_is_kept_gets_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_picture, "RING_BYTES", 5000)
    picture = Picture()
    ids = []

    for number in range(10):
        picture.put(("process", "web-1"), {"text": f"{number}" * 1000})
        picture.patch()
        ids.append(f"{picture.start}-{picture.version}")

    kept = [None if missed is None else len(missed) for missed in map(picture.since, ids)]
    assert [None] * 5 + [4, 3, 2, 1, 0] == kept


def test_a_patch_larger_than_all_that_is_kept_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_picture, "RING_BYTES", 5000)
    picture = Picture()

    picture.put(("process", "web-1"), {"text": "x" * 10_000})
    patch = picture.patch()

    assert len(patch) > 10_000
    assert (None, []) == (picture.since(f"{picture.start}-0"), picture.since(f"{picture.start}-1"))
