"""Small settings, in which everything that can happen happens soon; all times are exact in floats."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from halfopen import CountWindow, HalfOpen, Ramp, State, TimeWindow, exponential
from halfopen._core.settings import Settings

SLOW = 1.0
LEASE = 3.0
RAMP = 4.0

SHARES = (0.07, 0.1, 0.25, 0.3, 1 / 3, 0.5, 0.6, 0.75, 1.0)

maybe_share = st.none() | st.sampled_from(SHARES)

count_windows = st.integers(1, 12).map(CountWindow)
time_windows = st.builds(
    lambda width, buckets: TimeWindow(seconds=width * buckets, buckets=buckets),
    st.sampled_from((0.5, 1.0, 2.0, 8.0)),
    st.integers(1, 5),
)
windows = count_windows | time_windows
waits = st.sampled_from((2.0, exponential(2, 2, 16, jitter=0)))
ramps = st.sampled_from((None, *[Ramp(duration=RAMP, start=start) for start in (0.25, 0.5, 1.0)]))


@st.composite
def half_opens(draw: st.DrawFn) -> HalfOpen:
    """Draw the rules of a trial round; both verdicts are as likely."""
    permitted = draw(st.integers(1, 4))
    by_rate = draw(st.booleans())
    return HalfOpen(
        permitted_calls=permitted,
        max_concurrent_calls=draw(st.none() | st.integers(1, permitted)),
        failure_rate_threshold=draw(st.sampled_from((0.5, 0.6, 1.0))) if by_rate else None,
        slow_call_rate_threshold=draw(maybe_share) if by_rate else None,
        trial_timeout=draw(st.sampled_from((LEASE, LEASE, 50.0))),
        max_ignored=draw(st.sampled_from((None, 1, 2, 3))),
        max_duration=draw(st.sampled_from((None, 2.0, 5.0))),
        after_max_duration=draw(st.sampled_from((State.OPEN, State.CLOSED))),
    )


@st.composite
def trip_rules(draw: st.DrawFn, size: int | None) -> dict[str, Any]:
    """Draw trip rules: one that leads, so that each of the four decides often, and perhaps others."""
    low = {
        "failure_rate_threshold": st.sampled_from(SHARES),
        "slow_call_rate_threshold": st.sampled_from(SHARES),
        "failure_count_threshold": st.integers(1, min(4, size or 4)),
        "consecutive_failures": st.integers(1, 3),
    }
    leader = draw(st.sampled_from(sorted(low)))
    rules: dict[str, Any] = dict.fromkeys(low)
    rules[leader] = draw(low[leader])
    for name in sorted(low):
        if name != leader and draw(st.integers(0, 3)) == 0:
            rules[name] = draw(low[name])
    most = size or 8
    rules["minimum_calls"] = draw(st.integers(1, min(8, most)))
    return rules


@st.composite
def settings(draw: st.DrawFn, **fixed: Any) -> Settings:
    """Draw whole settings."""
    window = fixed.pop("window", None) or draw(windows)
    rules = draw(trip_rules(window.size if isinstance(window, CountWindow) else None))
    return Settings(
        **{
            "window": window,
            "slow_call_duration": SLOW,
            "wait_in_open": draw(waits),
            "forget_after": draw(st.sampled_from((None, 0.0, 5.0))),
            "half_open": draw(half_opens()),
            "ramp": draw(ramps),
            "automatic_half_open": draw(st.booleans()),
            **rules,
            **fixed,
        }
    )
