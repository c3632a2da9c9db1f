"""What every test of the suite finds."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest

from halfopen._breaker.built import forget_built

with suppress(ImportError):  # the environment of niquests has no Hypothesis
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "halfopen",
        deadline=None,  # a busy machine is no failure
        suppress_health_check=[HealthCheck.too_slow],
        derandomize="HALFOPEN_EXPLORE" not in os.environ,  # a change is judged by the same examples as the one before
    )
    settings.load_profile("halfopen")


def pytest_configure(config: pytest.Config) -> None:
    """Take signals as a program in the foreground does: started with ``&`` or by nohup, children would ignore them."""
    for name, usual in (("SIGINT", signal.default_int_handler), ("SIGHUP", signal.SIG_DFL)):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let each test be a program of its own: how often another one made a breaker of its name must not show."""
    forget_built()
