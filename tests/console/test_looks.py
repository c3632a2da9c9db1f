"""What is said of a breaker of which only a published snapshot is known."""

from __future__ import annotations

import pytest

from halfopen import CircuitBreaker
from halfopen._core.states import Reason
from halfopen.console._looks import _BECAUSE, from_published


def sentence_of(breaker: CircuitBreaker, **changes: str) -> str:
    present, _ = from_published({**breaker.snapshot().plain(), **changes})
    return str(present["sentence"])


def test_a_breaker_that_never_moved_has_no_reason() -> None:
    assert "because" not in sentence_of(CircuitBreaker("payments"))


def test_the_reason_is_told_in_words() -> None:
    breaker = CircuitBreaker("payments", consecutive_failures=1)
    permit = breaker.acquire()

    permit.failure(ConnectionError("refused"))

    assert sentence_of(breaker).startswith("open since ")
    assert sentence_of(breaker).endswith(" because too many calls failed in a row")


@pytest.mark.parametrize("reason", sorted(set(Reason) - set(_BECAUSE)))
def test_a_reason_without_a_sentence_of_its_own_is_named(reason: str) -> None:
    told = sentence_of(CircuitBreaker("payments"), why=reason)

    assert told.endswith(f" because of {reason.replace('_', ' ')}")
