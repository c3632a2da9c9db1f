"""Every recorded scenario of a reference breaker agrees at every step."""

from __future__ import annotations

import pytest

from tests.conformance.driver import Disagreement, Driver, Json, scenarios

SCENARIOS = scenarios()
GROUPS = 10


@pytest.mark.parametrize("group", range(GROUPS))
def test_recorded_scenarios_agree_at_every_step(group: int) -> None:
    chosen = SCENARIOS[group::GROUPS]

    played = sum(Driver(scenario).run() for scenario in chosen)

    assert sum(len(scenario["steps"]) for scenario in chosen) == played


def test_the_recording_is_whole() -> None:
    assert (260, 9866) == (len(SCENARIOS), sum(len(scenario["steps"]) for scenario in SCENARIOS))


def test_the_driver_notices_a_recording_that_was_tampered_with() -> None:
    scenario: Json = {**SCENARIOS[0], "steps": [list(step) for step in SCENARIOS[0]["steps"]]}
    operation, seen = scenario["steps"][-1]
    scenario["steps"][-1] = [operation, ["DISABLED", *seen[1:]]]

    with pytest.raises(Disagreement, match="DISABLED"):
        Driver(scenario).run()
