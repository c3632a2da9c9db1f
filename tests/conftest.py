"""What every test of the suite finds."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from halfopen._breaker.built import forget_built

settings.register_profile(
    "halfopen",
    deadline=None,  # a busy machine is no failure
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="HALFOPEN_EXPLORE" not in os.environ,  # a change is judged by the same examples as the one before
)
settings.load_profile("halfopen")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let each test be a program of its own: how often another one made a breaker of its name must not show."""
    forget_built()
