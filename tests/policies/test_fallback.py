from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from halfopen.bulkhead import Bulkhead
from halfopen.errors import BulkheadFullError, ConfigError, RejectedError
from halfopen.fallback import Fallback


def fail(error: BaseException) -> Any:
    raise error


async def afail(error: BaseException) -> Any:
    raise error


def test_a_good_answer_passes() -> None:
    fallback = Fallback("prices", 0, on=ValueError)

    assert 5 == fallback.call(int, "5")
    assert (0, 0) == (fallback.snapshot().successes, fallback.snapshot().failures)


def test_a_value_answers_for_a_named_error() -> None:
    fallback = Fallback("prices", 0, on=ValueError)

    assert 0 == fallback.call(int, "x")
    assert (1, 0, (1,)) == (fallback.snapshot().successes, fallback.snapshot().failures, fallback.snapshot().answers)


def test_a_function_is_handed_the_error() -> None:
    fallback = Fallback("prices", str, on=(KeyError, ValueError))

    assert "invalid literal for int() with base 10: 'x'" == fallback.call(int, "x")


@pytest.mark.parametrize("error", [KeyError(), KeyboardInterrupt(), GeneratorExit()])
def test_any_other_error_passes_untouched(error: BaseException) -> None:
    fallback = Fallback("prices", 0, on=ValueError)

    with pytest.raises(type(error)) as caught:
        fallback.call(fail, error)

    assert error is caught.value
    assert caught.value.__cause__ is None


def test_a_chain_goes_on_until_a_link_answers() -> None:
    tried: list[Any] = []

    def mirror(error: Exception) -> int:
        tried.append(error)
        raise OSError("mirror")

    fallback = Fallback("prices", mirror, lambda error: len(tried), 99, on=ValueError)
    error = ValueError("first")

    assert 1 == fallback.call(fail, error)
    assert [error] == tried
    assert (0, 1, 0) == fallback.snapshot().answers


def test_if_every_link_fails_the_last_error_names_the_first_as_its_cause() -> None:
    fallback = Fallback("prices", lambda e: fail(OSError("one")), lambda e: fail(KeyError("two")), on=ValueError)
    first = ValueError("first")

    with pytest.raises(KeyError) as caught:
        fallback.call(fail, first)

    assert first is caught.value.__cause__
    assert ["fallback 'prices': link 1 had failed with OSError('one')"] == caught.value.__notes__
    assert (0, 1) == (fallback.snapshot().successes, fallback.snapshot().failures)


def test_a_link_that_raises_the_same_error_again_makes_no_circle() -> None:
    fallback = Fallback("prices", fail, on=ValueError)
    first = ValueError("first")

    with pytest.raises(ValueError, match="first") as caught:
        fallback.call(fail, first)

    assert first is caught.value
    assert caught.value.__cause__ is None


def test_an_interrupt_in_a_link_passes() -> None:
    fallback = Fallback("prices", lambda error: fail(KeyboardInterrupt()), 1, on=ValueError)

    with pytest.raises(KeyboardInterrupt):
        fallback.call(int, "x")


def test_refusals_can_be_answered() -> None:
    full = Bulkhead("shop", 1)
    fallback = Fallback("shop", "busy", on=RejectedError)

    with full.acquire():
        assert "busy" == fallback.call(full.call, int)
        with pytest.raises(BulkheadFullError):
            Fallback("shop", "busy", on=OSError).call(full.call, int)


@pytest.mark.anyio
async def test_a_coroutine_function_may_answer_where_the_call_is_awaited() -> None:
    async def mirror(error: Exception) -> str:
        return f"mirror after {error}"

    fallback = Fallback("prices", lambda error: fail(OSError()), mirror, on=ValueError)

    @fallback
    async def fetch() -> str:
        raise ValueError("no")

    assert "mirror after no" == await fetch()
    assert 0 == await Fallback("prices", 0, on=ValueError).acall(afail, ValueError())
    with pytest.raises(KeyError):
        await fallback.acall(afail, KeyError())


@pytest.mark.anyio
async def test_the_cause_is_kept_in_awaited_calls_too() -> None:
    fallback = Fallback("prices", lambda error: afail(OSError("mirror")), on=ValueError)
    first = ValueError()

    with pytest.raises(OSError, match="mirror") as caught:
        await fallback.acall(afail, first)

    assert first is caught.value.__cause__


def test_a_coroutine_function_cannot_answer_for_a_plain_one() -> None:
    async def mirror(error: Exception) -> str:
        return "never"

    fallback = Fallback("prices", mirror, on=ValueError)

    with pytest.raises(TypeError, match="guard a coroutine function"):
        fallback(int.__add__)
    with pytest.raises(TypeError, match="await acall") as caught:
        fallback.call(int, "x")
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_coroutine_function_is_refused_by_call_even_if_every_error_is_answered() -> None:
    with pytest.raises(TypeError, match="await acall"):
        Fallback("prices", 0, on=Exception).call(afail, ValueError())


def test_a_generator_cannot_be_answered_for() -> None:
    def items() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="cannot guard the generator"):
        Fallback("prices", 0, on=ValueError)(items)


def test_what_is_wrong_with_the_settings_is_said_all_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        Fallback("", on=())
    assert ["name", "links", "on"] == [mistake.path for mistake in caught.value.mistakes]


@pytest.mark.parametrize("wrong", [0, -1, math.nan, True, "ValueError", None, int, KeyboardInterrupt, BaseException])
def test_on_wants_exception_types(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="on is made of subclasses of Exception"):
        Fallback("prices", 0, on=(ValueError, wrong))


def test_an_exception_type_is_no_answer() -> None:
    with pytest.raises(ConfigError, match=r"links\[1\]"):
        Fallback("prices", KeyError, on=ValueError)


def test_copies_and_pickles_are_fresh_and_work() -> None:
    fallback = Fallback("prices", 0, on=ValueError)
    fallback.call(int, "x")

    for other in (pickle.loads(pickle.dumps(fallback)), copy.copy(fallback), copy.deepcopy(fallback)):
        assert 0 == other.snapshot().successes
        assert 0 == other.call(int, "x")
