"""
Log lines: one for each move, with the sentence of `explain()`, and now and then one for refusals; none for calls.

```python
log = LogEvents(registry)
log.start()
```

Every record carries its numbers as attributes too (`circuit_breaker`, `old`, `new`, `reason`, `epoch`, `step`, …), for
JSON formatters and structlog.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from halfopen._core.checking import Checks
from halfopen._core.events import CircuitTransitioned, ThresholdExceeded, TrialExpired
from halfopen._core.states import State
from halfopen.instrumentation._sentences import sentence
from halfopen.instrumentation._ticking import Ticker
from halfopen.registry import Registry

__all__ = ["LogEvents"]

_LEVELS = {
    State.OPEN: logging.WARNING,
    State.FORCED_OPEN: logging.WARNING,
    State.DISABLED: logging.WARNING,
}


class LogEvents:
    """
    Write what happens to the breakers of a registry to a logger.

    Openings, `force_open` and `disable` are warnings, other moves are infos. Trial calls that did not report and
    circuits that would have opened are warnings. Refusals are counted by the breakers anyway; every *refusals_every*
    seconds one line for each breaker that refused says how many and why.

    Args:
        registry: Whose breakers.
        logger: Where to; default the logger ``halfopen``.
        refusals_every: Seconds between lines about refusals; None for no such lines.

    Raises:
        ConfigError: *refusals_every* is no number of seconds.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        logger: logging.Logger | logging.LoggerAdapter[Any] | None = None,
        refusals_every: float | None = 60.0,
    ) -> None:
        checks = Checks()
        checks.seconds("refusals_every", refusals_every, optional=True)
        checks.done()
        self._registry = registry
        self._logger = logger or logging.getLogger("halfopen")
        self._told: dict[str, Mapping[str, int]] = {}
        self._every = refusals_every
        self._ticker = Ticker("halfopen-refusal-log", refusals_every or 60.0, self.tell_refusals)
        self._unsubscribe: list[Callable[[], None]] = []

    def start(self) -> None:
        """Begin to log; a no-op when it runs already."""
        if self._unsubscribe:
            return
        subscribe = self._registry.subscribe
        self._unsubscribe = [
            subscribe(self._moved, CircuitTransitioned),
            subscribe(self._expired, TrialExpired),
            subscribe(self._exceeded, ThresholdExceeded),
        ]
        self._told = {snapshot.name: snapshot.counters.rejected for snapshot in self._registry.snapshots()}
        if self._every is not None:
            self._ticker.start()

    def stop(self) -> None:
        """End, after a last line about refusals for each breaker that needs one."""
        for end in self._unsubscribe:
            end()
        if self._unsubscribe and self._every is not None:
            self._ticker.stop()
            self.tell_refusals()
        self._unsubscribe = []

    def tell_refusals(self) -> None:
        """Write one line for each breaker that has refused calls since the last time."""
        before, self._told = self._told, {}
        for snapshot in self._registry.snapshots():
            told = before.get(snapshot.name, {})
            new = {reason: count - told.get(reason, 0) for reason, count in snapshot.counters.rejected.items()}
            new = {reason: count for reason, count in new.items() if count > 0}
            self._told[snapshot.name] = snapshot.counters.rejected
            if new:
                self._write(
                    logging.WARNING,
                    "circuit breaker %s refused %d calls (%s)",
                    (snapshot.name, sum(new.values()), ", ".join(f"{why} {count}" for why, count in new.items())),
                    {"circuit_breaker": snapshot.name, "refused": new, "state": snapshot.state.value},
                )

    def _moved(self, event: CircuitTransitioned) -> None:
        fields: dict[str, Any] = {
            "circuit_breaker": event.name,
            "old": event.old.value,
            "new": event.new.value,
            "reason": event.reason.value,
            "epoch": event.epoch,
            "step": event.step,
            "wait": event.wait,
            "calls": event.totals.calls,
            "failures": event.totals.failures,
            "slow": event.totals.slow,
        }
        fields |= {key: value for key, value in (("note", event.note), ("by", event.by)) if value is not None}
        arguments = (event.name, sentence(self._registry, event))
        self._write(_LEVELS.get(event.new, logging.INFO), "circuit breaker %s: %s", arguments, fields)

    def _expired(self, event: TrialExpired) -> None:
        self._write(
            logging.WARNING,
            "circuit breaker %s: a trial call did not report within %.3g s and counts as failed",
            (event.name, event.running),
            {"circuit_breaker": event.name, "epoch": event.epoch, "running": event.running},
        )

    def _exceeded(self, event: ThresholdExceeded) -> None:
        held = event.totals
        self._write(
            logging.WARNING,
            "circuit breaker %s is observed only and would have opened: %s, %d of %d calls failed, %d were slow",
            (event.name, event.reason.value, held.failures, held.calls, held.slow),
            {"circuit_breaker": event.name, "reason": event.reason.value},
        )

    def _write(self, level: int, text: str, arguments: tuple[Any, ...], fields: dict[str, Any]) -> None:
        self._logger.log(level, text, *(_one_line(each) for each in arguments), extra=fields)


def _one_line(value: Any) -> Any:
    # A name or a note with a line break must not look like a log line of its own.
    return value.replace("\r", "\\r").replace("\n", "\\n") if isinstance(value, str) else value
