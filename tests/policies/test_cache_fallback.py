from __future__ import annotations

import copy
import logging
import math
import pickle
import threading
from typing import Any

import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halfopen.bulkhead import Bulkhead
from halfopen.cache_fallback import CacheFallback, StaleAnswer
from halfopen.errors import ConfigError
from halfopen.testing import FakeClock


class Service:
    def __init__(self) -> None:
        self.down = False
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        if self.down:
            raise ConnectionError("down")
        return (args, kwargs, self.calls)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_the_last_good_answer_is_given_when_the_call_fails(clock: FakeClock) -> None:
    service = Service()
    cache = CacheFallback("rates", on=ConnectionError, max_age=60, clock=clock)
    cache.call(service, 1)
    good = cache.call(service, 1)

    service.down = True

    assert good is cache.call(service, 1)
    assert 3 == service.calls
    assert (2, 1, 1) == (cache.snapshot().stored, cache.snapshot().successes, cache.snapshot().entries)


def test_an_answer_is_given_until_it_is_too_old(clock: FakeClock) -> None:
    service = Service()
    cache = CacheFallback("rates", on=ConnectionError, max_age=60, clock=clock)
    good = cache.call(service)
    service.down = True

    clock.advance(60)
    assert good is cache.call(service)
    clock.advance(0.1)
    with pytest.raises(ConnectionError) as caught:
        cache.call(service)

    assert ["cache 'rates' could not answer: the last answer is 60.1 s old, at most 60 s"] == caught.value.__notes__
    assert (1, 0, 60.0) == (
        cache.snapshot().failures["too_old"], cache.snapshot().entries, cache.snapshot().oldest_given
    )  # fmt: skip


def test_without_an_earlier_answer_the_error_passes(clock: FakeClock) -> None:
    service = Service()
    service.down = True
    cache = CacheFallback("rates", on=ConnectionError, max_age=60, clock=clock)

    with pytest.raises(ConnectionError, match="down") as caught:
        cache.call(service)

    assert ["cache 'rates' could not answer: there is no earlier answer"] == caught.value.__notes__
    assert 1 == cache.snapshot().failures["missing"]


def test_any_other_error_passes_untouched() -> None:
    cache = CacheFallback("rates", on=ConnectionError, max_age=60)
    cache.call(int, "5")

    with pytest.raises(ValueError, match="invalid literal") as caught:
        cache.call(int, "x")

    assert not hasattr(caught.value, "__notes__")


def test_answers_are_kept_by_function_and_arguments_and_their_types(clock: FakeClock) -> None:
    service, other = Service(), Service()
    cache = CacheFallback("rates", on=ConnectionError, max_age=60, clock=clock)
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
        (service, (1,), {}),
        (service, (True,), {}),
        (service, (1.0,), {}),
        (service, (1,), {"a": 1}),
        (service, (1,), {"a": True}),
        (service, (1,), {"a": 1, "b": 2}),
        (other, (1,), {}),
    ]
    good = [cache.call(fn, *args, **kwargs) for fn, args, kwargs in calls]
    service.down = other.down = True

    assert good == [cache.call(fn, *args, **kwargs) for fn, args, kwargs in calls]
    assert good[5] == cache.call(service, 1, b=2, a=1)
    assert 7 == cache.snapshot().entries


def test_a_call_without_a_hashable_key_passes_through_uncached(clock: FakeClock) -> None:
    service = Service()
    cache = CacheFallback("rates", on=ConnectionError, max_age=60, clock=clock)
    cache.call(service, [1])
    service.down = True

    with pytest.raises(ConnectionError) as caught:
        cache.call(service, [1])

    assert ["cache 'rates' could not answer: the call has no hashable key"] == caught.value.__notes__
    assert (0, 1) == (cache.snapshot().entries, cache.snapshot().failures["no_key"])


def test_a_key_function_says_what_belongs_together(clock: FakeClock) -> None:
    service = Service()
    cache = CacheFallback("rates", on=ConnectionError, max_age=60, key=lambda query: query["q"], clock=clock)
    good = cache.call(service, {"q": 1, "trace": "a"})
    service.down = True

    assert good is cache.call(service, {"q": 1, "trace": "b"})


def test_the_key_is_of_the_users_arguments_even_around_another_policy(clock: FakeClock) -> None:
    service = Service()
    cache = CacheFallback("rates", on=ConnectionError, max_age=60, key=lambda who: who, clock=clock)
    inner, innermost = Bulkhead("a", 1), Bulkhead("b", 1)
    good = cache.call(inner.call, innermost.call, service, "me")
    service.down = True

    assert good is cache.call(inner.call, innermost.call, service, "me")


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 5), st.lists(st.integers(0, 9), max_size=60))
def test_it_keeps_the_answers_used_last(size: int, asked: list[int]) -> None:
    cache = CacheFallback("rates", on=ConnectionError, max_age=60, max_entries=size, clock=FakeClock())
    expected: list[int] = []

    for who in asked:
        cache._store(who, who)
        expected = [*[other for other in expected if other != who], who][-size:]

    assert expected == list(cache._kept)
    assert len(expected) == cache.snapshot().entries


def test_an_answer_that_was_given_counts_as_used(clock: FakeClock) -> None:
    service = Service()
    cache = CacheFallback("rates", on=ConnectionError, max_age=60, max_entries=2, clock=clock)
    first = cache.call(service, 1)
    cache.call(service, 2)
    service.down = True
    cache.call(service, 1)
    service.down = False
    cache.call(service, 3)
    service.down = True

    assert first is cache.call(service, 1)
    with pytest.raises(ConnectionError):
        cache.call(service, 2)
    assert 1 == cache.snapshot().evicted


def test_staleness_is_told(clock: FakeClock) -> None:
    told: list[StaleAnswer] = []
    service = Service()
    cache = CacheFallback("rates", on=ConnectionError, max_age=60, key=str, on_stale=told.append, clock=clock)
    cache.call(service, 1)
    service.down = True
    clock.advance(7)

    cache.call(service, 1)

    assert [("rates", "1", 7.0)] == [(stale.name, stale.key, stale.age) for stale in told]
    assert isinstance(told[0].error, ConnectionError)


def test_a_listener_that_raises_does_no_harm(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    def broken(stale: StaleAnswer) -> None:
        raise RuntimeError("listener")

    service = Service()
    cache = CacheFallback("rates", on=ConnectionError, max_age=60, on_stale=broken, clock=clock)
    good = cache.call(service)
    service.down = True

    with caplog.at_level(logging.ERROR, "halfopen"):
        assert good is cache.call(service)

    assert "on_stale of cache 'rates' raised" in caplog.text


def test_forgetting_drops_every_answer(clock: FakeClock) -> None:
    service = Service()
    cache = CacheFallback("rates", on=ConnectionError, max_age=60, clock=clock)
    cache.call(service)

    cache.forget()

    assert 0 == cache.snapshot().entries


def test_an_answer_whose_finalizer_asks_the_cache_again_does_not_lock_it_up(clock: FakeClock) -> None:
    cache = CacheFallback("rates", on=ConnectionError, max_age=60, max_entries=1, clock=clock)
    seen: list[int] = []

    class Answer:
        def __del__(self) -> None:
            seen.append(cache.snapshot().entries)

    for key in (1, 1, 2):
        cache.call(lambda key: Answer(), key)
        cache._store(key, Answer())
    worker = threading.Thread(target=cache.forget, daemon=True)
    worker.start()
    worker.join(60)

    assert not worker.is_alive()
    assert 0 == cache.snapshot().entries


@pytest.mark.anyio
async def test_awaited_calls_are_answered_too(clock: FakeClock) -> None:
    cache = CacheFallback("rates", on=ConnectionError, max_age=60, clock=clock)
    down = False

    @cache
    async def rate(currency: str) -> float:
        await anyio.lowlevel.checkpoint()
        if down:
            raise ConnectionError
        return 1.08

    assert 1.08 == await rate("USD")
    down = True
    assert 1.08 == await rate("USD")
    with pytest.raises(ConnectionError):
        await rate("CHF")


def test_a_coroutine_function_is_refused_by_call_and_nothing_is_kept() -> None:
    async def pay() -> None: ...

    cache = CacheFallback("rates", on=Exception, max_age=60)

    with pytest.raises(TypeError, match="await acall"):
        cache.call(pay)
    assert 0 == cache.snapshot().entries


@pytest.mark.parametrize("wrong", [0, -1, math.nan, math.inf, True, "5", None])
def test_settings_outside_of_their_range_are_refused_all_together(wrong: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        CacheFallback("", on=wrong, max_age=wrong, max_entries=wrong, key=3, on_stale=3)  # type: ignore[arg-type]

    assert ["name", "on", "max_age", "max_entries", "key", "on_stale"] == [
        mistake.path for mistake in caught.value.mistakes
    ]


def test_copies_and_pickles_are_fresh_and_work(clock: FakeClock) -> None:
    cache = CacheFallback("rates", on=ValueError, max_age=60)
    cache.call(int, "5")

    for other in (pickle.loads(pickle.dumps(cache)), copy.copy(cache), copy.deepcopy(cache)):
        assert 0 == other.snapshot().entries
        assert 5 == other.call(int, "5")
