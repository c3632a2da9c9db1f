"""The running queue: threads, asyncio, trio, two queues on one store, stopping in good order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from halfopen import CircuitBreaker, HalfOpen
from halfopen.retry_queue import Delivery, LaneProfile, MessageState, Report, RetryQueue, SqliteStore, Store, Verdict
from halfopen.testing import FakeClock
from tests.retry_queue.support import DELIVERED, Partner, breaker, hub, states

S = MessageState
FAST = LaneProfile(limit=8, spread=0.0)


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


async def auntil(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    with anyio.fail_after(seconds):
        while not condition():
            await anyio.sleep(0.005)


@pytest.fixture
def real_store(open_store: Callable[..., Store]) -> Store:
    return open_store(clock=None)


def test_threads_send_everything_once(real_store: Store) -> None:
    queue, partner = RetryQueue(real_store), Partner()
    for lane in ("acme", "globex"):
        queue.lane(lane, sender=partner, profile=FAST)
    queue.start()
    for number in range(100):
        queue.submit("acme" if number % 2 else "globex", b"x", message_id=f"m{number}")

    until(lambda: queue.stats().completed == 100)

    assert queue.stop()
    assert 100 == len(set(partner.ids)) == len(partner.ids)
    assert {S.DONE: 100} == real_store.books()


def test_two_queues_share_the_work_and_the_window(open_store: Callable[..., Store]) -> None:
    lock, busy, widest = threading.Lock(), 0, 0
    ids: list[str] = []

    def send(delivery: Delivery) -> Report:
        nonlocal busy, widest
        with lock:
            busy += 1
            widest = max(widest, busy)
            ids.append(delivery.message_id)
        time.sleep(0.004)
        with lock:
            busy -= 1
        return DELIVERED

    queues = [RetryQueue(open_store(clock=None, poll=0.02)) for _ in range(2)]
    for queue in queues:
        queue.lane("acme", sender=send, profile=LaneProfile(limit=3))
        queue.start()
    for number in range(120):
        queues[0].submit("acme", b"x", message_id=f"m{number}")

    until(lambda: sum(queue.stats().completed for queue in queues) == 120)

    for queue in queues:
        queue.stop()
    assert 120 == len(set(ids)) == len(ids)
    assert widest <= 3


def test_an_order_from_elsewhere_wakes_a_running_queue(open_store: Callable[..., Store]) -> None:
    queue, partner = RetryQueue(open_store(clock=None, poll=0.02)), Partner([Report(Verdict.REFUSED), DELIVERED])
    queue.lane("acme", sender=partner, profile=FAST)
    queue.start()
    queue.enqueue("acme", b"x", message_id="m1")
    until(lambda: queue.get("m1").state is S.ERROR)

    RetryQueue(open_store(clock=None)).retry("m1", by="ann")

    until(lambda: queue.get("m1").state is S.DONE)
    queue.stop()


def test_an_outage_is_survived_by_a_running_queue(real_store: Store) -> None:
    down = threading.Event()
    down.set()

    def send(_: Delivery) -> Report:
        return Report(Verdict.NOT_DELIVERED, "HTTP 503") if down.is_set() else DELIVERED

    queue = RetryQueue(real_store)
    gate = CircuitBreaker("acme", consecutive_failures=3, wait_in_open=0.05, half_open=HalfOpen(permitted_calls=2))
    queue.lane("acme", sender=send, breaker=gate, profile=FAST)
    queue.start()
    for number in range(30):
        queue.submit("acme", b"x", message_id=f"m{number}")
    until(lambda: gate.snapshot().counters.trial_failures >= 3)
    down.clear()

    until(lambda: queue.stats().completed == 30)

    queue.stop()
    assert sum(message.attempts for message in queue.list()) <= 30 + queue.stats().attempts["failure"]


def test_stopping_lets_sends_in_flight_end_and_claims_nothing_new(real_store: Store) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def send(_: Delivery) -> Report:
        begun.set()
        go_on.wait(60)
        return DELIVERED

    queue = RetryQueue(real_store)
    queue.lane("acme", sender=send)
    queue.start()
    for number in range(3):
        queue.enqueue("acme", b"x", message_id=f"m{number}")
    begun.wait(60)
    lets_go = threading.Thread(target=lambda: (until(lambda: queue._dispatcher._stopping), go_on.set()))
    lets_go.start()

    ended = queue.stop(grace=60)
    lets_go.join(60)
    real_store.settled()

    assert ended
    assert {S.DONE: 1, S.WAITING: 2} == real_store.books()


def test_a_sender_of_the_wrong_colour_is_refused(tmp_path: Path) -> None:
    async def send(_: Delivery) -> Report:
        return DELIVERED

    with RetryQueue(tmp_path / "q.db") as queue:
        queue.lane("acme", sender=send)
        with pytest.raises(TypeError, match="arun"):
            queue.start()


def test_a_slow_listener_does_not_hold_up_sending(tmp_path: Path) -> None:
    stuck = threading.Event()
    with RetryQueue(tmp_path / "q.db") as queue:
        queue.subscribe(lambda _: stuck.wait(60))
        partner = Partner([Report(Verdict.REFUSED, "a"), Report(Verdict.REFUSED, "b"), DELIVERED])
        queue.lane("acme", sender=partner, profile=FAST)
        queue.start()
        for number in range(20):
            queue.submit("acme", b"x", message_id=f"m{number}")

        until(lambda: queue.stats().completed == 18)
        stuck.set()


@pytest.mark.anyio
async def test_tasks_send_everything_once(tmp_path: Path) -> None:
    ids: list[str] = []

    async def send(delivery: Delivery) -> Report:
        await anyio.sleep(0.001)
        ids.append(delivery.message_id)
        return DELIVERED

    with RetryQueue(SqliteStore(tmp_path / "q.db")) as queue:
        queue.lane("acme", sender=send, profile=FAST)
        async with anyio.create_task_group() as group:
            group.start_soon(queue.arun)
            for number in range(40):
                await queue.aenqueue("acme", b"x", message_id=f"m{number}")
            await auntil(lambda: queue._tally.completed == 40)
            group.cancel_scope.cancel()
        books = queue.store.books()

    assert 40 == len(set(ids)) == len(ids)
    assert {S.DONE: 40} == books


@pytest.mark.anyio
async def test_cancelling_ends_sends_without_blame_and_remembers_the_doubt(tmp_path: Path) -> None:
    reading, before_reading = anyio.Event(), anyio.Event()

    async def send(delivery: Delivery) -> Report:
        if delivery.message_id == "begun":
            delivery.body()
            reading.set()
        else:
            before_reading.set()
        await anyio.sleep(30)
        return DELIVERED

    with RetryQueue(SqliteStore(tmp_path / "q.db")) as queue:
        gate = queue.lane("acme", sender=send, profile=FAST)
        queue.lane("globex", sender=send, profile=FAST)
        queue.enqueue("acme", b"x", message_id="begun")
        queue.enqueue("globex", b"x", message_id="not begun")
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: queue.arun(grace=0.05))
            await reading.wait()
            await before_reading.wait()
            group.cancel_scope.cancel()
        queue.store.settled()
        found = [queue.get("begun"), queue.get("not begun")]

    assert [S.UNKNOWN_DELIVERY, S.WAITING] == [message.state for message in found]
    assert [1, 0] == [message.attempts for message in found]
    assert (0, 0) == (gate.snapshot().failures, gate.snapshot().counters.permits.in_flight)


def test_a_lane_that_was_left_waits_and_goes_on_where_its_breaker_is_now(store: Store, clock: FakeClock) -> None:
    first, second = Partner(), Partner()
    gate = breaker(clock)
    queue = hub(store, clock)
    queue.lane("acme", sender=first, breaker=gate)
    gate.force_open()
    queue.enqueue("acme", b"1", message_id="m1")
    queue.leave_lane("acme")
    gate.reset()
    queue.tick()
    meanwhile = states(store)

    queue.lane("acme", sender=second, breaker=gate)
    queue.tick()

    assert {"m1": "waiting"} == meanwhile
    assert ([], ["m1"]) == (first.ids, second.ids)


def test_a_lane_can_go_on_with_another_sender_and_other_limits(store: Store, clock: FakeClock) -> None:
    first, second = Partner(), Partner()
    queue = hub(store, clock)
    queue.lane("acme", sender=first, breaker=breaker(clock))
    queue.enqueue("acme", b"1", message_id="m1")
    queue.tick()
    clock.advance(100.0)

    queue.change_lane("acme", sender=second, profile=LaneProfile(rate=1.0))
    for number in range(2, 5):
        queue.enqueue("acme", b"x", message_id=f"m{number}")
    queue.tick()

    assert (["m1"], ["m2"]) == (first.ids, second.ids)


def test_the_result_of_a_send_that_began_before_its_lane_left_still_counts(store: Store, clock: FakeClock) -> None:
    queue = hub(store, clock)

    def leaves(delivery: Delivery) -> Report:
        queue.leave_lane("acme")
        return DELIVERED

    queue.lane("acme", sender=leaves, breaker=breaker(clock))
    queue.enqueue("acme", b"1", message_id="m1")
    queue.tick()

    assert {"m1": "done"} == states(store)
