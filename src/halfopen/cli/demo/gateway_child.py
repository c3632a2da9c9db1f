"""
The gateway of the demo in a process of its own (``python -m halfopen.cli.demo.gateway_child halfopen.toml``).

It is what `halfopen gateway` runs, and perhaps a console beside it; but it ends with standard input, so that a demo
that is killed leaves none behind.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from pathlib import Path


def main() -> None:
    """Serve until standard input ends; the first line says where, or why not."""
    from halfopen.cli.demo.console import ConsoleWish, serve_console
    from halfopen.errors import ConfigError, HalfOpenError
    from halfopen.gateway import gateway_from_file, run

    # The terminal belongs to the story; what the gateway logs lies beside its file.
    logging.basicConfig(filename=sys.argv[1] + ".log", level=logging.WARNING)
    threading.Thread(target=_end_with_input, daemon=True).start()
    folder = Path(sys.argv[1]).parent
    wish = ConsoleWish.read(folder)
    try:
        gateway = gateway_from_file(sys.argv[1])
        run(gateway, ready=lambda url: _say(url=url, **({} if wish is None else serve_console(gateway, folder, wish))))
    except (ConfigError, HalfOpenError) as error:
        _say(error=" ".join(str(error).split()))
        raise SystemExit(2) from None


def _say(**words: str) -> None:
    print(json.dumps(words), flush=True)


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
