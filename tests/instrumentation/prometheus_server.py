"""A real Prometheus for a test, on free ports and a temporary directory."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Prometheus", "needs_prometheus", "running"]

needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not here")


class Prometheus:
    """Asks one server."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def get(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self._url}{path}?{query}", timeout=60) as response:
            return json.load(response)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an expression now."""
        found: list[dict[str, Any]] = self.get("/api/v1/query", query=expression)["result"]
        return found

    def wait_for(self, expression: str, seconds: float = 60.0) -> list[dict[str, Any]]:
        """Return the series once there are any."""
        end = time.monotonic() + seconds
        while not (found := self.query(expression)):
            assert time.monotonic() < end, f"{expression} returned nothing: {self.get('/api/v1/targets')}"
            time.sleep(0.1)
        return found


@contextmanager
def running(
    directory: Path, targets: list[str], *, path: str = "/metrics", rules: str | None = None
) -> Iterator[Prometheus]:
    """Run a server that scrapes *targets* and evaluates *rules* every 300 ms."""
    listed = ", ".join(f"'{target}'" for target in targets)
    (directory / "prometheus.yml").write_text(
        "global: {scrape_interval: 300ms, evaluation_interval: 300ms}\n"
        f"rule_files: [{'' if rules is None else 'rules.yml'}]\n"
        f"scrape_configs: [{{job_name: shop, metrics_path: {path}, static_configs: [{{targets: [{listed}]}}]}}]\n"
    )
    if rules is not None:
        (directory / "rules.yml").write_text(rules, encoding="utf-8")
    server, port = _started(directory)
    try:
        yield Prometheus(port)
    finally:
        server.terminate()
        server.wait(60)


def _started(directory: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start a server; on another port if somebody else took the free one meanwhile."""
    for attempt in range(5):
        port = _free_port()
        command = [
            "prometheus",
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / f'data-{attempt}'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=error",
        ]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if _is_ready(server, port):
            return server, port
        server.kill()
        server.wait(60)
    raise AssertionError("prometheus does not start")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _is_ready(server: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until it is ready, or has ended."""
    end = time.monotonic() + 120
    while time.monotonic() < end and server.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=10).close()
        except OSError:
            time.sleep(0.05)
        else:
            return server.poll() is None
    return False
