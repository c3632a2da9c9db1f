"""What a finished call means: asks the classifier, and survives what it does."""

from __future__ import annotations

from typing import Any, cast

from halfopen._core.checking import Checks, usable_seconds
from halfopen._core.circuit import Report
from halfopen._core.outcomes import FAILURE, IGNORED, SUCCESS, Outcome
from halfopen._runtime.late import logger
from halfopen.classification import NO_CARRIERS, is_cancellation, is_refusal
from halfopen.errors import RejectedError
from halfopen.typing import Classifier

__all__ = ["Judge", "check_classifier"]

_MAYBE_REFUSAL: tuple[type[Exception], ...] = (RejectedError, ExceptionGroup)

_NOTHING: frozenset[str] = frozenset()  # one for all: an empty set of its own takes 216 bytes


class Judge:
    """The classifier of one breaker, on the caller's thread and under no lock."""

    __slots__ = ("_logged", "_name", "classifier", "judges_results", "plain")

    def __init__(self, name: str, classifier: Classifier) -> None:
        self._name = name
        self._logged = _NOTHING
        self.classifier = classifier
        self.judges_results = bool(getattr(classifier, "judges_results", True))
        self.plain = NO_CARRIERS if getattr(classifier, "takes_all", False) else frozenset[type]()

    def of_error(self, error: BaseException, spent: float, slow_after: float) -> Report:
        """Judge a call that raised after *spent* seconds."""
        cls: type[BaseException] = type(error)
        kind = cls.__qualname__
        try:
            # Inside the `try`, because an exception may be a stranger's and resist being looked at.
            if cls in self.plain and not error.__dict__:
                return (FAILURE, spent, None, kind)
            if not isinstance(error, Exception):
                return _interrupted(error, spent, slow_after)
            if isinstance(error, _MAYBE_REFUSAL) and is_refusal(error):
                return (IGNORED, spent, None, kind)
            answer = self.classifier.of_exception(error)
        except Exception:
            return self._unjudged(spent, kind)
        # The common answer, without a further call.
        return (answer, spent, None, kind) if type(answer) is Outcome else self._told(answer, spent, kind)

    def of_return(self, value: Any, spent: float) -> Report:
        """Judge a call that returned; without a say on results it is a success."""
        return self.of_value(value, spent) if self.judges_results else (SUCCESS, spent, None, None)

    def of_value(self, value: Any, spent: float) -> Report:
        """Judge a returned value."""
        try:
            answer = self.classifier.of_result(value)
        except Exception:
            return self._unjudged(spent, None)
        return self._told(answer, spent, None)

    def _told(self, answer: Any, spent: float, kind: str | None) -> Report:
        try:
            outcome, later = cast("tuple[Any, Any]", answer) if isinstance(answer, tuple) else (answer, None)
            return (Outcome(outcome), spent, usable_seconds(later), kind)
        except Exception:
            return self._unjudged(spent, kind)

    def _unjudged(self, spent: float, kind: str | None) -> Report:
        self.log_once("the classifier of %r raised or gave no outcome; the call counts as ignored")
        return (IGNORED, spent, None, kind)

    def log_once(self, message: str) -> None:
        """Log the present exception, but only the first time for this breaker: user code may be wrong on every call."""
        if message not in self._logged:
            self._logged |= {message}
            try:
                logger().exception(message, self._name)
            except Exception:  # it resists being shown, too
                logger().error(message, self._name)


def _interrupted(error: BaseException, spent: float, slow_after: float) -> Report:
    # Cancelled from outside is no evidence, unless it was slow already: somebody lost patience with a hanging call.
    lost_patience = spent > slow_after and is_cancellation(error)
    return (FAILURE if lost_patience else IGNORED, spent, None, type(error).__qualname__)


def check_classifier(checks: Checks, classify: Any) -> None:
    """Want something that classifies."""
    if not isinstance(classify, Classifier) or isinstance(classify, type):
        checks.wrong("classify", classify, "a Failures, or an object with of_exception and of_result", "wrong_type")
