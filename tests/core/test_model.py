"""The breaker goes where the reference model goes, and everywhere the table of moves leads."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as runs
from hypothesis.stateful import run_state_machine_as_test

from tests.core.machine import REACHED, Walk, wanted

WALKS = 3500
FLOOR = 100
"""Walks that have to reach each state and each move."""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_walks_agree_with_the_reference_model_and_reach_every_state_and_move() -> None:
    walk(WALKS)

    assert {} == {str(place): REACHED[place] for place in wanted() if REACHED[place] < FLOOR}


def walk(walks: int) -> None:
    """Make so many walks; REACHED tells where they got."""
    REACHED.clear()
    run_state_machine_as_test(
        Walk,
        settings=runs(
            max_examples=walks,
            stateful_step_count=30,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_few_walks_agree_with_the_reference_model() -> None:
    walk(40)
