"""What every test of the suite finds."""

from __future__ import annotations

import pytest

from halfopen._breaker.built import forget_built


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let each test be a program of its own: how often another one made a breaker of its name must not show."""
    forget_built()
