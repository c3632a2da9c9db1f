"""The console of the demo: in the gateway's process, on a port of its own, in the same place after a `kill -9`."""

from __future__ import annotations

import json
import secrets
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halfopen.gateway import Gateway

__all__ = ["ConsoleWish", "serve_console"]

_FILE = "console.json"
_PATIENCE = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleWish:
    """
    Where the console should listen, and whose orders it obeys.

    Attributes:
        port: On 127.0.0.1; 0: any that is free.
        token: The secret of who may give orders; others may look.
        speed: How many times as fast as told the story goes; the page shows seconds of the clock.
    """

    port: int = 0
    token: str = ""
    speed: float = 1.0

    @classmethod
    def new(cls, speed: float = 1.0) -> ConsoleWish:
        """Return one with a fresh token."""
        return cls(token=secrets.token_urlsafe(16), speed=speed)

    @classmethod
    def read(cls, folder: Path) -> ConsoleWish | None:
        """Return the wish that was left in *folder*."""
        file = folder / _FILE
        return cls(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None

    def write(self, folder: Path) -> None:
        """Leave it for the gateway's process: other users see command lines, but not into *folder*."""
        (folder / _FILE).write_text(json.dumps(asdict(self)), encoding="utf-8")

    def at(self, url: str) -> ConsoleWish:
        """Return the same for a console that listens at *url* already."""
        return replace(self, port=int(url.rstrip("/").rpartition(":")[2]))


def serve_console(gateway: Gateway, folder: Path, wish: ConsoleWish) -> dict[str, str]:
    """
    Serve a console of *gateway*, which runs already, in a thread.

    Returns:
        ``console``: its URL, or ``no_console``: why there is none. The demo goes on without.
    """
    try:
        return {"console": _serve(gateway, folder, wish)}
    except ModuleNotFoundError as missing:
        return {"no_console": f"it needs {missing.name}; run: pip install 'halfopen[cli,gateway,console]'"}
    except Exception as error:
        return {"no_console": " ".join(str(error).split())}


def _serve(gateway: Gateway, folder: Path, wish: ConsoleWish) -> str:
    from halfopen.console import Identity, app
    from halfopen.console._server import ConsoleServer, listen

    console = app(
        gateway.registry,
        queues=() if gateway.queue is None else (gateway.queue,),
        process="gateway",
        audit=folder / "audit.jsonl",
        title="halfopen demo",
        environment="DEMO" if wish.speed == 1 else f"DEMO at ×{wish.speed:g} speed",
        tokens={wish.token: Identity("visitor", "operator")},
    )
    listening, listens = listen("127.0.0.1", wish.port), threading.Event()
    server = ConsoleServer(console, ready=listens.set)
    options = {"sockets": [listening]}
    threading.Thread(target=server.run, kwargs=options, name="demo-console", daemon=True).start()
    if not listens.wait(_PATIENCE):
        raise TimeoutError(f"it did not start within {_PATIENCE:g} s")
    return f"http://127.0.0.1:{listening.getsockname()[1]}/"
