"""Several worker processes, one endpoint."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from halfopen import ConfigError, Registry
from halfopen.instrumentation.prometheus import render
from halfopen.instrumentation.workers import Workers, merged, published
from tests.instrumentation.prometheus_server import needs_prometheus, running

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no file locks here")
ROOT = Path(__file__).parents[2]


def worker(directory: Path, calls: int = 0, **settings: float) -> Workers:
    registry = Registry()
    workers = Workers(registry, directory, **settings)  # type: ignore[arg-type]
    breaker = registry.circuit_breaker("bank")
    for _ in range(calls):
        breaker.call(str)
    return workers


def calls_by_worker(text: str) -> dict[str, int]:
    pattern = r'call_duration_seconds_count\{worker="(\d+)",name="bank",outcome="success"\} (\d+)'
    return {number: int(count) for number, count in re.findall(pattern, text)}


def test_the_merged_output_holds_every_workers_series_and_adds_nothing_up(tmp_path: Path) -> None:
    workers = [worker(tmp_path, calls) for calls in (1, 2, 3)]

    for one in workers:
        one.publish()

    assert {"0": 1, "1": 2, "2": 3} == calls_by_worker(render(lambda: merged(tmp_path)))
    text = render(lambda: merged(tmp_path))
    assert 1 == text.count("# TYPE halfopen_circuit_breaker_state gauge")
    assert 3 == len(re.findall(r'circuit_breaker_state\{worker="\d",name="bank",state="closed"\} 1', text))


def test_both_formats_of_the_merged_output_can_be_parsed(tmp_path: Path) -> None:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse

    for one in [worker(tmp_path), worker(tmp_path)]:
        one.publish()

    families = {family.name: family for family in parse(render(lambda: merged(tmp_path), openmetrics=True))}

    assert {"0", "1"} == {s.labels["worker"] for s in families["halfopen_circuit_breaker_transitions"].samples}


def test_a_worker_that_stops_leaves_and_its_slot_is_free(tmp_path: Path) -> None:
    first, second = worker(tmp_path, 5), worker(tmp_path, 7)
    first.publish()
    second.publish()

    first.stop()
    third = worker(tmp_path, 1)
    third.publish()

    assert 0 == third.worker
    assert {"0": 1, "1": 7} == calls_by_worker(render(lambda: merged(tmp_path)))


def test_a_snapshot_older_than_3_intervals_is_gone(tmp_path: Path) -> None:
    one = worker(tmp_path, 1, interval=2.0)
    one.publish()
    at = published(tmp_path)[0].at

    alive, gone = published(tmp_path, now=at + 5.9), published(tmp_path, now=at + 6.1)

    assert [False] == [each.gone for each in alive]
    assert [True] == [each.gone for each in gone]
    assert {} == calls_by_worker(render(lambda: merged(tmp_path, now=at + 6.1)))
    assert os.getpid() == gone[0].pid


def test_a_snapshot_from_the_future_is_gone_too_once_the_wall_clock_was_set_back(tmp_path: Path) -> None:
    one = worker(tmp_path, 1, interval=2.0)
    one.publish()
    at = published(tmp_path)[0].at

    soon, stepped = published(tmp_path, now=at - 5.9), published(tmp_path, now=at - 3600)

    assert [False] == [each.gone for each in soon]
    assert [True] == [each.gone for each in stepped]


def test_the_same_snapshots_feed_a_console(tmp_path: Path) -> None:
    one = worker(tmp_path)
    one.publish()

    breakers = published(tmp_path)[0].breakers

    assert [("bank", "closed")] == [(breaker["name"], breaker["state"]) for breaker in breakers]


def test_a_damaged_file_does_not_stop_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    worker(tmp_path, 4).publish()
    (tmp_path / "worker-7.json").write_text("{", encoding="utf-8")
    (tmp_path / "worker-8.json").write_text(json.dumps({"format": 99}), encoding="utf-8")

    counted = calls_by_worker(render(lambda: merged(tmp_path)))

    assert {"0": 4} == counted
    assert "worker-7.json" in caplog.text


def test_threads_may_publish_at_the_same_time(tmp_path: Path) -> None:
    one = worker(tmp_path, 1)
    failed: list[BaseException] = []

    def publish() -> None:
        try:
            for _ in range(30):
                one.scrape()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == failed
    assert ["worker-0.json"] == [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")]


def test_a_slot_may_be_given(tmp_path: Path) -> None:
    one = worker(tmp_path, 2, worker=12)

    one.publish()

    assert {"12": 2} == calls_by_worker(render(lambda: merged(tmp_path)))
    with pytest.raises(ConfigError, match="interval"):
        worker(tmp_path, interval=0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_a_worker_of_its_own(tmp_path: Path) -> None:
    parent = worker(tmp_path, 3)
    parent.publish()

    child = os.fork()
    if child == 0:
        parent.metrics.registry.circuit_breaker("bank").call(str)
        parent.publish()
        os._exit(parent.worker)
    _, status = os.waitpid(child, 0)

    assert 1 == os.waitstatus_to_exitcode(status)
    assert {"0": 3, "1": 1} == calls_by_worker(render(lambda: merged(tmp_path)))


class Shop:
    def __init__(self, port: int) -> None:
        self.port = port
        self.made = 0

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as response:
            text: str = response.read().decode()
            return text

    def pay(self) -> list[str]:
        """Make a guarded call; return the worker that made it, and its pid."""
        answer = self.get("/pay").split()
        self.made += 1
        return answer

    def wait_for_calls(self, lost: int = 0, seconds: float = 60.0) -> dict[str, int]:
        """Return the calls by worker, once all are there but those that went with a killed one."""
        end = time.monotonic() + seconds
        while sum((counts := calls_by_worker(self.get("/metrics"))).values()) != self.made - lost:
            assert time.monotonic() < end, f"{self.made} calls, {lost} lost: {counts}"
            time.sleep(0.05)
        return counts

    def wait_for_workers(self, wanted: set[str], seconds: float = 60.0) -> dict[str, str]:
        """Ask until every worker has answered, and no other one is in the metrics; return pids by worker."""
        pids: dict[str, str] = {}
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with suppress(OSError):  # the worker that was asked was killed
                number, pid = self.pay()
                pids[number] = pid
                if set(pids) == wanted and set(calls_by_worker(self.get("/metrics"))) == wanted:
                    return pids
        raise TimeoutError(f"{wanted} wanted, {sorted(pids)} seen, {calls_by_worker(self.get('/metrics'))}")


@contextmanager
def gunicorn(directory: Path, *options: str) -> Iterator[Shop]:
    bound = directory / "bound"
    (directory / "conf.py").write_text(
        "def when_ready(server):\n"
        f"    open({str(bound)!r}, 'w').write(str(server.LISTENERS[0].sock.getsockname()[1]))\n"
    )
    command = [
        sys.executable, "-m", "gunicorn", "-w", "4", "-b", "127.0.0.1:0", "-c", str(directory / "conf.py"),
        "--no-control-socket", "--worker-tmp-dir", str(directory), *options, "tests.instrumentation.shop:app",
    ]  # fmt: skip
    environment = {**os.environ, "SHOP_RUN": str(directory / "run"), "SHOP_INTERVAL": "0.3"}
    log = (directory / "log").open("w+")
    server = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        end = time.monotonic() + 120
        while not bound.exists() or not bound.read_text():
            assert server.poll() is None and time.monotonic() < end, (directory / "log").read_text()
            time.sleep(0.05)
        yield Shop(int(bound.read_text()))
    finally:
        server.terminate()
        server.wait(60)
        log.close()


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--preload",)], ids=["own application each", "preloaded, then forked"])
def test_gunicorn_with_4_workers_serves_all_of_them_from_any(tmp_path: Path, options: tuple[str, ...]) -> None:
    four = {"0", "1", "2", "3"}
    with gunicorn(tmp_path, *options) as shop:
        before = shop.wait_for_workers(four)
        for _ in range(40):
            shop.pay()
        counted = shop.wait_for_calls()

        victim = before["2"]
        os.kill(int(victim), signal.SIGKILL)
        after = shop.wait_for_workers(four)
        lost = counted["2"]
        recounted = shop.wait_for_calls(lost)
        text = shop.get("/metrics")

    assert 4 == len(set(before.values()))
    assert victim not in after.values()
    assert set(before.values()) - {victim} == set(after.values()) - {after["2"]}
    # Every call is counted by the worker that made it, and by no other: none goes back, and none comes twice.
    assert shop.made - lost == sum(recounted.values())
    assert all(recounted[number] >= counted[number] for number in four - {"2"})
    series = [line.rsplit(" ", 1)[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))


@needs_prometheus
@pytest.mark.slow
def test_prometheus_scrapes_the_merged_endpoint_of_gunicorn(tmp_path: Path) -> None:
    with gunicorn(tmp_path) as shop:
        shop.wait_for_workers({"0", "1", "2", "3"})
        with running(tmp_path, [f"127.0.0.1:{shop.port}"]) as server:
            found = server.wait_for('count(halfopen_circuit_breaker_state{name="bank",state="closed"} == 1) == 4')

    assert found


@pytest.mark.filterwarnings("ignore")
def test_prometheus_client_drops_collectors_where_processes_share_files(tmp_path: Path) -> None:
    """The reason for the warning: if this fails, prometheus_client has learned it, and the warning can go."""
    program = (
        "from halfopen import Registry\n"
        "from halfopen.instrumentation.prometheus import Collector\n"
        "from prometheus_client import CollectorRegistry, generate_latest, multiprocess\n"
        "import prometheus_client\n"
        "prometheus_client.REGISTRY.register(Collector(Registry()))\n"
        "registry = CollectorRegistry()\n"
        "multiprocess.MultiProcessCollector(registry)\n"
        "print(generate_latest(registry).decode().count('halfopen'))\n"
    )

    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert "0" == ran.stdout.strip()
    assert "merged endpoint" in ran.stderr


def test_a_thread_publishes_at_every_interval(tmp_path: Path) -> None:
    one = worker(tmp_path, interval=0.02)
    one.start()
    first = published(tmp_path)[0].at

    end = time.monotonic() + 60
    while published(tmp_path)[0].at == first and time.monotonic() < end:
        time.sleep(0.01)
    later = published(tmp_path)[0].at
    one.stop()

    assert later > first
    assert [] == published(tmp_path)
