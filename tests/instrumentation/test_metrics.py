"""What is counted, under which names, and when a series is there."""

from __future__ import annotations

import gc
import os
import random
import re
import signal
import threading
import weakref
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest

from halfopen import (
    CircuitBreaker,
    CircuitOpenError,
    ConfigError,
    CountWindow,
    HalfOpen,
    Ramp,
    Registry,
    Retry,
    State,
    exponential,
)
from halfopen._core.backoff import Backoff
from halfopen._core.histogram import DURATION_BUCKETS
from halfopen._core.outcomes import FAILURE, SUCCESS
from halfopen._core.states import AUTOMATIC, Reason, allowed_moves
from halfopen.instrumentation import enumerations
from halfopen.instrumentation import metrics as metrics_module
from halfopen.instrumentation._breaker_look import look_at
from halfopen.instrumentation._durations import Durations
from halfopen.instrumentation._samples import Kind, Labels, Scrape
from halfopen.instrumentation.exposition import prometheus_text
from halfopen.instrumentation.metrics import Metrics, catalogue, metrics_of
from halfopen.instrumentation.prometheus import render
from halfopen.pipeline import Pipeline
from halfopen.retry_queue import Report, RetryQueue, Verdict
from halfopen.retry_queue._rows import AlertKind
from halfopen.testing import FakeClock, put_into
from tests.instrumentation.everything import Everything, FakeQueue

P = "halfopen_circuit_breaker_"


def numbers(scrape: Scrape, name: str) -> dict[Labels, float]:
    return {
        labels: values[0]
        for header, series in scrape.series().items()
        if header.name == name
        for labels, values in series
    }


def lines(registry: Registry, start: str) -> list[str]:
    return [line for line in render(registry).splitlines() if line.startswith(start)]


def work() -> None:
    pass


def fail() -> None:
    raise ConnectionError


def make() -> tuple[Registry, FakeClock]:
    clock = FakeClock()
    registry = Registry(clock=clock)
    metrics_of(registry)
    return registry, clock


def test_a_default_breaker_has_90_series_at_most_through_a_whole_outage() -> None:
    registry, clock = make()
    breaker = registry.circuit_breaker("one")
    seen = {}

    def look() -> None:
        seen[breaker.state] = max(len(lines(registry, P)), seen.get(breaker.state, 0))

    look()
    for _ in range(30):
        with suppress(ConnectionError, CircuitOpenError):
            breaker.call(fail)
    look()
    clock.advance(40)
    permit = breaker.acquire()
    look()
    permit.success()
    for _ in range(30):
        breaker.call(work)
    look()

    assert {State.CLOSED, State.OPEN, State.HALF_OPEN} == set(seen)
    assert max(seen.values()) <= 90


def test_the_table_of_series_adds_up() -> None:
    registry, _ = make()
    registry.circuit_breaker("one")

    there = lines(registry, P)

    assert 7 == len([line for line in there if line.startswith(P + "state{")])
    assert 12 == len([line for line in there if line.startswith(P + "transitions_total")])
    assert 3 == len([line for line in there if line.startswith(P + "rejections_total")])
    assert 36 == len([line for line in there if "_bucket{" in line])


def test_every_counter_is_there_with_0_before_the_first_event() -> None:
    registry, _ = make()
    registry.circuit_breaker("one", ramp=Ramp(), half_open=HalfOpen(max_duration=5), failure_count_threshold=3)
    registry.add(Retry("retry", on=ValueError))
    metrics_of(registry).add_queue(FakeQueue())

    scrape = metrics_of(registry).scrape()

    kept = {Kind.COUNTER, Kind.HISTOGRAM}
    counters = {header.name: series for header, series in scrape.series().items() if header.kind in kept}
    expected = {
        metric.name
        for kind in ("circuit_breaker", "retry", "queue")
        for metric in catalogue()[kind]
        if metric.header.kind in kept and "dry_run" not in metric.name  # from the order to observe on
    }
    started = {
        name
        for name, series in counters.items()
        for _, values in series
        if any(values) and "queue" not in name and "time_in_state" not in name
    }
    assert set() == expected - set(counters)
    assert set() == started


def test_no_series_appears_outside_the_table_of_moves() -> None:
    registry, clock = make()
    rng = random.Random(5)
    breaker = registry.circuit_breaker(
        "one",
        window=CountWindow(10),
        minimum_calls=3,
        consecutive_failures=4,
        ramp=Ramp(duration=3),
        half_open=HalfOpen(permitted_calls=2, trial_timeout=4, max_ignored=2, max_duration=9),
        wait_in_open=1.0,
    )
    before = set(numbers(metrics_of(registry).scrape(), P + "transitions_total"))
    orders = [breaker.trip, breaker.reset, breaker.try_now]

    for _ in range(3000):
        clock.advance(rng.random())
        with suppress(CircuitOpenError):
            permit = breaker.acquire()
            how = rng.choice([permit.success, permit.success, permit.failure, permit.ignore, None])
            if how is not None:
                how()
            else:
                hanging = permit  # noqa: F841  (kept until the next one: its lease ends)
        if rng.random() < 0.02:
            rng.choice(orders)()

    after = numbers(metrics_of(registry).scrape(), P + "transitions_total")
    automatic = {labels for labels in after if dict(labels)["reason"] != "manual"}
    moved = {labels for labels, count in after.items() if count}
    assert set() == automatic - before
    assert len(moved) >= 10, "the walk went nowhere"


def test_a_look_is_the_snapshots_numbers_through_a_whole_life() -> None:
    registry, clock = make()
    rng = random.Random(8)
    breaker = registry.circuit_breaker(
        "one",
        window=CountWindow(10),
        minimum_calls=3,
        slow_call_duration=0.5,
        ramp=Ramp(duration=3),
        half_open=HalfOpen(permitted_calls=2, trial_timeout=4, max_duration=9),
        wait_in_open=1.0,
    )
    states = set()

    for _ in range(1500):
        clock.advance(rng.random() * 0.4)
        with suppress(CircuitOpenError):
            permit = breaker.acquire()
            clock.advance(rng.random())
            how = rng.choice([permit.success, permit.success, permit.failure, permit.ignore, None])
            if how is not None:
                how()
        if rng.random() < 0.01:
            rng.choice([breaker.trip, breaker.reset, breaker.try_now, breaker.observe, breaker.disable])()
        snapshot, look = breaker.snapshot(), look_at(breaker)
        states.add(snapshot.state)
        kept = snapshot.counters
        assert (snapshot.state, pytest.approx(snapshot.since, abs=0.001)) == (look.state, look.since)
        assert pytest.approx(snapshot.next_trial_at, abs=0.001) == look.next_trial_at
        assert (snapshot.failure_rate, snapshot.slow_call_rate) == (look.share(1), look.share(2))
        assert (snapshot.calls, snapshot.failures, snapshot.slow, snapshot.slow_failures) == look.held
        assert sum(slot.status != "free" for slot in snapshot.trials) == look.started
        assert {key: count for key, count in look.moves.items() if count} == kept.transitions
        assert {key[0]: count for key, count in look.rejections.items() if count} == kept.rejected
        assert tuple(kept.time_in_state.get(state, 0) for state in State) == look.seconds
        successes, failures, ignored = (one[-1] for one in look.durations)
        assert (kept.successes, kept.failures) == (successes, failures)
        assert 0 <= kept.ignored - ignored <= kept.abandoned  # a trial call that was thrown away has no duration
        assert (kept.late_results, kept.abandoned, kept.estimated_false_rejections, snapshot.step) == (
            look.late_results, look.abandoned, look.estimate, look.step,
        )  # fmt: skip

    assert len(states) >= 6


def test_refusals_that_need_a_setting_are_there_where_it_is_set() -> None:
    registry, _ = make()
    registry.circuit_breaker("plain")
    registry.circuit_breaker("both", ramp=Ramp(), half_open=HalfOpen(eligible=lambda *args, **kwargs: True))

    reasons: dict[str, set[str]] = {}
    for labels in numbers(metrics_of(registry).scrape(), P + "rejections_total"):
        reasons.setdefault(dict(labels)["name"], set()).add(dict(labels)["reason"])

    always = {"open", "trial_budget", "forced_open"}
    assert {"plain": always, "both": always | {"not_eligible", "recovering"}} == reasons


def test_the_buckets_are_those_of_the_page() -> None:
    bounds = {metric.name: metric.header.bounds for rows in catalogue().values() for metric in rows}
    durations = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

    assert durations == bounds[P + "call_duration_seconds"] == bounds["halfopen_retry_delay_seconds"]
    assert (1, 2, 3, 4, 5, 10) == bounds["halfopen_retry_attempts_per_call"]
    assert (1, 5, 15, 60, 300, 900, 3600, 14400, 86400) == bounds["halfopen_queue_completion_age_seconds"]


def test_no_lock_of_a_breaker_is_needed_to_format_what_was_seen() -> None:
    registry, _ = make()
    breaker = registry.circuit_breaker("one")
    scrape = metrics_of(registry).scrape()
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with breaker._lock:
            taken.set()
            done.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait(60)
    text = prometheus_text(scrape)
    ended_before = done.is_set()
    done.set()
    holder.join()

    assert P + "state{" in text
    assert not ended_before


def test_unknown_is_an_absent_series() -> None:
    registry, clock = make()
    breaker = registry.circuit_breaker("one", slow_call_rate_threshold=None)

    fresh = render(registry)
    for _ in range(20):
        breaker.call(work)
    known = render(registry)
    breaker.trip(wait=30)
    opened = numbers(metrics_of(registry).scrape(), P + "next_trial_timestamp_seconds")

    assert P + "failure_ratio{" not in fresh
    assert P + "slow_call_ratio_threshold{" not in fresh
    assert P + "next_trial" not in fresh
    assert P + 'failure_ratio{name="one"} 0.0' in known
    assert [clock.wall() + 30] == list(opened.values())


def test_a_stepped_wall_clock_corrects_itself() -> None:
    registry, clock = make()
    registry.circuit_breaker("one")
    clock.advance(100)

    clock.step_wall(3600)

    entered = numbers(metrics_of(registry).scrape(), P + "state_entered_timestamp_seconds")
    assert [clock.wall() - 100] == list(entered.values())


def test_a_time_that_stands_still_is_the_same_number_in_every_scrape() -> None:
    registry = Registry()
    metrics_of(registry)
    registry.circuit_breaker("one").trip(wait=3600)

    times = {tuple(lines(registry, P + "state_entered") + lines(registry, P + "next_trial")) for _ in range(50)}

    assert len(times) <= 4  # and not 50: to round leaves at most an edge between two milliseconds


def observed(clock: FakeClock, registry: Registry, **settings: Any) -> CircuitBreaker:
    breaker = registry.circuit_breaker("one", **{"consecutive_failures": 3, "wait_in_open": 10.0, **settings})
    breaker.observe()
    return breaker


def dry_run(registry: Registry) -> tuple[dict[str, float], float]:
    scrape = metrics_of(registry).scrape()
    openings = {
        dict(labels)["reason"]: count for labels, count in numbers(scrape, P + "dry_run_openings_total").items()
    }
    return openings, sum(numbers(scrape, P + "dry_run_rejections_total").values())


def test_an_observed_breaker_counts_what_it_would_have_refused() -> None:
    registry, clock = make()
    breaker = observed(clock, registry)
    before = dry_run(registry)

    for _ in range(3):
        with suppress(ConnectionError):
            breaker.call(fail)
    tripped = dry_run(registry)
    for _ in range(5):
        clock.advance(1)
        breaker.call(work)
    running = dry_run(registry)
    clock.advance(6)
    breaker.call(work)
    over = dry_run(registry)
    breaker.reset()
    breaker.call(work)

    nothing = {"failure_rate": 0, "slow_call_rate": 0, "consecutive": 0}
    assert (nothing, 0) == before
    assert ({**nothing, "consecutive": 1}, 0) == tripped
    assert ({**nothing, "consecutive": 1}, 5) == running == over == dry_run(registry)


def test_a_breaker_that_nobody_observes_has_no_dry_run() -> None:
    registry, _ = make()
    registry.circuit_breaker("one").force_open()

    assert [] == lines(registry, P + "dry_run")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("wait", [10.0, exponential(4, 2, 60, jitter=0)])
def test_a_dry_run_of_an_outage_refuses_as_many_calls_as_the_real_thing(seed: int, wait: float | Backoff) -> None:
    registry, clock = make()
    dry = observed(clock, registry, wait_in_open=wait)
    real = CircuitBreaker("real", consecutive_failures=3, wait_in_open=wait, clock=clock)
    rng = random.Random(seed)
    outage = rng.uniform(20, 200)

    while clock.monotonic() < 1000:
        clock.advance(rng.expovariate(5))
        for breaker in (dry, real):
            with suppress(ConnectionError, CircuitOpenError):
                breaker.call(fail if 100 < clock.monotonic() < 100 + outage else work)

    openings, refused = dry_run(registry)
    kept = real.snapshot().counters
    wanted = {why: count for (old, new, why), count in kept.transitions.items() if (old, new) == ("closed", "open")}
    assert wanted == {why: count for why, count in openings.items() if count}
    assert kept.rejected["open"] == refused


def test_the_histogram_counts_every_call_let_through() -> None:
    registry, clock = make()
    breaker = registry.circuit_breaker("one", slow_call_duration=2)
    rng = random.Random(1)
    durations = [rng.lognormvariate(-3, 2) for _ in range(500)] + list(DURATION_BUCKETS)

    for seconds in durations:
        breaker.call(lambda: clock.advance(seconds))  # noqa: B023  (called at once)

    expected = [0] * (len(DURATION_BUCKETS) + 1)
    for seconds in durations:
        expected[bisect_left(DURATION_BUCKETS, seconds)] += 1
    # Adding and subtracting clock readings may move a duration that is exactly a bound by a hair.
    shown = [
        int(line.split()[-1])
        for line in lines(registry, P + 'call_duration_seconds_bucket{name="one",outcome="success"')
    ]
    assert len(durations) == shown[-1]
    wanted = [sum(expected[: place + 1]) for place in range(len(expected))]
    assert all(abs(a - b) <= 1 for a, b in zip(wanted, shown, strict=True))
    assert lines(registry, P + 'slow_calls_total{name="one",outcome="success"}') == [
        P + 'slow_calls_total{name="one",outcome="success"} ' + str(sum(seconds > 2 for seconds in durations))
    ]


@pytest.mark.parametrize("size", [1, 2, 255, 256, 257, 1000])
def test_batches_of_durations_are_counted_as_one_by_one(size: int) -> None:
    rng = random.Random(size)
    batch = [rng.choice([rng.lognormvariate(-3, 2), *DURATION_BUCKETS, 0.0]) for _ in range(size)]
    at_once, singly = Durations(), Durations()

    at_once.add(SUCCESS, batch)
    at_once.add(FAILURE, [0.001] * size)
    for seconds in batch:
        singly.add(SUCCESS, [seconds])
        singly.add(FAILURE, [0.001])

    for one_by_one, together in zip(singly.take(), at_once.take(), strict=True):
        assert pytest.approx(one_by_one) == together


@pytest.mark.parametrize("bad", [-5.0, float("nan"), float("inf"), float("-inf")])
def test_a_clock_that_is_none_neither_lets_a_sum_fall_nor_ruins_it(bad: float) -> None:
    durations = Durations()
    durations.add(SUCCESS, [2.0])
    before = durations.take()[0]

    durations.add(SUCCESS, [bad])
    durations.add(SUCCESS, [bad, bad, bad])

    after = durations.take()[0]
    assert (2.0, 2.0) == (before[-2], after[-2])
    assert 5 == after[-1]
    assert all(now >= then for now, then in zip(after, before, strict=True))
    assert sorted(after[:-2]) == after[:-2]


def test_labels_take_only_values_of_the_closed_lists() -> None:
    everything = Everything()
    for _ in range(20):
        everything.step()
    allowed = {metric.name: metric for metrics in catalogue().values() for metric in metrics}

    outside = [
        (header.name, label, value)
        for header, series in everything.metrics.scrape().series().items()
        if header.name in allowed
        for labels, _ in series
        for label, value in labels
        if label not in ("name", "queue", "store", "version")
        and value not in dict(zip(allowed[header.name].labels, allowed[header.name].values, strict=True))[label]
    ]

    assert [] == outside


def test_the_closed_lists_are_those_of_the_code() -> None:
    everything = Everything()
    snapshots = {policy.name: policy.snapshot() for policy in everything.registry if hasattr(policy, "snapshot")}

    assert set(enumerations.QUEUE_ALERTS) == set(get_args(AlertKind))
    assert set(enumerations.BULKHEAD_REASONS) == set(snapshots["bulkhead"].rejections)
    assert set(enumerations.HEDGE_OUTCOMES) == set(snapshots["hedge"].outcomes)
    assert set(enumerations.HEDGE_SKIPS) == set(snapshots["hedge"].skipped)
    assert set(enumerations.CACHE_OUTCOMES) == {"success", *snapshots["cache"].failures}
    assert {reason.value for _, reason, _ in allowed_moves()} <= set(enumerations.REASONS)
    assert {reason for _, reason in AUTOMATIC} <= set(Reason)


@pytest.mark.parametrize("many", [201, 250])
def test_name_201_goes_to_other_and_is_counted(many: int) -> None:
    registry, _ = make()
    hosts = registry.keyed("host:*")

    for number in range(many):
        hosts[f"h{number}"].call(work)

    scrape = metrics_of(registry).scrape()
    names = {dict(labels)["name"] for labels in numbers(scrape, P + "state")}
    assert 201 == len(names)
    assert "__other__" in names
    assert [many - 200] == list(numbers(scrape, "halfopen_metric_names_dropped_total").values())
    assert [f'{P}call_duration_seconds_count{{name="__other__",outcome="success"}} {many - 200}'] == lines(
        registry, P + 'call_duration_seconds_count{name="__other__",outcome="success"'
    )


def test_other_says_whether_any_of_them_is_open() -> None:
    registry = Registry()
    metrics = metrics_of(registry, max_names=1)
    for name in ("first", "second", "third"):
        registry.circuit_breaker(name)

    registry.circuit_breaker("third").trip()

    states = {
        dict(labels)["state"]: value
        for labels, value in numbers(metrics.scrape(), P + "state").items()
        if dict(labels)["name"] == "__other__"
    }
    assert (1, 1, 0) == (states["open"], states["closed"], states["half_open"])


def test_a_counter_of_other_never_falls_when_breakers_come_and_go() -> None:
    registry = Registry()
    metrics = metrics_of(registry, max_names=2)
    hosts = registry.keyed("host:*", max_keys=5)
    rng = random.Random(3)
    held = []
    made = last = 0

    for number in range(300):
        breaker = hosts[rng.randrange(40)]
        breaker.call(work)
        made += 1
        if rng.random() < 0.1:
            held.append(breaker)
        if number % 7 == 0:
            counted = numbers_of_calls(metrics, "__other__")
            assert counted >= last
            last = counted

    total = numbers_of_calls(metrics, "__other__")
    assert total >= last
    assert total <= made


def numbers_of_calls(metrics: Metrics, name: str) -> float:
    for header, series in metrics.scrape().series().items():
        if header.name == P + "call_duration_seconds":
            return sum(values[-1] for labels, values in series if ("name", name) in labels)
    return 0


def test_a_breaker_that_is_thrown_away_is_not_kept_by_its_metrics() -> None:
    registry, _ = make()
    gone = weakref.ref(registry.circuit_breaker("one"))
    metrics_of(registry).scrape()

    registry.remove("circuit_breaker", "one")

    assert gone() is None
    assert [] == lines(registry, P)


def test_a_registry_is_not_kept_by_its_metrics() -> None:
    registry, _ = make()
    registry.circuit_breaker("one")
    render(registry)
    gone = weakref.ref(registry)

    del registry
    gc.collect()

    assert gone() is None


def test_the_policies_of_a_pipeline_are_seen_once() -> None:
    registry, clock = make()
    shared = registry.circuit_breaker("shared")
    inner = CircuitBreaker("inner", clock=clock)
    pipeline = registry.add(Pipeline(Retry("retry", on=ValueError), shared, inner, name="both"))

    pipeline.call(work)

    for name in ("shared", "inner"):
        assert [P + f'call_duration_seconds_count{{name="{name}",outcome="success"}} 1'] == lines(
            registry, P + f'call_duration_seconds_count{{name="{name}",outcome="success"}}'
        )
    assert 1 == len(lines(registry, 'halfopen_retry_calls_total{name="retry",outcome="success_first"} 1'))


def test_scrapes_at_the_same_time_do_not_add_each_other_up() -> None:
    registry = Registry()
    metrics = metrics_of(registry, max_names=1)
    for number in range(20):
        registry.circuit_breaker(f"b{number}").call(work)
    seen: list[float] = []

    def scrape() -> None:
        for _ in range(20):
            seen.append(numbers_of_calls(metrics, "__other__"))

    threads = [threading.Thread(target=scrape) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {19} == set(seen)


def test_a_real_queue_is_exposed(tmp_path: Path) -> None:
    registry, _ = make()
    with RetryQueue(tmp_path / "queue.db", name="hooks") as queue:
        queue.lane("partner", sender=lambda delivery: Report(Verdict.DELIVERED))
        queue.enqueue("partner", b"one")
        metrics_of(registry).add_queue(queue)
        waiting = render(registry)
        queue.hold("partner", note="test")
        held = render(registry)
        queue.release("partner")
        while queue.tick():
            pass
        done = render(registry)

    assert 'halfopen_queue_messages{queue="hooks",state="ready"} 1' in waiting
    assert 'halfopen_queue_dead_letters_total{queue="hooks"} 0' in waiting
    assert "halfopen_queue_oldest_message_timestamp_seconds{" in waiting
    assert 'halfopen_queue_lanes_held{queue="hooks"} 1' in held
    assert 'halfopen_queue_alerts_total{queue="hooks",kind="expiring"} 0' in waiting
    assert 'halfopen_queue_completed_total{queue="hooks"} 1' in done
    assert 'halfopen_queue_completion_age_seconds_count{queue="hooks"} 1' in done
    assert "halfopen_queue_oldest_message_timestamp_seconds{" not in done
    assert re.search(r'halfopen_store_up\{store="[^"]+"\} 1', done)


def test_settings_are_given_once() -> None:
    registry = Registry()
    metrics_of(registry, max_names=3)

    with pytest.raises(ValueError, match="already"):
        metrics_of(registry, max_names=4)
    with pytest.raises(ConfigError, match="max_names"):
        Metrics(Registry(), max_names=0)


def test_queues_that_share_a_store_or_a_name_make_no_series_twice(caplog: pytest.LogCaptureFixture) -> None:
    registry, _ = make()
    for name in ("one", "two", "two"):
        metrics_of(registry).add_queue(FakeQueue(name))

    text = render(registry)

    series = [line.rsplit(" ", 1)[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))
    assert 'halfopen_store_up{store="sqlite"} 1' in text
    assert "two of the queue 'two'" in caplog.text


def test_no_series_of_everything_is_there_twice() -> None:
    everything = Everything()
    everything.step()

    series = [line.rsplit(" ", 1)[0] for line in render(everything.metrics).splitlines() if not line.startswith("#")]

    assert len(series) == len(set(series))


def test_policies_of_one_name_make_no_series_twice() -> None:
    registry, clock = make()
    registry.circuit_breaker("host:a")
    registry.keyed("host:*")["a"].call(work)
    registry.add(Pipeline(CircuitBreaker("host:a", clock=clock), name="outer"))

    series = [line.rsplit(" ", 1)[0] for line in lines(registry, P)]

    assert len(series) == len(set(series))


def test_a_queue_that_raises_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def stats(self) -> FakeQueue:
            raise OSError("disk gone")

    registry, _ = make()
    metrics_of(registry).add_queue(Broken())  # type: ignore[arg-type]

    text = render(registry)

    assert "halfopen_queue" not in text
    assert "halfopen_build_info" in text
    assert "gave no numbers" in caplog.text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_durations_are_counted_in_a_forked_child() -> None:
    registry, _ = make()
    breaker = registry.circuit_breaker("one")
    breaker.call(work)

    child = os.fork()
    if child == 0:
        breaker.call(work)
        breaker.call(work)
        shown = lines(registry, P + 'call_duration_seconds_count{name="one",outcome="success"')
        os._exit(0 if shown and shown[0].endswith(" 2") else 1)
    _, status = os.waitpid(child, 0)

    assert 0 == status


def test_scrapes_go_on_while_policies_come_and_go_and_settings_change() -> None:
    registry, _ = make()
    hosts = registry.keyed("host:*", max_keys=20)
    stop = threading.Event()
    failed: list[BaseException] = []

    def churn(seed: int) -> None:
        rng = random.Random(seed)
        try:
            while not stop.is_set():
                name = f"b{rng.randrange(6)}"
                registry.circuit_breaker(name, failure_rate_threshold=0.5) if rng.random() < 0.5 else None
                with suppress(Exception):
                    registry.remove("circuit_breaker", name)
                with suppress(CircuitOpenError):
                    hosts[rng.randrange(60)].call(work)
                for breaker in registry.breakers()[:3]:
                    rng.choice([breaker.trip, breaker.reset, breaker.observe, breaker.try_now])()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=churn, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    texts = [render(registry) for _ in range(60)]
    stop.set()
    for thread in threads:
        thread.join()

    assert [] == failed
    for text in texts:
        series = [line.rsplit(" ", 1)[0] for line in text.splitlines() if not line.startswith("#")]
        assert len(series) == len(set(series))
        sums: dict[str, float] = {}
        for name, value in re.findall(rf'^{P}state{{name="([^"]*)".*}} (\S+)$', text, re.MULTILINE):
            sums[name] = sums.get(name, 0) + float(value)
        assert all(total == 1 for name, total in sums.items() if name != "__other__")


def test_two_registries_of_one_process_know_nothing_of_each_other() -> None:
    (one, _), (other, _) = make(), make()
    one.circuit_breaker("same").trip()
    other.circuit_breaker("same").call(work)

    assert [P + 'state{name="same",state="open"} 1'] == lines(one, P + 'state{name="same",state="open"}')
    assert [P + 'state{name="same",state="open"} 0'] == lines(other, P + 'state{name="same",state="open"}')


def test_a_breaker_that_was_removed_and_made_again_begins_anew_in_its_place() -> None:
    registry, _ = make()
    count = P + 'call_duration_seconds_count{name="one",outcome="success"}'
    shown = []

    for _ in range(3):
        registry.circuit_breaker("one").call(work)
        shown += lines(registry, count)
        registry.remove("circuit_breaker", "one")
        shown += lines(registry, count)

    assert [count + " 1"] * 3 == shown


def in_a_child(question: Callable[[], bool]) -> int:
    """Return the status of a forked child: 0 if the answer is yes; it ends within a minute."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # or the handler of the test run would take it
            signal.alarm(60)
            status = 0 if question() else 1
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_forked_in_the_midst_of_scrapes_can_scrape() -> None:
    registry = Registry()
    metrics_of(registry, max_names=5)
    for number in range(30):
        registry.circuit_breaker(f"b{number}").call(work)
    stop = threading.Event()

    def scrape() -> None:
        while not stop.is_set():
            render(registry)

    threads = [threading.Thread(target=scrape) for _ in range(3)]
    for thread in threads:
        thread.start()
    statuses = []
    for _ in range(15):
        statuses.append(in_a_child(lambda: "__other__" in render(registry)))
    stop.set()
    for thread in threads:
        thread.join()

    assert [0] * 15 == statuses


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_can_scrape_although_another_thread_was_about_to_ask_for_metrics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry, _ = make()
    registry.circuit_breaker("one")
    held = threading.Lock()
    held.acquire()  # by a thread that the child does not have
    monkeypatch.setattr(metrics_module._MAKING, "lock", held)

    status = in_a_child(lambda: P + "state" in render(registry) and metrics_of(Registry()) is not None)

    assert 0 == status


def compatible(registry: Registry) -> dict[str, str]:
    found = (re.fullmatch(r"(resilience4j_\S+) (\S+)", line) for line in lines(registry, "resilience4j"))
    return {one[1]: one[2] for one in found if one}


def resilient() -> tuple[Registry, FakeClock]:
    clock = FakeClock()
    registry = Registry(clock=clock)
    metrics_of(registry, resilience4j=True, resilience4j_labels={"group": "none"})
    return registry, clock


def test_the_compatible_set_is_off_by_default() -> None:
    registry, _ = make()
    registry.circuit_breaker("one")

    assert {} == compatible(registry)


def test_the_compatible_rates_are_percent_and_minus_1_below_the_minimum() -> None:
    registry, _ = resilient()
    breaker = registry.circuit_breaker("one", failure_rate_threshold=0.9)
    rate = 'resilience4j_circuitbreaker_failure_rate{group="none",name="one"}'

    below = compatible(registry)[rate]
    for number in range(20):
        with suppress(ConnectionError):
            breaker.call(fail if number % 4 == 0 else work)

    assert "-1" == below
    assert "25.0" == compatible(registry)[rate]


@pytest.mark.parametrize("state", list(State))
def test_the_compatible_states_sum_to_1(state: State) -> None:
    registry, _ = resilient()
    breaker = registry.circuit_breaker("one", ramp=Ramp(), wait_in_open=1.0)

    put_into(breaker, state)

    states = {key: value for key, value in compatible(registry).items() if "_state{" in key}
    assert 6 == len(states)
    assert 1 == sum(map(int, states.values()))
    shown = "half_open" if state is State.RECOVERING else state.value
    assert "1" == states[f'resilience4j_circuitbreaker_state{{group="none",name="one",state="{shown}"}}']


@pytest.mark.parametrize(("buckets", "series"), [(False, 23), (True, 59)])
def test_the_compatible_set_has_as_many_series_as_promised(buckets: bool, series: int) -> None:
    registry = Registry()
    metrics_of(registry, resilience4j=True, resilience4j_buckets=buckets)
    registry.circuit_breaker("one")

    assert series == len(compatible(registry))


def test_the_longest_recent_call_is_forgotten_after_a_while() -> None:
    registry, clock = resilient()
    breaker = registry.circuit_breaker("one")
    peak = 'resilience4j_circuitbreaker_calls_seconds_max{group="none",name="one",kind="successful"}'
    compatible(registry)

    breaker.call(lambda: clock.advance(3.0))
    seen = []
    for _ in range(4):
        seen.append(float(compatible(registry)[peak]))
        clock.advance(61)

    assert [3.0, 3.0, 0.0, 0.0] == seen
