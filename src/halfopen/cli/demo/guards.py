"""The three variants of the story, and halfopen's breaker with the settings of the story."""

from __future__ import annotations

import random
from enum import StrEnum

import halfopen
from halfopen.cli.demo.naive import NoBreaker, TwoStateBreaker
from halfopen.cli.demo.story import Pace, Story

__all__ = ["Variant", "breaker_of", "naive_of"]


class Variant(StrEnum):
    """What stands between the hub's senders and the partner."""

    NONE = "none"
    NAIVE = "naive"
    HALFOPEN = "halfopen"

    @property
    def shown(self) -> str:
        """Return its name for people."""
        return _TITLES[self]


_TITLES = {Variant.NONE: "no breaker", Variant.NAIVE: "naive two-state", Variant.HALFOPEN: "halfopen"}


def breaker_of(story: Story, pace: Pace, seed: int) -> halfopen.CircuitBreaker:
    """Return the breaker: 50 % of 20 calls, 30 s doubling, 3 trial calls, on the watch's time."""
    return halfopen.CircuitBreaker(
        "as2:partner",
        window=halfopen.CountWindow(story.window),
        minimum_calls=story.window,
        failure_rate_threshold=story.failure_rate,
        slow_call_duration=pace.at_least(60.0, 20.0),
        wait_in_open=halfopen.exponential(
            pace.watch(story.wait), story.wait_factor, pace.watch(story.wait_cap), jitter=0.1
        ),
        half_open=halfopen.HalfOpen(
            permitted_calls=story.trials, trial_timeout=pace.at_least(story.trial_timeout, 20.0)
        ),
        rng=random.Random(seed),
    )


def naive_of(variant: Variant, story: Story, pace: Pace) -> NoBreaker | TwoStateBreaker:
    """Return the guard of a comparison."""
    if variant is Variant.NONE:
        return NoBreaker()
    return TwoStateBreaker(window=story.window, failure_rate=story.failure_rate, wait=pace.watch(story.wait))
