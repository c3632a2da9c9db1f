"""
The 37 wrong rules of the recording's README, as changes of halfopen's source.

Each names the text that is there now and the text that is wrong. A text that is not found exactly once, in the modules
where decisions are made, is an error: no wrong rule quietly stops being planted when the code changes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """One replacement in one module."""

    right: str
    wrong: str


@dataclass(frozen=True)
class WrongRule:
    """A rule of the design, turned wrong; *noticed* is how many scenarios the README says see it."""

    rule: str
    noticed: int
    changes: tuple[Change, ...]

    @property
    def slug(self) -> str:
        """A name for pytest."""
        return "-".join("".join(c if c.isalnum() else " " for c in self.rule).split())[:60]


def wrong(rule: str, noticed: int, *changes: Change) -> WrongRule:
    """Write one row."""
    return WrongRule(rule, noticed, changes)


_TRIP_SLOW = """            part, whole = self.slow_rate
            if slow * whole >= part * calls:
                return Reason.SLOW_CALL_RATE
"""
_TRIAL_SLOW = """        part, whole = self.slow_rate
        return held.slow * whole < part * held.calls
"""
_JUDGE_ALWAYS = Change("if circuit.judges_every_success or", "if True or")
"""A wrong rule about successes needs every success judged, or the short cut would hide it."""

WRONG_RULES = (
    wrong(
        "slow: duration >= slow_call_duration",
        37,
        Change("slow = duration > state.slow_after", "slow = duration >= state.slow_after"),
        _JUDGE_ALWAYS,
    ),
    wrong("slow calls are not judged in CLOSED", 42, Change(_TRIP_SLOW, "")),
    wrong("slow calls are not judged in HALF_OPEN", 7, Change(_TRIAL_SLOW, "        return True\n")),
    wrong(
        "a slow failure counts in one rate only",
        73,
        Change(
            "            state.settle(serial, outcome, slow, retry_after, now)",
            "            state.settle(serial, outcome, slow and outcome is not FAILURE, retry_after, now)",
        ),
    ),
    wrong(
        "the failure rate must exceed its threshold",
        33,
        Change("if failures * whole >= part * calls:", "if failures * whole > part * calls:"),
        Change("if held.failures * whole >= part * held.calls:", "if held.failures * whole > part * held.calls:"),
    ),
    wrong(
        "the slow call rate must exceed its threshold",
        7,
        Change("if slow * whole >= part * calls:", "if slow * whole > part * calls:"),
        Change("held.slow * whole < part * held.calls", "held.slow * whole <= part * held.calls"),
    ),
    wrong(
        "rates need more than minimum_calls",
        132,
        Change("        if calls >= self.minimum:", "        if calls > self.minimum:"),
        Change("if held.calls < self.needed:", "if held.calls <= self.needed:"),
        _JUDGE_ALWAYS,
    ),
    wrong(
        "minimum_calls is capped at the number of buckets of a time window",
        6,
        Change(
            "            return self.minimum_calls\n",
            "            return min(self.minimum_calls, getattr(self.window, 'buckets', self.minimum_calls))\n",
        ),
    ),
    wrong(
        "a success never trips",
        61,
        Change(
            "            broken = rules.broken(held, self.streak)\n",
            "            broken = rules.broken(held, self.streak) if failed else None\n",
        ),
    ),
    wrong(
        "the outcome is judged before it is counted",
        144,
        Change(
            "            held = self.window.add(failed, slow, now)\n",
            "            self.window.advance(now)\n"
            "            held = self.window.window()\n"
            "            self.window.add(failed, slow, now)\n",
        ),
        _JUDGE_ALWAYS,
    ),
    wrong(
        "an ignored outcome is counted in CLOSED",
        99,
        Change(
            "        if outcome is not IGNORED:\n            self.streak",
            "        if True:\n            self.streak",
        ),
    ),
    wrong(
        "a count window is one too long",
        49,
        Change("        self._size = size\n", "        self._size = size + 1\n"),
    ),
    wrong(
        "a time window is one bucket too long",
        57,
        Change("kept = bucket - self._buckets\n", "kept = bucket - self._buckets - 1\n"),
    ),
    wrong(
        "a time window slides with every moment, not by whole buckets",
        45,
        Change("self._width = seconds / buckets", "self._width = 1.0"),
        Change("        self._buckets = buckets\n", "        self._buckets = int(seconds)\n"),
    ),
    wrong(
        "reset of a closed circuit keeps the window",
        6,
        Change(
            "            self.close(Reason.MANUAL, now, note=note, by=by)\n",
            "            kept = getattr(self.state, 'window', None) if self.state.kind is State.CLOSED else None\n"
            "            self.state.fold()\n"
            "            self.close(Reason.MANUAL, now, note=note, by=by)\n"
            "            self.state.window = kept or self.state.window\n",
        ),
    ),
    wrong(
        "the wait ends one moment later (>)",
        70,
        Change(
            "        if now < self.until:\n            return Refusal.OPEN",
            "        if now <= self.until:\n            return Refusal.OPEN",
        ),
    ),
    wrong(
        "every wait is that of step 1",
        11,
        Change("self._ask_backoff(event.step)", "self._ask_backoff(1)"),
    ),
    wrong(
        "a failed round repeats its step",
        10,
        Change("if why is Reason.INCONCLUSIVE or", "if kind is State.HALF_OPEN or"),
    ),
    wrong(
        "a recovery does not reset the step although forget_after is 0",
        4,
        Change(
            ">= (self.last_wait if keep is None else keep)", ">= (self.last_wait if keep is None else float('inf'))"
        ),
    ),
    wrong(
        "OPEN turns HALF_OPEN by itself without automatic_half_open",
        92,
        Change("if self.circuit.settings.automatic_half_open and now >= self.until:", "if now >= self.until:"),
    ),
    wrong(
        "automatic_half_open moves one moment late",
        17,
        Change("automatic_half_open and now >= self.until:", "automatic_half_open and now > self.until:"),
        Change("return self.until if self.circuit", "return self.until + 1.0 if self.circuit"),
    ),
    wrong(
        "the call that ends OPEN is not one of the trials",
        52,
        Change(
            "        return self.circuit.half_open(Reason.WAIT_ELAPSED, now).admit(now, serial, eligible)",
            "        self.circuit.half_open(Reason.WAIT_ELAPSED, now).trials.clear()\n        return None",
        ),
    ),
    wrong(
        "a trial gives its permit back when it reports",
        23,
        Change("self._started() + running >= trials.permitted_calls", "running >= trials.permitted_calls"),
    ),
    wrong(
        "an ignored trial keeps its permit",
        42,
        Change(
            "        return self.totals.calls\n",
            "        return self.totals.calls + self.ignored\n",
        ),
    ),
    wrong(
        "all permitted trials must report before a verdict",
        21,
        Change("if held.calls < self.needed:", "if held.calls < self.half_open.permitted_calls:"),
    ),
    wrong(
        "minimum_calls is not capped at permitted_calls",
        21,
        Change("min(settings.minimum, trials.permitted_calls)", "settings.minimum"),
    ),
    wrong(
        "a refused trial counts as a failure",
        67,
        Change(
            "            return Refusal.TRIAL_BUDGET\n",
            "            self._count(now, failed=True, slow=False)\n            return Refusal.TRIAL_BUDGET\n",
        ),
    ),
    wrong("max_duration is ignored", 27, Change("math.inf if longest is None else", "math.inf if True else")),
    wrong(
        "max_duration starts again with every trial",
        7,
        Change(
            "        self.trials[serial] = now\n", "        self.trials[serial] = now\n        self.entered = now\n"
        ),
    ),
    wrong(
        "max_duration always ends OPEN",
        11,
        Change("if self.circuit.settings.half_open.after_max_duration is State.CLOSED:", "if False:"),
    ),
    wrong(
        "METRICS_ONLY trips",
        3,
        Change(
            "        if not self.said:\n            self.said = True\n",
            "        if not self.said:\n            return self.circuit.order(State.OPEN, now)\n",
        ),
    ),
    wrong(
        "FORCED_OPEN ends after the wait",
        7,
        Change(
            "        super().__init__(circuit, why, now)\n        self.shut_until = math.inf\n",
            "        super().__init__(circuit, why, now)\n"
            "        wait = circuit.settings.backoff(max(circuit.step, 1), circuit.rng)\n"
            "        self.ends_at = self.shut_until = now + wait\n",
        ),
    ),
    wrong(
        "on wins over ignore",
        3,
        Change(
            "if self.ignore and _matches(error, self.ignore):",
            "if self.ignore and _matches(error, self.ignore) and not _matches(error, self.on):",
        ),
    ),
    wrong(
        "an exception outside on is ignored",
        7,
        Change(
            "not _matches(error, self.on):\n            return SUCCESS",
            "not _matches(error, self.on):\n            return IGNORED",
        ),
    ),
    wrong(
        "an exception outside on is a failure",
        7,
        Change(
            "not _matches(error, self.on):\n            return SUCCESS",
            "not _matches(error, self.on):\n            return FAILURE",
        ),
    ),
    wrong(
        "exception classes match exactly, subclasses do not",
        4,
        Change("if isinstance(error, matcher):", "if type(error) is matcher:"),
    ),
    wrong(
        "a bad result is a success",
        1,
        Change("return (FAILURE, retry_after(value)) if self.result(value) else SUCCESS", "return SUCCESS"),
    ),
)
