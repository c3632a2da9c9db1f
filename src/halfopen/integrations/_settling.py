"""What an answer says about the other side, and a permit that waits for its end."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

from halfopen._core.outcomes import FAILURE, IGNORED, SUCCESS, Classified, Outcome
from halfopen._core.settings import Call
from halfopen._runtime import trials
from halfopen.circuit_breaker import CircuitBreaker
from halfopen.classification import Failures, is_refusal
from halfopen.typing import Classifier

__all__ = ["Evidence", "Settling", "Stay"]

_STATUS = Failures()


@dataclass(frozen=True, slots=True)
class Evidence:
    """
    Judges answers by their HTTP status, and of the exceptions only those that tell of the other side.

    Args:
        ill: Exceptions that are failures; of any other the dependency knows nothing, and it is ignored.
        ours: Exceptions among them that are ignored: the caller's own mistake, or a want of resources here.
    """

    ill: tuple[type[Exception], ...]
    ours: tuple[type[Exception], ...] = ()
    judges_results: ClassVar[bool] = False

    def of_exception(self, error: Exception, /) -> Classified:
        """Judge a call that raised."""
        if isinstance(error, self.ours) or not isinstance(error, self.ill):
            return IGNORED
        return _STATUS.of_exception(error)

    def of_result(self, value: Any, /) -> Classified:
        """Judge an answer: 408, 429 and 5xx are failures."""
        return _STATUS.of_result(value)


class Settling:
    """A permit, and who judges: the breaker's own classifier, or the integration where the breaker has none."""

    __slots__ = ("_judge", "_permit")

    def __init__(self, breaker: CircuitBreaker, evidence: Classifier, request: Any) -> None:
        own = breaker.classifier
        self._judge: Classifier = evidence if own == _STATUS else own
        self._permit = breaker.acquire(Call(None, (request,), {}))

    def answered(self, response: Any) -> bool:
        """Judge status and headers; return whether the outcome is known. A success is known when the body has ended."""
        outcome, later = self._ask(self._judge.of_result, response)
        if outcome is not SUCCESS:
            self._settle(outcome, later, None)
        return outcome is not SUCCESS

    def raised(self, error: BaseException) -> None:
        """Settle as what was raised tells."""
        if isinstance(error, Exception) and not is_refusal(error):
            self._settle(*self._ask(self._judge.of_exception, error), error)
        else:
            self._permit.exception(error)

    def ended(self) -> None:
        """The body came to its end."""
        self._permit.success()

    def closed(self) -> None:
        """The caller wanted no more of it."""
        self._permit.ignore()

    @contextmanager
    def inside(self) -> Generator[None, None, None]:
        """Run a block inside the call, so that what it calls knows of a trial call."""
        permit = self._permit
        if not permit.trial:
            yield
            return
        with trials.inside(permit._state, permit._serial):
            yield

    def _ask(self, judge: Callable[[Any], Classified], value: Any) -> tuple[Outcome, float | None]:
        try:
            answer = judge(value)
            return answer if isinstance(answer, tuple) else (answer, None)
        except Exception:
            self._permit.result(value)  # raises in there again, and is logged once for each breaker
            return IGNORED, None

    def _settle(self, outcome: Outcome, later: float | None, error: Exception | None) -> None:
        if outcome is FAILURE:
            self._permit.failure(error, retry_after=later)
        elif outcome is IGNORED:
            self._permit.ignore()
        else:
            self._permit.success()


class Stay:
    """A place in a bulkhead or the like, kept until the answer has ended; told of the end as a `Settling` is."""

    __slots__ = ("_place",)

    def __init__(self, place: Any) -> None:
        self._place = place

    def raised(self, error: BaseException) -> None:
        """Leave with an error."""
        self._place.__exit__(type(error), error, None)

    def ended(self) -> None:
        """Leave after an answer that came to its end."""
        self._place.__exit__(None, None, None)

    def closed(self) -> None:
        """Leave early; how long it took says nothing."""
        self.raised(GeneratorExit())

    @staticmethod
    def inside() -> AbstractContextManager[None]:
        """Run a block; nothing inside has to know."""
        return nullcontext()
