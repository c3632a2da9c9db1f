"""Run attempts of one call side by side, on asyncio, trio or threads, and stop when one has answered."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from halfopen._core.hedging import Race
from halfopen._runtime.clock import Clock, async_library
from halfopen._runtime.waiting import ThreadWaker, Waker, async_waker
from halfopen._runtime.worker_threads import Job, WorkerThreads

__all__ = ["Pace", "race_tasks", "race_threads"]


class Pace(Protocol):
    """When the next attempt is due, and whether it may start."""

    def next_at(self) -> float | None:
        """Return the clock's reading at which the next attempt is due; None if there is none."""
        ...

    def go(self, now: float) -> bool:
        """Say at *now* whether to start the next attempt, if it is due."""
        ...

    def refund(self) -> None:
        """Take note that an attempt was to start and could not."""
        ...


async def race_tasks(race: Race, pace: Pace, clock: Clock, attempt: Callable[[], Awaitable[Any]]) -> None:
    """
    Run *attempt* as tasks of the present event loop until *race* has a verdict; cancel and await the losers.

    Cancelled from outside, it cancels and awaits all of them.
    """
    library = async_library()
    run = _race_in_nursery if library.__name__ == "trio" else _race_in_group
    await run(library, race, pace, clock, attempt)


class _Bell:
    """Wakes whoever watches the race at present."""

    __slots__ = ("waker",)

    def __init__(self) -> None:
        self.waker: Waker | None = None

    def ring(self) -> None:
        if self.waker is not None:
            self.waker.wake()


async def _race_in_group(
    asyncio: Any, race: Race, pace: Pace, clock: Clock, attempt: Callable[[], Awaitable[Any]]
) -> None:
    tasks: list[Any] = []
    bell = _Bell()

    async def run(number: int) -> None:
        try:
            value = await attempt()
        except Exception as error:
            race.fail(error)
        except asyncio.CancelledError as error:
            if asyncio.current_task().cancelling():
                race.drop()
                raise
            # Nobody cancelled this task: the attempt itself came to this end.
            race.fail(error, at_once=True)
        except BaseException as error:
            race.fail(error, at_once=True)
        else:
            race.succeed(number, value)
        finally:
            bell.ring()

    async with asyncio.TaskGroup() as group:
        await _watch(race, pace, clock, bell, lambda number: tasks.append(group.create_task(run(number))))
        for task in tasks:
            task.cancel()


async def _race_in_nursery(
    trio: Any, race: Race, pace: Pace, clock: Clock, attempt: Callable[[], Awaitable[Any]]
) -> None:
    bell = _Bell()

    async def run(number: int) -> None:
        try:
            value = await attempt()
        except Exception as error:
            race.fail(error)
        except trio.Cancelled:
            race.drop()
            raise
        except BaseException as error:
            race.fail(error, at_once=True)
        else:
            race.succeed(number, value)
        finally:
            bell.ring()

    async with trio.open_nursery() as nursery:
        await _watch(race, pace, clock, bell, lambda number: nursery.start_soon(run, number))
        nursery.cancel_scope.cancel()


async def _watch(race: Race, pace: Pace, clock: Clock, bell: _Bell, start: Callable[[int], object]) -> None:
    start(race.start())
    while race.verdict is None:
        bell.waker = waker = async_waker()
        await waker.wait(clock, pace.next_at())
        if race.verdict is None and pace.go(clock.monotonic()):
            start(race.start())


def race_threads(
    race: Race, pace: Pace, clock: Clock, attempt: Callable[[], Any], threads: WorkerThreads, name: str
) -> bool:
    """
    Run *attempt* on worker threads until *race* has a verdict; return False where there is no thread to begin on.

    A loser cannot be stopped: it goes on, and *threads* counts it as given up.
    """
    lock = threading.Lock()
    bell = _Bell()
    under_way: dict[int, Job] = {}
    ended: set[int] = set()

    def run(number: int) -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = attempt()
        except BaseException as raised:
            error = raised
        with lock:
            ended.add(number)
            if error is None:
                race.succeed(number, value)
            else:
                race.fail(error, at_once=not isinstance(error, Exception))
            waker = bell.waker
        del error
        if waker is not None:
            waker.wake()

    def start() -> bool:
        with lock:
            number = race.start()
        try:
            job = threads.submit(lambda: run(number), name)
        except RuntimeError:  # the system has no thread left; the call can do without
            job = None
        if job is None:
            with lock:
                race.started -= 1
                race.drop()
            return False
        under_way[number] = job
        return True

    try:
        if not start():
            return False
        _watch_threads(race, pace, clock, bell, lock, start)
    finally:
        with lock:
            left = [job for number, job in under_way.items() if number not in ended]
        for job in left:
            threads.leave(job)
    return True


def _watch_threads(
    race: Race, pace: Pace, clock: Clock, bell: _Bell, lock: threading.Lock, start: Callable[[], bool]
) -> None:
    while True:
        with lock:
            if race.verdict is not None:
                return
            bell.waker = waker = ThreadWaker()
        waker.wait(clock, pace.next_at())
        with lock:
            is_open = race.verdict is None
        if is_open and pace.go(clock.monotonic()) and not start():
            pace.refund()
