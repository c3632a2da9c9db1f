"""How Hypothesis runs here."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A busy machine is no failure.
settings.register_profile("core", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("core")
