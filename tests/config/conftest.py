from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from halfopen import ConfigError, Mistake
from halfopen.config import Configuration, load

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file; return its path."""

    def written(text: str | bytes, name: str = "halfopen.toml") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return written


@pytest.fixture
def read(write: Write) -> Callable[..., Configuration]:
    """Write a file and load it."""

    def loaded(text: str, name: str = "halfopen.toml", **how: object) -> Configuration:
        return load(write(text, name), **how)  # type: ignore[arg-type]

    return loaded


@pytest.fixture
def mistakes(write: Write) -> Callable[..., list[Mistake]]:
    """Write a file that is wrong; return its mistakes."""

    def found(text: str | bytes, name: str = "halfopen.toml", **how: object) -> list[Mistake]:
        with pytest.raises(ConfigError) as caught:
            load(write(text, name), **how)  # type: ignore[arg-type]
        return list(caught.value.mistakes)

    return found
