"""The lane does what the breaker says: sleeps, makes trial calls, drains."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from halfopen import HalfOpen, Ramp, RateLimitedError, State
from halfopen.retry_queue import (
    Delivery,
    LaneProfile,
    MessageSchedule,
    MessageState,
    QueueAlert,
    Report,
    RetryQueue,
    SqliteStore,
    Store,
    Verdict,
)
from halfopen.testing import FakeClock
from tests.retry_queue.support import DELIVERED, LOST, PROFILE, UNAVAILABLE, Partner, breaker, hub

S = MessageState


def fill(queue: RetryQueue, number: int = 20, lane: str = "acme") -> None:
    tickets = [queue.submit(lane, b"body %d" % seq, message_id=f"<{lane}{seq}>") for seq in range(number)]
    for ticket in tickets:
        ticket.result()


def trip(queue: RetryQueue, partner: Partner) -> None:
    partner.script = [UNAVAILABLE]
    queue.tick()
    assert State.OPEN is queue.breaker("acme").state


def test_messages_go_out_and_are_done(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner()
    queue.lane("acme", sender=partner, breaker=breaker(clock))
    fill(queue, 5)

    attempts = queue.tick()

    assert (5, {S.DONE: 5}) == (attempts, store.books())
    assert [(f"<acme{n}>", b"body %d" % n, False) for n in range(5)] == partner.seen


def test_an_outage_with_waiting_messages_costs_no_attempt_and_no_write(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner()
    queue.lane("acme", sender=partner, breaker=breaker(clock))
    fill(queue)
    trip(queue, partner)
    before = {m.id: m for m in queue.list()}

    for _ in range(29):
        clock.advance(1.0)
        queue.tick(upkeep=False)

    assert 3 == len(partner.seen)
    assert before == {m.id: m for m in queue.list()}


def test_half_open_takes_exactly_the_trial_budget_from_the_lane(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner()
    queue.lane("acme", sender=partner, breaker=breaker(clock, half_open=HalfOpen(permitted_calls=3)))
    fill(queue)
    trip(queue, partner)
    clock.advance(31)

    attempts = queue.tick()

    assert (3, State.OPEN) == (attempts, queue.breaker("acme").state)
    assert ["<acme0>", "<acme1>", "<acme2>"] == partner.trials


def test_a_good_round_closes_and_the_backlog_drains_under_the_same_ids(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner()
    queue.lane("acme", sender=partner, breaker=breaker(clock), profile=PROFILE)
    fill(queue)
    trip(queue, partner)
    partner.script = [DELIVERED]
    clock.advance(31)

    queue.tick()

    assert State.CLOSED is queue.breaker("acme").state
    assert {S.DONE: 20} == store.books()
    assert {f"<acme{n}>" for n in range(20)} == set(partner.ids)
    assert 1 == max(partner.ids.count(f"<acme{n}>") for n in range(3, 20))


def test_the_drain_grows_from_one_in_flight_to_the_partners_limit(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner()
    queue.lane("acme", sender=partner, breaker=breaker(clock), profile=PROFILE)
    fill(queue)
    trip(queue, partner)
    partner.script = [DELIVERED]
    clock.advance(31)
    widths = []
    lane = queue._dispatcher.lanes["acme"]
    while (step := lane.step(100)).attempts or step.reason == "seats":
        widths.append(len(step.attempts))
        for attempt in step.attempts:
            attempt.run()
        store.settled()

    assert [3, 1, 2, 4, 4, 4, 2] == widths


def test_the_drain_stops_the_moment_the_circuit_opens_again(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner()
    queue.lane("acme", sender=partner, breaker=breaker(clock), profile=PROFILE)
    fill(queue)
    trip(queue, partner)
    partner.script = [DELIVERED] * 5 + [UNAVAILABLE]
    clock.advance(31)

    queue.tick()

    look = store.look("acme")
    assert State.OPEN is queue.breaker("acme").state
    assert len(partner.seen) <= 3 + 5 + 3 + PROFILE.limit
    assert look is not None and 1 == look.send_window


def test_a_lane_without_messages_asks_for_no_permit(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner()
    gate = queue.lane("acme", sender=partner, breaker=breaker(clock))
    fill(queue, 3)
    trip(queue, partner)
    for number in range(3):
        queue.cancel(f"<acme{number}>")
    clock.advance(300)

    queue.tick()

    assert (State.OPEN, 0) == (gate.state, gate.snapshot().counters.permits.in_flight)


def test_too_few_messages_leave_it_half_open_for_arrivals(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner()
    gate = queue.lane("acme", sender=partner, breaker=breaker(clock))
    fill(queue, 3)
    trip(queue, partner)
    queue.cancel("<acme1>")
    queue.cancel("<acme2>")
    partner.script = [DELIVERED]
    clock.advance(31)
    queue.tick()
    half_open = gate.state

    fill(queue, 5, lane="acme")
    queue.enqueue("acme", b"late", message_id="<late1>")
    queue.enqueue("acme", b"late", message_id="<late2>")
    queue.tick()

    assert (State.HALF_OPEN, State.CLOSED) == (half_open, gate.state)


@pytest.mark.parametrize(("choice", "state"), [("close", State.CLOSED), ("reopen", State.OPEN)])
def test_an_empty_lane_with_a_good_trial_call_closes_or_reopens(
    store: Store, clock: FakeClock, choice: str, state: State
) -> None:
    profile = LaneProfile(after_inconclusive=choice)  # type: ignore[arg-type]  # by parameter
    queue, partner = hub(store, clock), Partner()
    gate = queue.lane(
        "acme", sender=partner, breaker=breaker(clock, half_open=HalfOpen(max_duration=60.0)), profile=profile
    )
    fill(queue, 3)
    trip(queue, partner)
    queue.cancel("<acme1>")
    queue.cancel("<acme2>")
    partner.script = [DELIVERED]
    clock.advance(31)
    queue.tick()
    clock.advance(61)

    queue.tick()

    assert state is gate.state


def test_a_lone_message_outlives_an_outage_its_deadline_survives(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner()
    profile = LaneProfile(schedule=MessageSchedule(attempt_limit=4))
    queue.lane("acme", sender=partner, breaker=breaker(clock, consecutive_failures=1), profile=profile)
    fill(queue, 1)
    partner.script = [UNAVAILABLE]
    for _ in range(20):
        queue.tick()
        clock.advance(40)
    partner.script = [DELIVERED]

    for _ in range(3):
        queue.tick()
        clock.advance(40)

    assert {S.DONE: 1} == store.books()


def test_forced_open_sends_nothing_but_deadlines_go_on_running(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner()
    gate = queue.lane("acme", sender=partner, breaker=breaker(clock))
    queue.enqueue("acme", b"soon", message_id="<soon>", deadline=100.0)
    queue.enqueue("acme", b"later", message_id="<later>")
    gate.force_open(until=200.0)
    queue.tick()
    clock.advance(101)
    queue.tick()
    while_forced = (list(partner.ids), store.books())
    clock.advance(100)

    queue.tick()

    assert ([], {S.DEAD: 1, S.WAITING: 1}) == while_forced
    assert ["<later>"] == partner.ids


def test_disabled_and_metrics_only_send_as_closed(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner()
    queue.lane("acme", sender=partner, breaker=breaker(clock)).disable()
    queue.lane("globex", sender=partner, breaker=breaker(clock, "globex")).observe()
    fill(queue, 3)
    fill(queue, 3, lane="globex")

    assert 6 == queue.tick()


def test_recovering_sends_one_at_a_time_from_the_head(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner()
    gate = queue.lane("acme", sender=partner, breaker=breaker(clock, ramp=Ramp(duration=60.0, start=0.5)))
    fill(queue)
    trip(queue, partner)
    partner.script = [DELIVERED]
    clock.advance(31)
    lane = queue._dispatcher.lanes["acme"]
    for attempt in lane.step(100).attempts:
        attempt.run()
    store.settled()
    assert State.RECOVERING is gate.state

    widths = []
    for _ in range(12):
        step = lane.step(100)
        widths.append(len(step.attempts))
        for attempt in step.attempts:
            attempt.run()
        store.settled()

    assert (1, True) == (max(widths), sum(widths) >= 5)


def test_retry_after_moves_the_next_trial_call(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner()
    partner.script = [Report(Verdict.NOT_DELIVERED, "HTTP 503", retry_after=25.0)]
    gate = queue.lane("acme", sender=partner, breaker=breaker(clock, wait_in_open=10.0))
    fill(queue)

    queue.tick()

    assert 10.0 <= (gate.snapshot().remaining_wait or 0.0) <= 25.0


def test_an_open_lane_is_still_open_after_a_restart(open_store: Callable[..., Store], clock: FakeClock) -> None:
    queue, partner = hub(open_store(), clock), Partner()
    queue.lane("acme", sender=partner, breaker=breaker(clock))
    fill(queue)
    trip(queue, partner)
    queue.close()
    clock.advance(10)

    again = hub(open_store(), clock)
    gate = again.lane("acme", sender=partner, breaker=breaker(clock))
    again.tick()

    assert (State.OPEN, 20.0) == (gate.state, round(gate.snapshot().remaining_wait or 0))
    assert 3 == len(partner.seen)


def test_processes_that_share_a_store_follow_one_verdict(open_store: Callable[..., Store], clock: FakeClock) -> None:
    partner = Partner()
    here, there = hub(open_store(), clock), hub(open_store(), clock)
    for queue in (here, there):
        queue.lane("acme", sender=partner, breaker=breaker(clock), profile=PROFILE)
    fill(here)
    trip(here, partner)
    here.store.settled()

    there.tick()
    followed = (there.breaker("acme").state, len(partner.seen))
    partner.script = [DELIVERED]
    clock.advance(31)
    here.tick()
    here.store.settled()
    there.tick()

    assert (State.OPEN, 3) == followed
    assert (State.CLOSED, State.CLOSED) == (here.breaker("acme").state, there.breaker("acme").state)


def test_lanes_that_recover_together_are_spread(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner([UNAVAILABLE])
    for number in range(10):
        name = f"p{number}"
        queue.lane(name, sender=partner, breaker=breaker(clock, name))
        fill(queue, 10, lane=name)
    queue.tick()
    partner.script = [DELIVERED]
    clock.advance(31)
    queue.tick()
    drained_at_once = store.books()[S.DONE] - 3 * 10
    clock.advance(2.5)
    queue.tick()
    half_way = store.books()[S.DONE]
    clock.advance(3)
    queue.tick()

    assert 7 == drained_at_once
    assert 40 < half_way < 100
    assert {S.DONE: 100} == store.books()


def test_five_refusals_of_one_kind_hold_the_lane(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner([Report(Verdict.REFUSED, "HTTP 401")])
    gate = queue.lane("acme", sender=partner, breaker=breaker(clock))
    alerts: list[QueueAlert] = []
    queue.subscribe(alerts.append)
    fill(queue)

    queue.tick()
    store.settled()
    held = queue.tick()
    queue.flush_alerts()

    assert (0, State.CLOSED, {S.ERROR: 5, S.WAITING: 15}) == (held, gate.state, store.books())
    assert ["error", "lane_held"] == sorted(alert.kind for alert in alerts)


def test_a_released_lane_goes_on(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner()
    queue.lane("acme", sender=partner, breaker=breaker(clock))
    queue.hold("acme", note="audit", by="ann")
    fill(queue)
    held = queue.tick()

    queue.release("acme", by="ann")

    assert (0, 20) == (held, queue.tick())


def test_an_expired_certificate_holds_the_lane_and_costs_no_message_anything(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner([Report(Verdict.LANE_MISCONFIGURED, "certificate expired")])
    gate = queue.lane("acme", sender=partner, breaker=breaker(clock))
    fill(queue, 3)

    queue.tick()
    store.settled()

    look = store.look("acme")
    assert look is not None and look.held
    assert (State.CLOSED, {S.WAITING: 3}, 0) == (gate.state, store.books(), queue.get("<acme0>").attempts)


def test_a_lost_answer_is_resent_under_the_same_id_with_the_same_bytes(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner([LOST, DELIVERED])
    queue.lane("acme", sender=partner, breaker=breaker(clock))
    fill(queue, 1)
    queue.tick()
    between = queue.get("<acme0>").state
    clock.advance(400)

    queue.tick()

    assert (S.UNKNOWN_DELIVERY, S.DONE) == (between, queue.get("<acme0>").state)
    assert [("<acme0>", b"body 0", False)] * 2 == partner.seen


def test_an_async_receipt_settles_the_message_and_not_the_breaker(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner([Report(Verdict.ACCEPTED)])
    gate = queue.lane("acme", sender=partner, breaker=breaker(clock))
    fill(queue, 1)
    queue.tick()
    successes = gate.snapshot().counters.successes

    settled = queue.receipt("<acme0>", Report(Verdict.DELIVERED, receipt=b"mdn"))

    assert (S.DONE, b"mdn") == (settled.state, queue.proof("<acme0>"))
    assert successes == gate.snapshot().counters.successes


def test_a_sender_that_breaks_leaves_the_message_to_a_person(store: Store, clock: FakeClock) -> None:
    def bug(delivery: Delivery) -> Report:
        raise ValueError("bug")

    queue = hub(store, clock)
    gate = queue.lane("acme", sender=bug, breaker=breaker(clock))
    fill(queue, 1)

    queue.tick()

    message = queue.get("<acme0>")
    assert (S.ERROR, True, State.CLOSED) == (message.state, message.maybe_delivered, gate.state)
    assert 0 == gate.snapshot().counters.permits.in_flight


def test_one_document_of_each_type_serves_as_trial_call(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner()
    queue.lane("acme", sender=partner, breaker=breaker(clock))
    for number in range(6):
        kind = "850" if number < 4 else "810"
        queue.enqueue("acme", b"x", message_id=f"<{kind}-{number}>", document_type=kind)
    trip(queue, partner)
    clock.advance(31)

    queue.tick()

    assert {"<850-0>", "<810-4>", "<850-1>"} == set(partner.trials)


def test_the_story_of_an_outage_is_told_once(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner()
    alerts: list[str] = []
    queue.subscribe(lambda alert: alerts.append(alert.kind))
    queue.subscribe(lambda alert: 1 / 0)
    queue.lane("acme", sender=partner, breaker=breaker(clock))
    fill(queue)
    trip(queue, partner)
    clock.advance(31)
    queue.tick()
    partner.script = [DELIVERED]
    clock.advance(31)
    queue.tick()
    queue.tick()
    queue.flush_alerts()

    assert ["opened", "reopened", "closed", "drained"] == alerts


def test_a_process_that_begins_in_an_outage_tells_its_end(open_store: Callable[..., Store], clock: FakeClock) -> None:
    first, partner = hub(open_store(), clock), Partner()
    first.lane("acme", sender=partner, breaker=breaker(clock))
    fill(first)
    trip(first, partner)
    second = hub(open_store(), clock)
    alerts: list[tuple[str, str]] = []
    second.subscribe(lambda alert: alerts.append((alert.kind, alert.detail)))
    clock.advance(31)

    second.lane("acme", sender=partner, breaker=breaker(clock))
    partner.script = [DELIVERED]
    second.tick()
    second.tick()
    second.flush_alerts()

    assert [("closed", "after 31 s; the drain begins"), ("drained", "the backlog is gone")] == alerts


def test_stats_call_messages_behind_an_open_breaker_delayed(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner()
    queue.lane("acme", sender=partner, breaker=breaker(clock))
    fill(queue)
    ready = queue.stats().messages
    trip(queue, partner)

    stats = queue.stats()

    assert (20, 0) == (ready["ready"], ready["delayed"])
    assert (0, 20) == (stats.messages["ready"], stats.messages["delayed"])
    assert ({"success": 0, "failure": 3, "ignored": 0}, 20, 0) == (stats.attempts, stats.enqueued, stats.completed)
    assert ["open"] == [lane.breaker for lane in queue.lanes()]


def test_the_time_to_drain_is_told_at_the_last_pace_without_pauses(store: Store, clock: FakeClock) -> None:
    class Slow(Partner):
        def __call__(self, delivery: Delivery) -> Report:
            clock.advance(2.0)
            return super().__call__(delivery)

    queue, partner = hub(store, clock), Slow()
    queue.lane("acme", sender=partner, breaker=breaker(clock), profile=PROFILE)
    fill(queue, 5)
    queue.tick()
    for number in range(10):
        queue.submit("acme", b"body", message_id=f"<late{number}>").result()
    trip(queue, partner)
    while_open = queue.lanes()[0].drain_seconds
    partner.script = [DELIVERED]
    clock.advance(3_600)
    queue.tick()
    for number in range(7):
        queue.submit("acme", b"more", message_id=f"<more{number}>").result()

    lane = queue.lanes()[0]

    assert (20.0, "closed") == (while_open, lane.breaker)
    assert 14.0 == lane.drain_seconds


def test_the_hubs_rate_holds_over_all_lanes(tmp_path: Path, clock: FakeClock) -> None:
    queue, partner = hub(SqliteStore(tmp_path / "q.db", clock=clock), clock, rate=10.0), Partner()
    for name in ("acme", "globex"):
        queue.lane(name, sender=partner, breaker=breaker(clock, name), profile=LaneProfile(limit=100))
        fill(queue, 40, lane=name)
    for _ in range(30):
        queue.tick(upkeep=False)
        clock.advance(0.1)
    queue.close()

    assert 28 <= len(partner.seen) <= 41
    assert abs(sum("acme" in one for one in partner.ids) - sum("globex" in one for one in partner.ids)) <= 12


@pytest.mark.parametrize(("blame", "failures"), [(False, 0), (True, 1)])
def test_an_overdue_receipt_is_the_breakers_business_only_if_the_profile_says_so(
    store: Store, clock: FakeClock, blame: bool, failures: int
) -> None:
    queue, partner = hub(store, clock), Partner([Report(Verdict.ACCEPTED)])
    profile = LaneProfile(receipt_failures=blame, receipt_deadline=60.0)
    gate = queue.lane("acme", sender=partner, breaker=breaker(clock), profile=profile)
    fill(queue, 1)
    queue.tick()
    clock.advance(61)

    queue.tick()

    assert (failures, S.AWAITING_RECEIPT, 2) == (
        gate.snapshot().counters.failures,
        queue.get("<acme0>").state,
        len(partner.seen),
    )


def test_the_timeout_of_a_trial_call_is_lowered(store: Store, clock: FakeClock) -> None:
    timeouts: list[tuple[bool, float]] = []

    def send(delivery: Delivery) -> Report:
        timeouts.append((delivery.trial, delivery.timeout))
        return UNAVAILABLE

    queue = hub(store, clock)
    gate = breaker(clock, half_open=HalfOpen(permitted_calls=1, trial_timeout=20.0))
    queue.lane("acme", sender=send, breaker=gate, profile=LaneProfile(timeout=60.0, trial_timeout=30.0))
    fill(queue)
    queue.tick()
    clock.advance(31)

    queue.tick()

    assert [(False, 60.0)] * 3 + [(True, 20.0)] == timeouts


def test_a_lane_whose_oldest_message_waits_too_long_is_announced_once(store: Store, clock: FakeClock) -> None:
    queue = hub(store, clock, too_old=600.0)
    alerts: list[tuple[str, str | None]] = []
    queue.subscribe(lambda alert: alerts.append((alert.kind, alert.lane)))
    fill(queue, 2)
    for _ in range(30):
        clock.advance(61)
        queue.tick()
    queue.flush_alerts()

    assert [("too_old", "acme")] == alerts


def test_a_message_whose_deadline_comes_near_is_announced_before(store: Store, clock: FakeClock) -> None:
    queue = hub(store, clock, expiring_within=600.0)
    alerts: list[tuple[str, str | None]] = []
    queue.subscribe(lambda alert: alerts.append((alert.kind, alert.message_id)))
    queue.enqueue("acme", b"x", message_id="m1", deadline=1000.0)
    for _ in range(20):
        clock.advance(61)
        queue.tick()
    queue.flush_alerts()

    assert [("expiring", "m1"), ("dead", "m1")] == alerts


def test_leaving_closed_sets_the_pace_back_to_one(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner()
    gate = queue.lane("acme", sender=partner, breaker=breaker(clock), profile=PROFILE)
    fill(queue)
    queue.tick()
    grown = store.look("acme")

    gate.trip()
    store.settled()

    look = store.look("acme")
    assert grown is not None and look is not None
    assert (PROFILE.limit, 1) == (grown.send_window, look.send_window)


def test_a_lane_whose_messages_are_not_due_asks_for_no_permit(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner([UNAVAILABLE])
    gate = queue.lane("acme", sender=partner, breaker=breaker(clock))
    fill(queue, 1)
    queue.tick()
    issued = gate.snapshot().counters.permits.issued
    clock.advance(60)

    queue.tick()

    assert (1, 1) == (issued, gate.snapshot().counters.permits.issued)


def test_in_half_open_no_more_permits_are_taken_than_messages_wait(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner()
    gate = queue.lane("acme", sender=partner, breaker=breaker(clock))
    fill(queue, 3)
    trip(queue, partner)
    queue.cancel("<acme1>")
    queue.cancel("<acme2>")
    partner.script = [DELIVERED]
    clock.advance(31)

    queue.tick()

    assert (State.HALF_OPEN, 0) == (gate.state, gate.snapshot().ignored_trials)


def test_a_sender_refused_by_a_policy_of_its_own_uses_up_no_attempt_and_does_not_spin(
    store: Store, clock: FakeClock
) -> None:
    calls: list[str] = []

    def send(delivery: Delivery) -> Report:
        calls.append(delivery.message_id)
        raise RateLimitedError("inner", 20.0)

    queue = hub(store, clock)
    gate = queue.lane("acme", sender=send, breaker=breaker(clock))
    fill(queue, 1)
    queue.tick()
    clock.advance(19)
    queue.tick()
    early = len(calls)
    clock.advance(2)

    queue.tick()

    message = queue.get("<acme0>")
    assert (1, 2, 0, S.WAITING) == (early, len(calls), message.attempts, message.state)
    assert 0 == gate.snapshot().failures


@pytest.mark.parametrize("order", ["one after the other", "interleaved"])
def test_the_trial_budget_belongs_to_all_processes_that_share_a_store(
    open_store: Callable[..., Store], clock: FakeClock, order: str
) -> None:
    partner = Partner()
    queues = [hub(open_store(), clock) for _ in range(3)]
    gates = [queue.lane("acme", sender=partner, breaker=breaker(clock)) for queue in queues]
    fill(queues[0])
    trip(queues[0], partner)
    queues[0].store.settled()
    for queue in queues:
        queue.tick()
    clock.advance(31)
    partner.script = [DELIVERED]
    if order == "interleaved":
        # All of them go half-open before any of them has claimed a message.
        for gate in gates:
            gate.acquire().ignore()
        for queue in queues:
            queue.store.settled()
    waiting = [queue._dispatcher.lanes["acme"].step(100).attempts for queue in queues]
    trials = sum(len(attempts) for attempts in waiting)

    for attempt in (attempt for attempts in waiting for attempt in attempts):
        attempt.run()
    for queue in queues * 2:
        queue.store.settled()
        queue.tick()
        queue.store.settled()

    assert 3 == trials
    assert [State.CLOSED] * 3 == [gate.state for gate in gates]
    assert {S.DONE: 20} == queues[0].store.books()
    assert 3 + 20 == len(partner.seen)
