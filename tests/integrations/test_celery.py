"""Celery tasks that meet a refusal, with a real worker and a real broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

import halfopen
from halfopen import CircuitOpenError
from tests.integrations.fault_server import until
from tests.integrations.redis_server import private_redis

pytestmark = pytest.mark.redis

TASKS = """
import os
import time

import redis
from celery import Celery

from halfopen import CircuitBreaker, RateLimitedError
from halfopen.integrations.celery import ReschedulingTask

path = os.environ["REDIS_SOCKET"]
app = Celery("tasks", broker=f"redis+socket://{path}", backend=f"redis+socket://{path}", task_cls=ReschedulingTask)
app.conf.broker_connection_retry_on_startup = True
app.conf.worker_hijack_root_logger = False
app.conf.result_extended = True
breaker = CircuitBreaker("partner", consecutive_failures=1, wait_in_open=float(os.environ.get("WAIT", 1.0)))
notes = redis.Redis(unix_socket_path=path, decode_responses=True)


def note(task, word):
    notes.rpush(f"notes:{task.request.id}", f"{word} {task.request.retries} {time.time()}")


def send(task):
    with breaker.acquire():
        note(task, "sent")
        if notes.get("sick"):
            raise ConnectionError("down")
    return "accepted"


@app.task(bind=True, max_retries=0)
def plain(self):
    note(self, "run")
    return send(self)


@app.task(bind=True, max_retries=3, default_retry_delay=0.1)
def by_hand(self):
    note(self, "run")
    try:
        return send(self)
    except Exception as error:
        raise self.retry(exc=error)


@app.task(bind=True, autoretry_for=(Exception,), max_retries=3, default_retry_delay=0.1)
def by_itself(self):
    note(self, "run")
    return send(self)


@app.task(bind=True, max_retries=0, refused_countdown=0.5)
def forced(self):
    note(self, "run")
    if notes.get("forced"):
        breaker.force_open()
        notes.delete("forced")
    else:
        breaker.reset()
    return send(self)


@app.task(bind=True, max_retries=0)
def fail(self):
    note(self, "run")
    raise ValueError("a mistake of the task")
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with private_redis() as path:
        yield path


@pytest.fixture
def notes(broker: str) -> Iterator[Any]:
    with redis.Redis(unix_socket_path=broker, decode_responses=True) as client:
        client.flushall()
        yield client


@pytest.fixture
def tasks(broker: str, notes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "sent_tasks.py").write_text(TASKS)
    monkeypatch.setenv("REDIS_SOCKET", broker)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("sent_tasks", None)
    import sent_tasks  # type: ignore[import-not-found]  # written above

    yield sent_tasks
    sent_tasks.notes.close()
    sent_tasks.app.close()


@contextmanager
def working(folder: Path, **settings: str) -> Iterator[None]:
    """Run a worker of its own process for the length of a block."""
    command = [sys.executable, "-m", "celery", "-A", "sent_tasks", "worker", "--pool", "solo", "--without-mingle"]
    with subprocess.Popen(
        [*command, "--without-gossip", "--without-heartbeat", "--loglevel", "CRITICAL"],
        cwd=folder,
        env={
            **os.environ,
            **settings,
            "PYTHONPATH": os.pathsep.join([str(folder), str(Path(halfopen.__file__).parents[1])]),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as worker:
        try:
            yield
        finally:
            worker.send_signal(signal.SIGTERM)
            try:
                worker.wait(60)
            except subprocess.TimeoutExpired:
                worker.kill()


def story(notes: Any, result: Any) -> list[tuple[str, int, float]]:
    """Return what a task noted: the word, its count of retries, and when."""
    told = (line.split() for line in notes.lrange(f"notes:{result.id}", 0, -1))
    return [(word, int(retries), float(at)) for word, retries, at in told]


def test_a_refused_task_is_put_back_to_the_trial_time_without_using_up_a_retry(
    tasks: Any, notes: Any, tmp_path: Path
) -> None:
    notes.set("sick", "1")
    with working(tmp_path, WAIT="4"):
        first = tasks.plain.delay()
        assert isinstance(first.get(timeout=60, propagate=False), ConnectionError)
        notes.delete("sick")

        second = tasks.plain.delay()

        assert "accepted" == second.get(timeout=60)

    opened = story(notes, first)[-1][2]
    told = story(notes, second)
    assert ["run", "run", "sent"] == [word for word, _, _ in told]
    assert {0} == {retries for _, retries, _ in told}
    assert 3.8 < told[1][2] - opened < 60  # the wait is 4 s, give or take its place in the worker's timer


@pytest.mark.parametrize("name", ["by_hand", "by_itself"])
def test_retries_are_used_up_by_failures_and_not_by_refusals(tasks: Any, notes: Any, tmp_path: Path, name: str) -> None:
    notes.set("sick", "1")
    with working(tmp_path, WAIT="3"):
        result = getattr(tasks, name).delay()
        assert until(lambda: len([each for each in story(notes, result) if each[0] == "run"]) >= 2)
        notes.delete("sick")

        assert "accepted" == result.get(timeout=60)

    told = story(notes, result)
    sent = [retries for word, retries, _ in told if word == "sent"]
    assert list(range(len(sent))) == sent  # each attempt that was made counts one, and nothing else does
    assert len([word for word, _, _ in told if word == "run"]) > len(sent)


def test_where_nobody_knows_how_long_the_task_says_it(tasks: Any, notes: Any, tmp_path: Path) -> None:
    notes.set("forced", "1")
    with working(tmp_path):
        result = tasks.forced.delay()

        assert "accepted" == result.get(timeout=60)

    told = story(notes, result)
    assert ["run", "run", "sent"] == [word for word, _, _ in told]
    assert 0.4 < told[1][2] - told[0][2] < 60


def test_other_errors_fail_as_ever(tasks: Any, notes: Any, tmp_path: Path) -> None:
    with working(tmp_path):
        result = tasks.fail.delay()

        with pytest.raises(ValueError, match="a mistake of the task"):
            result.get(timeout=60)

    assert 1 == len(story(notes, result))


def test_called_directly_or_eagerly_the_refusal_reaches_the_caller(tasks: Any) -> None:
    tasks.breaker.force_open()

    with pytest.raises(CircuitOpenError):
        tasks.plain()
    with pytest.raises(CircuitOpenError):
        tasks.plain.apply(throw=True)
