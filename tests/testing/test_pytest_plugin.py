"""The plug-in for pytest, in a pytest of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], pytest.RunResult]:
    """Run one test file with the plug-in alone, in a process of its own."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(source: str) -> pytest.RunResult:
        pytester.makepyfile(source)
        return pytester.runpytest_subprocess("-p", "halfopen.pytest_plugin", "-p", "no:cacheprovider", "-q")

    return run


def test_the_fixtures_work_together(run: Callable[[str], pytest.RunResult]) -> None:
    result = run(
        """
        from halfopen import CircuitOpenError, State
        import pytest

        def test_half_open(make_breaker, fake_clock, halfopen_events):
            breaker = make_breaker("bank", state=State.OPEN, wait_in_open=30.0)
            with pytest.raises(CircuitOpenError):
                breaker.call(int)

            fake_clock.advance(30.0)
            assert 0 == breaker.call(int)

            assert State.HALF_OPEN is breaker.state
            assert ["CircuitTransitioned", "CallRejected", "CircuitTransitioned", "CallSucceeded"] == (
                halfopen_events.kinds
            )
            assert {"bank"} == {event.name for event in halfopen_events}

        def test_each_test_has_its_own(make_breaker, fake_clock, halfopen_events):
            assert 0.0 == fake_clock.monotonic()
            assert [] == halfopen_events
            breaker = make_breaker()
            assert ("test", State.CLOSED) == (breaker.name, breaker.state)

        @pytest.mark.parametrize("state", [state for state in State if state is not State.RECOVERING])
        def test_every_state(make_breaker, state):
            assert state is make_breaker(state=state).state

        def test_several_breakers_share_clock_and_events(make_breaker, halfopen_events):
            one, other = make_breaker("one"), make_breaker("other")
            one.trip()
            other.trip()
            assert ["one", "other"] == [event.name for event in halfopen_events]
            assert one._clock is other._clock
        """
    )

    result.assert_outcomes(passed=9)


def test_the_plug_in_is_announced() -> None:
    from importlib.metadata import entry_points

    assert "halfopen.pytest_plugin" in {point.value for point in entry_points(group="pytest11")}


def test_the_fixtures_are_documented(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    result = pytester.runpytest_subprocess("-p", "halfopen.pytest_plugin", "--fixtures", "-q")

    result.stdout.fnmatch_lines_random(["fake_clock*", "make_breaker*", "halfopen_events*", "halfopen_bus*"])
    assert "no docstring available" not in "".join(
        line for line in result.outlines if "halfopen" in line or "fake_clock" in line
    )
