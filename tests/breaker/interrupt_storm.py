"""
Interrupt guarded calls at random instants, in a process of its own; print what is found as JSON.

    python tests/breaker/interrupt_storm.py STYLE SEED INTERRUPTS

Leases last far longer than the storm: a lost permit of a trial call would wedge the circuit for good.
"""

from __future__ import annotations

import contextlib
import gc
import json
import random
import signal
import sys
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

from halfopen import CircuitBreaker, CircuitOpenError, CountWindow, HalfOpen, constant


class Interrupt(BaseException):
    pass


class Down(Exception):
    pass


def interrupt(signum: int, frame: object) -> None:
    raise Interrupt


def drive(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits: an interrupted event loop would prove nothing about the breaker."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waited")


class Storm:
    def __init__(self, style: str, seed: int) -> None:
        self.rng = random.Random(seed)
        self.breaker = CircuitBreaker(
            "storm",
            window=CountWindow(10),
            minimum_calls=3,
            wait_in_open=constant(0.0001),
            half_open=HalfOpen(permitted_calls=2, trial_timeout=3600.0, max_ignored=1_000_000),
        )
        self.ill = False
        self.hits = 0
        self.in_finalizer = 0
        self.seen: Counter[str] = Counter()
        self.heard: deque[object] = deque(maxlen=10)
        self.threads: list[threading.Thread] = []
        self.over = False
        self.error: str | None = None
        self.one: Callable[[], object] = getattr(self, f"_{style}")()

    def work(self) -> int:
        if self.ill:
            raise Down
        return 1

    async def awork(self) -> int:
        return self.work()

    def items(self) -> Iterator[int]:
        yield self.work()
        yield 2

    async def aitems(self) -> AsyncIterator[int]:
        yield self.work()
        yield 2

    # One guarded call in each style

    def _decorator(self) -> Callable[[], object]:
        return self.breaker(self.work)

    def _function(self) -> Callable[[], object]:
        def work(ill: int = 0, *rest: int, key: int = 3, **others: int) -> int:
            return self.work()

        return self.breaker(work)

    def _call(self) -> Callable[[], object]:
        return lambda: self.breaker.call(self.work)

    def _acall(self) -> Callable[[], object]:
        return lambda: drive(self.breaker.acall(self.awork))

    def _coroutine(self) -> Callable[[], object]:
        guarded = self.breaker(self.awork)
        return lambda: drive(guarded())

    def _generator(self) -> Callable[[], object]:
        guarded = self.breaker(self.items)
        return lambda: list(guarded())

    def _async_generator(self) -> Callable[[], object]:
        guarded = self.breaker(self.aitems)

        async def consume() -> list[int]:
            items = guarded()
            try:
                return [item async for item in items]
            finally:
                await items.aclose()  # type: ignore[attr-defined]

        return lambda: drive(consume())

    def _block(self) -> Callable[[], object]:
        def block() -> None:
            with self.breaker.acquire():
                self.work()

        return block

    def _result_block(self) -> Callable[[], object]:
        def block() -> None:
            with self.breaker.acquire() as permit:
                permit.result(self.work())

        return block

    def _two_step(self) -> Callable[[], object]:
        def steps() -> None:
            permit = self.breaker.acquire()
            try:
                self.work()
            except Down as error:
                permit.failure(error)
            else:
                permit.success()

        return steps

    def _abandoning(self) -> Callable[[], object]:
        def steps() -> None:
            permit = self.breaker.acquire()
            if self.rng.random() < 0.5:
                permit.success()

        return steps

    def _listening(self) -> Callable[[], object]:
        self.breaker.subscribe(self.heard.append)
        return self._block()

    def _backoff(self) -> Callable[[], object]:
        self.breaker.configure(wait_in_open=lambda step, rng: 0.0001)
        return self._decorator()

    def _timer(self) -> Callable[[], object]:
        self.breaker.configure(automatic_half_open=True)
        return self._decorator()

    def _among_threads(self) -> Callable[[], object]:
        one = self._block()

        def others() -> None:
            while not self.over:
                with contextlib.suppress(Down, CircuitOpenError):
                    one()
                time.sleep(0.0001)

        self.threads = [threading.Thread(target=others, daemon=True) for _ in range(2)]
        for thread in self.threads:
            thread.start()
        return one

    # The storm

    def rage(self, interrupts: int) -> None:
        sys.unraisablehook = self._unraisable
        signal.signal(signal.SIGALRM, interrupt)
        while self.hits < interrupts:
            self.ill = self.rng.random() < 0.4
            try:
                signal.setitimer(signal.ITIMER_REAL, self.rng.uniform(2e-6, 120e-6))
                for _ in range(40):
                    self._once()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupt:
                self.hits += 1
            self._check_lock()
            if self.hits % 100 == 0:
                self._check_permits()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)

    def _once(self) -> None:
        self.seen[self.breaker._circuit.state.kind] += 1
        with contextlib.suppress(Down, CircuitOpenError):
            self.one()

    def _unraisable(self, unraisable: Any) -> None:
        # A signal that strikes in a finalizer is reported there and goes no further.
        self.in_finalizer += unraisable.exc_type is Interrupt
        self.hits += unraisable.exc_type is Interrupt

    def _check_lock(self) -> None:
        if self.breaker._lock._is_owned() or (not self.threads and self.breaker._bus._lock._is_owned()):  # type: ignore[attr-defined]
            raise SystemExit(f"the lock is held after {self.hits} interrupts")

    def _check_permits(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        gc.collect()
        look = self.breaker.snapshot()
        running = [slot for slot in look.trials if slot.status == "running"]
        if running and not self.threads:
            raise SystemExit(f"after {self.hits} interrupts, trial calls nobody makes: {look}")

    def verdict(self) -> dict[str, Any]:
        self.over = True
        for thread in self.threads:
            thread.join(60)
        gc.collect()
        self.ill = False
        self.heard.clear()
        free = threading.Thread(target=self._recover)
        free.start()
        free.join(60)
        counters = self.breaker.snapshot().counters
        permits = counters.permits
        return {
            "interrupts": self.hits,
            "in_finalizer": self.in_finalizer,
            "seen": self.seen,
            "stuck": free.is_alive() or any(thread.is_alive() for thread in self.threads),
            "error": self.error,
            "look": repr(self.breaker.snapshot()),
            "heard": len(self.heard),
            "state": self.breaker.state,
            "guests": counters.guests,
            "trials": counters.trial_successes + counters.trial_failures,
            "in_flight": permits.in_flight,
            "balanced": permits.issued == permits.settled + permits.in_flight + permits.expired + permits.abandoned,
        }

    def _recover(self) -> None:
        try:
            self._try_to_recover()
        except BaseException as error:
            self.error = f"{error!r} {traceback.format_exc()}"

    def _try_to_recover(self) -> None:
        # A few calls more than it takes to be closed: the first success may well complete the evidence of illness.
        passed, until = 0, time.monotonic() + 50
        while passed < 10 and time.monotonic() < until:
            try:
                self.one()
                passed += 1
            except CircuitOpenError:
                passed = 0
                time.sleep(0.0002)


if __name__ == "__main__":
    storm = Storm(sys.argv[1], int(sys.argv[2]))
    storm.rage(int(sys.argv[3]))
    print(json.dumps(storm.verdict()))
