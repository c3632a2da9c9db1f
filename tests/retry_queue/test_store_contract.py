"""What every engine must do; the same tests on SQLite and on a PostgreSQL of our own."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from halfopen.retry_queue import (
    CommandRefusedError,
    ConfirmationRequiredError,
    DuplicateMessageError,
    LaneProfile,
    MessageState,
    Report,
    Selection,
    Store,
    Stream,
    UnknownMessageError,
    Verdict,
)
from halfopen.retry_queue._pacing import next_window
from halfopen.retry_queue._requests import ClaimRequest, Pace
from halfopen.retry_queue._trials import next_messages
from halfopen.testing import FakeClock
from tests.retry_queue.support import change, claim, new, put, states

S = MessageState


def profile(_: str) -> LaneProfile:
    return LaneProfile()


def ids(messages: list) -> list[str]:  # type: ignore[type-arg]  # rows
    return [message.id for message in messages]


def test_an_enqueued_message_is_there_for_another_connection(open_store: Callable[..., Store]) -> None:
    put(open_store(), "m1")

    found = open_store().find("m1")

    assert ("acme", S.WAITING, 0, 3) == (found.lane, found.state, found.attempts, found.size)


def test_the_same_bytes_under_the_same_id_are_accepted_once(store: Store) -> None:
    first = store.enqueue(new("m1")).result()

    again = store.enqueue(new("m1")).result()

    assert (first.seq, False, True) == (again.seq, first.duplicate, again.duplicate)
    assert 1 == store.count(Selection())


def test_a_duplicate_says_where_its_message_stands(store: Store) -> None:
    first = store.enqueue(new("m1")).result()
    store.command("m1", "cancel")

    again = store.enqueue(new("m1")).result()

    assert (S.WAITING, S.CANCELLED) == (first.state, again.state)


@pytest.mark.parametrize("other", [{"body": b"other"}, {"lane": "globex"}])
def test_an_id_belongs_to_one_message(store: Store, other: dict[str, str]) -> None:
    put(store, "m1")

    with pytest.raises(DuplicateMessageError, match="m1"):
        store.enqueue(new("m1", **other)).result()


def test_a_refused_operation_spoils_nothing_in_its_batch(store: Store) -> None:
    put(store, "m0")

    tickets = [store.enqueue(new(f"m{number}", body=b"%d" % number)) for number in range(50)]
    errors = [ticket for ticket in tickets[1:] if ticket.result() is None]

    with pytest.raises(DuplicateMessageError):
        tickets[0].result()
    assert [] == errors
    assert 50 == store.count(Selection())


def test_an_operation_that_breaks_the_transaction_does_not_take_others_along(store: Store) -> None:
    def broken(transaction: object) -> None:
        transaction.execute("INSERT INTO nowhere VALUES (1)")  # type: ignore[attr-defined]  # a Transaction

    before = store.enqueue(new("m1"))
    bad = store.submit(broken)
    after = store.enqueue(new("m2"))

    assert (before.result().message_id, after.result().message_id) == ("m1", "m2")
    with pytest.raises(Exception, match="nowhere"):
        bad.result()


def test_messages_are_claimed_oldest_first_and_once(store: Store) -> None:
    put(store, *(f"m{number}" for number in range(5)))

    first, second = claim(store, limit=3), claim(store, limit=3)

    assert (["m0", "m1", "m2"], ["m3", "m4"]) == (ids(first), ids(second))
    assert (S.SENDING, 1) == (store.find("m0").state, store.find("m0").attempts)


def test_claims_keep_to_the_send_window_over_all_processes(open_store: Callable[..., Store]) -> None:
    one, other = open_store(), open_store()
    put(one, *(f"m{number}" for number in range(9)))

    claimed = [len(claim(one, cap=5, limit=4)), len(claim(other, cap=5, limit=4)), len(claim(one, cap=5))]

    assert [4, 1, 0] == claimed


def test_the_lanes_own_window_counts_where_no_cap_is_given(store: Store) -> None:
    put(store, *(f"m{number}" for number in range(9)))

    claimed = claim(store, cap=None)

    assert ["m0"] == ids(claimed)


def test_messages_that_are_not_due_are_left_unless_the_breaker_rules(store: Store, clock: FakeClock) -> None:
    put(store, "m1", "m2")
    for message in claim(store):
        store.finish(message, "token", change(S.WAITING, due=clock.wall() + 300, outcome="failure")).result()

    claimed = (len(claim(store)), len(claim(store, any_due=True, limit=1)), len(claim(store, trial=True)))

    assert (0, 1, 1) == claimed


def test_a_message_past_its_deadline_is_not_claimed(store: Store, clock: FakeClock) -> None:
    put(store, "m1", deadline=clock.wall() + 10)
    clock.advance(11)

    assert [] == claim(store)


@pytest.mark.parametrize("until", [None, 60.0])
def test_a_held_lane_is_not_claimed_from(store: Store, clock: FakeClock, until: float | None) -> None:
    put(store, "m1")
    store.hold("acme", "operator", None if until is None else clock.wall() + until, "", None).result()
    held = claim(store)
    clock.advance(61)

    later = claim(store)
    store.release("acme", "", None).result()

    assert ([], 0 if until is None else 1) == (held, len(later))
    assert 1 == len(later) + len(claim(store))


def test_a_stream_has_one_message_in_flight_and_its_head_blocks(store: Store, clock: FakeClock) -> None:
    put(store, "a1", "a2", stream="a")
    put(store, "b1", stream="b")
    put(store, "free")

    first = claim(store)
    store.finish(first[0], "token", change(S.WAITING, due=clock.wall() + 300, outcome="failure")).result()
    while_head_waits = claim(store)
    clock.advance(301)
    head = claim(store)
    store.finish(head[0], "token", change()).result()

    assert (["a1", "b1", "free"], [], ["a1"]) == (ids(first), ids(while_head_waits), ids(head))
    assert ["a2"] == ids(claim(store))


@pytest.mark.parametrize(
    ("stream", "state", "passes"),
    [
        (Stream("a"), S.ERROR, False),
        (Stream("a"), S.DEAD, False),
        (Stream("a"), S.CANCELLED, True),
        (Stream("a", on_dead="skip"), S.ERROR, True),
        (Stream("a", on_dead="skip"), S.DEAD, True),
        (Stream("a", on_dead="skip"), S.AWAITING_RECEIPT, False),
        (Stream("a", receipt_passes=True), S.AWAITING_RECEIPT, True),
    ],
)
def test_what_lets_the_next_of_a_stream_go(store: Store, stream: Stream, state: MessageState, passes: bool) -> None:
    put(store, "a1", "a2", stream=stream)
    store.finish(claim(store)[0], "token", change(state)).result()

    assert passes is (["a2"] == ids(claim(store)))


def test_a_result_with_an_old_token_goes_to_history_only(store: Store) -> None:
    put(store, "m1")
    message = claim(store)[0]

    finished = store.finish(message, "another", change(S.ERROR, outcome="ignored")).result()

    assert (False, S.SENDING) == (finished.valid, store.find("m1").state)
    assert ["late result"] == [entry.what for entry in store.history(message.seq)]


def test_a_positive_receipt_is_taken_even_with_an_old_token(store: Store, clock: FakeClock) -> None:
    put(store, "m1")
    message = claim(store, lease=10)[0]
    clock.advance(11)
    store.reap(profile, frozenset())

    finished = store.finish(message, "token", change(S.DONE, receipt=b"mdn")).result()

    assert (True, S.DONE, b"mdn") == (finished.valid, store.find("m1").state, store.payload(message.seq)[4])


def test_a_lease_that_ran_out_is_reaped_but_not_from_those_still_at_it(store: Store, clock: FakeClock) -> None:
    put(store, "m1", "m2")
    mine, other = claim(store, lease=10)
    clock.advance(11)

    reaped = store.reap(profile, frozenset({mine.seq}))

    assert ["m2"] == [message.id for message, _ in reaped]
    assert {"m1": "sending", "m2": "unknown_delivery"} == states(store)
    assert other.seq == reaped[0][0].seq
    assert store.find("m2").maybe_delivered


def test_a_lease_that_is_not_over_is_left_alone(store: Store, clock: FakeClock) -> None:
    put(store, "m1")
    claim(store, lease=10, token=f"{store.lease_prefix()}:1")
    clock.step_wall(86_400 if store.name == "sqlite" else 0)

    assert [] == store.reap(profile, frozenset())


def test_a_renewed_lease_is_not_reaped(store: Store, clock: FakeClock) -> None:
    put(store, "m1")
    token = f"{store.lease_prefix()}:1"
    message = claim(store, lease=10, token=token)[0]
    clock.advance(9)
    store.renew([(message.seq, token, 10.0), (message.seq, "another", 0.0)]).result()
    clock.advance(9)

    assert [] == store.reap(profile, frozenset())
    clock.advance(2)
    assert 1 == len(store.reap(profile, frozenset()))


def test_a_passed_deadline_makes_a_dead_letter_but_a_send_in_flight_ends_first(store: Store, clock: FakeClock) -> None:
    put(store, "m1", "m2", deadline=clock.wall() + 10)
    claim(store, limit=1)
    clock.advance(11)

    expired = store.expire()

    assert ["m2"] == [message.id for message, _ in expired]
    assert {"m1": "sending", "m2": "dead"} == states(store)
    assert b"abc" == store.payload(store.find("m2").seq)[1]


def test_an_overdue_receipt_leads_to_resends_under_the_same_id(store: Store, clock: FakeClock) -> None:
    put(store, "m1")
    seen = []
    for _ in range(3):
        store.finish(claim(store)[0], "token", change(S.AWAITING_RECEIPT, due=clock.wall() + 60)).result()
        clock.advance(61)
        store.overdue(profile)
        seen.append(store.find("m1").state)

    assert [S.UNKNOWN_DELIVERY, S.UNKNOWN_DELIVERY, S.DEAD] == seen


def test_a_receipt_that_comes_before_our_own_answer_is_kept_for_it(store: Store) -> None:
    put(store, "m1", "m2")
    first, second = claim(store)
    store.receipt("m1", Report(Verdict.REFUSED, "decryption-failed", receipt=b"no")).result()
    store.receipt("m2", Report(Verdict.DELIVERED, "processed", receipt=b"yes")).result()

    for message in (first, second):
        store.finish(message, "token", change(S.AWAITING_RECEIPT, due=9e9)).result()

    assert {"m1": "error", "m2": "done"} == states(store)


def test_the_first_valid_receipt_wins_and_a_second_changes_nothing(store: Store) -> None:
    put(store, "m1")
    store.finish(claim(store)[0], "token", change(S.AWAITING_RECEIPT, due=9e9)).result()

    store.receipt("m1", Report(Verdict.DELIVERED, receipt=b"first")).result()
    again = store.receipt("m1", Report(Verdict.REFUSED, receipt=b"second")).result()

    assert (None, S.DONE) == (again, store.find("m1").state)
    assert b"first" == store.payload(store.find("m1").seq)[4]


def test_failed_messages_become_due_at_once_when_the_breaker_closes(store: Store, clock: FakeClock) -> None:
    put(store, "failed", "poison")
    outcomes = {"failed": "failure", "poison": "ignored"}
    for message in claim(store):
        result = change(S.WAITING, due=clock.wall() + 300, outcome=outcomes[message.id])
        store.finish(message, "token", result).result()

    store.make_due("acme").result()

    assert ["failed"] == ids(claim(store))


def test_due_times_no_schedule_sets_are_pulled_in(store: Store, clock: FakeClock) -> None:
    put(store, "m1")
    clock.step_wall(-86_400)

    store.clamp_due(3600.0)
    clock.advance(3601)

    assert ["m1"] == ids(claim(store))


def test_the_breakers_verdict_is_kept_and_leaving_closed_restarts_the_pace(store: Store) -> None:
    put(store, "m1", "m2")
    message = claim(store, limit=1)[0]
    store.finish(message, "token", change(), Pace("success", 8)).result()
    before = store.look("acme")

    store.save_breaker("acme", "{}", restart_pace=True).result()
    after = store.look("acme")

    assert before is not None and after is not None
    assert (2, None, 1, "{}") == (before.send_window, before.breaker, after.send_window, after.breaker)


def test_the_window_in_the_store_follows_the_pure_rule(store: Store) -> None:
    rng = random.Random(7)
    put(store, "m0")
    window, expected, stored = 1, [], []
    for _ in range(60):
        outcome = rng.choice(["success", "success", "success", "failure", "ignored"])
        slow = rng.random() < 0.1
        window = next_window(window, 6, outcome, slow=slow)  # type: ignore[arg-type]  # an Outcome
        expected.append(window)
        message = claim(store)[0]
        result = change(S.WAITING, outcome=outcome)
        store.finish(message, "token", result, Pace(outcome, 6, slow)).result()  # type: ignore[arg-type]  # as above
        look = store.look("acme")
        stored.append(0 if look is None else look.send_window)

    assert expected == stored


def test_the_claim_agrees_with_the_pure_rule_on_random_lanes(store: Store, clock: FakeClock) -> None:
    rng = random.Random(11)
    for lane in (f"lane{number}" for number in range(12)):
        for number in range(rng.randrange(12)):
            stream = rng.choice([None, "a", Stream("b", on_dead="skip"), Stream("c", receipt_passes=True)])
            deadline = clock.wall() + 50 if rng.random() < 0.1 else None
            put(store, f"{lane}-{number}", lane=lane, stream=stream, deadline=deadline)
        for message in claim(store, lane=lane, limit=rng.randrange(1, 8), any_due=True):
            result = rng.choice([S.DONE, S.ERROR, S.DEAD, S.AWAITING_RECEIPT, S.WAITING, S.UNKNOWN_DELIVERY, None])
            if result is not None:
                due = clock.wall() + rng.choice([0, 300])
                store.finish(message, "token", change(result, due=due)).result()
    clock.advance(60)

    for lane in store.lanes():
        rows = store.select(Selection(lane=lane), limit=1000)
        expected = [message.id for message in next_messages(rows, clock.wall(), 5)]

        assert len(expected) == store.ready(lane, 5, any_due=False)
        assert expected == ids(claim(store, lane=lane, limit=5))


def test_look_tells_what_a_lane_has_to_do(store: Store, clock: FakeClock) -> None:
    put(store, "m1", "m2")
    claim(store, limit=1)

    look = store.look("acme")

    assert look is not None
    assert (clock.wall(), False, 1) == (look.next_due, look.held, look.in_flight)
    assert store.look("nobody") is None


def test_commands_are_carried_out_and_remembered(store: Store) -> None:
    put(store, "m1")
    store.finish(claim(store)[0], "token", change(S.DEAD, tries=10)).result()

    store.command("m1", "retry", reason="fixed", who="ann")

    message = store.find("m1")
    assert (S.WAITING, 0, 1) == (message.state, message.tries, message.attempts)
    last = store.history(message.seq)[-1]
    assert ("retry", "fixed", "ann") == (last.what, last.detail, last.who)


def test_a_command_that_makes_no_sense_is_refused_and_changes_nothing(store: Store) -> None:
    put(store, "m1")
    claim(store)

    with pytest.raises(CommandRefusedError, match="sending"):
        store.command("m1", "cancel")
    with pytest.raises(UnknownMessageError, match="nobody"):
        store.command("nobody", "retry")
    assert S.SENDING is store.find("m1").state


def test_a_deadline_can_be_moved_while_a_message_is_on_its_way(store: Store, clock: FakeClock) -> None:
    put(store, "m1", deadline=clock.wall() + 10)
    store.move_deadline("m1", clock.wall() + 100, "ann")
    clock.advance(11)

    assert [] == store.expire()
    assert ["m1"] == ids(claim(store))


def test_resubmitting_makes_a_new_message_that_points_back(store: Store) -> None:
    put(store, "m1")
    store.finish(claim(store)[0], "token", change(S.ERROR, maybe_delivered=True)).result()
    again = new("m2", resubmit_of="m1")

    with pytest.raises(ConfirmationRequiredError):
        store.resubmit(again, confirmed=False, who=None, reason="")
    store.resubmit(again, confirmed=True, who="ann", reason="agreed by phone")

    assert {"m1": "error", "m2": "waiting"} == states(store)
    assert "m1" == store.find("m2").resubmit_of


def test_messages_are_found_by_lane_state_age_and_reason(store: Store, clock: FakeClock) -> None:
    put(store, "m1", "m2", kind="850")
    put(store, "m3", lane="globex")
    store.finish(claim(store, limit=1)[0], "token", change(S.ERROR, detail="HTTP 401")).result()
    clock.advance(100)
    put(store, "m4")

    def found(**criteria: object) -> list[str]:
        return ids(store.select(Selection(**criteria)))  # type: ignore[arg-type]  # by name

    assert ["m1", "m2", "m4"] == found(lane="acme")
    assert ["m1"] == found(states=frozenset({S.ERROR}))
    assert ["m1"] == found(reason="http 401")
    assert ["m1", "m2"] == found(kind="850")
    assert ["m1", "m2", "m3"] == found(created_before=clock.wall() - 50)
    assert ["m3", "m4"] == ids(store.select(Selection(), after=store.find("m2").seq))


def test_the_books_and_the_counts_agree(store: Store) -> None:
    put(store, *(f"m{number}" for number in range(6)))
    put(store, "other", lane="globex")
    results = [S.DONE, S.ERROR, S.DEAD, S.AWAITING_RECEIPT]
    for message, state in zip(claim(store, limit=5), [*results, None], strict=True):
        if state is not None:
            store.finish(message, "token", change(state)).result()

    counts = store.counts()

    assert {S.DONE: 1, S.ERROR: 1, S.DEAD: 1, S.AWAITING_RECEIPT: 1, S.SENDING: 1, S.WAITING: 2} == store.books()
    expected = {S.ERROR: 1, S.DEAD: 1, S.AWAITING_RECEIPT: 1, S.SENDING: 1, S.WAITING: 1}
    assert (expected, {S.WAITING: 1}) == (counts["acme"].states, counts["globex"].states)
    assert (1, ["acme", "globex"]) == (counts["acme"].due, store.lanes_with_work())
    assert store.find("m3").created == store.oldest_live()


def test_finished_messages_lose_first_their_bytes_then_their_rows(store: Store, clock: FakeClock) -> None:
    put(store, "done", "dead", "waiting")
    done, dead = claim(store, limit=2)
    store.finish(done, "token", change(receipt=b"proof")).result()
    store.finish(dead, "token", change(S.DEAD)).result()
    clock.advance(100)

    store.prune(clock.wall(), 0.0)
    without_bytes = store.payload(done.seq)
    pruned = store.prune(clock.wall(), clock.wall())

    assert (None, b"proof", 1) == (without_bytes[1], without_bytes[4], pruned)
    assert {"dead": "dead", "waiting": "waiting"} == states(store)


def test_large_bodies_are_stored_apart_and_read_back_in_pieces(store: Store) -> None:
    parts = [bytes([number]) * 700_000 for number in range(5)]

    body = store.bodies.write(iter(parts), 10_000_000)
    assert body.name is not None
    with store.bodies.open(body.name) as stream:
        read = stream.read(100) + stream.read()

    assert (b"".join(parts), 3_500_000) == (read, body.size)


def test_bodies_without_a_row_are_swept_after_a_while(store: Store) -> None:
    kept, orphan = (store.bodies.write(iter([b"x" * 100]), 1000) for _ in range(2))
    put(store, "m1", file=kept.name)

    swept = [store.sweep_bodies(older_than=3600.0), store.sweep_bodies(older_than=-60.0)]

    assert [0, 1] == swept
    assert kept.name is not None and orphan.name is not None
    with store.bodies.open(kept.name) as stream:
        assert b"x" * 100 == stream.read()


def test_many_threads_and_two_connections_claim_every_message_once(open_store: Callable[..., Store]) -> None:
    stores = [open_store(), open_store()]
    put(stores[0], *(f"m{number}" for number in range(120)))
    claimed: list[str] = []

    def work(store: Store, number: int) -> None:
        misses = 0
        while misses < 20:
            request = ClaimRequest(lane="acme", limit=3, token=f"t{number}", lease=90.0, cap=1000)
            messages = store.claim(request)
            misses = 0 if messages else misses + 1
            claimed.extend(message.id for message in messages or ())

    threads = [threading.Thread(target=work, args=(stores[number % 2], number)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (120, 120) == (len(claimed), len(set(claimed)))


def test_other_processes_are_told_of_arrivals_and_orders(open_store: Callable[..., Store]) -> None:
    here, there = open_store(poll=0.02), open_store()
    put(there, "old")
    told, ready = threading.Event(), threading.Event()
    lanes: set[str] = set()
    stopped = threading.Event()

    def changed(news: set[str] | None) -> None:
        ready.set()
        if news is not None:
            lanes.update(news)
        if "globex" in lanes and "acme" in lanes:
            told.set()

    def stop(seconds: float) -> bool:
        if seconds:  # before it waits for the first time it has seen what there is
            ready.set()
        return stopped.wait(seconds)

    watcher = threading.Thread(target=here.watch, args=(changed, stop))
    watcher.start()
    assert ready.wait(60)
    put(there, "new", lane="globex")
    there.command("old", "retry")

    assert told.wait(60)
    stopped.set()
    watcher.join(60)
    assert not watcher.is_alive()
