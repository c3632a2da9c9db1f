"""The partner of the demo falls ill, comes back cold, and is knocked over or warmed by what its callers do."""

from __future__ import annotations

from halfopen.cli.demo.health import Condition, Health, Visit
from halfopen.cli.demo.story import Story

STORY = Story()
COLD_AT = STORY.back_at + 1


def cold() -> Health:
    """Return a partner that has just come back."""
    health = Health(STORY)
    for _ in range(STORY.telling):
        health.arrive(STORY.ill_at + 1)
    assert Condition.COLD == health.look(STORY.back_at)
    return health


def enter(health: Health, now: float) -> Visit:
    visit = health.arrive(now)
    assert visit is not None
    return visit


def test_the_partner_is_well_until_the_script_says_otherwise() -> None:
    health = Health(STORY)

    visit = enter(health, STORY.ill_at - 0.1)

    assert STORY.normal == visit.work
    assert health.leave(visit, STORY.ill_at - 0.1)
    assert 0 == health.sick_hits


def test_an_ill_partner_refuses_and_counts_who_hits_it() -> None:
    health = Health(STORY)

    answers = [health.arrive(STORY.ill_at + second) for second in range(3)]

    assert [None, None, None] == answers
    assert 3 == health.sick_hits
    assert STORY.ill_at == health.ill_since


def test_a_request_inside_when_the_partner_falls_ill_is_lost_to_503() -> None:
    health = Health(STORY)
    visit = enter(health, STORY.ill_at - 0.1)

    health.look(STORY.ill_at)

    assert not health.leave(visit, STORY.ill_at + 0.4)


def test_the_partner_does_not_come_back_before_anybody_can_know_that_it_was_gone() -> None:
    health = Health(STORY)

    assert Condition.DOWN == health.look(STORY.back_at)
    for _ in range(STORY.telling):
        health.arrive(STORY.back_at + 1)

    assert Condition.DOWN == health.look(STORY.back_at + STORY.noticed)
    assert Condition.COLD == health.look(STORY.back_at + STORY.noticed + 1)


def test_who_was_inside_when_the_partner_fell_knows_of_it_as_well() -> None:
    health = Health(STORY)
    inside = [enter(health, STORY.ill_at - 0.1) for _ in range(2)]

    health.look(STORY.ill_at)
    for visit in inside:
        health.leave(visit, STORY.ill_at + 0.4)
    for _ in range(STORY.telling - len(inside)):
        health.arrive(STORY.ill_at + 1)

    assert Condition.COLD == health.look(STORY.back_at)


def test_a_cold_partner_is_slow() -> None:
    visit = enter(cold(), COLD_AT)

    assert STORY.slow == visit.work


def test_one_request_too_many_knocks_the_cold_partner_over_with_all_inside() -> None:
    health = cold()
    inside = [enter(health, COLD_AT) for _ in range(STORY.capacity)]

    one_too_many = health.arrive(COLD_AT)

    assert one_too_many is None
    assert 1 == health.falls
    assert [False] * STORY.capacity == [health.leave(visit, COLD_AT + 3) for visit in inside]
    assert Condition.DOWN == health.look(COLD_AT + STORY.relapse - 0.1)
    assert Condition.COLD == health.look(COLD_AT + STORY.relapse)


def test_three_answers_in_peace_make_room_for_every_sender() -> None:
    health = cold()
    for visit in [enter(health, COLD_AT) for _ in range(STORY.trials)]:
        health.leave(visit, COLD_AT + STORY.slow)

    for _ in range(STORY.senders):
        enter(health, COLD_AT + STORY.slow)

    assert 0 == health.falls


def test_the_cold_partner_is_well_after_enough_answers() -> None:
    health = cold()

    for number in range(STORY.warm_after):
        assert Condition.COLD == health.look(COLD_AT + number)
        health.leave(enter(health, COLD_AT + number), COLD_AT + number)

    assert Condition.WELL == health.condition
    assert COLD_AT + STORY.warm_after - 1 == health.well_since
    assert not health.rescued


def test_the_operators_end_every_outage() -> None:
    health = Health(STORY)
    health.look(STORY.ill_at)

    condition = health.look(STORY.rescued_at)

    assert Condition.WELL == condition
    assert health.rescued
