"""Processes of the demo: started with a pipe to their standard input, so that they end when their parent does."""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from halfopen.cli.demo.errors import BadInput, Broken
from halfopen.cli.demo.wire import Endpoint, fetch

__all__ = ["Child", "PartnerProcess"]

_PACKAGES = str(Path(__file__).parents[3])


class Child:
    """
    One ``python -m`` process that speaks JSON lines on its standard output.

    Args:
        module: What to run.
        arguments: Its command line.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        path = os.pathsep.join(filter(None, [_PACKAGES, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Return whether it is gone."""
        return self._process.poll() is not None

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield what it says until it ends."""
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            for line in self._process.stdout:
                yield json.loads(line)

    def first(self) -> dict[str, Any]:
        """
        Return the first thing it says.

        Raises:
            Broken: It ended without a word.
        """
        for line in self.lines():
            return line
        raise Broken(f"a process of the demo ended at once, with code {self._process.wait()}")

    def begin(self) -> None:
        """Tell it that the story begins."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write("start\n")
            self._process.stdin.flush()

    def stop(self) -> None:
        """End it, now."""
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


class PartnerProcess:
    """The partner of one variant of the story."""

    def __init__(self, speed: float, *, port: int = 0, lose: bool = False, odd: bool = False) -> None:
        asked = [*(["--lose"] if lose else []), *(["--odd"] if odd else [])]
        arguments = ["--speed", repr(speed), "--port", str(port), *asked]
        self._child = Child("halfopen.cli.demo.partner", *arguments)
        try:
            self.endpoint = Endpoint("http", "127.0.0.1", _port(self._child.first(), port))
        except BaseException:
            self._child.stop()
            raise
        self.begin = self._child.begin
        self.stop = self._child.stop
        self.pid = self._child.pid

    def books(self, *, brief: bool = False) -> dict[str, Any]:
        """
        Return the partner's books.

        Raises:
            Broken: The process has gone.
        """
        try:
            page: dict[str, Any] = fetch(self.endpoint, "/books?brief" if brief else "/books", 20.0)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Broken(f"the partner's process does not answer ({error}); run the demo again") from None
        return page


def _port(hello: dict[str, Any], wanted: int) -> int:
    if "port" in hello:
        return int(hello["port"])
    if hello["errno"] == errno.EADDRINUSE:
        raise BadInput(f"port {wanted} on 127.0.0.1 is taken; choose another with --port, or leave it out")
    raise BadInput(f"cannot listen on 127.0.0.1:{wanted}: {hello['error'].lower()}; choose another --port")
