from __future__ import annotations

import sys
from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from halfopen._core.slots import Line, Slots, Ticket


def test_a_slot_goes_to_whoever_waited_longest() -> None:
    slots = Slots(1, 2)
    holder, first, second = Ticket(), Ticket(), Ticket()
    for ticket in (holder, first, second):
        assert slots.enter(ticket)

    slots.leave(holder)
    slots.leave(first)
    slots.leave(second)

    assert [first, second] == list(slots.called)
    assert 0 == slots.in_use


def test_nobody_enters_a_full_line() -> None:
    slots = Slots(1, 1)
    slots.enter(Ticket())
    slots.enter(Ticket())

    assert not slots.enter(Ticket())
    assert 1 == slots.line.waiting


def test_one_that_gives_up_in_line_costs_the_others_nothing() -> None:
    slots = Slots(1, 2)
    holder, first, second = Ticket(), Ticket(), Ticket()
    for ticket in (holder, first, second):
        slots.enter(ticket)

    slots.give_up(first)
    slots.give_up(first)
    assert 1 == slots.line.waiting
    slots.leave(holder)

    assert [second] == list(slots.called)


def test_one_that_gives_up_with_a_slot_hands_it_on() -> None:
    slots = Slots(1, 2)
    holder, first, second = Ticket(), Ticket(), Ticket()
    for ticket in (holder, first, second):
        slots.enter(ticket)
    slots.leave(holder)

    slots.give_up(first)
    slots.give_up(first)

    assert [first, second] == list(slots.called)
    assert (1, 0) == (slots.in_use, slots.line.waiting)


def test_a_slot_is_revoked_only_from_one_that_has_not_taken_it() -> None:
    slots = Slots(1, 2)
    holder, first, second = Ticket(), Ticket(), Ticket()
    for ticket in (holder, first, second):
        slots.enter(ticket)
    slots.leave(holder)

    slots.revoke(first)
    second.taken = True
    slots.revoke(second)

    assert [first, second] == list(slots.called)
    assert (1, True) == (slots.in_use, second.granted)


def test_a_higher_limit_lets_the_waiting_in_and_a_lower_one_throws_nobody_out() -> None:
    slots = Slots(1, 5)
    tickets = [Ticket() for _ in range(5)]
    for ticket in tickets:
        slots.enter(ticket)

    slots.resize(3, 5)
    assert tickets[1:3] == list(slots.called)
    slots.resize(1, 5)
    assert (3, 2) == (slots.in_use, slots.line.waiting)
    for ticket in tickets[:3]:
        slots.leave(ticket)

    assert tickets[1:4] == list(slots.called)
    assert 1 == slots.in_use


def test_the_line_does_not_grow_with_those_who_left_it() -> None:
    line = Line()
    line.join(Ticket())
    for _ in range(10_000):
        ticket = Ticket()
        line.join(ticket)
        line.leave(ticket)

    assert 1 == line.waiting
    assert 1000 > sys.getsizeof(line)


class Model:
    """The same in the plainest way: a list of runners and a deque of the waiting."""

    def __init__(self, limit: int, max_waiting: int) -> None:
        self.limit, self.max_waiting = limit, max_waiting
        self.running: set[int] = set()
        self.waiting: deque[int] = deque()

    def enter(self, who: int) -> bool:
        if len(self.running) < self.limit:
            self.running.add(who)
        elif len(self.waiting) < self.max_waiting:
            self.waiting.append(who)
        else:
            return False
        return True

    def go(self, who: int) -> None:
        if who in self.waiting:
            self.waiting.remove(who)
        self.running.discard(who)
        self.fill()

    def fill(self) -> None:
        while self.waiting and len(self.running) < self.limit:
            self.running.add(self.waiting.popleft())


@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 4),
    st.integers(0, 5),
    st.lists(st.one_of(st.just(("enter", 0, 0)), st.tuples(st.just("go"), st.integers(0, 30), st.just(0)),
                       st.tuples(st.just("resize"), st.integers(1, 4), st.integers(0, 5))), max_size=80),
)  # fmt: skip
def test_slots_behave_as_a_list_and_a_queue_do(limit: int, max_waiting: int, steps: list[tuple[str, int, int]]) -> None:
    slots, model = Slots(limit, max_waiting), Model(limit, max_waiting)
    tickets: dict[int, Ticket] = {}

    for number, (step, a, b) in enumerate(steps):
        if step == "enter":
            ticket = Ticket()
            entered = slots.enter(ticket)
            assert model.enter(number) == entered
            if entered:
                tickets[number] = ticket
        elif step == "resize":
            model.limit, model.max_waiting = a, b
            model.fill()
            slots.resize(a, b)
        elif tickets:
            who = sorted(tickets)[a % len(tickets)]
            slots.give_up(tickets.pop(who))
            model.go(who)

        assert len(model.running) == slots.in_use
        assert len(model.waiting) == slots.line.waiting
        assert model.running == {who for who, ticket in tickets.items() if ticket.granted}
        assert slots.in_use >= slots.limit or not slots.line.waiting
