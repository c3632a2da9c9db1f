"""Refusals in a library's own words: halfopen's errors that are the library's errors, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from halfopen._runtime.deadline import DeadlinePassedError
from halfopen.errors import CallTimeoutError, RejectedError

__all__ = ["Dialect", "Spoken"]


class Spoken:
    """
    What a refusal in a dialect is first of all: it keeps `args` and leaves out the library's own way to begin.

    It pickles by the module whose dialect it is, so its class needs no name there.
    """

    dialect: str
    kind: type[Exception]

    def __init__(self, *args: Any) -> None:
        self.args = args

    def __reduce__(self) -> tuple[Any, ...]:
        return _speak, (self.dialect, self.kind, self.args)  # without the request, whose body may not pickle


class Dialect:
    """
    Translates the errors of halfopen's policies.

    Args:
        module: The module that keeps this dialect as `DIALECT`.
        refusal: The library's error for "I could not connect".
        no_time: Its error for "no time was left to begin".
        timeout: Its error for "the call took too long".
        attributes: What the library expects its errors to have.
    """

    def __init__(
        self,
        module: str,
        refusal: type[Exception],
        no_time: type[Exception],
        timeout: type[Exception],
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self._module = module
        self._bases = ((DeadlinePassedError, no_time), (CallTimeoutError, timeout), (RejectedError, refusal))
        self._attributes = dict(attributes or {})
        self._classes: dict[type[Exception], Callable[..., Exception]] = {}

    def of(self, error: RejectedError | CallTimeoutError, **attributes: Any) -> Exception:
        """Return *error* in this dialect, with its traceback; itself if it is spoken already."""
        kind: type[Exception] = type(error)
        if isinstance(error, Spoken):
            if error.dialect == self._module:
                return error
            kind = error.kind
        spoken = self.speak(kind, error.args)
        for name, value in attributes.items():
            setattr(spoken, name, value)
        return spoken.with_traceback(error.__traceback__)

    def speak(self, kind: type[Exception], args: tuple[Any, ...]) -> Exception:
        """Make an error of *kind* in this dialect."""
        made = self._classes.get(kind)
        if made is None:
            base = next(base for known, base in self._bases if issubclass(kind, known))
            body = {"dialect": self._module, "kind": kind, "__module__": self._module, **self._attributes}
            made = self._classes.setdefault(kind, type(kind.__name__, (Spoken, kind, base), body))
        return made(*args)


def _speak(module: str, kind: type[Exception], args: tuple[Any, ...]) -> Exception:
    dialect: Dialect = import_module(module).DIALECT
    return dialect.speak(kind, args)
