"""Which of the processes of one server tells a move: whoever comes first."""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["Claims"]


class Claims:
    """
    Claims on things to tell, as files in a shared directory.

    Args:
        directory: The directory; made if it is missing.
        seconds: How long a claim of another process holds.
    """

    def __init__(self, directory: str | os.PathLike[str], seconds: float) -> None:
        self._directory = Path(directory)
        self._seconds = seconds

    def take(self, what: str) -> bool:
        """Claim *what*; return False if another process has claimed it a short while ago."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            path = self._directory / f"told-{hashlib.sha256(what.encode('utf-8', 'replace')).hexdigest()[:32]}"
            return self._create(path) or self._renew(path)
        except OSError:
            return True  # told twice is better than not at all

    def _create(self, path: Path) -> bool:
        try:
            with path.open("x", encoding="ascii") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            return False
        return True

    def _renew(self, path: Path) -> bool:
        with suppress(OSError):
            mine = path.read_text(encoding="ascii") == str(os.getpid())
            if not mine and time.time() - path.stat().st_mtime < self._seconds:
                return False
            fresh = path.with_suffix(f".{os.getpid()}")
            fresh.write_text(str(os.getpid()), encoding="ascii")
            fresh.replace(path)
        return True
